"""The catalogue's databases for tests, as a pytest plugin: SQLite and a real PostgreSQL, empty or ready.

A test that takes `database` (or `database_url`) runs once on each. Tables are made once per session and kind:
what a test gets is a copy.
"""

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from tests.catalogue import open_ready
from tests.support.memory import folder_in_memory
from tiered.meta.engine import Database

if TYPE_CHECKING:
    from tests.postgres import PostgresDatabases

pytest_plugins = ["tests.postgres"]


@pytest.fixture(scope="session")
def ready_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a migrated database, a cluster and broker 1; nobody has it open."""
    path = tmp_path_factory.mktemp("ready") / "meta.db"
    open_ready(f"sqlite:///{path}").close_sync()
    assert [each.name for each in path.parent.iterdir()] == [path.name], "a journal would have to be copied too"
    return path


@pytest.fixture(scope="session")
def ready_postgres(postgres_databases: "PostgresDatabases") -> Iterator[str]:
    """The URL of such a database on PostgreSQL; nobody is connected to it."""
    url = postgres_databases.create()
    open_ready(url).close_sync()
    yield url
    postgres_databases.drop(url)


@pytest.fixture(scope="session")
def sqlite_folder() -> Iterator[Path]:
    """In memory: every commit is synced, which on a disk takes as long as all else that a test does."""
    folder = folder_in_memory("tiered-sqlite-")
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, sqlite_folder: Path) -> Iterator[str]:
    """A database of each kind: an empty one, or that of `database` where the test takes it too."""
    ready = "database" in request.fixturenames
    if request.param == "sqlite":
        path = sqlite_folder / f"{uuid4().hex}.db"
        if ready:
            shutil.copyfile(request.getfixturevalue("ready_sqlite"), path)
        yield f"sqlite:///{path}"
        for each in sqlite_folder.glob(f"{path.name}*"):
            each.unlink()
        return
    databases: PostgresDatabases = request.getfixturevalue("postgres_databases")
    url = databases.create(template=request.getfixturevalue("ready_postgres") if ready else None)
    yield url
    databases.drop(url)


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """A migrated database with a cluster and broker 1, of each kind."""
    opened = Database.open(database_url)
    yield opened
    opened.close_sync()


@pytest.fixture
def two(postgres_databases: "PostgresDatabases", ready_postgres: str) -> Iterator[Mapping[str, Database]]:
    """Two brokers' connections to one PostgreSQL; SQLite's transactions are serial and need no such test."""
    url = postgres_databases.create(template=ready_postgres)
    opened = {"old": Database.open(url), "new": Database.open(url)}
    yield opened
    for each in opened.values():
        each.close_sync()
    postgres_databases.drop(url)
