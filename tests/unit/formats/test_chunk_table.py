"""A segment file is described in one pass: nothing wrong gets through, and nothing is collected."""

import struct
import tracemalloc

import pytest

from tiered.errors import CorruptBatch, OffsetOutOfRange
from tiered.formats import record_batch
from tiered.formats.batch_times import BatchTimes, proven_times
from tiered.formats.chunk_table import TimesOf
from tiered.formats.record_batch import BatchHeader, Record, encode_batch
from tiered.formats.segment_object import (
    ChunkTable,
    ChunkTableBuilder,
    chunk_for_offset,
    chunks_for_timestamp,
)


def a_batch(base_offset: int, timestamps: list[int], *, value_bytes: int = 10, append_ms: int | None = None) -> bytes:
    records = [
        Record(offset=base_offset + index, timestamp_ms=timestamp_ms, key=None, value=bytes(value_bytes))
        for index, timestamp_ms in enumerate(timestamps)
    ]
    return encode_batch(records, base_offset=base_offset, log_append_time_ms=append_ms)


def proven(_position: int, header: BatchHeader) -> BatchTimes:
    return proven_times(header)


def table_of(
    log: bytes, *, chunk_bytes: int = 1 << 20, block_bytes: int = 1 << 20, times_of: TimesOf | None = proven
) -> ChunkTable:
    builder = ChunkTableBuilder(chunk_bytes, times_of)
    for at in range(0, len(log), block_bytes):
        builder.feed(log[at : at + block_bytes])
    return builder.finish()


LOG = b"".join(a_batch(offset, [1000 + offset] * 3) for offset in range(0, 30, 3))
BATCH_BYTES = len(LOG) // 10


def test_a_chunk_takes_batches_up_to_its_bytes_exactly() -> None:
    assert len(table_of(LOG, chunk_bytes=2 * BATCH_BYTES).chunks) == 5
    assert len(table_of(LOG, chunk_bytes=2 * BATCH_BYTES - 1).chunks) == 10
    assert len(table_of(LOG, chunk_bytes=1).chunks) == 10
    assert len(table_of(LOG).chunks) == 1


@pytest.mark.parametrize("block_bytes", [1, 7, 61, BATCH_BYTES, 1 << 20])
def test_a_flipped_byte_under_a_crc_is_found_in_whatever_block_it_comes(block_bytes: int) -> None:
    for at in range(5 * BATCH_BYTES + 17, 6 * BATCH_BYTES, 9):
        log = bytearray(LOG)
        log[at] ^= 1
        with pytest.raises(CorruptBatch, match="CRC"):
            table_of(bytes(log), block_bytes=block_bytes)


@pytest.mark.parametrize("block_bytes", [1, 50, 1 << 20])
@pytest.mark.parametrize("cut_bytes", [1, BATCH_BYTES - 61, BATCH_BYTES - 60, BATCH_BYTES - 1])
def test_a_file_that_ends_within_a_batch_is_refused(cut_bytes: int, block_bytes: int) -> None:
    with pytest.raises(CorruptBatch, match="ends within"):
        table_of(LOG[:-cut_bytes], block_bytes=block_bytes)


def test_an_empty_file_has_no_table() -> None:
    with pytest.raises(CorruptBatch, match="without batches"):
        ChunkTableBuilder().finish()


def test_offsets_that_go_back_are_refused() -> None:
    with pytest.raises(CorruptBatch, match="offsets"):
        table_of(a_batch(10, [1, 2]) + a_batch(11, [1]))


@pytest.mark.parametrize(("position", "value"), [(57, -1), (57, 4), (23, -1)])
def test_counts_that_contradict_offsets_are_refused(position: int, value: int) -> None:
    data = bytearray(a_batch(0, [1, 2, 3]))
    struct.pack_into(">i", data, position, value)
    record_batch.stamp_log_append_time(data, 0, len(data), 1)  # For a right CRC.
    with pytest.raises(CorruptBatch, match=r"offsets|claims"):
        table_of(bytes(data))


def test_a_batch_that_claims_two_gigabytes_costs_no_memory() -> None:
    data = bytearray(a_batch(0, [1]))
    struct.pack_into(">i", data, 8, 2**31 - 1)
    builder = ChunkTableBuilder()
    block = bytes(1 << 20)
    tracemalloc.start()
    try:
        builder.feed(data)
        for _ in range(20):
            builder.feed(block)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 100_000
    with pytest.raises(CorruptBatch, match="ends within"):
        builder.finish()


