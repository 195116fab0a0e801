"""One of three brokers has no room: the others lead and go on, and it comes back when it has."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.components.brokers import Brokers, three_brokers
from tests.support.small_disks import small_disk, take_the_rest

if TYPE_CHECKING:
    from tests.postgres import PostgresDatabases, PostgresServer

pytest_plugins = ["tests.postgres"]
pytestmark = pytest.mark.slow

# Followers that lag leave after 30 s, which is as long as producers wait here: nothing below may be owed to that.
SETTINGS = {"replica.lag.time.max.ms": 30_000, "leader.imbalance.check.interval.seconds": 1}
FULL = 2
PARTITIONS = 3
RECORD_BYTES = 10_000


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """That of broker 2, which 1,500 records fill."""
    with small_disk(tmp_path / f"broker-{FULL}", 20 << 20) as folder:
        yield folder


@pytest.fixture
def brokers(
    disk: Path, postgres_server: "PostgresServer", postgres_databases: "PostgresDatabases", tmp_path: Path
) -> Iterator[Brokers]:
    with three_brokers(postgres_databases, tmp_path, SETTINGS) as made:
        yield made


def leads_and_is_in_sync(brokers: Brokers, topic: str) -> tuple[bool, bool]:
    """Whether broker 2 leads a partition, and whether it is in sync anywhere."""
    rows = brokers.rows(topic)
    return any(row.leader == FULL for row in rows), any(row.replica_set.member(FULL) for row in rows)


def test_a_broker_without_room_leaves_its_partitions_to_others_until_it_has_some(brokers: Brokers, disk: Path) -> None:
    written: dict[int, list[bytes]] = {partition: [] for partition in range(PARTITIONS)}

    def write(count: int) -> None:
        """Fails unless all are acknowledged."""
        for partition in range(PARTITIONS):
            first = len(written[partition])
            values = [b"%06d" % number * (RECORD_BYTES // 6) for number in range(first, first + count)]
            written[partition] += brokers.produce("filling", values, partition=partition)

    brokers.create("filling", PARTITIONS, min_insync_replicas=2, remote_storage_enable="false")
    assert leads_and_is_in_sync(brokers, "filling") == (True, True)
    write(800)
    brokers.wait(lambda: leads_and_is_in_sync(brokers, "filling") == (False, False), "others lead, without it")
    assert brokers.by_id[FULL].get("/readyz")["disk_full"]
    write(10)
    subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
    brokers.wait_whole("filling")
    brokers.wait(lambda: leads_and_is_in_sync(brokers, "filling")[0], "it leads again what it is preferred for")
    take_the_rest(disk / "others")
    brokers.wait(lambda: leads_and_is_in_sync(brokers, "filling") == (False, False), "others lead once more")
    write(10)
    (disk / "others").unlink()
    brokers.wait_whole("filling")
    brokers.wait(lambda: leads_and_is_in_sync(brokers, "filling")[0], "it leads again")
    write(10)
    for partition, values in written.items():
        assert brokers.read("filling", partition=partition) == values
    assert "Traceback" not in brokers.by_id[FULL].log(), brokers.logs()
