"""A session of PostgreSQL that is safe to work in, also where a pooler stands before the server.

Owns the settings of a session: sets them, reads them back, and refuses a database that does not keep them, or is
read-only. Must never run a statement about the metadata store.

Settings are set by a statement after the login. `options` of the login would save a round trip, but PgBouncer refuses
them, or drops them without a word where it is configured to ignore them.

PgBouncer with `pool_mode=session` gives each client a server process until the client leaves, as PostgreSQL itself
does. With `pool_mode=transaction` or `statement`, a client has one only within a transaction or statement: settings,
LISTEN and prepared statements then belong to whoever comes next. How the first connection tells them apart:

1. PostgreSQL names the server process in the login. A pooler names one that it made up, because cancel requests go
   through the pooler. Where `pg_backend_pid()` returns the named process, there is no pooler, and nothing else is done.
2. Otherwise a second session is opened for a moment, and both ask in turn which process serves them. Where sessions are
   kept, each has a process of its own that never changes. Where they are not, either one session moves to another
   process, or both have the same: the pool gives out the process that was released last, or in turn, or the only one.
   Other clients can hide that for a turn, so there are several.
"""

import re
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, LiteralString

from tiered.errors import InvalidConfig
from tiered.meta.cluster import MAX_IDLE_SETTING

if TYPE_CHECKING:
    import psycopg

MAX_IDLE_IN_CHANGE_MS = 3_000
TURNS = 4
_OPTION = re.compile(r"(?:-c\s*|--)([\w.-]+)=(\S*)")
"""Source: PostgreSQL's `process_postgres_switches`; a dash in a name stands for an underscore."""
_PROCESS: LiteralString = "SELECT pg_backend_pid(), pg_postmaster_start_time()"
_WHAT_TO_DO = (
    "PgBouncer needs pool_mode=session for this database and user; or name PostgreSQL itself in the metadata URL"
)


def safe_settings(deadline_ms: int, options: str) -> Mapping[str, str]:
    """The settings of each session, where `options`, those for libpq, name no others."""
    # A stopped client that holds a row lock would block every writer: the server ends it. A client that holds the
    # feed's lock ends well before its waiters give up (`cluster.take_number`).
    settings = {
        "statement_timeout": str(deadline_ms),
        "lock_timeout": str(max(1, deadline_ms // 2)),
        "idle_in_transaction_session_timeout": str(deadline_ms),
        MAX_IDLE_SETTING: str(min(deadline_ms, MAX_IDLE_IN_CHANGE_MS)),
    }
    given = {name.replace("-", "_").lower(): value for name, value in _OPTION.findall(options)}
    return settings | {name: value for name, value in given.items() if name in settings}


def connect(
    parameters: Mapping[str, Any], settings: Mapping[str, str], *, timeout_s: int, is_first: bool
) -> "psycopg.Connection[Any]":
    """A connection in autocommit under these settings. The set-up after the login takes `timeout_s` at the most.

    `is_first` also checks that the database keeps sessions. Raises psycopg's errors, and InvalidConfig where
    the session is not safe.
    """
    import psycopg

    connection = psycopg.connect(**parameters, autocommit=True)
    try:
        with _limited(connection, timeout_s):
            if is_first:
                _require_that_sessions_are_kept(connection, parameters, timeout_s)
            _set(connection, settings, must_write=parameters["target_session_attrs"] == "read-write")
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def _limited(connection: "psycopg.Connection[Any]", seconds: int) -> Iterator[None]:
    """Within, the connection breaks after so long: a pooler without a free server process keeps clients waiting."""
    import psycopg

    is_late = threading.Event()

    def cut() -> None:
        is_late.set()
        shut(sock)

    # Closing libpq's connection under a thread that waits on it is not safe; shutting its socket is.
    with socket.fromfd(connection.fileno(), socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        timer = threading.Timer(seconds, cut)
        timer.daemon = True
        timer.start()
        try:
            yield
        except psycopg.OperationalError as error:
            if not is_late.is_set():
                raise
            raise psycopg.OperationalError(
                f"no answer within {seconds} s after the login: a pooler does that while it cannot reach PostgreSQL, "
                "or its pool_size is below the seven sessions that each broker needs"
            ) from error
        finally:
            timer.cancel()


def shut(sock: socket.socket) -> None:
    """Ends both directions of a connection, whoever waits on it."""
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # The server was faster.


def _require_that_sessions_are_kept(
    connection: "psycopg.Connection[Any]", parameters: Mapping[str, Any], timeout_s: int
) -> None:
    import psycopg

    process = _row(connection, _PROCESS)
    if process[0] == connection.info.backend_pid:
        return
    first_processes, second_processes = {process}, set[tuple[Any, ...]]()
    with psycopg.connect(**parameters, autocommit=True) as second, _limited(second, timeout_s):
        for _ in range(TURNS):
            # Twice: a pool that hands out two processes in turn would give each session the same one again.
            second_processes |= {_row(second, _PROCESS), _row(second, _PROCESS)}
            # After the second: where the first session had ended meanwhile, the second could have its process.
            first_processes |= {_row(connection, _PROCESS), _row(connection, _PROCESS)}
    if len(first_processes) > 1 or len(second_processes) > 1 or first_processes == second_processes:
        raise _sessions_are_not_kept()


def _set(connection: "psycopg.Connection[Any]", settings: Mapping[str, str], *, must_write: bool) -> None:
    """Raises InvalidConfig where the next transaction does not have the settings, OperationalError where it is
    read-only: libpq believes what a pooler says of that, which can be of the server before this one."""
    import psycopg

    set_calls: LiteralString = ", ".join(["set_config(%s, %s, false)"] * len(settings))
    read_calls: LiteralString = ", ".join(["current_setting(%s, true)"] * len(settings))
    values = [text for item in settings.items() for text in item]
    process, *wanted = _row(connection, "SELECT pg_backend_pid(), " + set_calls, *values)
    read = "SELECT pg_backend_pid(), current_setting('transaction_read_only'), " + read_calls
    next_process, is_read_only, *kept = _row(connection, read, *settings)
    if next_process != process:
        raise _sessions_are_not_kept()
    if must_write and is_read_only == "on":
        raise psycopg.OperationalError("session is read-only")
    for name, value, kept_value in zip(settings, wanted, kept, strict=True):
        if kept_value != value:
            raise InvalidConfig(
                f"the metadata database does not keep {name}: it was set to {value}, and is {kept_value or 'unset'} in "
                "the next transaction. Without it a broker that hangs blocks all others. Something before PostgreSQL "
                f"drops what a session sets. {_WHAT_TO_DO}"
            )


def _sessions_are_not_kept() -> InvalidConfig:
    return InvalidConfig(
        "the metadata database does not keep sessions: a pooler before it gives the server process to other clients "
        f"after each transaction or statement, with the time-outs that a broker has set. {_WHAT_TO_DO}"
    )


def _row(connection: "psycopg.Connection[Any]", statement: LiteralString, *values: str) -> tuple[Any, ...]:
    row = connection.execute(statement, values, prepare=False).fetchone()
    assert row is not None
    return tuple(row)
