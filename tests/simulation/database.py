"""The catalogue's database server, and every process's connection to it, in virtual time.

The statements are the real ones, on one SQLite file in memory: a transaction runs whole at one moment. Owns what
can go wrong between a broker and its database: it cannot be reached, is slow, the answer to COMMIT is lost, or
COMMIT takes effect long after the caller gave up, and until then its lock holds every other change up (rule 7).
Readers see the state before it meanwhile. Must never let a call that failed as `MetadataUnavailable` change anything.
"""

import asyncio
import shutil
import sqlite3
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.pool import StaticPool

from tests.simulation.clock import EPOCH_MS
from tests.simulation.connection import PlainConnection
from tests.simulation.loop import NOBODY, Process, SimLoop
from tests.simulation.network import SQL, Network
from tests.support.memory import folder_in_memory
from tiered.errors import MetadataOutcomeUnknown, MetadataUnavailable, MetadataWentBack
from tiered.meta.call import Call
from tiered.meta.cluster import SEEN
from tiered.meta.engine import Database
from tiered.meta.history import History
from tiered.testing.local_cluster import fresh_catalogue

T = TypeVar("T")

DEADLINE_MS = 2_000
_MS_PER_DAY = 86_400_000
_JULIAN_EPOCH = 2440587.5


class Catalogue:
    """One SQLite file for all simulations of this operating system process, made anew for each: statements stay
    compiled."""

    def __init__(self) -> None:
        self._folder = folder_in_memory("tiered-sim-sql-")
        self.now_ms: Callable[[], float] = lambda: EPOCH_MS
        path = self._folder / "meta.db"
        self._fresh = sqlite3.connect(":memory:")
        self._fresh.deserialize(fresh_catalogue())
        # Two connections: one changes, the other still reads what was before while a COMMIT is on its way.
        self.engine = self._open(path)
        self.reading = self._open(path)
        self.driver = self._driver(self.engine)
        known: dict[Any, Any] = {}
        # SQLAlchemy's transactions are never ended: what begins and commits is below it.
        self.changing_conn = PlainConnection(self.engine.connect(), self.driver, "BEGIN IMMEDIATE", known)
        self.reading_conn = PlainConnection(self.reading.connect(), self._driver(self.reading), "BEGIN", known)

    def _open(self, path: Path) -> Engine:
        engine = create_engine(
            f"sqlite:///{path}",
            poolclass=StaticPool,
            connect_args={
                "check_same_thread": False,
                "isolation_level": None,
                "timeout": 0,
                "cached_statements": 1_000,
            },
        )

        @event.listens_for(engine, "connect")
        def set_up(connection: sqlite3.Connection, _record: object) -> None:
            connection.execute("PRAGMA journal_mode=WAL").fetchone()
            connection.execute("PRAGMA synchronous=OFF")
            connection.execute("PRAGMA foreign_keys=ON")
            # What `database_now_ms` asks of SQLite: here it is the server's virtual clock.
            connection.create_function("julianday", 1, lambda _now: _JULIAN_EPOCH + self.now_ms() / _MS_PER_DAY)

        return engine

    @staticmethod
    def _driver(engine: Engine) -> sqlite3.Connection:
        with engine.connect() as conn:
            driver = conn.connection.driver_connection
        assert isinstance(driver, sqlite3.Connection)
        return driver

    def begin_anew(self) -> None:
        """The tables of a catalogue that was just made."""
        self._fresh.backup(self.driver)

    def close(self) -> None:
        self.engine.dispose()
        self.reading.dispose()
        shutil.rmtree(self._folder, ignore_errors=True)


@dataclass(eq=False)
class _Request:
    """One transaction on its way."""

    machine: str
    process: Process
    call: Call[Any]
    answer: "asyncio.Future[Any]"
    is_given_up: bool = False
    may_be_committed: bool = False
    has_begun: bool = False
    history: History | None = None
    start: int = 0
    """The start of the server in which it was carried out, and the number that it took or read."""
    seen: int | None = None


