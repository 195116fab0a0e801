"""A broker for each test module, and one for tests that restart theirs."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.broker_process import BrokerProcess


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A running broker with default settings, shared by the tests of a module: each uses topics of its own."""
    process = BrokerProcess(tmp_path_factory.mktemp("broker") / "data").start()
    yield process
    process.ensure_stopped()


@pytest.fixture
def make_broker(tmp_path: Path) -> Iterator[Callable[..., BrokerProcess]]:
    """Makes brokers (not started) with data folders of their own; whatever still runs is killed afterwards."""
    made: list[BrokerProcess] = []

    def make(*arguments: str, name: str = "data", **options: object) -> BrokerProcess:
        process = BrokerProcess(tmp_path / name, *arguments, **options)  # type: ignore[arg-type]
        made.append(process)
        return process

    yield make
    for process in made:
        process.ensure_stopped()
