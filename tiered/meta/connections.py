"""Connections to SQLite and PostgreSQL, and the settings that make them safe.

Owns what a URL means, and what each connection is told when it is made. Must never run a statement about the metadata
store. The reasons are in `engine` and in docs/adr/0005.
"""

import os
import socket
import sqlite3
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import QueuePool, StaticPool

from tiered.errors import InvalidConfig
from tiered.meta import compiled, postgres_session
from tiered.meta.postgres_session import shut
from tiered.runtime import new_uuid

if TYPE_CHECKING:
    import psycopg

MAX_POSTGRES_CONNECTIONS = 4
_SOCKET = "tiered_socket"
_SERVER = "tiered_server"
_PROCESS = new_uuid()
"""Process ids come again."""


def engine_for(url: str, *, deadline_ms: int) -> Engine:
    """An engine that has connected to nothing yet. Raises `InvalidConfig`; the message never holds a password."""
    parsed = _parse(url)
    if parsed.get_backend_name() == "sqlite":
        return _sqlite_engine(parsed, deadline_ms=deadline_ms)
    return _postgres_engine(parsed, deadline_ms=deadline_ms)


def sqlite_file(url: str) -> Path | None:
    """The file that the URL names, None for PostgreSQL. Raises `InvalidConfig`."""
    parsed = _parse(url)
    return Path(parsed.database) if parsed.get_backend_name() == "sqlite" and parsed.database else None


