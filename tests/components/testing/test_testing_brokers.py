"""`tiered.testing.cluster(brokers=3)`: several brokers in one process, of which a test loses some."""

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tiered.testing import LocalCluster, cluster

if TYPE_CHECKING:
    from tests.postgres import PostgresDatabases

pytest_plugins = ["tests.postgres"]

WAIT_S = 60.0


def send(c: LocalCluster, topic: str, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": c.bootstrap, "linger.ms": 0, "enable.idempotence": True})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(WAIT_S) == 0


def read(c: LocalCluster, topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": c.bootstrap, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    for _ in range(count):
        message = consumer.poll(WAIT_S)
        assert message is not None
        assert message.error() is None, message.error()
        found.append(message.value())
    consumer.close()
    return found


def leader_of(c: LocalCluster, topic: str) -> int:
    admin = AdminClient({"bootstrap.servers": c.bootstrap})
    leader: int = admin.list_topics(topic, timeout=WAIT_S).topics[topic].partitions[0].leader
    return leader


def eventually(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_killed_leader_is_replaced_and_nothing_acknowledged_is_lost() -> None:
    with cluster(brokers=3, topics={"orders": 1}) as c:
        send(c, "orders", b"one")
        led = leader_of(c, "orders")
        c.brokers[led - 1].kill()
        send(c, "orders", b"two")
        assert leader_of(c, "orders") != led
        c.brokers[led - 1].start()
        assert read(c, "orders", 2) == [b"one", b"two"]


def test_every_broker_may_be_restarted_in_turn() -> None:
    with cluster(brokers=3, topics={"orders": 1}) as c:
        for number in range(6):
            send(c, "orders", str(number).encode())
            c.brokers[number % 3].restart()
        assert read(c, "orders", 6) == [str(number).encode() for number in range(6)]


def test_topics_have_three_replicas_and_need_two() -> None:
    with cluster(brokers=3, topics={"orders": 3}) as c:
        found = AdminClient({"bootstrap.servers": c.bootstrap}).list_topics("orders", timeout=WAIT_S)
        partitions = found.topics["orders"].partitions.values()
        assert sorted(found.brokers) == [1, 2, 3]
        assert sorted(each.leader for each in partitions) == [1, 2, 3]
        assert all(sorted(each.isrs) == [1, 2, 3] for each in partitions)
        c.create_topic("single", replicas=1)
        send(c, "orders", b"before")
        led = leader_of(c, "orders")
        others = [each for each in c.brokers if each.broker_id != led]
        for each in others:
            each.kill()
        producer = Producer({"bootstrap.servers": c.bootstrap, "linger.ms": 0, "message.timeout.ms": 2_000})
        failed = []
        producer.produce("orders", b"after", partition=0, on_delivery=lambda error, _: failed.append(error))
        producer.flush(WAIT_S)
        assert failed[0] is not None, "one of three is too few to acknowledge"
        others[0].start()
        send(c, "orders", b"again")


def test_what_is_tiered_by_one_leader_is_read_from_the_next() -> None:
    with cluster(brokers=3, topics={"orders": 1}) as c:
        send(c, "orders", b"one", b"two")
        c.tier("orders", keep_local=False)
        led = leader_of(c, "orders")
        c.brokers[led - 1].stop()
        eventually(lambda: leader_of(c, "orders") not in (led, -1))
        assert read(c, "orders", 2) == [b"one", b"two"]


def test_brokers_in_processes_of_their_own_share_a_postgresql(postgres_databases: "PostgresDatabases") -> None:
    url = postgres_databases.create()
    try:
        with cluster(brokers=2, sql=url, in_process=False, topics={"orders": 1}) as c:
            send(c, "orders", b"one")
            led = leader_of(c, "orders")
            c.brokers[led - 1].kill()
            eventually(lambda: leader_of(c, "orders") not in (led, -1))
            assert read(c, "orders", 1) == [b"one"]
    finally:
        postgres_databases.drop(url)


@pytest.mark.alone
def test_no_thread_is_left_of_any_of_them() -> None:
    before = set(threading.enumerate())
    for _ in range(3):
        with cluster(brokers=3, topics={"orders": 3}) as c:
            c.brokers[1].kill()
            c.brokers[2].stop()
    left = [each for each in threading.enumerate() if each not in before]
    assert not left, [each.name for each in left]
