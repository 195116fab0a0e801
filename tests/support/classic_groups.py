"""A broker whose groups wait for nobody, and the codes that its members are told."""

import time
from collections.abc import Callable, Iterator

import pytest

from tests.broker_process import BrokerProcess

ILLEGAL_GENERATION, INCONSISTENT_PROTOCOL, INVALID_GROUP, UNKNOWN_MEMBER = 22, 23, 24, 25
INVALID_SESSION_TIMEOUT, REBALANCE_IN_PROGRESS, NOT_COORDINATOR = 26, 27, 16
NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND, MEMBER_ID_REQUIRED, GROUP_MAX_SIZE_REACHED, FENCED_INSTANCE = 68, 69, 79, 81, 82
SETTINGS = {"group.initial.rebalance.delay.ms": 200, "group.min.session.timeout.ms": 1000}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Groups in it begin soon, and sessions may be short."""
    process = BrokerProcess(tmp_path_factory.mktemp("groups") / "data", settings=SETTINGS).start()
    yield process
    process.ensure_stopped()


def until(condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
