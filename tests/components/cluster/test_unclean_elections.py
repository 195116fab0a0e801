"""Where nobody in sync is left: a topic waits for them, unless it says that losing records is better than waiting."""

import time
from collections.abc import Callable

from confluent_kafka import Consumer, ElectionType, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from tiered.testing import LocalCluster, cluster

WAIT_S = 60.0
TOPIC = "orders"


def send(c: LocalCluster, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": c.bootstrap, "linger.ms": 0, "acks": "all"})
    producer.produce(TOPIC, value, partition=0)
    assert producer.flush(WAIT_S) == 0


def read(c: LocalCluster, count: int) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": c.bootstrap, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    messages = [consumer.poll(WAIT_S) for _ in range(count)]
    consumer.close()
    return [None if each is None else each.value() for each in messages]


def described(admin: AdminClient) -> tuple[int, list[int]]:
    """The leader and who is in sync."""
    found = admin.list_topics(TOPIC, timeout=WAIT_S).topics[TOPIC].partitions[0]
    return found.leader, sorted(found.isrs)


def eventually(what: Callable[[], bool], why: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not what():
        assert time.monotonic() < deadline, why()
        time.sleep(0.05)


def test_a_lagging_replica_leads_only_where_the_topic_allows_a_loss() -> None:
    with cluster(brokers=3) as c:
        admin = AdminClient({"bootstrap.servers": c.bootstrap})
        new = NewTopic(TOPIC, 1, replica_assignment=[[1, 2]], config={"min.insync.replicas": "1"})
        admin.create_topics([new])[TOPIC].result(WAIT_S)
        send(c, b"on both")
        c.brokers[1].kill()
        eventually(lambda: described(admin) == (1, [1]), lambda: described(admin))
        send(c, b"on the first alone")
        c.brokers[0].kill()
        c.brokers[1].start()
        eventually(lambda: described(admin) == (-1, []), lambda: described(admin))

        partition = TopicPartition(TOPIC, 0)
        refused = admin.elect_leaders(ElectionType.UNCLEAN, [partition]).result(WAIT_S)[partition]
        assert refused.name() == "POLICY_VIOLATION"
        assert "unclean.leader.election.enable is false" in refused.str()
        assert described(admin)[0] == -1

        allow = ConfigEntry("unclean.leader.election.enable", "true", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[allow])
        admin.incremental_alter_configs([resource])[resource].result(WAIT_S)
        eventually(lambda: described(admin) == (2, [2]), lambda: described(admin))
        send(c, b"after the loss")

        c.brokers[0].start()
        eventually(lambda: described(admin) == (2, [1, 2]), lambda: described(admin))
        assert read(c, 2) == [b"on both", b"after the loss"]
        # The first one has cut what it alone had, and has what the second one took meanwhile.
        c.brokers[1].kill()
        eventually(lambda: described(admin)[0] == 1, lambda: described(admin))
        assert read(c, 2) == [b"on both", b"after the loss"]
