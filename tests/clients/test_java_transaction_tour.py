"""What Java applications and Kafka's admin client do with transactions, in both protocols (KIP-98, 447, 664, 890)."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.broker_process import BrokerProcess
from tests.clients.java_client import compiled

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]
OF_PROTOCOL_1 = "-Dkafka.version=3.9.1"
"""The last line of clients that know nothing of the second protocol, whatever a broker tells."""
READS_PROCESSES_WRITES = [
    "offsets after an abort 0",
    "offsets after commits [50, 50] same true",
    "member that is gone CommitFailedException",
    "then 7",
    "processed 100",
]


@pytest.fixture
def tour(tmp_path: Path, make_broker: Callable[..., BrokerProcess]) -> Callable[..., list[str]]:
    """Runs the program against a broker of its own; its lines."""

    def run(*options: str) -> list[str]:
        built = compiled("TransactionTour", tmp_path / "java", *options)
        settings = {
            "group.initial.rebalance.delay.ms": 300,
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": 300,
        }
        broker = make_broker(settings=settings).start()
        command = ["java", "-cp", f"{built}/*:{built}", "TransactionTour", broker.bootstrap, "tour-"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
        return done.stdout.splitlines()

    return run


def expected(*, fenced_send: str) -> list[str]:
    return [
        "committed [one-0, one-2, one-4] [two-0, two-2, two-4]",
        "uncommitted 6",
        "fenced commit ProducerFencedException",
        "fenced begin ProducerFencedException",
        f"fenced send {fenced_send}",
        "after fencing [second]",
        "late commit ProducerFencedException",
        "after the time-out [again]",
        *READS_PROCESSES_WRITES,
        *READS_PROCESSES_WRITES,
        "listed seen Ongoing",
        "described Ongoing 60000 true true",
        "producer true true from 0",
        "aborted, open false",
        "read after it []",
        "unknown TransactionalIdNotFoundException",
        "fenced by a tool ProducerFencedException",
        "read after that []",
    ]


def test_java_applications_and_tools_of_the_second_protocol(tour: Callable[..., list[str]]) -> None:
    # The leader adds the partition, and Produce knows no other word for a fenced producer.
    assert tour() == expected(fenced_send="InvalidProducerEpochException")


def test_java_applications_and_tools_of_the_first_protocol(tour: Callable[..., list[str]]) -> None:
    assert tour(OF_PROTOCOL_1) == expected(fenced_send="ProducerFencedException")
