"""Read, work, write: consumed offsets move with the transaction that has the results, or not at all."""

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.broker_process import BrokerProcess
from tests.support.topics import create

WAIT_S = 30.0
RECORDS = 10


@contextmanager
def consuming(broker: BrokerProcess, group: str, topic: str, *, protocol: str = "classic") -> Iterator[Consumer]:
    """A member of the group, once it has been given the topic's partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    consumer.subscribe([topic])
    yield consumer
    consumer.close()


def consumed(consumer: Consumer, count: int) -> list[str]:
    found: list[str] = []
    while len(found) < count:
        message = consumer.poll(WAIT_S)
        assert message is not None
        assert message.error() is None
        value = message.value()
        assert isinstance(value, bytes)
        found.append(value.decode())
    return found


def filled(broker: BrokerProcess, name: str) -> tuple[str, str, Producer]:
    """A topic with records, a topic for results, and a transactional producer."""
    source, target = create(broker, f"{name}-in"), create(broker, f"{name}-out")
    plain = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for number in range(RECORDS):
        plain.produce(source, str(number).encode())
    assert plain.flush(WAIT_S) == 0
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": str(uuid4()), "log_level": 0})
    producer.init_transactions(WAIT_S)
    return source, target, producer


def work(consumer: Consumer, producer: Producer, target: str, count: int) -> None:
    """A transaction with the results of so many records and their offsets, which is left open."""
    producer.begin_transaction()
    for value in consumed(consumer, count):
        producer.produce(target, f"{value}!".encode())
    positions = consumer.position(consumer.assignment())
    producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), WAIT_S)


def committed(consumer: Consumer, topic: str) -> int:
    (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=WAIT_S)
    assert found.error is None
    return found.offset


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_offsets_move_with_the_commit_of_the_results_and_not_with_an_abort(
    broker: BrokerProcess, protocol: str
) -> None:
    source, target, producer = filled(broker, f"work-{protocol}")
    group = str(uuid4())
    with consuming(broker, group, source, protocol=protocol) as consumer:
        work(consumer, producer, target, 4)
        producer.commit_transaction(WAIT_S)
        assert committed(consumer, source) == 4
        work(consumer, producer, target, 3)
        producer.abort_transaction(WAIT_S)
        assert committed(consumer, source) == 4
    with consuming(broker, group, source, protocol=protocol) as consumer:
        work(consumer, producer, target, RECORDS - 4)
        producer.commit_transaction(WAIT_S)
        assert committed(consumer, source) == RECORDS
    with consuming(broker, str(uuid4()), target) as consumer:
        assert consumed(consumer, RECORDS) == [f"{number}!" for number in range(RECORDS)]


def test_whoever_begins_to_read_waits_for_the_offsets_of_an_open_transaction(broker: BrokerProcess) -> None:
    source, target, producer = filled(broker, "waiting")
    group = str(uuid4())
    with consuming(broker, group, source) as consumer:
        work(consumer, producer, target, 4)
    with consuming(broker, group, source) as consumer:
        for _ in range(20):
            assert consumer.poll(0.1) is None, "it would be given what the open transaction has consumed"
        producer.commit_transaction(WAIT_S)
        assert consumed(consumer, 1) == ["4"]


def test_a_member_that_was_replaced_sends_no_offsets(broker: BrokerProcess) -> None:
    source, _, producer = filled(broker, "replaced")
    group = str(uuid4())
    with consuming(broker, group, source) as old:
        producer.begin_transaction()
        consumed(old, 4)
        positions, membership = old.position(old.assignment()), old.consumer_group_metadata()
    with consuming(broker, group, source) as new:
        consumed(new, 1)
        with pytest.raises(KafkaException) as raised:
            producer.send_offsets_to_transaction(positions, membership, WAIT_S)
        error = raised.value.args[0]
        assert error.code() in (KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION)
        assert error.txn_requires_abort()
        producer.abort_transaction(WAIT_S)
        assert committed(new, source) == -1001
