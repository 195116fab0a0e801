"""Transactions of many partitions of a replicated topic: none stands still while nothing is wrong.

`make interop` commits 911 of them. Java's client sends all batches for one broker in one Produce.
"""

import subprocess
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import NewTopic

from tests.clients import clients
from tests.clients.foreign_tools import tool
from tests.clients.java_client import compiled
from tests.support.turn_by_turn import TURN_BY_TURN

if TYPE_CHECKING:
    from tests.clients.three_brokers import ThreeBrokers

pytest_plugins = ["tests.clients.three_brokers"]
pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]
PRODUCERS, PARTITIONS, TRANSACTIONS = 3, 60, 911
LONGEST_MS = 2_000


@pytest.mark.parametrize("prefix", [(), TURN_BY_TURN], ids=["as served", "turn by turn"])
def test_no_transaction_of_sixty_partitions_stands_still(
    prefix: Sequence[str], tmp_path: Path, make_cluster: "Callable[..., AbstractContextManager[ThreeBrokers]]"
) -> None:
    built = compiled("TransactionPace", tmp_path / "java")
    with make_cluster(prefix=prefix) as brokers:
        made = clients.admin(brokers.bootstrap).create_topics([NewTopic("pace", PARTITIONS, 3)])
        made["pace"].result(30)
        command = [tool("java"), "-cp", f"{built}/*:{built}", "TransactionPace", brokers.bootstrap, "pace"]
        done = subprocess.run(
            [*command, str(PRODUCERS), str(PARTITIONS), str(TRANSACTIONS)],
            capture_output=True,
            text=True,
            timeout=800,
            check=False,
        )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    took_ms = sorted(map(int, done.stdout.split()))
    print(f"{len(took_ms)} transactions, median {took_ms[len(took_ms) // 2]} ms, longest {took_ms[-5:]} ms")
    assert len(took_ms) == TRANSACTIONS
    assert took_ms[-1] <= LONGEST_MS
