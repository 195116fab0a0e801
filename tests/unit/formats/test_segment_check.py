"""Checks of a chunk: with the native decoder and without it the same answer, and offsets as exact as can be."""

import hashlib
from collections.abc import Sequence

import pytest

from tiered.formats import native, record_batch
from tiered.formats.chunk_table import ChunkTableBuilder
from tiered.formats.record_batch import Record
from tiered.formats.segment_check import FaultKind, check_chunk
from tiered.formats.segment_object import ChunkRow


def batch(base_offset: int, count: int) -> bytes:
    records = [
        Record(offset=base_offset + index, timestamp_ms=5, key=None, value=b"v" * 50, headers=())
        for index in range(count)
    ]
    return record_batch.encode_batch(records, base_offset=base_offset)


def row_of(batches: Sequence[bytes], first_offset: int, last_offset: int, record_count: int) -> ChunkRow:
    """The row of a chunk that was uploaded like this, whatever is wrong with it."""
    data = b"".join(batches)
    return ChunkRow(
        position=1_000,
        length=len(data),
        first_offset=first_offset,
        last_offset=last_offset,
        min_timestamp_ms=5,
        max_timestamp_ms=5,
        record_count=record_count,
        sha256=hashlib.sha256(data).digest(),
    )


@pytest.fixture(params=["native", "pure"])
def decoder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "pure":
        monkeypatch.setattr(native, "load", lambda: None)
    return str(request.param)


@pytest.mark.parametrize("count", [1, 3, 3_000])
def test_a_whole_chunk_passes(decoder: str, count: int) -> None:
    batches = [batch(10 + 2 * index, 2) for index in range(count)]
    row = row_of(batches, 10, 9 + 2 * count, 2 * count)
    assert check_chunk(row, b"before" + b"".join(batches) + b"behind", 6, chunk=0) is None


def test_a_crc_that_was_wrong_before_the_upload_is_named(decoder: str) -> None:
    wrong = bytearray(batch(5, 5))
    wrong[-1] ^= 1
    batches = [batch(0, 5), bytes(wrong), batch(10, 5)]
    fault = check_chunk(row_of(batches, 0, 14, 15), b"".join(batches), chunk=7)
    assert fault is not None
    assert (fault.kind, fault.first_offset, fault.last_offset, fault.chunk) == (FaultKind.BATCH, 5, 9, 7)
    assert f"byte {1_000 + len(batches[0])} " in fault.message


@pytest.mark.parametrize(
    ("batches", "first", "last"),
    [
        ((batch(0, 5), batch(7, 5)), 5, 6),
        ((batch(0, 5), batch(3, 5)), 5, 5),
        ((batch(3, 2), batch(5, 7)), 0, 2),
        ((batch(0, 5), batch(5, 3)), 0, 11),
    ],
    ids=["gap", "overlap", "starts late", "ends early"],
)
def test_offsets_that_do_not_follow_are_named(decoder: str, batches: tuple[bytes, ...], first: int, last: int) -> None:
    fault = check_chunk(row_of(batches, 0, 11, 10), b"".join(batches), chunk=0)
    assert fault is not None
    assert (fault.kind, fault.first_offset, fault.last_offset) == (FaultKind.OFFSETS, first, last)


def test_a_count_of_records_that_the_row_denies_is_named(decoder: str) -> None:
    fault = check_chunk(row_of([batch(0, 5)], 0, 4, 6), batch(0, 5), chunk=0)
    assert fault is not None
    assert fault.kind is FaultKind.OFFSETS


def test_a_chunk_that_is_cut_off_or_no_batch_at_all_fails_its_hash(decoder: str) -> None:
    row = row_of([batch(0, 5)], 0, 4, 5)
    for data in (batch(0, 5)[:-1], b"\0" * row.length, b""):
        fault = check_chunk(row, data, chunk=0)
        assert fault is not None
        assert (fault.kind, fault.first_offset, fault.last_offset) == (FaultKind.CHUNK, 0, 4)


def test_the_rows_of_the_builder_pass(decoder: str) -> None:
    log = b"".join(batch(4 * index, 4) for index in range(50))
    builder = ChunkTableBuilder(chunk_bytes=2_000)
    builder.feed(log)
    table = builder.finish()
    assert len(table.chunks) > 5
    for index, row in enumerate(table.chunks):
        assert check_chunk(row, log, row.position, chunk=index) is None
