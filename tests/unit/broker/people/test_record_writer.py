"""Records that come one by one: how they become batches, and that one bad record spares the others."""

from pathlib import Path

from tests.unit.broker.context import surroundings
from tests.unit.broker.replication.replicas import TOPIC_ID, replica, row, tell
from tiered.broker.partitions.partition import Partition
from tiered.broker.partitions.topics import Topic
from tiered.broker.people.record_writer import NewRecord, RecordWriter, WrittenRecord
from tiered.errors import TieredError, UnknownTopicOrPartition


def led(folder: Path, **configs: int) -> Topic:
    """A topic with one partition, whose only replica leads here."""
    partition: Partition = replica(folder, 1, min_insync_replicas=1, **configs)
    tell(partition, row(isr=(1,), replicas=(1,)))
    return Topic(
        name="t",
        topic_id=TOPIC_ID,
        partition_count=1,
        config=partition.config,
        overrides={},
        partitions=(partition,),
    )


async def test_records_of_a_partition_share_a_batch_and_keep_their_places(tmp_path: Path) -> None:
    async with surroundings(tmp_path) as made:
        topic, writer = led(tmp_path), RecordWriter(context=made.context)
        records = [NewRecord(value=b"a", timestamp_ms=7), NewRecord(partition=5), NewRecord(key=b"k")]
        first, refused, last = await writer.write(topic, records)
        assert isinstance(first, WrittenRecord)
        assert isinstance(refused, UnknownTopicOrPartition)
        assert isinstance(last, WrittenRecord)
        assert (first.offset, first.timestamp_ms, last.offset) == (0, 7, 1)
        assert (made.context.counters.produced_batches, made.context.counters.produce_errors) == (1, 0)


async def test_a_record_that_is_refused_spares_those_that_came_with_it(tmp_path: Path) -> None:
    async with surroundings(tmp_path) as made:
        topic, writer = led(tmp_path, max_message_bytes=200), RecordWriter(context=made.context)
        outcomes = await writer.write(topic, [NewRecord(value=b"x" * 500), NewRecord(value=b"a")])
        assert isinstance(outcomes[0], TieredError)
        assert isinstance(outcomes[1], WrittenRecord)
