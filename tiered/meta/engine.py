"""One transaction on a thread, with a deadline: how everything in this project talks to SQL.

Owns the calls, their retries, and what an SQL error means to a caller; `connections` makes what they run on. Must never
hold a statement about the metadata store: those are functions `f(conn, ...)` in the modules beside this one.

What is done, and why (measured; see docs/adr/0005):
- SQLite: one connection, `BEGIN IMMEDIATE`, WAL with `synchronous=FULL`. Weaker settings lost
transactions at a power cut, and several writers meet a bug in SQLite before 3.51.3.
- PostgreSQL: READ COMMITTED. Every change of the control plane first locks the feed's row
(`meta.cluster`), so that changes are serial and no statement reads what another one is changing.
- A call past its deadline loses its connection: a cancelled wait can look like a commit. What is then
known about the outcome decides the error: `MetadataUnavailable` (nothing was changed) or its subclass
`MetadataOutcomeUnknown` (the COMMIT was on its way).
"""

import asyncio
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, InterfaceError, InternalError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from tiered import account
from tiered.errors import MetadataOutcomeUnknown, MetadataUnavailable, MetadataWentBack, Throttled
from tiered.meta import connections
from tiered.meta.call import Call, DeadlinePassed
from tiered.meta.cluster import SEEN
from tiered.meta.history import History
from tiered.meta.listener import Listener, PostgresListener, SilentListener
from tiered.metrics import CallTimes
from tiered.runtime import BlockingPool, SystemClock, crash_point, jittered_backoff_ms

log = logging.getLogger(__name__)
T = TypeVar("T")

DEFAULT_DEADLINE_MS = 10_000
MAX_WAITING_CALLS = 1_000
POSTGRES_CALLS_OF_OWNER = connections.MAX_POSTGRES_CONNECTIONS // 2
"""How many calls of one owner PostgreSQL works on at the same time. On SQLite it is one: a call waits for one call of
any other owner at the most."""
MAX_WAITING_AHEAD = 4
MAX_WAITING_LISTS = 200
LISTS_WAIT_S = 0.1
"""So long a part of a list lets everything else go first: what never ends must not keep it out for good."""
MAX_TRIES = 6
FIRST_BACKOFF_MS = 5.0
MAX_BACKOFF_MS = 200.0
MAX_CAUSE_CHARS = 300
REFUSED_LOGINS = ("password authentication failed", "no password supplied")
"""What PostgreSQL and its library say: an error while connecting has no SQLSTATE."""

SERIALIZATION_FAILURE = "40001"
DEADLOCK_DETECTED = "40P01"
INSUFFICIENT_PRIVILEGE = "42501"