class SqlServer:
    """Executes transactions one after the other, and tells listeners of changes."""

    def __init__(self, loop: SimLoop, rng: Random, network: Network, catalogue: Catalogue) -> None:
        self._loop = loop
        self._rng = rng
        self._network = network
        self.catalogue = catalogue
        self.clock_error_ms = 0
        catalogue.now_ms = self.now_ms
        catalogue.begin_anew()
        self._waiting: deque[_Request] = deque()
        self.is_locked = False
        """A COMMIT is on its way."""
        self.starts = 1
        """How often the server was started."""
        self.commits = 0
        self.has_forgotten = False
        self.kept_change_number = -1
        """The last one that the database still has once it has forgotten."""
        self._kept: sqlite3.Connection | None = None
        self._forgets_after: int | None = None
        self.on_forgotten: Callable[[int], None] = lambda _: None
        """Called when the database has lost its last commits, with how many changes of the control plane they were."""
        self._listeners: dict[tuple[str, int], tuple[Process, Callable[[], None]]] = {}
        self._change_number = 0
        self.on_change: Callable[[], None] = lambda: None
        """Called when a change was committed: where the checker looks."""
        self.loses_answers = 0.0
        """How often the answer to COMMIT is lost."""
        self.commits_late = 0.0
        """How often COMMIT takes effect after the caller gave up."""
        self.mishaps = 0.0
        """How often either happens to a change of the control plane."""
        self.slow_s = 0.0
        self.is_down = False
        self.transactions = 0
        self.lost_answers = 0
        self.late_commits = 0

    def now_ms(self) -> float:
        return EPOCH_MS + self._loop.time() * 1000.0 + self.clock_error_ms

    # A call's way

    def ask(self, machine: str, process: Process, call: Call[Any], history: History | None) -> _Request:
        request = _Request(machine, process, call, self._loop.create_future(), history=history)
        rng = self._rng
        if self.is_down and rng.random() < 0.5:  # Refused at once, where others wait for their deadline
            self._later(rng.random() * 0.01, self._refuse, request)
        elif self._network.reaches(machine, SQL) and not self.is_down:
            delay = self._network.delay(machine, SQL) + rng.random() * self.slow_s
            self._later(delay, self._arrive, request)
        return request

    def _later(self, seconds: float, callback: Callable[..., object], *args: Any) -> None:
        self._loop.call_later(seconds, callback, *args, context=NOBODY)

    def _arrive(self, request: _Request) -> None:
        if self._forgets_after is not None and self.commits >= self._forgets_after:
            self._forget()
        if request.is_given_up or self.is_down:
            return  # Its connection is gone: a transaction without a COMMIT is rolled back.
        if (request.process.is_dead or request.process.is_paused) and self._rng.random() < 0.5:
            return  # Its last statement was never sent.
        if self.is_locked and not self._is_entered(request):
            self._waiting.append(request)
        elif not self._enter(request):
            return
        elif request.call.snapshot:
            self._read(request)
        elif self.is_locked:
            self._waiting.append(request)
        else:
            self._change(request)

    def _is_entered(self, request: _Request) -> bool:
        try:
            return request.history is None or request.history.has_entered(self.name)
        except MetadataWentBack:
            return True

    def _enter(self, request: _Request) -> bool:
        """As a connection does before its first call. False where the call is not made."""
        request.start = self.starts
        history = request.history
        try:
            if history is None or history.has_entered(self.name):
                return True
            conn = self.catalogue.changing_conn
            conn.begin()
            look = history.look(conn, self.name)  # type: ignore[arg-type]
            conn.commit()
            self._committed()
            history.take(look)
        except MetadataWentBack as error:
            self._answer(request, error, failed=True)
            return False
        return True

    @property
    def name(self) -> str:
        return f"start {self.starts}"

    def _read(self, request: _Request) -> None:
        self.transactions += 1
        try:
            value = self.read(request.call.fn)
            request.seen = self.catalogue.reading_conn.info.get(SEEN)
        except Exception as error:
            self._answer(request, error, failed=True)
        else:
            self._answer(request, value, failed=False)

    def read(self, fn: Callable[[Any], T]) -> T:
        conn = self.catalogue.reading_conn
        conn.begin()
        try:
            return fn(conn)
        finally:
            conn.rollback()

    def _change(self, request: _Request) -> None:
        """Runs the transaction, and decides what becomes of its COMMIT."""
        self.transactions += 1
        request.has_begun = True
        conn = self.catalogue.changing_conn
        conn.begin()
        try:
            value = request.call.fn(conn)  # type: ignore[arg-type]
        except Exception as error:
            conn.rollback()
            self._answer(request, error, failed=True)
            return
        request.may_be_committed = True
        request.seen = conn.info.get(SEEN)
        rng = self._rng
        # Changes of the control plane are what it is about: heartbeats and the like have their answers lost less often.
        changes = self.mishaps and self._takes_number(conn)
        late, lost = (self.commits_late, self.loses_answers)
        if changes:
            late, lost = max(late, self.mishaps), max(lost, self.mishaps)
        if late and rng.random() < late:
            self.late_commits += 1
            self.is_locked = True
            self._later(rng.random() * 1.5 * DEADLINE_MS / 1000.0, self._commit_late, request, value)
            return
        conn.commit()
        self._committed()
        if lost and rng.random() < lost:
            self.lost_answers += 1
            return
        self._answer(request, value, failed=False)

    def _commit_late(self, request: _Request, value: object) -> None:
        if request.start != self.starts:
            return
        self.catalogue.changing_conn.commit()
        self.is_locked = False
        self._committed()
        self._answer(request, value, failed=False)
        while self._waiting and not self.is_locked:
            waiting = self._waiting.popleft()
            if not waiting.is_given_up and self._enter(waiting):
                self._change(waiting)

    def _takes_number(self, conn: PlainConnection) -> bool:
        row = conn.driver.execute("SELECT change_number FROM cluster").fetchone()
        return row is not None and row[0] != self._change_number

    def _answer(self, request: _Request, value: Any, *, failed: bool) -> None:
        if self.is_down or not self._network.reaches(SQL, request.machine):
            return
        self._later(self._network.delay(SQL, request.machine), self._deliver, request, value, failed)

    def _deliver(self, request: _Request, value: Any, failed: bool) -> None:
        if request.answer.done():
            return
        if failed:
            request.answer.set_exception(value)
        else:
            if request.history is not None and request.seen is not None:
                request.history.saw(f"start {request.start}", request.seen)
            request.answer.set_result(value)

    def give_up(self, request: _Request) -> None:
        """The caller's deadline has passed."""
        if request.may_be_committed:
            error: Exception = MetadataOutcomeUnknown("the database did not confirm a commit; it may have happened")
        else:
            error = MetadataUnavailable("the database did not answer in time; nothing was changed")
        request.is_given_up = True
        self._deliver(request, error, failed=True)

    def _refuse(self, request: _Request) -> None:
        if not request.answer.done():
            request.answer.set_exception(MetadataUnavailable("the database refuses connections; nothing was changed"))

    def change_now(self, fn: Callable[[Connection], T]) -> T:
        """A change that somebody makes who is no part of the run, at this very moment."""
        conn = self.catalogue.changing_conn
        conn.begin()
        value = fn(conn)  # type: ignore[arg-type]
        conn.commit()
        self._committed()
        return value

    # What it forgets

    def forget_after(self, commits: int) -> None:
        """So many commits from now on are lost: a standby that has none of them takes over."""
        if self.is_locked:
            self._later(0.1, self.forget_after, commits)
            return
        self._kept = sqlite3.connect(":memory:")
        self.catalogue.driver.backup(self._kept)
        self._forgets_after = self.commits + commits
        self.kept_change_number = self._change_number

    def is_refused(self) -> bool:
        """Whether a broker has said that the database went back."""
        return bool(self.catalogue.driver.execute("SELECT 1 FROM cluster WHERE went_back IS NOT NULL").fetchone())

    def _forget(self) -> None:
        assert self._kept is not None
        self.abandon()
        for request in self._waiting:
            self._later(0.0, self._refuse, request)
        self._waiting.clear()
        self._kept.backup(self.catalogue.driver)
        self._kept.close()
        self._kept = self._forgets_after = None
        self.has_forgotten = True
        self.starts += 1
        before = self._change_number
        (self._change_number,) = self.catalogue.driver.execute("SELECT change_number FROM cluster").fetchone()
        self.on_forgotten(before - self._change_number)

    def abandon(self) -> None:
        """The run is over: a COMMIT that is still on its way never comes."""
        if self.is_locked:
            self.catalogue.changing_conn.rollback()
            self.is_locked = False

    # The feed's wake-up calls

    def _committed(self) -> None:
        self.commits += 1
        (number,) = self.catalogue.driver.execute("SELECT change_number FROM cluster").fetchone() or (0,)
        if number == self._change_number:
            return
        self._change_number = number
        self.on_change()
        for machine, _ in list(self._listeners):
            for process, on_change in [self._listeners[key] for key in list(self._listeners) if key[0] == machine]:
                if not process.is_dead and self._network.reaches(SQL, machine) and self._rng.random() < 0.95:
                    process.call_later(self._network.delay(SQL, machine), on_change)

    def listen(self, machine: str, process: Process, on_change: Callable[[], None]) -> Callable[[], None]:
        key = machine, process.number
        self._listeners[key] = process, on_change
        return lambda: self._listeners.pop(key, None) and None


