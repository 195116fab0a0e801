"""X6 in a broker: committed records are the same from the local log, from the store, and from one after the other.

Transactions of several producers go through a partition, whose closed segments are uploaded and some of them deleted
here. A consumer reads with answers of every size, and a person in pages; then the local log is compacted.
"""

import asyncio
import random
import shutil
from dataclasses import replace
from io import FileIO
from pathlib import Path

import pytest

from tests.support.transactional_logs import (
    TransactionalLog,
    consumed,
    newest_of_each_key,
    offset_after,
    random_log,
)
from tests.support.transactions import append_marker
from tests.unit.broker.tiering.tiers import SEGMENTS, Tiers, open_all, tiers
from tiered.broker.partitions.partition import Partition
from tiered.broker.people.record_reader import Limits, RecordReader, StoredRecord
from tiered.broker.tiering import tier_plan
from tiered.broker.tiering.compaction import CompactionRounds
from tiered.broker.tiering.partition_loader import PartitionLoader
from tiered.broker.tiering.tier_reader import TierReader
from tiered.cold.bucket.segments import load_tail
from tiered.formats.control_record import read_marker
from tiered.formats.offset_index import OffsetIndex
from tiered.formats.producer_snapshot import decode_producers
from tiered.formats.record_batch import Record, encode_batch, read_header, stamp_offsets
from tiered.hot.lookup import Lookup
from tiered.hot.segment import LogSegment
from tiered.rules.partition import read_plan
from tiered.rules.transactions.transaction_state import ProducerIdAndEpoch

START_OFFSET = SEGMENTS + 1
"""What the partition begins with has no transactions."""
ALL = Limits(max_records=10**6, max_bytes=1 << 30, max_ms=1e9)


def write(partition: Partition, log: TransactionalLog, now_ms: int) -> None:
    """The log's batches, as producers and the coordinator send them."""
    for batch in log.batches:
        header = read_header(batch)
        if header.is_control:
            marker = read_marker(batch, 0, header)
            assert marker is not None
            producer = ProducerIdAndEpoch(producer_id=header.producer_id, producer_epoch=header.producer_epoch)
            offset = append_marker(partition, marker, producer, raises_epoch=log.raises_epoch, now_ms=now_ms)
        else:
            verified = None
            if header.is_transactional:
                verified = partition.begin_verification(header.producer_id, header.producer_epoch)
            data = memoryview(bytearray(batch))
            stamp_offsets(data, 0, 0, -1)  # As producers send it.
            offset = partition.append(data, 0, len(data), acks=-1, now_ms=now_ms, verified=verified).base_offset
        assert offset == header.base_offset


async def upload(made: Tiers) -> None:
    """Everything that may go."""
    partition = made.partition
    while (due := tier_plan.due_upload(partition, made.clock.now_ms())) is not None:
        await made.lifecycle.upload(partition, due.base_offset)


async def as_a_consumer(
    partition: Partition, reader: TierReader, chance: random.Random
) -> tuple[dict[int, Record], set[str]]:
    """What it gets of committed records, and from where."""
    found: dict[int, Record] = {}
    tiers_read: set[str] = set()
    offset = START_OFFSET
    while True:
        max_bytes = chance.choice([1, 300, 1 << 20])
        match partition.plan_read(offset, committed_only=True):
            case read_plan.Hot():
                batches = partition.read_hot(offset, max_bytes, committed_only=True, at_least_one=True)
                tiers_read.add("hot")
            case read_plan.Cold():
                batches = await reader.read_cold(partition, offset, max_bytes)
                tiers_read.add("cold")
            case _:
                return found, tiers_read
        if batches is None:  # It moved to the store after the plan.
            continue
        data = batches.records.read()
        found |= consumed(data, [(each.producer_id, each.first_offset) for each in batches.aborted], offset)
        offset = offset_after(data)


async def as_a_person(partition: Partition, records: RecordReader) -> list[int]:
    """The offsets on the pages, with the first tier change in the middle of one."""

    def rendered(stored: StoredRecord) -> bytes:
        return b"%d" % stored.record.offset

    page = await records.read(partition, START_OFFSET, limits=ALL, committed_only=True, render=rendered)
    assert page.is_end
    assert page.next_offset == partition.last_stable_offset
    return [offset for offset, _ in page.records]


