"""The Java client's transactions: it chooses the second protocol by the broker's features (KIP-890)."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import select

from tests.broker_process import BrokerProcess
from tests.clients.java_client import compiled
from tests.support.topics import create
from tiered.meta.engine import Database
from tiered.meta.tables import transactional_producer
from tiered.rules.transactions.transaction_state import RAISES_EPOCH

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]
TRANSACTIONS, PARTITIONS = 30, 4


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The client from Maven Central, and our program compiled against it."""
    return compiled("Transactions", tmp_path_factory.mktemp("java"))


def test_the_java_client_commits_and_aborts_in_the_second_protocol(
    built: Path, make_broker: Callable[..., BrokerProcess]
) -> None:
    broker = make_broker().start()
    create(broker, "t", PARTITIONS)
    command = ["java", "-cp", f"{built}/*:{built}", "Transactions", broker.bootstrap, "t"]
    done = subprocess.run(
        [*command, str(TRANSACTIONS), str(PARTITIONS)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    committed = PARTITIONS * TRANSACTIONS * 2 // 3
    assert done.stdout.splitlines() == [f"read {committed} of {committed}, aborted 0"]
    broker.stop()
    stored = Database.open(f"sqlite:///{broker.data / 'meta.db'}")
    try:
        columns = transactional_producer.c.protocol, transactional_producer.c.producer_epoch
        (found,) = stored.run_sync(lambda conn: conn.execute(select(*columns)).all())
    finally:
        stored.close_sync()
    assert tuple(found) == (RAISES_EPOCH, TRANSACTIONS), "each end has raised the epoch"