class SimDatabase(Database):
    """A process's `Database`: the real interface, deadlines and errors over the server above."""

    def __init__(self, server: SqlServer, machine: str, process: Process) -> None:
        super().__init__(server.catalogue.engine, deadline_ms=DEADLINE_MS)
        self._server = server
        self._machine = machine
        self._process = process

    async def _run(self, call: Call[T], deadline_ms: int | None, pool: object = None) -> T:
        server = self._server
        request = server.ask(self._machine, self._process, call, self.history)
        deadline = server._loop.call_later((deadline_ms or DEADLINE_MS) / 1000.0, server.give_up, request)
        try:
            return await request.answer  # type: ignore[no-any-return]
        finally:
            deadline.cancel()
            request.is_given_up = True

    def run_sync(self, fn: Callable[[Connection], T], *, deadline_ms: int | None = None) -> T:
        if not self._server._network.reaches(self._machine, SQL) or self._server.is_down:
            raise MetadataUnavailable("the database cannot be reached; nothing was changed")
        return self._server.read(fn)

    def migrate(self) -> None:
        if not self._server._network.reaches(self._machine, SQL) or self._server.is_down:
            raise MetadataUnavailable("the database cannot be reached; nothing was changed")

    def listen(self, on_change: Callable[[], None]) -> "SimListener":
        return SimListener(self._server.listen(self._machine, self._process, on_change))

    async def close(self) -> None:
        pass

    def close_sync(self) -> None:
        pass


class SimListener:
    """What `Database.listen` answers with."""

    def __init__(self, end: Callable[[], None]) -> None:
        self._end = end

    def close(self) -> None:
        self._end()
