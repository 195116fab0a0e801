"""A compacted topic, read by Spark from the bucket and from the broker, beside a consumer of the same topic."""

import random
import time

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from pyspark.sql import SparkSession

from tiered.testing import LocalCluster, cluster

pytestmark = pytest.mark.spark

WAIT_S = 60.0
SETTINGS = {"log.cleaner.backoff.ms": 20, "log.cleaner.io.max.bytes.per.second": 10**9}
CONFIGS = {
    "cleanup.policy": "compact",
    "segment.bytes": 3_000,
    "min.cleanable.dirty.ratio": 0.01,
    "delete.retention.ms": 0,
    "remote.copy.lag.ms": -1,
    "tiered.chunk.bytes": 4_096,
}
Read = list[tuple[int, bytes, bytes | None]]


def write(c: LocalCluster, chance: random.Random, count: int) -> Read:
    producer = Producer({"bootstrap.servers": c.bootstrap, "enable.idempotence": True, "linger.ms": 1000})
    written: Read = []

    def told(error: object, message: Message) -> None:
        assert error is None, error
        offset, key = message.offset(), message.key()
        assert isinstance(offset, int)
        assert isinstance(key, bytes)
        value = message.value()
        assert value is None or isinstance(value, bytes)
        written.append((offset, key, value))

    for number in range(count):
        value = None if chance.random() < 0.15 else b"value-%d" % number
        producer.produce("table", key=b"key-%d" % chance.randrange(15), value=value, partition=0, on_delivery=told)
        if number % 8 == 7:
            assert producer.flush(WAIT_S) == 0
    # So large that the records before it are in a closed segment.
    producer.produce("table", key=b"last", value=b"x" * 3_500, partition=0, on_delivery=told)
    assert producer.flush(WAIT_S) == 0
    return sorted(written)


def consumed(c: LocalCluster) -> Read:
    config = {"bootstrap.servers": c.bootstrap, "group.id": "g", "enable.partition.eof": True}
    consumer = Consumer({**config, "enable.auto.commit": False})
    consumer.assign([TopicPartition("table", 0, 0)])
    found: Read = []
    while (message := consumer.poll(WAIT_S)) is not None and message.error() is None:
        found.append((message.offset(), message.key(), message.value()))  # type: ignore[arg-type]
    consumer.close()
    return found


def of_spark(spark: SparkSession, **options: str) -> Read:
    frame = spark.read.format("tiered").option("subscribe", "table").options(**options).load()
    rows = frame.select("offset", "key", "value").collect()
    return sorted(
        (row["offset"], bytes(row["key"]), None if row["value"] is None else bytes(row["value"])) for row in rows
    )


def test_spark_and_a_consumer_read_the_newest_of_each_key_and_nothing_older_than_allowed(spark: SparkSession) -> None:
    chance = random.Random(6)
    with cluster(settings=SETTINGS) as c:
        c.create_topic("table", configs=CONFIGS)
        first = write(c, chance, 300)
        newest = {key: (offset, key, value) for offset, key, value in first[:-1]}
        # Tombstones too: what they delete may be in the store.
        wanted = sorted(newest.values())
        deadline = time.monotonic() + WAIT_S
        while consumed(c)[:-1] != wanted:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        c.tier("table", keep_local=False)
        assert of_spark(spark, store=c.store_url) == consumed(c) == [*wanted, first[-1]]
        # What comes now is in the tail: nothing of it may be missing, and the two tiers meet inside one table.
        second = write(c, chance, 100)
        both = {"store": c.store_url, "kafka.bootstrap.servers": c.bootstrap}
        found = of_spark(spark, **both)
        offsets = {offset for offset, _, _ in found}
        newest |= {key: (offset, key, value) for offset, key, value in [first[-1], *second]}
        assert offsets.issuperset(offset for offset, _, _ in newest.values())
        assert set(found) <= {*first, *second}
        assert len(found) == len(offsets)
        assert sorted(found) == consumed(c)