class OneTurn:
    """SQLite's one connection: one call at a time, whichever thread brings it. Parts of lists let others go first."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._quiet = threading.Condition()
        self._others = 0
        """Calls that wait or run, and are no parts of lists."""

    @contextmanager
    def taken(self, *, is_list: bool) -> Iterator[None]:
        if is_list:
            with self._quiet:
                self._quiet.wait_for(lambda: not self._others, timeout=LISTS_WAIT_S)
            with self._turn:
                yield
            return
        with self._quiet:
            self._others += 1
        try:
            with self._turn:
                yield
        finally:
            with self._quiet:
                self._others -= 1
                if not self._others:
                    self._quiet.notify_all()


class _ManyTurns:
    """PostgreSQL: each call has a connection to itself."""

    @contextmanager
    def taken(self, *, is_list: bool) -> Iterator[None]:
        del is_list
        yield


class Database:
    """The metadata store. `open` connects to nothing yet; the first call does.

    Every call of `run`, `read` and `run_sync` is one transaction. Its function may be run again after a
    serialization failure, a deadlock or a connection that broke before COMMIT, so it must be repeatable:
    it may change nothing but the database.
    """

    def __init__(self, engine: Engine, *, deadline_ms: int) -> None:
        self._engine = engine
        self._deadline_ms = deadline_ms
        self._is_sqlite = engine.dialect.name == "sqlite"
        self._turns = OneTurn() if self._is_sqlite else _ManyTurns()
        threads = 1 if self._is_sqlite else connections.MAX_POSTGRES_CONNECTIONS
        self._pool = BlockingPool("meta", threads=threads, max_waiting=MAX_WAITING_CALLS)
        self._of_owners = account.OwnersTurns(1 if self._is_sqlite else POSTGRES_CALLS_OF_OWNER)
        self._shares = account.OwnersShares()
        """Calls of owners, those that wait for their turn too."""
        self._ahead = BlockingPool("meta-ahead", threads=1, max_waiting=MAX_WAITING_AHEAD)
        self._lists = BlockingPool("meta-lists", threads=1, max_waiting=MAX_WAITING_LISTS)
        self._listeners: list[Listener] = []
        self._live: set[Call[Any]] = set()
        self._clock = SystemClock()
        self._closing = threading.Event()
        self.history: History | None = None
        """What this process has seen of the metadata store: a broker's, given before its first call."""
        self.times = CallTimes()
        """Of `run` and `read`, the wait for a thread included: what a caller feels. What the database took is charged
        to whom it was for."""

    @classmethod
    def open(cls, url: str, *, deadline_ms: int = DEFAULT_DEADLINE_MS) -> "Database":
        """A `Database` for `sqlite:///path` (`sqlite:////path` where it is absolute) or `postgresql://user@host/db`.

        On PostgreSQL what libpq knows from its environment (`PGPASSWORD`, a password file, `PGSSLMODE`)
        counts, and its parameters can stand in the URL's query. Raises `InvalidConfig` for any other URL;
        the message never holds a password.
        """
        return cls(connections.engine_for(url, deadline_ms=deadline_ms), deadline_ms=deadline_ms)

    @property
    def name(self) -> str:
        """The URL without its password: for messages and logs."""
        return self._engine.url.render_as_string(hide_password=True)

    @property
    def dialect(self) -> str:
        """`sqlite` or `postgresql`."""
        return self._engine.dialect.name

    @property
    def slowest_connect_ms(self) -> int:
        """So long a thread can hang in making a connection: the database may be back, and a call not know it yet."""
        return 0 if self._is_sqlite else 1_000 * connections.connect_timeout_s(self._deadline_ms)

    async def run(self, fn: Callable[[Connection], T], *, deadline_ms: int | None = None, ahead: bool = False) -> T:
        """The result of `fn(conn)`, after its transaction was committed; rolled back when it raises.

        Raises `MetadataUnavailable` when the database did not do it within `deadline_ms` (counted from
        now, waiting for a thread included) or cannot be reached: nothing was changed. Raises its subclass
        `MetadataOutcomeUnknown` when the answer to COMMIT is missing: settle it by repeating a
        conditional update, never by a read. `Throttled` when too many calls wait. A waiter that is
        cancelled leaves the call going on, within the same deadline.

        `ahead` gives it a thread and a connection that other calls do not have: for heartbeats, which must not
        wait behind what waits for a lock.
        """
        return await self._timed("transaction", Call(fn), deadline_ms, self._ahead if ahead else self._pool)

    async def read(self, fn: Callable[[Connection], T], *, deadline_ms: int | None = None) -> T:
        """As `run`, and every statement of `fn` sees the database as it was at one moment. `fn` must not write."""
        return await self._timed("snapshot", Call(fn, snapshot=True), deadline_ms, self._pool)

    async def read_part(self, fn: Callable[[Connection], T], *, deadline_ms: int | None = None) -> T:
        """As `read`, of a part of a list that people or tools look at. One is read at a time, and everything else goes
        first: a commit waits for one part at the most, however many lists are wanted. So a part must be short."""
        return await self._timed("list", Call(fn, snapshot=True, is_list=True), deadline_ms, self._lists)

    def run_sync(self, fn: Callable[[Connection], T], *, deadline_ms: int | None = None) -> T:
        """As `run`, on the calling thread, which it blocks: for start-up and commands, not for the loop."""
        call = Call(fn)
        timer = threading.Timer((deadline_ms or self._deadline_ms) / 1000.0, call.expire)
        timer.daemon = True
        timer.start()
        try:
            return self._execute(call)
        finally:
            timer.cancel()

    def listen(self, on_change: Callable[[], None]) -> Listener:
        """Calls `on_change` from a thread of its own soon after any process has committed a change.

        Some calls may be missing, and some may be for nothing: it only saves waiting for the next poll. SQLite
        never calls. Close it, or the database, to end it.
        """
        if self._is_sqlite:
            return SilentListener()
        listener = PostgresListener(
            lambda: connections.connect_to_listen(self._engine, deadline_ms=self._deadline_ms),
            on_change,
            name=self.name,
        )
        self._listeners.append(listener)
        return listener

    def migrate(self) -> None:
        """Brings the tables to this code's revision; at once when they are. Blocks: a step of start-up.

        Raises `InvalidConfig` when a newer version of this code has already changed the database.
        Two processes may do it at the same time.
        """
        from tiered.meta import migrations

        if self.run_sync(migrations.is_behind):
            log.info("migrating %s to revision %s", self.name, migrations.REVISIONS[-1])
            self.run_sync(migrations.upgrade, deadline_ms=migrations.DEADLINE_MS)

    async def close(self) -> None:
        """Lets running calls end, cuts those that are past the deadline, and closes every connection."""
        await asyncio.to_thread(self.close_sync)

    def close_sync(self) -> None:
        """As `close`, blocking."""
        self._closing.set()
        for listener in self._listeners:
            listener.close()
        timer = threading.Timer(self._deadline_ms / 1000.0, self._expire_all)
        timer.daemon = True
        timer.start()
        self._pool.close()
        self._ahead.close()
        self._lists.close()
        timer.cancel()
        with self._turns.taken(is_list=False):
            self._engine.dispose()

    async def _timed(self, operation: str, call: Call[T], deadline_ms: int | None, pool: BlockingPool) -> T:
        loop, payer = asyncio.get_running_loop(), account.current()
        started_s, failed = loop.time(), False
        try:
            return await self._run(call, deadline_ms, pool)
        except MetadataUnavailable:
            failed = True
            raise
        finally:
            self.times.observe(operation, (loop.time() - started_s) * 1000.0, failed=failed)
            if payer is not None and payer.charge is not None:
                payer.charge(call.worked_ms)

    async def _run(self, call: Call[T], deadline_ms: int | None, pool: BlockingPool) -> T:
        seconds = (deadline_ms or self._deadline_ms) / 1000.0
        deadline = asyncio.timeout(seconds)
        try:
            async with deadline:
                owner = account.current_owner() if pool is self._pool else None
                if owner is None:
                    return await pool.run(self._execute, call)
                with self._shares.taken(MAX_WAITING_CALLS) as has_room:
                    if not has_room:
                        raise Throttled("too many calls of yours wait for the metadata store; try again later")
                    return await self._of_owners.to_its_end(owner, lambda: pool.begun(self._execute, call))
        except TimeoutError:
            if deadline.expired():
                raise self._too_late(call) from None
            raise
        except asyncio.CancelledError:
            asyncio.get_running_loop().call_later(seconds, call.expire)
            raise
        finally:
            del deadline  # It has the task, whose cancellation has this frame: the whole request would stay.

    def _too_late(self, call: Call[Any]) -> MetadataUnavailable:
        return self._unavailable("the call passed its deadline", outcome_unknown=call.expire())

    def _expire_all(self) -> None:
        for call in tuple(self._live):
            call.expire()

    def _execute(self, call: Call[T]) -> T:
        """Runs on a thread: tries the call's transaction until it is committed, or the error is final."""
        self._live.add(call)
        attempt = 0
        try:
            while True:
                try:
                    with self._turns.taken(is_list=call.is_list):
                        return self._attempt(call)
                except DBAPIError as error:
                    if not self._may_repeat(error, call, attempt):
                        raise self._verdict(error, call) from error
                self._closing.wait(jittered_backoff_ms(attempt, **_BACKOFF) / 1000.0)
                attempt += 1
        except DeadlinePassed:
            raise self._too_late(call) from None
        except PoolTimeout:
            raise self._unavailable("no connection became free") from None
        finally:
            self._live.discard(call)

    def _attempt(self, call: Call[T]) -> T:
        call.begin()
        started_ms = self._clock.monotonic_ms()
        try:
            return self._in_transaction(call)
        finally:
            call.worked_ms += self._clock.monotonic_ms() - started_ms

    def _in_transaction(self, call: Call[T]) -> T:
        with self._engine.connect() as conn:
            self._enter(conn)
            if call.snapshot and not self._is_sqlite:  # SQLite's transactions always are snapshots
                conn.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
            call.attach(connections.cutter(conn))
            try:
                conn.info.pop(SEEN, None)  # Of a call that was rolled back.
                with conn.begin():
                    value = call.fn(conn)
                    call.begin_commit()
                    crash_point("meta.before_commit")
                crash_point("meta.after_commit")
                if self.history is not None and (seen := conn.info.get(SEEN)) is not None:
                    self.history.saw(connections.server_of(conn), seen)
                return value
            except MetadataWentBack as error:
                if self.history is not None:  # It was another broker that has found out.
                    self.history.refuse(str(error))
                raise
            finally:
                call.detach()

    def _enter(self, conn: Connection) -> None:
        """The server of this connection has what was seen before. Raises MetadataWentBack."""
        history = self.history
        if history is None or history.has_entered(server := connections.server_of(conn)):
            return
        with conn.begin():
            look = history.look(conn, server)
        history.take(look)

    def _may_repeat(self, error: DBAPIError, call: Call[Any], attempt: int) -> bool:
        if call.expired or attempt + 1 >= MAX_TRIES or self._closing.is_set():
            return False
        if _sqlstate(error) in {SERIALIZATION_FAILURE, DEADLOCK_DETECTED}:
            return True
        # A pooled connection whose server has gone: once more on a new one, if COMMIT was not sent.
        return error.connection_invalidated and not call.committing and attempt == 0

    def _verdict(self, error: DBAPIError, call: Call[Any]) -> Exception:
        """The error that a caller gets; the driver's own where it shows a bug of ours."""
        if call.expired:
            return self._too_late(call)
        is_away = isinstance(error, OperationalError | InterfaceError | InternalError) or error.connection_invalidated
        if is_away or _is_not_in_order(error):
            definite = _sqlstate(error) in {SERIALIZATION_FAILURE, DEADLOCK_DETECTED}
            return self._unavailable(_text_of(error), outcome_unknown=call.committing and not definite)
        return error

    def _unavailable(self, cause: str, *, outcome_unknown: bool = False) -> MetadataUnavailable:
        if outcome_unknown:
            return MetadataOutcomeUnknown(
                f"the metadata database {self.name} did not confirm a commit ({cause}); it may or may not have "
                "happened: repeat the conditional update to settle it"
            )
        if any(words in cause for words in REFUSED_LOGINS):
            return MetadataUnavailable(
                f"the metadata database {self.name} refuses the login ({cause}); nothing was changed. Correct the "
                "password where it stands: in PGPASSWORD, which wins, in the file that passfile= names (mode 600, "
                "or it is not read), or in the URL"
            )
        return MetadataUnavailable(
            f"the metadata database {self.name} is not available ({cause}); nothing was changed, try again later"
        )


_BACKOFF: dict[str, float] = {"first_ms": FIRST_BACKOFF_MS, "max_ms": MAX_BACKOFF_MS}


def _sqlstate(error: DBAPIError) -> str | None:
    state = getattr(error.orig, "sqlstate", None)
    return state if isinstance(state, str) else None


def _is_not_in_order(error: DBAPIError) -> bool:
    """True where the database answers and only its owner can help: rights are missing, or SQLite's file is damaged."""
    if _sqlstate(error) == INSUFFICIENT_PRIVILEGE:
        return True
    code = getattr(error.orig, "sqlite_errorcode", None)
    return isinstance(code, int) and code & 0xFF in {sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT}


def _text_of(error: DBAPIError) -> str:
    """The driver's message on one line: no statement, no parameters, no password."""
    return " ".join(str(error.orig).split())[:MAX_CAUSE_CHARS]
