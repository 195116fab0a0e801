"""What readers of committed records get: a consumer of the brokers, and a batch of Spark without its JVM."""

from collections.abc import Mapping

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition

from pyspark_tiered.batch import BatchReader
from pyspark_tiered.options import parse_options

COLUMNS = ("partition", "offset", "value")
Rows = list[tuple[int, int, bytes]]
"""Partition, offset and value of each record."""


def spark_batch(topic: str, given: Mapping[str, str]) -> Rows:
    """Every row of every split, sorted."""
    told = {"subscribe": topic, "isolation.level": "read_committed", **given}
    reader = BatchReader(parse_options(told, streaming=False), COLUMNS)
    found: Rows = []
    for split in reader.partitions():
        for batch in reader.read(split):
            found += list(zip(*(column.to_pylist() for column in batch.columns), strict=True))
    return sorted(found)


def committed_records(bootstrap: str, topic: str, partitions: int) -> Rows:
    """Every record up to where the log of such a consumer ends now, sorted."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "committed-records",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in range(partitions)])
    found: Rows = []
    ended: set[int | None] = set()
    try:
        while len(ended) < partitions:
            message = consumer.poll(20)
            assert message is not None, f"nothing more of {set(range(partitions)) - ended}"
            if (error := message.error()) is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(message.partition())
                continue
            found.append(_told(message))
    finally:
        consumer.close()
    return sorted(found)


def _told(message: Message) -> tuple[int, int, bytes]:
    partition, offset, value = message.partition(), message.offset(), message.value()
    assert partition is not None
    assert offset is not None
    return partition, offset, bytes(value or b"")
