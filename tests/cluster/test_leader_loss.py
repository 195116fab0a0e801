"""A leader that dies, and one that hands over: how long its partitions take no write, and that nothing is lost.

`make test` kills leaders in tests/components/cluster/test_cluster_failover.py; these measure twenty
(`make soak-tests`).
"""

import statistics
import time
from collections.abc import Callable

import pytest

from tests.cluster.processes import ClusterProcesses
from tests.cluster.traffic import Traffic, create_topic

TOPIC = "led"
PARTITIONS = 6
KILLS = 20


def led_by(cluster: ClusterProcesses, broker_id: int) -> list[int]:
    return [row.partition for row in cluster.partition_rows(TOPIC) if row.leader == broker_id]


def busiest(cluster: ClusterProcesses) -> int:
    return max(cluster.ids, key=lambda broker_id: len(led_by(cluster, broker_id)))


def lose_leaders(cluster: ClusterProcesses, traffic: Traffic, lose: Callable[[int], None], times: int) -> list[float]:
    """The seconds for which each partition that was led by the lost broker took no write."""
    silences: list[float] = []
    for _ in range(times):
        cluster.wait_until(lambda: cluster.is_in_sync(TOPIC), "all replicas are in sync")
        victim = busiest(cluster)
        partitions = led_by(cluster, victim)
        began_us = time.monotonic_ns() // 1000
        lose(victim)
        traffic.wait_for_acknowledgements()
        silences += [traffic.silence_s(index, began_us) for index in partitions]
        cluster.start(victim)
    return silences


def report(what: str, silences: list[float]) -> None:
    print(f"{what}: {len(silences)} partitions, p50 {statistics.median(silences):.2f} s, max {max(silences):.2f} s")


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_killed_leaders_are_replaced_and_nothing_acknowledged_is_lost(
    make_cluster: Callable[..., ClusterProcesses],
) -> None:
    cluster = make_cluster()
    create_topic(cluster, TOPIC, PARTITIONS)
    with Traffic(cluster, TOPIC, PARTITIONS) as traffic:
        report("leader killed", lose_leaders(cluster, traffic, cluster.kill, 2))
        report("leader stopped", lose_leaders(cluster, traffic, cluster.stop, 2))
    assert traffic.unknown() == 0
    assert traffic.check_all_read_back() > 0


@pytest.mark.soak
def test_a_killed_leader_is_replaced_within_seconds(make_cluster: Callable[..., ClusterProcesses]) -> None:
    cluster = make_cluster()
    create_topic(cluster, TOPIC, PARTITIONS)
    with Traffic(cluster, TOPIC, PARTITIONS) as traffic:
        silences = lose_leaders(cluster, traffic, cluster.kill, KILLS)
    report(f"{KILLS} leaders killed", silences)
    assert traffic.unknown() == 0
    assert traffic.check_all_read_back() > 0
    assert statistics.median(silences) <= 3.0
    assert max(silences) <= 10.0


@pytest.mark.soak
def test_a_leader_that_is_stopped_hands_over_within_half_a_second(
    make_cluster: Callable[..., ClusterProcesses],
) -> None:
    cluster = make_cluster()
    create_topic(cluster, TOPIC, PARTITIONS)
    with Traffic(cluster, TOPIC, PARTITIONS) as traffic:
        silences = lose_leaders(cluster, traffic, cluster.stop, KILLS)
    report(f"{KILLS} leaders stopped", silences)
    assert traffic.unknown() == 0
    assert traffic.check_all_read_back() > 0
    assert max(silences) <= 0.5