@pytest.mark.parametrize("seed", range(6))
async def test_a_reader_of_committed_records_gets_the_same_from_both_tiers(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    log = random_log(chance, start_offset=START_OFFSET, ends_nothing=False)
    configs = {"local.retention.bytes": "1500", "retention.ms": "-1", "tiered.chunk.bytes": "4096"}
    async with tiers(tmp_path, configs) as made, asyncio.TaskGroup() as group:
        await made.cold_reader.start(group)
        partition = made.partition
        reader = TierReader(made.cold_reader, made.context.disk, made.context.counters)
        records = RecordReader(reader, made.clock)
        write(partition, log, made.clock.now_ms())
        assert partition.last_stable_offset == log.last_stable_offset
        expected = log.committed(log.last_stable_offset)

        assert await as_a_consumer(partition, reader, chance) == (expected, {"hot"})
        assert await as_a_person(partition, records) == list(expected)

        await upload(made)
        for segment in partition.committed:
            entries = load_tail(made.context.store, partition.place_of(segment)).aborted
            assert list(entries) == [
                each
                for each in log.entries
                if each.first_offset < segment.end_offset and each.last_offset >= segment.base_offset
            ]
        await made.lifecycle.delete_local(partition)
        found, tiers_read = await as_a_consumer(partition, reader, chance)
        assert found == expected
        assert "cold" in tiers_read
        assert await as_a_person(partition, records) == list(expected)

        await asyncio.to_thread(records.close)
        await made.cold_reader.stop()


@pytest.mark.parametrize("is_person", [True, False])
@pytest.mark.parametrize("is_opened_first", [True, False])
async def test_what_moves_to_the_store_during_a_read_is_read_with_its_aborted_transactions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_opened_first: bool, is_person: bool
) -> None:
    """Local retention runs in a thread, which may take a segment before a reader has its file, or right after."""
    chance = random.Random(8)
    log = random_log(chance, steps=200, start_offset=START_OFFSET, ends_nothing=False)
    configs = {"local.retention.bytes": "1500", "retention.ms": "-1", "tiered.chunk.bytes": "4096"}
    plain, moves = Lookup.opened, 0
    async with tiers(tmp_path, configs) as made, asyncio.TaskGroup() as group:
        await made.cold_reader.start(group)
        partition = made.partition
        reader = TierReader(made.cold_reader, made.context.disk, made.context.counters)
        records = RecordReader(reader, made.clock)
        write(partition, log, made.clock.now_ms())
        await upload(made)

        def opened(self: Lookup, segment: LogSegment) -> tuple[FileIO, OffsetIndex]:
            nonlocal moves
            early = plain(self, segment) if is_opened_first else None
            if chance.random() < 0.3:
                due = tier_plan.local_delete_before(partition, made.clock.now_ms())
                moves += len(partition.log.delete_local_before(min(segment.end_offset, due)))
            return early or plain(self, segment)

        monkeypatch.setattr(Lookup, "opened", opened)
        expected = log.committed(log.last_stable_offset)
        if is_person:
            assert await as_a_person(partition, records) == list(expected)
        else:
            assert await as_a_consumer(partition, reader, chance) == (expected, {"hot", "cold"})
        assert moves > 3
        await asyncio.to_thread(records.close)
        await made.cold_reader.stop()


@pytest.mark.parametrize("seed", range(6))
async def test_of_a_compacted_log_they_get_the_newest_committed_of_each_key(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    log = random_log(chance, start_offset=START_OFFSET, ends_nothing=False)
    for producer_id in list(log.open):
        log.end(producer_id, commits=False)
    configs = {
        "cleanup.policy": "compact",
        "remote.storage.enable": "false",
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": "0",
    }
    keyed = [Record(offset=0, timestamp_ms=1, key=b"before", value=b"v" * 500)]
    async with tiers(tmp_path, configs, written=lambda _: bytearray(encode_batch(keyed))) as made:
        partition = made.partition
        reader = TierReader(made.cold_reader, made.context.disk, made.context.counters)
        rounds = CompactionRounds(context=made.context, topics=made.topics, image=made.image)
        write(partition, log, made.clock.now_ms())
        expected = log.committed(log.end_offset)
        partition.log.roll(made.clock.now_ms())
        found = expected
        try:
            for _ in range(4):  # What waits for its horizon makes the next pass due.
                await made.context.flusher.flushed(partition.log, partition.log.log_end_offset)
                await rounds.round()
                made.clock.set_by_ms += 1
                found, _ = await as_a_consumer(partition, reader, chance)
                assert found.items() <= expected.items()
        finally:
            await asyncio.to_thread(rounds.close)
        assert found == newest_of_each_key(expected.values())


@pytest.mark.parametrize("commits", [True, False])
async def test_a_log_that_only_the_store_has_begins_without_open_transactions(tmp_path: Path, commits: bool) -> None:
    """As after a restore, and on a broker that lost its disk: the marker was not uploaded."""
    chance, log = random.Random(1), TransactionalLog(start_offset=START_OFFSET)
    for _ in range(20):
        log.write(chance, 1, keys=5)
    log.end(1, commits=commits)
    async with tiers(tmp_path, {"retention.ms": "-1"}) as made, asyncio.TaskGroup() as group:
        await made.cold_reader.start(group)
        write(made.partition, log, made.clock.now_ms())
        await upload(made)
        cold_end_offset = made.partition.cold_end_offset
        assert START_OFFSET < cold_end_offset < log.end_offset
        newest = made.partition.committed[-1]
        snapshot = load_tail(made.context.store, made.partition.place_of(newest)).producer_snapshot
        assert [each.current_transaction_first_offset for each in decode_producers(snapshot)] == [START_OFFSET]

        made.partition.log.discard()
        shutil.rmtree(made.partition.log.directory)
        loader = PartitionLoader(
            changed=lambda partition: None,
            context=made.context,
            cold_reader=made.cold_reader,
            image=made.image,
            log_failed=lambda: None,
            has_failed_log=lambda: False,
            topics=made.topics,
        )
        topic = made.topics.by_name(made.partition.topic)
        row = next(iter(made.image.rows_of(topic.topic_id)))
        known = {row.topic_partition: made.partition.committed}
        (lost,) = await open_all(loader, topic, [replace(row, cold_end_offset=cold_end_offset)], known)
        lost.apply_row(row, broker_epoch=made.context.state.broker_epoch)

        assert (lost.last_stable_offset, lost.high_watermark) == (cold_end_offset, cold_end_offset)
        assert lost.producers.entries[1].current_transaction_first_offset is None
        reader = TierReader(made.cold_reader, made.context.disk, made.context.counters)
        found, _ = await as_a_consumer(lost, reader, chance)
        assert found == {offset: each for offset, each in log.records.items() if commits and offset < cold_end_offset}
        assert lost.begin_verification(1, 0) is not None, "its next batch begins a transaction"
        lost.log.discard()
        await made.cold_reader.stop()
