"""Groups' offsets on their way to the bucket: some time after a commit, whatever the store does meanwhile."""

import time
from collections.abc import Callable

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from tiered.cold.bucket import group_checkpoints
from tiered.cold.opening import open_store
from tiered.testing import LocalCluster, cluster

WAIT_S = 60.0
QUICK = {"tiered.group.checkpoint.interval.ms": "20", "offsets.topic.num.partitions": "5"}


def eventually(claim: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not claim():
        assert time.monotonic() < deadline, f"not within {WAIT_S} s: {what}"
        time.sleep(0.02)


def commit(c: LocalCluster, group: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": c.bootstrap, "group.id": group, "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition("orders", 0, offset)], asynchronous=False)
    consumer.close()


def in_bucket(store_url: str) -> dict[str, list[int]]:
    """The offsets of each group, as the bucket has them."""
    store = open_store(store_url)
    found: dict[str, list[int]] = {}
    for slot in group_checkpoints.list_slots(store):
        stored = group_checkpoints.read_group_checkpoint(store, slot)
        for group in stored[0].groups if stored is not None else ():
            found[group.group_id] = [each.offset for each in group.offsets]
    return found


def test_commits_and_deletions_of_groups_reach_the_bucket() -> None:
    with cluster(topics={"orders": 1}, settings=QUICK) as c:
        commit(c, "billing", 5)
        commit(c, "shipping", 7)
        eventually(lambda: in_bucket(c.store_url) == {"billing": [5], "shipping": [7]}, "both groups are there")
        commit(c, "billing", 6)
        eventually(lambda: in_bucket(c.store_url)["billing"] == [6], "the later commit is there")
        admin = AdminClient({"bootstrap.servers": c.bootstrap})
        admin.delete_consumer_groups(["shipping"])["shipping"].result(WAIT_S)
        eventually(lambda: in_bucket(c.store_url) == {"billing": [6]}, "the deleted group is not")


def test_the_last_commits_before_a_stop_are_in_the_bucket() -> None:
    slow = {**QUICK, "tiered.group.checkpoint.interval.ms": "3600000"}
    with cluster(topics={"orders": 1}, settings=slow) as c:
        commit(c, "billing", 5)
        c.broker.stop()
        assert in_bucket(c.store_url) == {"billing": [5]}
        c.broker.start()
        commit(c, "billing", 9)
        c.broker.kill()
        assert in_bucket(c.store_url) == {"billing": [5]}
        c.broker.start()
        commit(c, "billing", 11)
        c.broker.stop()
        assert in_bucket(c.store_url) == {"billing": [11]}


def test_the_last_commits_before_all_brokers_stop_are_in_the_bucket() -> None:
    """Who stops first hands its groups over, and who gets them may stop before it has written them."""
    slow = {**QUICK, "tiered.group.checkpoint.interval.ms": "3600000"}
    groups = {f"group-{number}": number for number in range(1, 7)}
    with cluster(brokers=2, topics={"orders": 1}, settings=slow) as c:
        for name, offset in groups.items():
            commit(c, name, offset)
        for broker in c.brokers:
            broker.stop()
        assert in_bucket(c.store_url) == {name: [offset] for name, offset in groups.items()}


def test_a_store_that_is_away_delays_the_copy_and_no_commit() -> None:
    with cluster(topics={"orders": 1}, settings=QUICK, s3="moto") as c:
        c.s3.fail(method="PUT")
        for offset in range(1, 6):
            commit(c, "billing", offset)
        client = c.s3_client()
        c.s3.heal()
        eventually(
            lambda: client.list_objects_v2(Bucket=c.s3_bucket, Prefix="test/checkpoints/groups/")["KeyCount"] == 1,
            "the group is in the bucket once the store is back",
        )
        client.close()
