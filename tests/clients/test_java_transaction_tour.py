"""What Java applications and Kafka's admin client do with transactions, in both protocols (KIP-98, 447, 664, 890)."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.broker_process import BrokerProcess
from tests.clients.java_client import compiled

if TYPE_CHECKING:
    from tests.clients.three_brokers import ThreeBrokers

pytest_plugins = ["tests.clients.three_brokers"]
pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]
CLIENTS_OF_PROTOCOL_1 = ("-Dkafka.version=3.9.1",)
"""The last line of clients that know nothing of the second protocol, whatever a broker tells."""
READS_PROCESSES_WRITES = [
    "offsets after an abort 0",
    "offsets after commits [50, 50] same true",
    "member that is gone CommitFailedException",
    "then 7",
    "processed 100",
]


@pytest.fixture
def bootstrap(make_broker: Callable[..., BrokerProcess]) -> str:
    """Of a broker by itself."""
    settings = {
        "group.initial.rebalance.delay.ms": 300,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 300,
    }
    return make_broker(settings=settings).start().bootstrap


def tour(folder: Path, bootstrap: str, *options: str) -> list[str]:
    """What the program says, compiled and run with the clients that Maven gives it with these options."""
    built = compiled("TransactionTour", folder, *options)
    command = ["java", "-cp", f"{built}/*:{built}", "TransactionTour", bootstrap, f"{folder.name}-"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout.splitlines()


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


# The leader adds the partition, and Produce knows no other word for a fenced producer.
OF_PROTOCOL_2 = expected(fenced_send="InvalidProducerEpochException")


def test_java_applications_and_tools_of_the_second_protocol(tmp_path: Path, bootstrap: str) -> None:
    assert tour(tmp_path / "new", bootstrap) == OF_PROTOCOL_2


def test_java_applications_and_tools_of_the_first_protocol(tmp_path: Path, bootstrap: str) -> None:
    assert tour(tmp_path / "old", bootstrap, *CLIENTS_OF_PROTOCOL_1) == expected(fenced_send="ProducerFencedException")


def test_transactions_of_both_protocols_span_brokers(tmp_path: Path, three_brokers: "ThreeBrokers") -> None:
    found = tour(tmp_path / "old", three_brokers.bootstrap, *CLIENTS_OF_PROTOCOL_1)
    assert found == expected(fenced_send="ProducerFencedException")
    assert tour(tmp_path / "new", three_brokers.bootstrap) == OF_PROTOCOL_2
