"""Keys written and deleted, and what a reader must find of them."""

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from tiered.testing import LocalCluster

WAIT_S = 60.0
Read = list[tuple[int, bytes | None, bytes | None]]


def write(c: LocalCluster, topic: str, records: list[tuple[bytes | None, bytes | None]], **options: object) -> Read:
    """(offset, key, value) of each record; every ten of them are a batch or a little more."""
    producer = Producer({"bootstrap.servers": c.bootstrap, "enable.idempotence": True, "linger.ms": 1000, **options})
    written: Read = []

    def told(error: object, message: Message) -> None:
        assert error is None, error
        offset = message.offset()
        assert offset is not None
        written.append((offset, message.key(), message.value()))

    for number, (key, value) in enumerate(records):
        producer.produce(topic, key=key, value=value, partition=0, on_delivery=told)
        if number % 10 == 9:
            assert producer.flush(WAIT_S) == 0
    assert producer.flush(WAIT_S) == 0
    return sorted(written)


def read_confluent(c: LocalCluster, topic: str, start: int = 0) -> Read:
    consumer = Consumer(
        {
            "bootstrap.servers": c.bootstrap,
            "group.id": "g",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition(topic, 0, start)])
    found: Read = []
    while True:
        message = consumer.poll(WAIT_S)
        assert message is not None
        if message.error() is not None:
            break  # The end of the partition.
        offset = message.offset()
        assert offset is not None
        found.append((offset, message.key(), message.value()))
    consumer.close()
    return found


def expected(written: Read) -> Read:
    """The newest record of each key, without keys whose newest is a tombstone."""
    newest = {key: (offset, key, value) for offset, key, value in sorted(written)}
    return sorted(record for record in newest.values() if record[2] is not None)
