"""Segment objects: chunks follow their rule, say the truth about their records, and do not depend on blocks."""

import hashlib
import struct

from hypothesis import given
from hypothesis import strategies as st

from tests.golden import regenerate as golden
from tests.properties.formats.batches import mutations, segments
from tests.support.damaged_batches import with_right_crc
from tiered.errors import CorruptBatch, CorruptObject
from tiered.formats.batch_times import proven_times
from tiered.formats.record_batch import Record
from tiered.formats.segment_object import (
    ChunkTable,
    ChunkTableBuilder,
    NeedMore,
    build_tail,
    chunk_for_offset,
    chunks_for_timestamp,
    read_footer,
    read_tail,
    root_over,
)

Segment = list[tuple[bytes, list[Record]]]


def table_of(log: bytes, chunk_bytes: int, block_sizes: list[int] | None = None) -> ChunkTable:
    builder = ChunkTableBuilder(chunk_bytes, lambda _, header: proven_times(header))
    at = 0
    for size in block_sizes or []:
        builder.feed(memoryview(log)[at : at + size])
        at += size
    builder.feed(log[at:])
    return builder.finish()


def expected_cuts(batches: Segment, chunk_bytes: int) -> list[list[tuple[bytes, list[Record]]]]:
    chunks: list[list[tuple[bytes, list[Record]]]] = []
    for batch in batches:
        if chunks and sum(len(data) for data, _ in chunks[-1]) + len(batch[0]) <= chunk_bytes:
            chunks[-1].append(batch)
        else:
            chunks.append([batch])
    return chunks


@given(segments(), st.integers(1, 3000))
def test_chunks_are_cut_by_the_rule_and_describe_their_bytes(batches: Segment, chunk_bytes: int) -> None:
    log = b"".join(data for data, _ in batches)
    table = table_of(log, chunk_bytes)
    cuts = expected_cuts(batches, chunk_bytes)
    assert len(table.chunks) == len(cuts)
    position = 0
    for row, cut in zip(table.chunks, cuts, strict=True):
        data, records = b"".join(each for each, _ in cut), [record for _, each in cut for record in each]
        assert (row.position, row.length) == (position, len(data))
        assert row.sha256 == hashlib.sha256(data).digest()
        assert (row.first_offset, row.last_offset) == (records[0].offset, records[-1].offset)
        assert row.record_count == len(records)
        assert row.max_timestamp_ms == max(record.timestamp_ms for record in records)
        proven = row.proven_min_timestamp_ms
        assert proven is None or proven == min(record.timestamp_ms for record in records)
        position += len(data)
    assert (table.log_bytes, table.batch_count) == (len(log), len(batches))
    assert table.record_count == sum(len(records) for _, records in batches)
    assert (table.base_offset, table.end_offset) == (batches[0][1][0].offset, batches[-1][1][-1].offset + 1)
    assert table.root_sha256 == root_over(row.sha256 for row in table.chunks)


@given(segments(), st.integers(1, 3000), st.lists(st.integers(0, 200), max_size=40))
def test_blocks_of_any_size_give_the_same_table(batches: Segment, chunk_bytes: int, block_sizes: list[int]) -> None:
    log = b"".join(data for data, _ in batches)
    assert table_of(log, chunk_bytes, block_sizes) == table_of(log, chunk_bytes)


@given(segments(), st.integers(1, 3000), st.integers(0, 2**45))
def test_lookups_find_the_chunk_of_the_first_record(batches: Segment, chunk_bytes: int, timestamp_ms: int) -> None:
    chunks = table_of(b"".join(data for data, _ in batches), chunk_bytes).chunks
    records = [record for _, each in batches for record in each]
    for record in records:
        row = chunks[chunk_for_offset(chunks, record.offset)]
        assert row.first_offset <= record.offset <= row.last_offset
    first = next((record for record in records if record.timestamp_ms >= timestamp_ms), None)
    found = chunks_for_timestamp(chunks, timestamp_ms)
    if first is None:
        assert found is None
    else:
        assert found == chunk_for_offset(chunks, first.offset)


@given(st.data(), segments(), st.integers(0, 300))
def test_a_damaged_log_never_gives_the_same_root(data: st.DataObject, batches: Segment, block_bytes: int) -> None:
    log = b"".join(each for each, _ in batches)
    hostile = data.draw(mutations(log))
    try:
        table = table_of(hostile, 500, [block_bytes] * 3)
    except CorruptBatch:
        return
    assert hostile == log or table.root_sha256 != table_of(log, 500).root_sha256


@given(segments(), st.integers(0, 4000))
def test_an_object_is_read_from_any_tail_that_is_long_enough(batches: Segment, tail_bytes: int) -> None:
    log = b"".join(each for each, _ in batches)
    table = table_of(log, 300)
    whole = log + build_tail(
        table,
        cluster_id="c",
        topic_id=golden.TOPIC_ID,
        topic="t",
        partition=0,
        leader_epochs=golden.LEADER_EPOCHS,
        aborted=golden.ABORTED,
        producer_snapshot=b"snapshot",
        previous_root_sha256=golden.PREVIOUS_ROOT,
    )
    tail_bytes = min(tail_bytes, len(whole))
    footer = read_footer(whole[len(whole) - tail_bytes :], len(whole))
    for _ in range(3):
        if not isinstance(footer, NeedMore):
            break
        assert tail_bytes < footer.tail_bytes <= len(whole)
        tail_bytes = footer.tail_bytes
        footer = read_footer(whole[len(whole) - tail_bytes :], len(whole))
    assert not isinstance(footer, NeedMore)
    tail = read_tail(whole[footer.log_bytes :], len(whole))
    assert tail.footer == footer
    assert tail.chunks == table.chunks
    assert (tail.leader_epochs, tail.aborted) == (golden.LEADER_EPOCHS, golden.ABORTED)
    assert tail.producer_snapshot == b"snapshot"


@given(st.data())
def test_a_hostile_footer_with_a_right_crc_is_refused_or_adds_up(data: st.DataObject) -> None:
    whole = golden.segment_object()
    (footer_bytes,) = struct.unpack_from(">I", whole, len(whole) - 16)
    hostile = with_right_crc(whole, data.draw(mutations(whole[-16 - footer_bytes : -16])))
    try:
        tail = read_tail(hostile, len(hostile))
    except CorruptObject:
        return
    assert tail.chunks == golden.table().chunks
    assert tail.footer.root_sha256 == golden.table().root_sha256


@given(st.data())
def test_a_hostile_object_is_refused(data: st.DataObject) -> None:
    whole = golden.segment_object()
    log_bytes = golden.table().log_bytes
    hostile = whole[:log_bytes] + data.draw(mutations(whole[log_bytes:]))
    for read in (read_footer, read_tail):
        try:
            read(hostile, len(hostile))
            assert hostile == whole or read is read_footer
        except CorruptObject:
            pass
