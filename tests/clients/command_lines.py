"""Commands that tests start and read line by line."""

import contextlib
import subprocess
from collections.abc import Iterator
from typing import IO

import pytest

from tests.broker_process import BrokerProcess
from tests.support.command_line import Tiered

RUN_S = 60.0


@pytest.fixture(scope="module")
def tiered(broker: BrokerProcess) -> Tiered:
    return Tiered(broker)


@pytest.fixture(scope="module")
def numbers(tiered: Tiered) -> str:
    """A topic of one partition with the values 0 to 99."""
    tiered.out("topics", "create", "numbers", "-p", "1")
    tiered.out("produce", "numbers", lines=b"".join(b"%d\n" % number for number in range(100)))
    return "numbers"


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes to end after the test, however it ended."""
    found: list[subprocess.Popen[bytes]] = []
    yield found
    for process in found:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()


def line_of(stream: IO[bytes] | None) -> bytes:
    assert stream is not None
    return stream.readline()
