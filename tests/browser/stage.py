"""What the console's tests look at: a broker with data in every place and groups that stand somewhere.

Owns that story, for tests and for the pictures in docs/. Everything goes in through real clients.
"""

import json
import random
import time
from collections.abc import Iterable

import confluent_kafka
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.broker_process import BrokerProcess
from tests.components.brokers import Brokers

WAIT_S = 60.0
SETTINGS = {
    "log.retention.check.interval.ms": 200,
    "group.initial.rebalance.delay.ms": 0,
}
SEGMENT_BYTES = 60_000
TIERED = "orders"
TIERED_PARTITIONS = 3
LAGGING, IDLE = "billing", "reports"
_PLACES = ("Vienna", "Lisbon", "Osaka", "Quito", "Tromsø", "Perth")


def set_up(broker: BrokerProcess) -> None:
    """`orders` is cold, both and hot; `billing` reads it and lags; `reports` is idle; other topics are smaller."""
    small = {"segment.bytes": str(SEGMENT_BYTES)}
    create(broker, TIERED, TIERED_PARTITIONS, {**small, "local.retention.bytes": str(4 * SEGMENT_BYTES)})
    create(broker, "payments", 2, small)
    create(broker, "audit-log", 1, {**small, "local.retention.bytes": "1"})
    create(broker, "sessions", 6, {})
    create(broker, "empty", 2, {})
    orders = [order(number) for number in range(4_500)]
    produce(broker, TIERED, orders)
    produce(broker, "payments", (order(number) for number in range(600)))
    produce(broker, "audit-log", (order(number) for number in range(500)))
    produce(broker, "sessions", ((b"s%d" % number, b"\x00\x01\xfe session %d" % number) for number in range(120)))
    commit(broker, IDLE, {0: 900, 1: 400, 2: 1_200})
    for partition in range(TIERED_PARTITIONS):
        broker.wait_cold(TIERED, partition, end_offset=200)
    broker.wait_cold("audit-log", end_offset=100)


def set_up_cluster(brokers: Brokers) -> None:
    """The same story on three brokers, each partition on all of them or on two; everything is in sync at the end."""
    broker = brokers.by_id[1]
    small = {"segment.bytes": str(SEGMENT_BYTES)}
    create(broker, TIERED, TIERED_PARTITIONS, {**small, "local.retention.bytes": str(4 * SEGMENT_BYTES)}, replicas=3)
    create(broker, "payments", 6, {**small, "min.insync.replicas": "2"}, replicas=2)
    create(broker, "sessions", 3, {}, replicas=3)
    produce(broker, TIERED, (order(number) for number in range(3_000)))
    produce(broker, "payments", (order(number) for number in range(600)))
    commit(broker, IDLE, {0: 90, 1: 40, 2: 120})
    for partition in range(TIERED_PARTITIONS):
        broker.wait_cold(TIERED, partition, end_offset=100)
    for topic in (TIERED, "payments", "sessions"):
        brokers.wait_whole(topic)


def create(broker: BrokerProcess, topic: str, partitions: int, configs: dict[str, str], *, replicas: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(topic, partitions, replicas, config=configs)])[topic].result(WAIT_S)


def delete_before(broker: BrokerProcess, topic: str, offset: int) -> None:
    """DeleteRecords in partition 0."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for future in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
        future.result(WAIT_S)


def order(number: int) -> tuple[bytes, bytes]:
    """(key, value): an order as JSON, the same for the same number."""
    chance = random.Random(number)
    value = {
        "order": 9_007_199_254_740_993 + number,
        "customer": f"c-{chance.randrange(400):04}",
        "city": chance.choice(_PLACES),
        "items": [
            {"sku": f"{chance.randrange(16**6):06x}", "price": round(chance.uniform(2, 90), 2)} for _ in range(3)
        ],
        "gift": chance.random() < 0.2,
        "note": None,
    }
    return f"c-{chance.randrange(400):04}".encode(), json.dumps(value, ensure_ascii=False).encode()


def produce(broker: BrokerProcess, topic: str, records: Iterable[tuple[bytes | None, bytes | None]]) -> None:
    """Sends them all, a few a batch, and waits for every acknowledgement."""
    failures: list[object] = []
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap, "batch.num.messages": 50, "linger.ms": 5, "log_level": 0}
    )
    for key, value in records:
        producer.produce(
            topic,
            key=key,
            value=value,
            headers=[("source", b"web"), ("trace", b"\x00\xff\x10")],
            on_delivery=lambda error, _message: failures.append(error) if error is not None else None,
        )
        producer.poll(0)
    assert producer.flush(WAIT_S) == 0
    assert not failures, failures


def commit(broker: BrokerProcess, group: str, offsets: dict[int, int], topic: str = TIERED) -> None:
    """Commits as a consumer that is no member: the group stays idle."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "log_level": 0})
    wanted = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
    consumer.commit(offsets=wanted, asynchronous=False)
    consumer.close()


class LaggingConsumer:
    """A member of `billing` that reads `orders`, commits what it read, and is never done."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": LAGGING,
                "client.id": "billing-1",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                # It stays a member, however long nobody has it read.
                "max.poll.interval.ms": 3_600_000,
                "log_level": 0,
            }
        )
        self._consumer.subscribe([TIERED])

    def read(self, count: int) -> None:
        """Returns when `count` more records were read and committed."""
        deadline = time.monotonic() + WAIT_S
        left = count
        while left > 0:
            left -= len(self._consumer.consume(min(left, 100), timeout=1.0))
            assert time.monotonic() < deadline, f"{left} records did not come"
        self._consumer.commit(asynchronous=False)

    def close(self) -> None:
        self._consumer.close()
