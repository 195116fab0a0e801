"""Three real brokers on one PostgreSQL with one object store, as a pytest plugin: `pytest_plugins = [...]`."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.broker_process import BrokerProcess

if TYPE_CHECKING:
    from tests.postgres import PostgresDatabases

pytest_plugins = ["tests.postgres"]


@dataclass(frozen=True, slots=True)
class ThreeBrokers:
    """Brokers 1, 2 and 3; `broker(1)` is the first."""

    brokers: tuple[BrokerProcess, ...]

    def broker(self, broker_id: int) -> BrokerProcess:
        return self.brokers[broker_id - 1]

    @property
    def bootstrap(self) -> str:
        return ",".join(each.bootstrap for each in self.brokers)


@pytest.fixture(scope="module")
def three_brokers(
    tmp_path_factory: pytest.TempPathFactory, postgres_databases: "PostgresDatabases"
) -> Iterator[ThreeBrokers]:
    """A cluster for a module: each test uses topics of its own and leaves every broker running."""
    with cluster(tmp_path_factory.mktemp("three"), postgres_databases) as made:
        yield made


@pytest.fixture
def make_cluster(
    tmp_path: Path, postgres_databases: "PostgresDatabases"
) -> Callable[..., AbstractContextManager[ThreeBrokers]]:
    """Three brokers that a test has alone, started with a `prefix` or without one."""
    return partial(cluster, tmp_path / "brokers", postgres_databases)


@contextmanager
def cluster(folder: Path, databases: "PostgresDatabases", *, prefix: Sequence[str] = ()) -> Iterator[ThreeBrokers]:
    """Three brokers that run inside the block."""
    folder.mkdir(exist_ok=True)
    url = databases.create()
    made = tuple(
        BrokerProcess(
            folder / f"broker-{each}",
            *("--meta", url, "--store", f"file://{folder}/objects"),
            *("--broker-id", str(each), "--rack", f"rack-{each}"),
            settings={"group.initial.rebalance.delay.ms": 0},
            prefix=prefix,
        )
        for each in (1, 2, 3)
    )
    try:
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda each: each.start(), made))
        yield ThreeBrokers(made)
    finally:
        for each in made:
            each.ensure_stopped()
        databases.drop(url)
