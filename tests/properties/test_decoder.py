"""The native decoder, the pure one and aiokafka's reader see the same records, and refuse the same bytes."""

from itertools import pairwise
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from hypothesis import given
from hypothesis import strategies as st

from tiered.errors import CorruptBatch
from tiered.formats import native
from tiered.formats.aborted_ranges import AbortedRange
from tiered.formats.arrow import (
    ALL_COLUMNS,
    COLUMNS,
    MAX_OFFSET,
    arrow_schema,
    decode_chunk,
    to_timestamp_us,
)
from tiered.formats.record_batch import Compression, Record, encode_batch, exact_batches

TOPIC, PARTITION = "größe", 3
NO_END = 2**62

contents = st.none() | st.binary(max_size=40) | st.integers(0, 400).map(lambda n: b"x" * n)
record_headers = st.lists(st.tuples(st.text(max_size=5), contents), max_size=3).map(tuple)


@st.composite
def batches(draw: st.DrawFn, base_offset: int) -> tuple[bytes, int]:
    """One batch from `base_offset` on, and where the next one begins."""
    gaps = draw(st.lists(st.integers(1, 3), max_size=8))
    offset, records = base_offset - 1, []
    for gap in gaps:
        offset += gap
        records.append(
            Record(
                offset=offset,
                timestamp_ms=draw(st.integers(-1, 2**42)),
                key=draw(contents),
                value=draw(contents),
                headers=draw(record_headers),
            )
        )
    control = draw(st.integers(0, 9)) == 0
    transactional = control or draw(st.booleans())
    last_offset = max(offset, base_offset) + draw(st.integers(0, 2))
    encoded = encode_batch(
        records,
        base_offset=base_offset,
        last_offset=last_offset,
        compression=draw(st.sampled_from(Compression)),
        producer_id=draw(st.integers(1, 3)) if transactional else -1,
        producer_epoch=0 if transactional else -1,
        base_sequence=0 if transactional else -1,
        transactional=transactional,
        control=control,
        log_append_time_ms=draw(st.none() | st.integers(0, 2**42)),
    )
    return encoded, last_offset + 1


@st.composite
def chunks(draw: st.DrawFn) -> bytes:
    offset = draw(st.integers(0, 50) | st.just(2**60))
    pieces = []
    for _ in range(draw(st.integers(0, 5))):
        encoded, next_offset = draw(batches(offset))
        pieces.append(encoded)
        offset = next_offset + draw(st.integers(0, 4))
    return b"".join(pieces)


