"""What an object says of aborted transactions against its markers: missing, made up, misplaced, and whole ones."""

from collections.abc import Sequence

import pytest

from tests.golden.regenerate import TOPIC_ID
from tiered.formats import record_batch
from tiered.formats.chunk_table import ChunkTable, ChunkTableBuilder
from tiered.formats.control_record import MarkerType, TransactionMarker, encode_marker
from tiered.formats.marker_check import MarkerCheck, check_aborted
from tiered.formats.record_batch import Record, encode_batch
from tiered.formats.segment_check import FaultKind
from tiered.formats.segment_object import AbortedIndexEntry, SegmentTail, build_tail, read_tail


def records_of(producer_id: int, offset: int) -> bytes:
    record = Record(offset=offset, timestamp_ms=5, key=b"k", value=b"v")
    return encode_batch(
        [record],
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=offset,
        transactional=producer_id >= 0,
    )


def marker(kind: MarkerType, producer_id: int, offset: int) -> bytes:
    batch = encode_marker(
        TransactionMarker(type=kind, coordinator_epoch=0), producer_id=producer_id, producer_epoch=0, timestamp_ms=5
    )
    record_batch.stamp_offsets(memoryview(batch), 0, offset, 0)
    return bytes(batch)


def entry(producer_id: int, first_offset: int, last_offset: int) -> AbortedIndexEntry:
    return AbortedIndexEntry(
        producer_id=producer_id, first_offset=first_offset, last_offset=last_offset, last_stable_offset=last_offset + 1
    )


ABORT, COMMIT = MarkerType.ABORT, MarkerType.COMMIT
BATCHES = [
    records_of(7, 0),
    records_of(8, 1),
    records_of(-1, 2),
    marker(ABORT, 7, 3),
    marker(COMMIT, 8, 4),
    marker(ABORT, 9, 5),  # Of nothing: no entry names it.
]
ENTRY = entry(7, 0, 3)


def table_of(batches: Sequence[bytes], chunk_bytes: int) -> tuple[bytes, ChunkTable]:
    log = b"".join(batches)
    builder = ChunkTableBuilder(chunk_bytes=chunk_bytes)
    builder.feed(log)
    return log, builder.finish()


def faults(aborted: Sequence[AbortedIndexEntry], *, chunk_bytes: int, skipped: Sequence[int] = ()) -> list[int]:
    """The chunks in which something is wrong; each is looked at twice, as verify does."""
    log, table = table_of(BATCHES, chunk_bytes)
    check, found = MarkerCheck(aborted), []
    for number, row in enumerate(table.chunks):
        if number in skipped:
            continue
        fault = check.check(row, log, row.position, chunk=number)
        if fault is not None:
            assert fault == check.check(row, log, row.position, chunk=number)
            assert (fault.kind, fault.chunk) == (FaultKind.ABORTED, number)
            found.append(number)
    return found


@pytest.mark.parametrize(("chunk_bytes", "chunk_of_marker"), [(1 << 20, 0), (1, 3)])
def test_each_entry_has_its_marker_and_each_aborted_transaction_its_entry(
    chunk_bytes: int, chunk_of_marker: int
) -> None:
    assert faults([ENTRY], chunk_bytes=chunk_bytes) == []
    assert faults([], chunk_bytes=chunk_bytes) == [chunk_of_marker]
    assert faults([entry(8, 1, 3)], chunk_bytes=chunk_bytes) == [chunk_of_marker]
    assert faults([ENTRY, entry(8, 1, 4)], chunk_bytes=chunk_bytes) == [4 if chunk_bytes == 1 else 0]


def test_a_transaction_that_ended_in_a_later_segment_has_no_marker_here() -> None:
    assert faults([ENTRY, entry(8, 1, 100)], chunk_bytes=1) == []


def test_where_a_chunk_was_left_out_nothing_is_known_of_what_was_open() -> None:
    assert faults([], chunk_bytes=1, skipped=[0]) == []
    assert faults([], chunk_bytes=1, skipped=[2]) == [], "what came before the gap may have ended in it"
    assert faults([ENTRY], chunk_bytes=1, skipped=[0, 2]) == []


def tail_of(aborted: Sequence[AbortedIndexEntry]) -> SegmentTail:
    log, table = table_of([records_of(-1, offset) for offset in range(10, 20)], 1 << 20)
    tail = build_tail(
        table,
        cluster_id="cluster",
        topic_id=TOPIC_ID,
        topic="orders",
        partition=0,
        leader_epochs=((0, 10),),
        aborted=aborted,
        producer_snapshot=b"",
        previous_root_sha256=bytes(32),
    )
    return read_tail(tail, len(log) + len(tail))


@pytest.mark.parametrize(
    ("aborted", "is_right"),
    [
        ([entry(7, 0, 10), entry(7, 12, 15), entry(8, 11, 15), entry(9, 19, 30)], True),
        ([entry(7, 12, 15), entry(8, 11, 14)], False),
        ([entry(7, 0, 9)], False),
        ([entry(7, 20, 30)], False),
        ([entry(7, 15, 14)], False),
    ],
)
def test_entries_are_in_order_and_of_this_segment(aborted: Sequence[AbortedIndexEntry], is_right: bool) -> None:
    fault = check_aborted(tail_of(aborted))
    assert (fault is None) == is_right
    assert fault is None or (fault.kind, fault.first_offset, fault.last_offset) == (FaultKind.ABORTED, 10, 19)
