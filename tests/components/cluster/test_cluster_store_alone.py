"""One of three brokers does not reach the object store: the others lead, and upload, until it does."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import select

from tests.components.brokers import Brokers
from tests.fault_s3.moto_server import moto_s3, store_url
from tests.support.soon_without_store import PASS_ON_AFTER_MS, SOON_WITHOUT_STORE
from tiered.meta import tables
from tiered.testing.faulty_s3 import FaultyS3, S3FaultKind, faulty_s3

if TYPE_CHECKING:
    from tests.postgres import PostgresDatabases, PostgresServer

pytest_plugins = ["tests.postgres"]
pytestmark = pytest.mark.slow

SETTINGS = {
    "leader.imbalance.check.interval.seconds": 1,
    "log.segment.bytes": 1 << 14,
    "tiered.upload.interval.ms": 100,
    "broker.session.timeout.ms": 2_000,
}
AWAY = (S3FaultKind.RESET,)


@pytest.fixture
def s3(
    postgres_server: "PostgresServer", postgres_databases: "PostgresDatabases", tmp_path: Path
) -> Iterator[tuple[Brokers, dict[int, FaultyS3]]]:
    """The brokers, and the way to S3 of each."""
    meta_url = postgres_databases.create()
    made = Brokers(tmp_path, meta_url, settings=SETTINGS)
    with ExitStack() as stack:
        stack.callback(postgres_databases.drop, meta_url)
        endpoint = stack.enter_context(moto_s3())
        ways = {number: stack.enter_context(faulty_s3(endpoint)) for number in made.by_id}
        for number, broker in made.by_id.items():
            broker.prefix = list(SOON_WITHOUT_STORE)
            broker.arguments[broker.arguments.index("--store") + 1] = store_url(ways[number].url, "cluster")
        stack.callback(made.close)
        made.start()
        yield made, ways


def controller(brokers: Brokers) -> int:
    return int(brokers.database.run_sync(lambda conn: conn.execute(select(tables.lease.c.broker_id)).scalar_one()))


def test_who_alone_does_not_reach_the_store_leads_nothing_until_it_does(
    s3: tuple[Brokers, dict[int, FaultyS3]],
) -> None:
    brokers, ways = s3
    brokers.create("orders", 6, min_insync_replicas=2, remote_storage_enable="true", retention_ms=-1)
    brokers.wait(lambda: {row.leader for row in brokers.rows("orders")} == {1, 2, 3}, "they share the lead")
    alone = controller(brokers)
    led = [row.partition for row in brokers.rows("orders") if row.leader == alone]
    # Nobody reaches it: nothing moves.
    for way in ways.values():
        way.misbehave(seed=1, probability=1.0, kinds=AWAY)
    values = [b"%0800d" % number for number in range(50)]
    written = {number: brokers.produce("orders", values, partition=number) for number in led}
    brokers.wait(lambda: all(row.store_trouble for row in brokers.registered().values()), "all say so")
    assert not any(row.cold_end_offset for row in brokers.rows("orders"))
    epochs = [row.leader_epoch for row in brokers.rows("orders")]
    time.sleep(1.5 * PASS_ON_AFTER_MS / 1000.0)
    assert [row.leader_epoch for row in brokers.rows("orders")] == epochs
    # Two reach it again, and the third one does not.
    for number, way in ways.items():
        if number != alone:
            way.heal()
    brokers.wait(lambda: all(row.leader != alone for row in brokers.rows("orders")), "others lead")
    assert brokers.is_whole("orders"), "it stays in sync"
    assert [row.leader_epoch - epoch for row, epoch in zip(brokers.rows("orders"), epochs, strict=True)] == [
        int(number in led) for number in range(6)
    ]
    brokers.wait(lambda: controller(brokers) != alone, "another one is the controller")
    brokers.wait(
        lambda: all(row.cold_end_offset for row in brokers.rows("orders") if row.partition in led), "others upload"
    )
    assert brokers.registered()[alone].store_trouble == "away"
    for number in led:
        written[number] += brokers.produce("orders", [b"more"], partition=number)
    ways[alone].heal()
    brokers.wait(lambda: {row.leader for row in brokers.rows("orders")} == {1, 2, 3}, "it leads again")
    assert brokers.registered()[alone].store_trouble is None
    for number in led:
        assert brokers.read("orders", partition=number) == written[number]
    assert "Traceback" not in brokers.by_id[alone].log(), brokers.logs()
