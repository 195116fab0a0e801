"""Committed offsets as clients commit, read, list, alter and delete them, and as anybody can SELECT them."""

import asyncio
import sqlite3
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.broker_process import BrokerProcess
from tests.clients.clients import admin
from tests.support.topics import create


def selected(broker: BrokerProcess, group: str) -> dict[tuple[str, int], tuple[int, str]]:
    """(offset, metadata) by topic and partition, by the query of docs/sql.md."""
    connection = sqlite3.connect(f"file:{broker.data / 'meta.db'}?mode=ro", uri=True)
    try:
        found = connection.execute(
            "SELECT t.name, g.partition, g.committed_offset, g.metadata FROM group_offset g "
            "JOIN topic t ON t.topic_id = g.topic_id WHERE g.group_id = ?",
            (group,),
        ).fetchall()
    finally:
        connection.close()
    return {(topic, partition): (offset, metadata) for topic, partition, offset, metadata in found}


def listed(
    client: AdminClient, group: str, partitions: list[TopicPartition] | None = None
) -> dict[tuple[str, int], int]:
    future = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group, partitions)])[group]
    return {(each.topic, each.partition): each.offset for each in future.result(20).topic_partitions}


def names(prefix: str) -> tuple[str, str]:
    return f"{prefix}-{uuid4()}", f"{prefix}-group-{uuid4()}"


def test_confluents_consumer_commits_with_a_note_and_reads_it_back(broker: BrokerProcess) -> None:
    topic, group = names("confluent")
    create(broker, topic, partitions=3)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition(topic, 0, 5, "a note"), TopicPartition(topic, 2, 7)], asynchronous=False)
    found = consumer.committed([TopicPartition(topic, partition) for partition in range(3)], timeout=20)
    assert [(each.offset, each.metadata) for each in found] == [(5, "a note"), (-1001, None), (7, None)]
    assert selected(broker, group) == {(topic, 0): (5, "a note\u2400"), (topic, 2): (7, "")}, (
        "librdkafka sends C strings"
    )
    consumer.close()


def test_confluents_admin_client_lists_alters_and_deletes(broker: BrokerProcess) -> None:
    topic, group = names("admin")
    create(broker, topic, partitions=2)
    client = admin(broker.bootstrap)
    altered = client.alter_consumer_group_offsets(
        [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 5), TopicPartition(topic, 1, 6)])]
    )[group].result(20)
    assert [each.error for each in altered.topic_partitions] == [None, None]
    assert listed(client, group) == {(topic, 0): 5, (topic, 1): 6}
    assert listed(client, group, [TopicPartition(topic, 1)]) == {(topic, 1): 6}
    client.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 2)])])[
        group
    ].result(20)
    assert selected(broker, group) == {(topic, 0): (2, ""), (topic, 1): (6, "")}
    client.delete_consumer_groups([group])[group].result(20)
    assert selected(broker, group) == {}
    assert listed(client, group) == {}


def test_offsets_of_a_group_with_members_are_not_altered_from_outside(broker: BrokerProcess) -> None:
    topic, group = names("busy")
    create(broker, topic)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "enable.auto.commit": False})
    consumer.subscribe([topic])
    while not consumer.assignment():
        consumer.poll(0.1)
    consumer.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
    altered = admin(broker.bootstrap).alter_consumer_group_offsets(
        [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 1)])]
    )
    with pytest.raises(KafkaException):
        errors = [each.error for each in altered[group].result(20).topic_partitions]
        raise KafkaException(errors[0])
    assert selected(broker, group) == {(topic, 0): (3, "")}
    consumer.close()


def test_kafka_python_commits_and_reads_back(broker: BrokerProcess) -> None:
    from kafka import KafkaConsumer, OffsetAndMetadata
    from kafka import TopicPartition as Partition

    topic, group = names("kafka-python")
    create(broker, topic, partitions=2)
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=group, enable_auto_commit=False)
    first, second = Partition(topic, 0), Partition(topic, 1)
    consumer.assign([first, second])
    consumer.commit({first: OffsetAndMetadata(5, "a note", -1)})
    assert consumer.committed(first) == 5
    assert consumer.committed(second) is None
    assert selected(broker, group) == {(topic, 0): (5, "a note")}
    consumer.close()


def test_aiokafka_commits_and_reads_back(broker: BrokerProcess) -> None:
    from aiokafka import AIOKafkaConsumer, OffsetAndMetadata
    from aiokafka import TopicPartition as Partition

    topic, group = names("aiokafka")
    create(broker, topic, partitions=2)

    async def run() -> tuple[int | None, int | None]:
        consumer = AIOKafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=group, enable_auto_commit=False)
        first, second = Partition(topic, 0), Partition(topic, 1)
        consumer.assign([first, second])
        await consumer.start()
        try:
            await consumer.commit({first: OffsetAndMetadata(5, "a note")})
            return await consumer.committed(first), await consumer.committed(second)
        finally:
            await consumer.stop()

    assert asyncio.run(run()) == (5, None)
    assert selected(broker, group) == {(topic, 0): (5, "a note")}