def rows(chunk: bytes, **options: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    columns = options.setdefault("columns", ALL_COLUMNS)
    for batch in decode_chunk(chunk, topic=TOPIC, partition=PARTITION, **options):
        batch.validate(full=True)
        assert batch.schema.equals(arrow_schema(tuple(columns)), check_metadata=True)
        assert batch.num_rows > 0
        found += numbered(batch).to_pylist()
    return found


def numbered(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Timestamps as numbers: not every one is a datetime."""
    at = batch.schema.get_field_index("timestamp")
    return batch if at < 0 else batch.set_column(at, "timestamp", batch.column(at).cast(pa.int64()))


def rows_of_aiokafka(chunk: bytes) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for position, header in exact_batches(chunk, 0, len(chunk)):
        batch = DefaultRecordBatch(chunk[position : position + header.size_bytes])
        assert batch.validate_crc()
        if batch.is_control_batch or header.record_count == 0:  # It cannot read nothing in snappy.
            continue
        found.extend(
            {
                "key": record.key,
                "value": record.value,
                "topic": TOPIC,
                "partition": PARTITION,
                "offset": record.offset,
                "timestamp": record.timestamp * 1000,
                "timestampType": record.timestamp_type,
                "headers": [{"key": name, "value": value} for name, value in record.headers] or None,
            }
            for record in batch
        )
    return found


def test_the_native_decoder_is_built() -> None:
    assert native.load() is not None, "build it: make install, or python setup.py build_ext --inplace"


@given(chunk=chunks())
def test_native_pure_and_aiokafka_agree(chunk: bytes) -> None:
    expected = rows_of_aiokafka(chunk)
    assert rows(chunk) == expected
    assert rows(chunk, pure=True) == expected


@given(
    chunk=chunks(),
    start=st.integers(0, 60),
    length=st.integers(0, 60) | st.just(NO_END),
    columns=st.lists(st.sampled_from(ALL_COLUMNS), unique=True, min_size=1).map(tuple),
    batch_bytes=st.sampled_from([1, 200, 1 << 20]),
)
def test_ranges_and_projections_only_leave_out(
    chunk: bytes, start: int, length: int, columns: tuple[str, ...], batch_bytes: int
) -> None:
    everything = rows(chunk)
    wanted = [{name: row[name] for name in columns} for row in everything if start <= row["offset"] < start + length]
    for pure in (False, True):
        found = rows(
            chunk, start_offset=start, end_offset=start + length, columns=columns, batch_bytes=batch_bytes, pure=pure
        )
        assert found == wanted


@given(
    chunk=chunks(),
    aborted=st.lists(
        st.builds(
            lambda producer_id, first, length: AbortedRange(
                producer_id=producer_id, first_offset=first, last_offset=first + length
            ),
            st.integers(1, 3),
            st.integers(0, 60),
            st.integers(0, 40),
        ),
        max_size=3,
    ),
)
def test_aborted_transactions_are_left_out(chunk: bytes, aborted: list[AbortedRange]) -> None:
    gone: set[int] = set()
    for _, header in exact_batches(chunk, 0, len(chunk)):
        for one in aborted:
            if (
                header.is_transactional
                and header.producer_id == one.producer_id
                and one.first_offset <= header.base_offset <= one.last_offset
            ):
                gone.update(range(header.base_offset, header.end_offset))
    wanted = [row for row in rows(chunk) if row["offset"] not in gone]
    assert rows(chunk, aborted=aborted) == wanted
    assert rows(chunk, aborted=aborted, pure=True) == wanted


def with_right_crc(batch: bytearray) -> bytes:
    decoder = native.load()
    assert decoder is not None
    batch[17:21] = decoder.crc32c(bytes(batch[21:])).to_bytes(4, "big")
    return bytes(batch)


def answer(chunk: bytes, **options: object) -> list[dict[str, object]] | str:
    try:
        return rows(chunk, **options)
    except CorruptBatch:
        return "refused"


@given(
    made=batches(7),
    changes=st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 255)), min_size=1, max_size=3),
    columns=st.sampled_from([ALL_COLUMNS, COLUMNS, ("offset",)]),
    start=st.sampled_from([0, 9]),
)
def test_both_decoders_accept_and_refuse_the_same_bytes(
    made: tuple[bytes, int], changes: list[tuple[int, int]], columns: tuple[str, ...], start: int
) -> None:
    batch = bytearray(made[0])
    body = range(12, len(batch))
    for at, value in changes:
        batch[body[at % len(body)]] = value
    chunk = with_right_crc(batch)
    options = {"columns": columns, "start_offset": start}
    assert answer(chunk, **options) == answer(chunk, pure=True, **options)


@given(chunk=chunks(), cut=st.integers(1, 200))
def test_a_chunk_that_is_cut_off_is_refused_by_both(chunk: bytes, cut: int) -> None:
    cut_off = chunk[:-cut]
    ends = {0}
    for position, header in exact_batches(chunk, 0, len(chunk)):
        ends.add(position + header.size_bytes)
    whole = len(cut_off) in ends
    for pure in (False, True):
        assert (answer(cut_off, pure=pure) == "refused") == (not whole)


@given(length=st.integers(0, 300) | st.integers(3_000, 10_000), seed=st.integers(0, 1 << 32))
def test_both_ways_to_a_crc_agree(length: int, seed: int) -> None:
    """Also where the processor's way takes three lanes of 1 KiB at a time."""
    decoder = native.load()
    assert decoder is not None
    data = Random(seed).randbytes(length)
    assert decoder.crc32c(data) == decoder.crc32c(data, software=True)


def test_crc_is_castagnolis() -> None:
    decoder = native.load()
    assert decoder is not None
    assert decoder.crc32c(b"123456789") == 0xE3069283


@pytest.mark.parametrize("pure", [False, True])
def test_a_wrong_crc_is_refused_even_where_nobody_wants_the_records(pure: bool) -> None:
    batch = bytearray(encode_batch([Record(offset=0, timestamp_ms=1, key=None, value=b"x")]))
    batch[-1] ^= 1
    with pytest.raises(CorruptBatch):
        list(decode_chunk(bytes(batch), topic="t", partition=0, start_offset=5, pure=pure))


@pytest.mark.parametrize("pure", [False, True])
def test_a_header_key_that_is_not_text_is_kept_with_replacement_characters(pure: bool) -> None:
    records = [
        Record(offset=0, timestamp_ms=1, key=None, value=b"x", headers=(("a\udcff", b"1"),)),
        Record(offset=1, timestamp_ms=1, key=None, value=b"y", headers=(("ok", b"2"),)),
    ]
    found = rows(encode_batch(records), pure=pure)
    assert [row["headers"] for row in found] == [[{"key": "a\ufffd", "value": b"1"}], [{"key": "ok", "value": b"2"}]]


@pytest.mark.parametrize("pure", [False, True])
@pytest.mark.parametrize("timestamp_ms", [2**63 - 1, -(2**63), 2**53, -1])
def test_timestamps_beyond_microseconds_become_the_nearest(pure: bool, timestamp_ms: int) -> None:
    batch = encode_batch([Record(offset=0, timestamp_ms=timestamp_ms, key=None, value=None)])
    assert [row["timestamp"] for row in rows(batch, pure=pure)] == [to_timestamp_us(timestamp_ms)]


def test_arrow_batches_stay_near_the_size_that_was_asked_for() -> None:
    pieces = [
        encode_batch([Record(offset=n, timestamp_ms=1, key=None, value=b"v" * 1000)], base_offset=n)
        for n in range(5000)
    ]
    sizes = [batch.num_rows for batch in decode_chunk(b"".join(pieces), topic="t", partition=0, batch_bytes=1 << 20)]
    assert sum(sizes) == 5000
    assert all(900 <= size <= 1100 for size in sizes[:-1])


def test_offsets_come_in_order() -> None:
    chunk = b"".join(
        encode_batch([Record(offset=n, timestamp_ms=1, key=b"k", value=b"v")], base_offset=n, compression=codec)
        for n, codec in enumerate(list(Compression) * 3)
    )
    offsets = [row["offset"] for row in rows(chunk, batch_bytes=100, end_offset=MAX_OFFSET)]
    assert all(first < second for first, second in pairwise(offsets))
    assert len(offsets) == 15
