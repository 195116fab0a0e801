"""Batches: what is written is read, aiokafka agrees in both directions, and hostile bytes end in CorruptBatch."""

import tracemalloc

from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from tests.properties.formats.batches import codecs, mutations, record_lists, timestamps
from tiered.errors import CorruptBatch
from tiered.formats import record_batch
from tiered.formats.compression import decompress
from tiered.formats.record_batch import Compression, Record, encode_batch, read_header, verify_crc


@given(
    records=record_lists(base_offset=7),
    codec=codecs,
    producer=st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1), st.integers(0, 2**31 - 1)),
    transactional=st.booleans(),
    control=st.booleans(),
)
def test_a_batch_is_read_as_it_was_written(
    records: list[Record], codec: Compression, producer: tuple[int, int, int], transactional: bool, control: bool
) -> None:
    data = encode_batch(
        records,
        base_offset=7,
        compression=codec,
        leader_epoch=5,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        transactional=transactional,
        control=control,
    )
    header = read_header(data, 0, len(data))
    verify_crc(data, 0, len(data))
    assert list(record_batch.records(data)) == records
    assert (header.size_bytes, header.record_count, header.compression) == (len(data), len(records), codec)
    assert (header.base_offset, header.last_offset, header.partition_leader_epoch) == (7, 6 + len(records), 5)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == producer
    assert header.last_sequence == (producer[2] + len(records) - 1) % 2**31
    assert (header.is_transactional, header.is_control) == (transactional, control)
    assert header.base_timestamp_ms == records[0].timestamp_ms
    assert header.max_timestamp_ms == max(record.timestamp_ms for record in records)


@given(records=record_lists(), codec=codecs)
def test_aiokafka_reads_what_is_written_here(records: list[Record], codec: Compression) -> None:
    batch = DefaultRecordBatch(encode_batch(records, compression=codec))
    assert batch.validate_crc()
    read = [
        Record(offset=r.offset, timestamp_ms=r.timestamp, key=r.key, value=r.value, headers=tuple(r.headers))
        for r in batch
    ]
    assert read == records


@given(records=record_lists(), codec=codecs, transactional=st.booleans())
def test_what_aiokafka_writes_is_read_here(records: list[Record], codec: Compression, transactional: bool) -> None:
    builder = DefaultRecordBatchBuilder(2, int(codec), int(transactional), 9, 3, 44, 1 << 20)
    for record in records:
        assert builder.append(
            record.offset, record.timestamp_ms, record.key, record.value, [(n, v) for n, v in record.headers]
        )
    data = bytes(builder.build())
    header = read_header(data, 0, len(data))
    verify_crc(data, 0, header.size_bytes)
    assert list(record_batch.records(data)) == records
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 3, 44)
    assert header.is_transactional == transactional


@given(records=record_lists(), codec=codecs, log_append_time_ms=timestamps, offset=st.integers(0, 2**60))
def test_stamps_change_what_they_name_and_keep_the_crc_right(
    records: list[Record], codec: Compression, log_append_time_ms: int, offset: int
) -> None:
    data = bytearray(b"before" + encode_batch(records, compression=codec) + b"after")
    size_bytes = len(data) - 11
    view = memoryview(data)
    record_batch.stamp_offsets(view, 6, offset, 12)
    verify_crc(view, 6, size_bytes)
    record_batch.stamp_log_append_time(view, 6, size_bytes, log_append_time_ms)
    verify_crc(view, 6, size_bytes)
    assert list(record_batch.records(view[6 : 6 + size_bytes])) == [
        Record(offset=offset + i, timestamp_ms=log_append_time_ms, key=r.key, value=r.value, headers=r.headers)
        for i, r in enumerate(records)
    ]
    assert read_header(view, 6).partition_leader_epoch == 12
    assert (bytes(data[:6]), bytes(data[-5:])) == (b"before", b"after")


@given(st.data(), codecs, record_lists())
def test_hostile_batches_are_refused_and_nothing_else_happens(
    data: st.DataObject, codec: Compression, records: list[Record]
) -> None:
    hostile = data.draw(mutations(encode_batch(records, compression=codec)))
    try:
        for record in record_batch.records(hostile, max_decompressed_bytes=1 << 20):
            assert isinstance(record, Record)
    except CorruptBatch:
        pass


@given(st.data(), st.integers(0, 7), st.binary(max_size=60))
def test_hostile_compressed_bytes_allocate_no_more_than_the_bound(data: st.DataObject, code: int, noise: bytes) -> None:
    if 1 <= code <= 4:
        batch = encode_batch(
            [Record(offset=0, timestamp_ms=0, key=None, value=bytes(200_000))], compression=Compression(code)
        )
        noise = data.draw(mutations(batch[record_batch.HEADER_BYTES :]))
    tracemalloc.start()
    try:
        assert len(decompress(code, noise, max_bytes=300_000)) <= 300_000
    except CorruptBatch:
        pass
    finally:
        peak_bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak_bytes < 1_500_000


@given(st.data(), record_lists(), st.integers(0, 30))
def test_a_cut_tail_is_left_out_by_whole_batches_and_refused_by_exact_batches(
    data: st.DataObject, records: list[Record], cut_bytes: int
) -> None:
    first, second = encode_batch(records), encode_batch(records, compression=Compression.ZSTD)
    whole = first + second + first
    end = len(whole) - min(cut_bytes, len(first) - 1)
    positions = [position for position, _ in record_batch.whole_batches(whole, 0, end)]
    all_positions = [0, len(first), len(first) + len(second)]
    assert positions == (all_positions if end == len(whole) else all_positions[:2])
    try:
        assert [position for position, _ in record_batch.exact_batches(whole, 0, end)] == all_positions
        assert end == len(whole)
    except CorruptBatch:
        assert end < len(whole)
