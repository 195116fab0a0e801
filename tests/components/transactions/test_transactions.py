"""Transactions through a real client: what readers see when, who is fenced, and what kill -9 leaves."""

import time
import uuid
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.broker_process import BrokerProcess
from tests.clients.clients import value_of
from tests.support import transactional_producers
from tests.support.topics import create
from tests.support.transactional_producers import WAIT_S, send

FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)


def producer(broker: BrokerProcess, transactional_id: str, **settings: object) -> Producer:
    return transactional_producers.producer(broker.bootstrap, transactional_id, **settings)


class Reader:
    """Reads partition 0 of a topic from the start, as far as its isolation level lets it."""

    def __init__(self, broker: BrokerProcess, topic: str, *, isolation: str = "read_committed") -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": f"reader-{uuid.uuid4()}",
                "isolation.level": isolation,
                "enable.partition.eof": True,
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(topic, 0, 0)])
        self.seen: list[str] = []

    def until(self, *values: str) -> None:
        """Returns when exactly these have been seen, and the end of what may be read."""
        deadline = time.monotonic() + WAIT_S
        at_end = False
        while not (at_end and self.seen == list(values)):
            assert time.monotonic() < deadline, self.seen
            message = self._consumer.poll(0.1)
            if message is None:
                continue
            error = message.error()
            at_end = error is not None and error.code() == KafkaError._PARTITION_EOF
            if error is None:
                self.seen.append(value_of(message).decode())

    def close(self) -> None:
        self._consumer.close()


@pytest.fixture
def reading(broker: BrokerProcess) -> Iterator[Callable[..., Reader]]:
    made: list[Reader] = []

    def read(topic: str, **options: str) -> Reader:
        made.append(Reader(broker, topic, **options))
        return made[-1]

    yield read
    for each in made:
        each.close()


def test_readers_of_committed_records_get_those_of_committed_transactions_alone(
    broker: BrokerProcess, reading: Callable[..., Reader]
) -> None:
    topic = create(broker, "committed-alone")
    made = producer(broker, "committed-alone")
    for number in range(6):
        made.begin_transaction()
        send(made, topic, f"{number}-a", f"{number}-b")
        if number % 3:
            made.commit_transaction(WAIT_S)
        else:
            made.abort_transaction(WAIT_S)
    committed = [f"{number}-{letter}" for number in (1, 2, 4, 5) for letter in "ab"]
    reading(topic).until(*committed)
    reading(topic, isolation="read_uncommitted").until(
        *(f"{number}-{letter}" for number in range(6) for letter in "ab")
    )


def test_an_open_transaction_holds_back_what_came_after_it(
    broker: BrokerProcess, reading: Callable[..., Reader]
) -> None:
    topic = create(broker, "held-back")
    slow, fast = producer(broker, "slow"), producer(broker, "fast")
    slow.begin_transaction()
    send(slow, topic, "slow")
    fast.begin_transaction()
    send(fast, topic, "fast")
    fast.commit_transaction(WAIT_S)
    reader = reading(topic)
    reader.until()
    slow.commit_transaction(WAIT_S)
    reader.until("slow", "fast")


def test_all_partitions_of_a_transaction_become_visible(broker: BrokerProcess, reading: Callable[..., Reader]) -> None:
    topics = [create(broker, f"together-{number}") for number in range(3)]
    made = producer(broker, "together")
    made.begin_transaction()
    for topic in topics:
        send(made, topic, "x")
    readers = [reading(topic) for topic in topics]
    for each in readers:
        each.until()
    made.commit_transaction(WAIT_S)
    for each in readers:
        each.until("x")


def test_a_second_producer_of_the_same_id_fences_the_first_and_aborts_what_it_had_open(
    broker: BrokerProcess, reading: Callable[..., Reader]
) -> None:
    topic = create(broker, "fenced")
    first = producer(broker, "fenced")
    first.begin_transaction()
    send(first, topic, "of the first")
    second = producer(broker, "fenced")
    second.begin_transaction()
    send(second, topic, "of the second")
    second.commit_transaction(WAIT_S)
    with pytest.raises(KafkaException) as refused:
        first.commit_transaction(WAIT_S)
    assert refused.value.args[0].code() in FENCED
    reading(topic).until("of the second")


def test_a_transaction_that_is_open_for_too_long_is_aborted(make_broker: Callable[..., BrokerProcess]) -> None:
    broker = make_broker(settings={"transaction.abort.timed.out.transaction.cleanup.interval.ms": 100}).start()
    topic = create(broker, "late")
    made = producer(broker, "late", transaction_timeout_ms=1000)
    made.begin_transaction()
    send(made, topic, "late")
    reader = Reader(broker, topic)
    reader.until()
    other = producer(broker, "other")
    other.begin_transaction()
    send(other, topic, "in time")
    other.commit_transaction(WAIT_S)
    reader.until("in time")
    with pytest.raises(KafkaException):
        made.commit_transaction(WAIT_S)
    reader.close()


@pytest.mark.parametrize("commits", [True, False])
def test_a_transaction_goes_on_after_its_broker_was_killed(
    make_broker: Callable[..., BrokerProcess], commits: bool
) -> None:
    broker = make_broker().start()
    topic = create(broker, "killed")
    made = producer(broker, "killed")
    made.begin_transaction()
    send(made, topic, "before")
    broker.kill()
    broker.start()
    send(made, topic, "after")
    reader = Reader(broker, topic)
    reader.until()
    if commits:
        made.commit_transaction(WAIT_S)
        reader.until("before", "after")
    else:
        made.abort_transaction(WAIT_S)
    made.begin_transaction()
    send(made, topic, "next")
    made.commit_transaction(WAIT_S)
    reader.until(*(("before", "after") if commits else ()), "next")
    reader.close()
