"""A broker whose disk was replaced rejoins: its past comes from the object store, never through its leader."""

import time
from collections.abc import Callable

import pytest

from tests.cluster.processes import ClusterProcesses
from tests.cluster.traffic import Traffic, create_topic, read_values, wait_until_clients_find

TOPIC = "tiered"
CONFIG = {"segment.bytes": "60000", "local.retention.bytes": "1", "retention.ms": "-1"}
SETTINGS = {"log.retention.check.interval.ms": 500}
COLD_RECORDS = 600


def object_reads(cluster: ClusterProcesses) -> dict[int, int]:
    return {broker_id: counts.get("GET segment", 0) for broker_id, counts in cluster.store.counts().items()}


def local_start(cluster: ClusterProcesses, broker_id: int) -> int:
    """The first offset on the broker's disk."""
    (row,) = cluster.partition_rows(TOPIC)
    folder = cluster.brokers[broker_id].data / "log" / str(row.topic_id) / "0"
    return min((int(path.stem) for path in folder.glob("*.log")), default=0)


def wait_until_nobody_uploads(cluster: ClusterProcesses) -> None:
    """An upload is read back by whoever made it, which is not what is counted here."""
    deadline, before = time.monotonic() + 60, None
    while (now := object_reads(cluster)) != before:
        assert time.monotonic() < deadline, "uploads do not end"
        before = now
        time.sleep(2.0)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_wiped_broker_rejoins_without_its_leader_reading_the_store(
    make_cluster: Callable[..., ClusterProcesses],
) -> None:
    cluster = make_cluster(settings=SETTINGS)
    create_topic(cluster, TOPIC, 1, config=CONFIG)
    with Traffic(cluster, TOPIC, 1, per_second=150, value_bytes=400) as traffic:
        cluster.wait_until(
            lambda: all(local_start(cluster, each) >= COLD_RECORDS for each in cluster.ids),
            f"the first {COLD_RECORDS} records are cold alone",
        )
    wait_until_nobody_uploads(cluster)
    leader = cluster.leader_of(TOPIC, 0)
    wiped = next(each for each in cluster.ids if each != leader)
    cluster.kill(wiped)
    cluster.wipe(wiped)
    before = object_reads(cluster)
    cluster.start(wiped)
    seconds = cluster.wait_until(lambda: cluster.is_in_sync(TOPIC), "the wiped broker is in sync")
    after = object_reads(cluster)
    print(f"in sync {seconds:.1f} s after its start; reads of objects: {before} before, {after} after")
    for broker_id in cluster.ids:
        if broker_id != wiped:
            assert after[broker_id] == before[broker_id], f"broker {broker_id} read the store for a follower"
    assert after[wiped] > before[wiped], "it began without what the store knows of the past"
    assert local_start(cluster, wiped) >= COLD_RECORDS, "it took the cold past onto its disk"
    total = traffic.check_all_read_back()
    # The broker that came back leads alone: it must have everything, hot and cold.
    for broker_id in cluster.ids:
        if broker_id != wiped:
            cluster.kill(broker_id)
    wait_until_clients_find(cluster, TOPIC, 0, leader=wiped)
    (log,) = read_values(cluster.bootstrap, [(TOPIC, 0)]).values()
    # With one of two in-sync replicas left the high watermark stands still; what was acknowledged is below it.
    assert len(log) >= len(traffic.acknowledged())
    assert len(log) <= total
