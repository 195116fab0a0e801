"""What a consumer of the brokers gets that reads committed records alone."""

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition


def committed_records(bootstrap: str, topic: str, partitions: int) -> list[tuple[int, int, bytes]]:
    """Partition, offset and value of each, up to where such readers' log ends now."""
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
    found: list[tuple[int, int, bytes]] = []
    ended: set[int | None] = set()
    try:
        while len(ended) < partitions:
            message = consumer.poll(20)
            assert message is not None, "the brokers give nothing"
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
