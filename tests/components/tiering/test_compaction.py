"""Compacted topics, from outside: clients read the newest value of each key, at the offset where it was written."""

import asyncio
import random
import time
from collections.abc import Callable, Iterator

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, PartitionMetadata
from kafka import KafkaConsumer
from kafka import TopicPartition as PyTopicPartition

from tests.support.compacted_topics import WAIT_S, Read, expected, read_confluent, write
from tests.unit.cold.verified_store import verify
from tiered.cold.opening import open_store
from tiered.testing import LocalCluster, cluster

INVALID_RECORD = 87
SETTINGS = {"log.cleaner.backoff.ms": 20, "log.cleaner.io.max.bytes.per.second": 10**9}
COMPACT = {
    "cleanup.policy": "compact",
    "segment.bytes": 2_000,
    "min.cleanable.dirty.ratio": 0.01,
    "delete.retention.ms": 0,
}


@pytest.fixture(scope="module")
def local() -> Iterator[LocalCluster]:
    with cluster(settings=SETTINGS) as started:
        yield started


def eventually(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def close_segments(c: LocalCluster, topic: str) -> Read:
    """One more record, large enough for a segment of its own."""
    return write(c, topic, [(b"closing", b"x" * 2_500)])


def read_kafka_python(c: LocalCluster, topic: str, start: int = 0) -> Read:
    consumer = KafkaConsumer(bootstrap_servers=c.bootstrap, enable_auto_commit=False)
    where = PyTopicPartition(topic, 0)
    consumer.assign([where])
    consumer.seek(where, start)
    end = consumer.end_offsets([where])[where]
    found: Read = []
    while consumer.position(where) < end:
        for records in consumer.poll(timeout_ms=500).values():
            found += [(record.offset, record.key, record.value) for record in records]
    consumer.close()
    return found


def read_aiokafka(c: LocalCluster, topic: str, start: int = 0) -> Read:
    async def read() -> Read:
        consumer = AIOKafkaConsumer(bootstrap_servers=c.bootstrap, enable_auto_commit=False)
        await consumer.start()
        try:
            where = AioTopicPartition(topic, 0)
            consumer.assign([where])
            consumer.seek(where, start)
            end = (await consumer.end_offsets([where]))[where]
            found: Read = []
            while await consumer.position(where) < end:
                for records in (await consumer.getmany(timeout_ms=500)).values():
                    found += [(record.offset, record.key, record.value) for record in records]
            return found
        finally:
            await consumer.stop()

    return asyncio.run(asyncio.wait_for(read(), WAIT_S))


def without_closing(found: Read) -> Read:
    return [record for record in found if record[1] != b"closing"]


READERS = {"confluent": read_confluent, "kafka-python": read_kafka_python, "aiokafka": read_aiokafka}


def test_clients_read_the_newest_value_of_each_key_at_its_offset(local: LocalCluster) -> None:
    topic, chance = "table", random.Random(4)
    local.create_topic(topic, configs=COMPACT | {"remote.storage.enable": "false"})
    written = write(
        local,
        topic,
        [
            (b"key-%d" % chance.randrange(12), None if chance.random() < 0.15 else b"value-%d" % number)
            for number in range(400)
        ],
        **{"compression.type": "zstd"},
    )
    written += close_segments(local, topic)
    written += close_segments(local, topic)
    wanted = expected(written)
    # The second of two records that close segments is in the active one: the first goes later, or stays beside it.
    eventually(lambda: without_closing(read_confluent(local, topic)) == wanted[:-1])
    for name, reader in READERS.items():
        found = reader(local, topic)
        assert without_closing(found) == wanted[:-1], name
        assert found[-1] == written[-1], name
        # A consumer that stands in the middle of what has gone reads on behind it.
        assert without_closing(reader(local, topic, 203)) == [r for r in wanted[:-1] if r[0] >= 203], name


def test_a_record_without_a_key_is_refused(local: LocalCluster) -> None:
    local.create_topic("keyed", configs=COMPACT)
    refused: list[int] = []

    def told(error: KafkaError | None, _: Message) -> None:
        assert error is not None
        refused.append(error.code())

    producer = Producer({"bootstrap.servers": local.bootstrap})
    producer.produce("keyed", value=b"nobody's", on_delivery=told)
    assert producer.flush(WAIT_S) == 0
    assert refused == [INVALID_RECORD]
    assert write(local, "keyed", [(b"", b"an empty key is a key")])[0][0] == 0


def test_an_idempotent_producer_goes_on_after_its_batches_were_compacted(local: LocalCluster) -> None:
    local.create_topic("sequences", configs=COMPACT)
    producer = Producer({"bootstrap.servers": local.bootstrap, "enable.idempotence": True, "linger.ms": 0})
    for number in range(60):
        producer.produce("sequences", key=b"one", value=b"%d" % number + b"-" * 200, partition=0)
        assert producer.flush(WAIT_S) == 0
    eventually(lambda: len(read_confluent(local, "sequences")) < 30)
    local.brokers[0].kill()
    local.brokers[0].start()
    for number in range(60, 70):
        producer.produce("sequences", key=b"one", value=b"%d" % number, partition=0)
        assert producer.flush(WAIT_S) == 0
    assert read_confluent(local, "sequences")[-1][::2] == (69, b"69")


def test_what_is_uploaded_after_its_compaction_is_whole_and_read_like_any_other(local: LocalCluster) -> None:
    local.create_topic("late", configs={**COMPACT, "remote.copy.lag.ms": -1, "tiered.chunk.bytes": 4096})
    written = write(local, "late", [(b"key-%d" % (number % 9), b"value-%d" % number) for number in range(300)])
    written += close_segments(local, "late")
    written += close_segments(local, "late")
    eventually(lambda: [r for r in read_confluent(local, "late") if r[1] != b"closing"] == expected(written)[:-1])
    local.tier("late", keep_local=False)
    assert [r for r in read_confluent(local, "late") if r[1] != b"closing"] == expected(written)[:-1]
    assert read_confluent(local, "late", 203) == [r for r in read_confluent(local, "late") if r[0] >= 203]
    found = verify(open_store(local.store_url))
    assert found.problems == []
    assert found.checked_segments > 3


def test_a_topic_that_also_deletes_forgets_old_segments(local: LocalCluster) -> None:
    local.create_topic("both", configs={**COMPACT, "cleanup.policy": "compact,delete", "retention.bytes": 3_000})
    written = write(local, "both", [(b"key-%d" % number, b"v" * 100) for number in range(200)])
    eventually(lambda: read_confluent(local, "both")[0][0] > 0)
    assert read_confluent(local, "both")[-1] == written[-1]


def test_a_new_leader_and_a_new_replica_hold_the_newest_of_each_key() -> None:
    with cluster(brokers=2, settings=SETTINGS, topics={}) as c:
        c.create_topic("copied", configs={**COMPACT, "min.insync.replicas": 1})
        written = write(c, "copied", [(b"key-%d" % (number % 7), b"value-%d" % number) for number in range(300)])
        written += close_segments(c, "copied")
        written += close_segments(c, "copied")
        wanted = expected(written)[:-1]

        def has_newest() -> bool:
            try:
                return [r for r in read_confluent(c, "copied") if r[1] != b"closing"] == wanted
            except (KafkaException, AssertionError):
                return False

        eventually(has_newest)
        for broker in c.brokers:
            broker.kill()
            eventually(has_newest)
            broker.start()
            eventually(has_newest)


def test_a_replica_that_was_away_while_its_leader_compacted_catches_up_with_it() -> None:
    with cluster(brokers=2, settings=SETTINGS) as c:
        c.create_topic("away", configs={**COMPACT, "min.insync.replicas": 1, "remote.copy.lag.ms": -1})
        keys = [b"key-%d" % number for number in range(7)]
        # The last batch of an idempotent producer would stay, and with it the border that has to go.
        plain = {"enable.idempotence": False}
        written = write(c, "away", [(keys[number % 7], b"old-%d" % number) for number in range(45)], **plain)
        leader = partition_of(c, "away").leader
        (away,) = (broker for broker in c.brokers if broker.broker_id != leader)
        away.kill()
        written += write(c, "away", [(keys[number % 7], b"new-%d" % number) for number in range(300)], **plain)
        written += close_segments(c, "away")
        written += close_segments(c, "away")
        wanted = expected(written)[:-1]
        eventually(lambda: [r for r in read_confluent(c, "away") if r[1] != b"closing"] == wanted)
        # What it has ends in the middle of what has become one batch of its leader's.
        away.start()
        eventually(lambda: len(partition_of(c, "away").isrs) == 2)
        c.brokers[leader - 1].kill()
        eventually(lambda: [r for r in read_confluent(c, "away") if r[1] != b"closing"] == wanted)


def partition_of(c: LocalCluster, topic: str) -> PartitionMetadata:
    admin = AdminClient({"bootstrap.servers": c.bootstrap})
    return admin.list_topics(topic, timeout=WAIT_S).topics[topic].partitions[0]
