"""The catalogue's databases for tests, as a pytest plugin: SQLite and a real PostgreSQL, empty or ready.

A test that takes `database` (or `database_url`) runs once on each.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.catalogue import open_ready
from tiered.meta.engine import Database

pytest_plugins = ["tests.postgres"]


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'meta.db'}"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """A migrated database with a cluster and broker 1, of each kind."""
    opened = open_ready(database_url)
    yield opened
    opened.close_sync()