def connect_timeout_s(deadline_ms: int) -> int:
    """How long PostgreSQL is waited for while a connection is made, which no deadline of a call can cut short."""
    return max(2, deadline_ms // 2000)  # libpq's smallest is 2 s


def connect_to_listen(engine: Engine, *, deadline_ms: int) -> "psycopg.Connection[Any]":
    """A connection to the same PostgreSQL under the same settings, without transactions and in nobody's pool."""
    positional, parameters = engine.dialect.create_connect_args(engine.url)
    assert not positional
    parameters.update(_postgres_arguments(engine.url, deadline_ms=deadline_ms))
    return _safe_session(parameters, deadline_ms=deadline_ms, is_first=False)


def server_of(conn: Connection) -> str:
    """Which start of the database answers on this connection. Not within a transaction, the first time."""
    if _SERVER not in conn.info:
        started_at_s = conn.exec_driver_sql("SELECT extract(epoch FROM pg_postmaster_start_time())").scalar_one()
        conn.rollback()
        conn.info[_SERVER] = f"PostgreSQL, started at {started_at_s}"
    return str(conn.info[_SERVER])


def cutter(conn: Connection) -> Callable[[], None]:
    """A function that ends the connection's statement from another thread, for good."""
    if conn.dialect.name == "sqlite":
        driver = conn.connection.driver_connection
        assert isinstance(driver, sqlite3.Connection)
        return driver.interrupt
    # Closing libpq's connection under a thread that waits on it is not safe; shutting its socket is.
    sock: socket.socket = conn.connection.info[_SOCKET]
    return lambda: shut(sock)


def _parse(url: str) -> URL:
    # `from None` throughout: the parser's own message can hold a piece of the password.
    wanted = "use sqlite:///path or postgresql://user@host/database"
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise InvalidConfig(f"the metadata URL cannot be parsed: {wanted}") from None
    if parsed.drivername == "sqlite":
        if not parsed.database or parsed.database == ":memory:":
            raise InvalidConfig("the metadata URL names no file: use sqlite:///path")
        return parsed
    if parsed.drivername in {"postgresql", "postgres", "postgresql+psycopg"}:
        return parsed.set(drivername="postgresql+psycopg")
    raise InvalidConfig(f"the metadata URL begins with {parsed.drivername}, which is not supported: {wanted}")


def _sqlite_engine(url: URL, *, deadline_ms: int) -> Engine:
    engine = create_engine(
        url,
        poolclass=StaticPool,
        hide_parameters=True,
        execution_options={"compiled_cache": compiled.SHARED},
        # The one connection is used by one thread at a time, though not always the same.
        connect_args={"check_same_thread": False, "timeout": deadline_ms / 1000.0, "isolation_level": None},
    )

    @event.listens_for(engine, "do_connect")
    def keep_from_others(_dialect: object, _record: object, _args: object, _options: object) -> None:
        """Users' keys are in it. SQLite gives its journals the rights that the file has."""
        if url.database and Path(url.database).parent.is_dir():
            with suppress(FileExistsError):
                os.close(os.open(url.database, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))

    @event.listens_for(engine, "connect")
    def set_up(connection: sqlite3.Connection, record: Any) -> None:
        # Nothing starts but this process, which has the file for itself.
        record.info[_SERVER] = f"process {os.getpid()} of {_PROCESS}"
        (mode,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
        # A file system without shared memory keeps the rollback journal, which needs one sync more.
        connection.execute(f"PRAGMA synchronous={'FULL' if mode == 'wal' else 'EXTRA'}")
        connection.execute("PRAGMA foreign_keys=ON")

    @event.listens_for(engine, "begin")
    def begin(conn: Connection) -> None:
        # The driver begins nothing by itself (isolation_level None). IMMEDIATE: a transaction that starts
        # as a reader and then writes can fail with SQLITE_BUSY where no waiting helps.
        conn.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def _postgres_arguments(url: URL, *, deadline_ms: int) -> dict[str, Any]:
    """The parameters for libpq, except those in the URL itself."""
    arguments: dict[str, Any] = {
        "application_name": "tiered",
        "client_encoding": "utf8",
        "connect_timeout": str(connect_timeout_s(deadline_ms)),
        "target_session_attrs": "read-write",  # Control state is never read from a replica
        "tcp_user_timeout": str(deadline_ms),
        "keepalives_idle": "10",
        "keepalives_interval": "5",
        "keepalives_count": "3",
        "options": "",  # Not PGOPTIONS, which is meant for psql
    }
    given = {key: value for key, value in url.query.items() if isinstance(value, str)}
    return {key: value for key, value in arguments.items() if key not in given}


def _safe_session(parameters: Mapping[str, Any], *, deadline_ms: int, is_first: bool) -> "psycopg.Connection[Any]":
    return postgres_session.connect(
        parameters,
        postgres_session.safe_settings(deadline_ms, parameters["options"]),
        timeout_s=connect_timeout_s(deadline_ms),
        is_first=is_first,
    )


def _postgres_engine(url: URL, *, deadline_ms: int) -> Engine:
    try:
        engine = create_engine(
            url,
            poolclass=QueuePool,
            pool_size=MAX_POSTGRES_CONNECTIONS + 2,  # one for calls that go ahead, one for lists
            max_overflow=0,
            pool_timeout=deadline_ms / 1000.0,
            hide_parameters=True,
            execution_options={"compiled_cache": compiled.SHARED},
            connect_args=_postgres_arguments(url, deadline_ms=deadline_ms),
        )
    except ModuleNotFoundError as error:
        raise InvalidConfig("PostgreSQL needs the driver psycopg: pip install 'psycopg[binary]'") from error

    has_connected = threading.Event()

    @event.listens_for(engine, "do_connect")
    def connect(_dialect: object, _record: object, _args: object, parameters: dict[str, Any]) -> Any:
        session = _safe_session(parameters, deadline_ms=deadline_ms, is_first=not has_connected.is_set())
        has_connected.set()
        session.autocommit = False
        return session

    @event.listens_for(engine, "connect")
    def keep_socket(connection: Any, record: Any) -> None:
        encoding = connection.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            raise InvalidConfig(
                f"the database's encoding is {encoding}, and names are stored as UTF8: make it anew with "
                "CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0"
            )
        record.info[_SOCKET] = socket.fromfd(connection.fileno(), socket.AF_UNIX, socket.SOCK_STREAM)

    @event.listens_for(engine, "close")
    def close_socket(_connection: object, record: Any) -> None:
        sock = record.info.pop(_SOCKET, None)
        if sock is not None:
            sock.close()

    return engine