def test_a_record_older_than_its_batchs_first_leaves_the_minimum_unproven() -> None:
    table = table_of(a_batch(0, [5000, 4000, 6000]))
    (row,) = table.chunks
    assert (row.min_timestamp_ms, row.max_timestamp_ms) == (5000, 6000), "the header knows no better"
    assert row.proven_min_timestamp_ms is None
    assert not table.min_timestamp_is_proven


def test_a_minimum_is_proven_by_single_records_and_by_log_append_time() -> None:
    table = table_of(a_batch(0, [5000]) + a_batch(1, [4000]) + a_batch(2, [1, 2, 3], append_ms=4500))
    (row,) = table.chunks
    assert row.proven_min_timestamp_ms == 4000
    assert row.max_timestamp_ms == 5000
    assert table.min_timestamp_is_proven


def test_one_unproven_batch_spoils_its_chunk_alone() -> None:
    log = a_batch(0, [5000]) + a_batch(1, [7000, 7001]) + a_batch(3, [6000])
    table = table_of(log, chunk_bytes=1)
    assert [row.proven_min_timestamp_ms for row in table.chunks] == [5000, None, 6000]
    assert not table.min_timestamp_is_proven
    assert (table.min_timestamp_ms, table.max_timestamp_ms) == (5000, 7001)


def test_batches_without_records_have_no_times() -> None:
    empty = encode_batch([], base_offset=0, last_offset=4)
    table = table_of(empty + a_batch(5, [3000]) + encode_batch([], base_offset=6, last_offset=9), chunk_bytes=1)
    assert [(row.min_timestamp_ms, row.max_timestamp_ms) for row in table.chunks] == [(-1, -1), (3000, 3000), (-1, -1)]
    assert (table.min_timestamp_ms, table.max_timestamp_ms, table.record_count) == (3000, 3000, 1)
    assert (table.base_offset, table.end_offset) == (0, 10)
    assert chunks_for_timestamp(table.chunks, -1) == 1
    only_empty = table_of(empty)
    assert (only_empty.min_timestamp_ms, only_empty.max_timestamp_ms) == (-1, -1)


def test_records_without_a_timestamp_are_kept_as_minus_one() -> None:
    table = table_of(a_batch(0, [-1]) + a_batch(1, [50]))
    assert (table.min_timestamp_ms, table.max_timestamp_ms) == (-1, 50)


def test_time_lookups_do_not_need_times_in_order() -> None:
    chunks = table_of(a_batch(0, [100]) + a_batch(1, [900]) + a_batch(2, [200]), chunk_bytes=1).chunks
    assert [chunks_for_timestamp(chunks, wanted) for wanted in (0, 100, 101, 200, 900, 901)] == [0, 0, 1, 1, 1, None]


def test_offset_lookups_know_gaps_and_the_end() -> None:
    chunks = table_of(a_batch(10, [1, 1]) + a_batch(20, [1]), chunk_bytes=1).chunks
    assert [chunk_for_offset(chunks, offset) for offset in (0, 10, 11, 12, 19, 20)] == [0, 0, 0, 1, 1, 1]
    with pytest.raises(OffsetOutOfRange, match="beyond"):
        chunk_for_offset(chunks, 21)


def test_times_that_only_a_producer_has_said_are_shown_and_prove_nothing() -> None:
    log = a_batch(0, [5000]) + a_batch(1, [7000, 7001]) + a_batch(3, [6000], append_ms=6000)
    table = table_of(log, chunk_bytes=1, times_of=None)
    assert [(row.min_timestamp_ms, row.max_timestamp_ms) for row in table.chunks] == [
        (5000, 5000),
        (7000, 7001),
        (6000, 6000),
    ]
    assert [(row.proven_min_timestamp_ms, row.proven_max_timestamp_ms) for row in table.chunks] == [(None, None)] * 3
    assert (table.max_timestamp_is_proven, table.headers_are_proven) == (False, False)
    assert [chunks_for_timestamp(table.chunks, wanted) for wanted in (0, 9000)] == [0, 0]


def test_a_chunk_has_the_times_that_were_found_in_its_records() -> None:
    def looked(_position: int, _header: BatchHeader) -> BatchTimes:
        return BatchTimes(100, 900, True, True, False)

    (row,) = table_of(a_batch(0, [5000]) + a_batch(1, [7000, 7001]), times_of=looked).chunks
    assert (row.proven_min_timestamp_ms, row.proven_max_timestamp_ms, row.headers_are_proven) == (100, 900, False)
