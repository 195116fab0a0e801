"""Compacted topics, and what Spark and a consumer find in them."""

import random

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from pyspark.sql import SparkSession

from tiered.testing import LocalCluster

WAIT_S = 60.0
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
