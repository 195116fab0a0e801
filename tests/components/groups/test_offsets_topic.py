"""`__consumer_offsets` as lag exporters read it: a topic of committed offsets, for which SQL is asked."""

import struct
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition
from confluent_kafka.admin import OffsetSpec

from tests.broker_process import BrokerProcess
from tests.clients.raw import RawConnection
from tests.support.admin_requests import admin
from tests.support.topics import create
from tests.support.wire_offsets import commit
from tiered.rules.groups.coordinator_slot import coordinator_slot

TOPIC = "__consumer_offsets"
WAIT_S = 20.0
Told = tuple[str, str, int, int | None]
"""Group, topic, partition and offset, None once it is gone."""


def slot(group: str) -> int:
    return coordinator_slot(group, 50)


def decoded(message: Message) -> Told:
    """As an exporter decodes it, by Kafka's schemas."""
    key, value = message.key(), message.value()
    assert key is not None
    assert struct.unpack_from(">h", key) == (1,)
    group, at = string(key, 2)
    topic, at = string(key, at)
    (partition,) = struct.unpack_from(">i", key, at)
    if value is None:
        return group, topic, partition, None
    version, offset, _ = struct.unpack_from(">hqi", value)
    assert version == 3
    _, at = string(value, 14)
    assert struct.unpack_from(">q", value, at) == (message.timestamp()[1],)
    return group, topic, partition, offset


def string(data: bytes, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from(">h", data, at)
    return data[at + 2 : at + 2 + length].decode(), at + 2 + length


class Exporter:
    """Reads one partition of the topic, as exporters read all of them."""

    def __init__(self, broker: BrokerProcess, partition: int, offset: int = OFFSET_BEGINNING) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": "exporter",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(TOPIC, partition, offset)])
        self.offsets: list[int] = []

    def next(self) -> Told:
        for _ in range(100):
            message = self._consumer.poll(WAIT_S)
            assert message is not None, "nothing was told in time"
            error = message.error()
            if error is None:
                offset = message.offset()
                assert offset is not None
                self.offsets.append(offset)
                return decoded(message)
            assert error.retriable() or error.code() in (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT), error
        raise AssertionError("nothing but errors")

    def close(self) -> None:
        self._consumer.close()


@pytest.fixture
def topic(broker: BrokerProcess) -> Iterator[str]:
    create(broker, "watched", partitions=3)
    yield "watched"
    admin(broker).delete_topics(["watched"])["watched"].result(WAIT_S)


def test_commits_of_a_group_are_told_in_their_order_with_those_from_before(broker: BrokerProcess, topic: str) -> None:
    with RawConnection(broker) as connection:
        assert set(commit(connection, "told", {topic: {0: 10, 1: 20}}).values()) == {0}
        with closing(Exporter(broker, slot("told"))) as exporter:
            assert {exporter.next(), exporter.next()} == {("told", topic, 0, 10), ("told", topic, 1, 20)}
            for offset in (11, 12):
                commit(connection, "told", {topic: {0: offset}})
                assert exporter.next() == ("told", topic, 0, offset)
            assert exporter.offsets == sorted(set(exporter.offsets))


def test_a_deleted_group_and_a_deleted_offset_are_told_as_tombstones(broker: BrokerProcess, topic: str) -> None:
    with RawConnection(broker) as connection, closing(Exporter(broker, slot("gone"))) as exporter:
        commit(connection, "gone", {topic: {0: 10}})
        assert exporter.next() == ("gone", topic, 0, 10)
        admin(broker).delete_consumer_groups(["gone"])["gone"].result(WAIT_S)
        assert exporter.next() == ("gone", topic, 0, None)


def test_the_ends_and_times_of_the_topic_are_told(broker: BrokerProcess, topic: str) -> None:
    where = TopicPartition(TOPIC, slot("ends"))

    def asked(spec: str | int) -> int:
        wanted = OffsetSpec.for_timestamp(spec) if isinstance(spec, int) else getattr(OffsetSpec, spec)()
        found: int = admin(broker).list_offsets({where: wanted})[where].result(WAIT_S).offset
        return found

    with RawConnection(broker) as connection, closing(Exporter(broker, slot("ends"))) as exporter:
        assert asked("earliest") == asked("latest") > 0
        commit(connection, "ends", {topic: {0: 10}})
        exporter.next()
        assert exporter.offsets == [asked("earliest")]
        assert exporter.offsets == [asked(1)]
        assert exporter.offsets == [asked("max_timestamp")]
        assert exporter.offsets == [asked("latest") - 1]


def test_an_offset_above_the_end_is_out_of_range_and_a_partition_too_many_unknown(broker: BrokerProcess) -> None:
    with RawConnection(broker) as connection:
        while (answer := connection.fetch(TOPIC, 3)).error_code:
            assert answer.error_code == 78, "OFFSET_NOT_AVAILABLE is all that SQL's absence would be"
        assert connection.fetch(TOPIC, answer.high_watermark + 1, partition=3).error_code == 1
        assert connection.fetch(TOPIC, 0, partition=50).error_code == 3


def test_after_a_restart_a_reader_goes_on_and_offsets_have_grown(make_broker: Callable[..., BrokerProcess]) -> None:
    process = make_broker().start()
    create(process, "watched", partitions=1)
    with closing(Exporter(process, slot("kept"))) as exporter:
        with RawConnection(process) as connection:
            commit(connection, "kept", {"watched": {0: 1}})
            assert exporter.next() == ("kept", "watched", 0, 1)
        process.kill()
        process.start()
        assert exporter.next() == ("kept", "watched", 0, 1)
        with RawConnection(process) as connection:
            commit(connection, "kept", {"watched": {0: 2}})
        assert exporter.next() == ("kept", "watched", 0, 2)
        assert exporter.offsets == sorted(set(exporter.offsets))
