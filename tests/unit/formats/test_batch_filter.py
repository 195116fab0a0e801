"""Batches from which records were taken: everything else in them is as it was."""

import tracemalloc

import pytest

from tiered.errors import CorruptBatch
from tiered.formats.batch_filter import emptied, filtered, is_hole, keyed_records, the_hole, trimmed
from tiered.formats.record_batch import (
    BatchHeader,
    Compression,
    Record,
    encode_batch,
    read_header,
    records,
    verify_crc,
)

RECORDS = [
    Record(offset=100 + n, timestamp_ms=5_000 - 7 * n, key=key, value=value, headers=(("h", b"%d" % n), ("", None)))
    for n, (key, value) in enumerate([(b"a", b"1"), (None, b"2"), (b"", None), (b"k" * 300, b"4" * 5_000)])
]


def batch(compression: Compression = Compression.NONE, *, log_append_time_ms: int | None = None) -> bytes:
    return encode_batch(
        RECORDS,
        base_offset=100,
        last_offset=110,
        compression=compression,
        leader_epoch=6,
        producer_id=7,
        producer_epoch=2,
        base_sequence=40,
        transactional=True,
        log_append_time_ms=log_append_time_ms,
    )


def kept_fields(header: BatchHeader) -> tuple[object, ...]:
    return (
        header.base_offset,
        header.last_offset,
        header.partition_leader_epoch,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.is_transactional,
        header.is_control,
    )


@pytest.mark.parametrize("compression", list(Compression))
@pytest.mark.parametrize("horizon_ms", [None, 10**13])
def test_the_records_that_stay_are_as_they_were(compression: Compression, horizon_ms: int | None) -> None:
    data = batch(compression)
    changed = filtered(data, 0, lambda record: record.offset != 101, delete_horizon_ms=horizon_ms)
    assert changed is not None
    header = read_header(changed, 0, len(changed))
    verify_crc(changed, 0, len(changed))
    assert list(records(changed)) == [record for record in RECORDS if record.offset != 101]
    assert kept_fields(header) == kept_fields(read_header(data))
    assert header.compression == compression
    assert header.delete_horizon_ms == horizon_ms
    assert header.max_timestamp_ms == 5_000


def test_the_greatest_time_is_that_of_the_records_that_stay_or_the_logs() -> None:
    changed = filtered(batch(), 0, lambda record: record.offset > 101)
    assert changed is not None
    assert read_header(changed).max_timestamp_ms == 5_000 - 14
    changed = filtered(batch(log_append_time_ms=9_999), 0, lambda record: record.offset > 101)
    assert changed is not None
    assert read_header(changed).max_timestamp_ms == 9_999


def test_a_horizon_stays_when_more_records_go() -> None:
    once = filtered(batch(), 0, lambda _: True, delete_horizon_ms=8_000)
    assert once is not None
    twice = filtered(once, 0, lambda record: record.offset == 103)
    assert twice is not None
    assert read_header(twice).delete_horizon_ms == 8_000
    assert list(records(twice)) == RECORDS[3:]


def test_nothing_is_made_anew_when_everything_stays() -> None:
    assert filtered(batch(), 0, lambda _: True) is None


@pytest.mark.parametrize("compression", list(Compression))
def test_a_batch_without_records_still_tells_its_producer(compression: Compression) -> None:
    data = batch(compression)
    changed = filtered(data, 0, lambda _: False)
    assert changed == emptied(read_header(data))
    assert changed is not None
    verify_crc(changed, 0, len(changed))
    header = read_header(changed, 0, len(changed))
    assert len(changed) == 61
    assert kept_fields(header) == kept_fields(read_header(data))
    assert list(records(changed)) == []
    assert (header.record_count, header.max_timestamp_ms, header.compression) == (0, -1, 0)
    assert not is_hole(header)


def test_a_hole_is_cut_where_a_log_already_ends() -> None:
    hole = the_hole(50, 90, 3)
    header = read_header(hole)
    assert is_hole(header)
    assert (header.base_offset, header.last_offset, header.partition_leader_epoch) == (50, 90, 3)
    verify_crc(hole, 0, len(hole))
    assert trimmed(header, 70) == the_hole(70, 90, 3)


def test_keys_are_read_without_values_and_headers() -> None:
    found = [(r.offset, r.timestamp_ms, r.key, r.has_value) for r in keyed_records(batch(Compression.LZ4))]
    assert found == [(r.offset, r.timestamp_ms, r.key, r.value is not None) for r in RECORDS]


def test_damaged_records_are_refused() -> None:
    data = batch()
    whole = list(keyed_records(data))
    start = 61 + whole[1].start
    for position in range(start, start + 6):
        for byte in (0x01, 0x7F, 0xFF):
            changed = bytearray(data)
            changed[position] = byte
            try:
                list(keyed_records(bytes(changed)))
            except CorruptBatch:
                with pytest.raises(CorruptBatch):
                    list(records(bytes(changed)))


def test_a_small_batch_of_very_many_records_takes_memory_for_its_bytes_and_not_for_each_record() -> None:
    many = [Record(offset=n, timestamp_ms=0, key=b"k", value=None, headers=()) for n in range(50_000)]
    data = encode_batch(many, compression=Compression.ZSTD)
    tracemalloc.start()
    try:
        changed = filtered(data, 0, lambda record: record.offset % 2 == 0)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert changed is not None
    assert len(list(records(changed))) == 25_000
    assert peak_bytes < 4 << 20, "all records at once take more"
