"""Partitions move while they are written to and brokers die: no acknowledged record is lost, doubled or reordered."""

import random
import threading
import time
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Message, Producer
from confluent_kafka import TopicPartition as Partition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError

if TYPE_CHECKING:
    from tests.clients.three_brokers import ThreeBrokers

pytest_plugins = ["tests.clients.three_brokers"]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

TOPIC = "moved-about"
PARTITIONS = 4
ROUNDS = 4
WAIT_S = 60.0
SEED = 20


class Writer:
    """An idempotent producer that writes 0, 1, 2, … to each partition in turn until it is stopped."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: dict[int, dict[int, int]] = {number: {} for number in range(PARTITIONS)}
        self.failures: list[str] = []
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
        )
        self._must_stop = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def _write(self) -> None:
        number = 0
        while not self._must_stop.wait(0.002):
            self._producer.produce(TOPIC, b"%d" % number, partition=number % PARTITIONS, on_delivery=self._delivered)
            self._producer.poll(0)
            number += 1
        assert self._producer.flush(WAIT_S) == 0

    def _delivered(self, error: object, message: Message) -> None:
        partition, offset, value = message.partition(), message.offset(), message.value()
        if error is not None or partition is None or offset is None or value is None:
            self.failures.append(str(error))
        else:
            self.acknowledged[partition][offset] = int(value)

    def stop(self) -> None:
        self._must_stop.set()
        self._thread.join()


def settled(admin: AdminClient) -> dict[int, list[int]]:
    """Every partition's replicas, once each has a leader and all of them are in sync."""
    deadline = time.monotonic() + WAIT_S
    while True:
        found = admin.list_topics(TOPIC, timeout=WAIT_S).topics[TOPIC].partitions
        if all(each.leader >= 0 and sorted(each.isrs) == sorted(each.replicas) for each in found.values()):
            return {number: list(each.replicas) for number, each in found.items()}
        assert time.monotonic() < deadline, {number: (each.replicas, each.isrs) for number, each in found.items()}
        time.sleep(0.1)


def move(bootstrap: str, targets: dict[int, list[int]]) -> None:
    """Asks until somebody has taken it: a broker may just be dying."""
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            client = KafkaAdminClient(bootstrap_servers=bootstrap.split(","))
            try:
                client.alter_partition_reassignments({TopicPartition(TOPIC, n): each for n, each in targets.items()})
                return
            finally:
                client.close()
        except KafkaError:
            assert time.monotonic() < deadline
            time.sleep(0.5)


def read(bootstrap: str, number: int, end: int) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([Partition(TOPIC, number, 0)])
    found: dict[int, int] = {}
    while len(found) < end:
        message = consumer.poll(WAIT_S)
        assert message is not None, f"{TOPIC}-{number} ends at {len(found)}, not at {end}"
        assert message.error() is None, message.error()
        offset, value = message.offset(), message.value()
        assert offset is not None
        assert value is not None
        found[offset] = int(value)
    consumer.close()
    return found


def test_nothing_acknowledged_is_lost_while_partitions_move_and_brokers_die(three_brokers: "ThreeBrokers") -> None:
    bootstrap = three_brokers.bootstrap
    chance = random.Random(SEED)
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    new = NewTopic(TOPIC, PARTITIONS, 2, config={"min.insync.replicas": "2"})
    admin.create_topics([new])[TOPIC].result(WAIT_S)
    writer = Writer(bootstrap)
    try:
        for round_ in range(ROUNDS):
            targets = {number: chance.sample((1, 2, 3), 2) for number in range(PARTITIONS)}
            move(bootstrap, targets)
            if round_ % 2 == 0:
                time.sleep(chance.random())
                victim = three_brokers.broker(chance.choice((1, 2, 3)))
                victim.kill()
                time.sleep(3.0)  # Longer than its session: others take over, and the move waits for it or not.
                victim.start()
            deadline = time.monotonic() + WAIT_S
            while (now := settled(admin)) != targets:
                assert time.monotonic() < deadline, f"round {round_}: {now} is not {targets}"
                time.sleep(0.1)
    finally:
        writer.stop()
    assert not writer.failures
    for number, acknowledged in writer.acknowledged.items():
        assert len(acknowledged) > 100
        found = read(bootstrap, number, max(acknowledged) + 1)
        assert {offset: found[offset] for offset in acknowledged} == acknowledged, "lost or changed"
        values = [found[offset] for offset in sorted(found)]
        assert values == sorted(set(values)), "doubled or out of order"
