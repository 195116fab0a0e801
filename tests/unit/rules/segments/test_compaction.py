"""What compaction may look at, when it is due, and what becomes of each record and batch."""

from dataclasses import dataclass
from typing import Any

import pytest

from tiered.formats.aborted_ranges import AbortedRange, AbortedRanges
from tiered.formats.control_record import MarkerType, TransactionMarker, encode_marker
from tiered.formats.producer_snapshot import ProducerBatch, ProducerEntry
from tiered.formats.record_batch import BatchHeader, Record, encode_batch, read_header
from tiered.rules.segments.compaction import (
    NOT_FOUND,
    BatchFate,
    Compacted,
    CompactionReason,
    Due,
    LastBatch,
    MarkerFate,
    TransactionsLeft,
    due,
    fate,
    is_aborted,
    keeps_record,
    last_batches,
    most_urgent,
)

NOW_MS = 1_000_000


@dataclass(frozen=True)
class Segment:
    base_offset: int
    end_offset: int
    size_bytes: int = 100
    max_timestamp_ms: int = 0
    created_ms: int = 0
    written_ms: int = 0
    closed: bool = True
    times_are_proven: bool = True


SEGMENTS = (Segment(0, 10), Segment(10, 20), Segment(20, 30), Segment(30, 35, closed=False))


def found(compacted: Compacted | None = None, segments: tuple[Segment, ...] = SEGMENTS, **changes: Any) -> Due:
    wanted: dict[str, Any] = {
        "log_start_offset": 0,
        "high_watermark": 35,
        "last_stable_offset": 35,
        "min_dirty_ratio": 0.5,
        "min_lag_ms": 0,
        "max_lag_ms": 2**63 - 1,
        "now_ms": NOW_MS,
    }
    return due(segments, compacted or Compacted(), **(wanted | changes))


def test_all_closed_segments_of_a_new_log_are_dirty() -> None:
    all_of_it = found()
    assert (all_of_it.first_dirty_offset, all_of_it.end_offset, all_of_it.why) == (0, 30, CompactionReason.DIRTY)
    assert all_of_it.dirty_ratio == 1.0


@pytest.mark.parametrize("bound", ["high_watermark", "last_stable_offset"])
def test_a_segment_that_is_not_wholly_stable_waits_and_all_behind_it(bound: str) -> None:
    def below(offset: int) -> Due:
        stable: dict[str, Any] = {bound: offset}
        return found(**stable)

    assert below(29).end_offset == 20
    assert below(9).end_offset == 0
    assert not below(9).is_due


def test_the_dirty_share_must_exceed_the_topics_ratio() -> None:
    assert found(Compacted(clean_end_offset=20)).why is CompactionReason.CLEAN
    assert found(Compacted(clean_end_offset=20), min_dirty_ratio=0.33).why is CompactionReason.DIRTY
    assert found(Compacted(clean_end_offset=20), min_dirty_ratio=1 / 3).why is CompactionReason.CLEAN
    assert not found(Compacted(clean_end_offset=30), min_dirty_ratio=0.0).is_due


def test_no_segment_from_the_first_young_one_on_is_touched() -> None:
    young = Segment(10, 20, max_timestamp_ms=NOW_MS - 50, written_ms=NOW_MS)
    segments = (Segment(0, 10), young, Segment(20, 30), SEGMENTS[-1])
    assert found(segments=segments, min_lag_ms=100).end_offset == 10
    assert found(segments=segments, min_lag_ms=50).end_offset == 30


def test_a_record_from_a_clock_that_is_ahead_keeps_nothing_from_compaction() -> None:
    ahead = Segment(10, 20, max_timestamp_ms=2**63 - 1, written_ms=NOW_MS - 50)
    segments = (Segment(0, 10), ahead, Segment(20, 30), SEGMENTS[-1])
    assert found(segments=segments, min_lag_ms=100).end_offset == 10
    assert found(segments=segments, min_lag_ms=50).end_offset == 30


def test_a_record_that_waits_for_too_long_makes_a_pass_due() -> None:
    clean = Compacted(clean_end_offset=20)
    assert found(clean, max_lag_ms=NOW_MS).why is CompactionReason.CLEAN
    assert found(clean, max_lag_ms=NOW_MS - 1).why is CompactionReason.LATE


def test_tombstones_make_a_pass_due_when_their_time_has_come() -> None:
    clean = Compacted(clean_end_offset=30, tombstones_due_ms=NOW_MS + 1)
    assert not found(clean).is_due
    assert found(clean, now_ms=NOW_MS + 1).why is CompactionReason.TOMBSTONES
    assert not found(clean, now_ms=NOW_MS + 1, keeps_tombstones=True).is_due


def test_deleted_offsets_are_neither_clean_nor_dirty_work() -> None:
    assert found(Compacted(clean_end_offset=5), log_start_offset=12).first_dirty_offset == 12


def test_late_partitions_come_first_and_then_the_dirtiest() -> None:
    half = found(Compacted(clean_end_offset=10))
    late = found(Compacted(clean_end_offset=20), max_lag_ms=1)
    clean = found(Compacted(clean_end_offset=30))
    assert most_urgent(enumerate([clean, half, found()])) == 2
    assert most_urgent(enumerate([found(), clean, late])) == 2
    assert most_urgent(enumerate([clean])) is None


def keeps(**changes: Any) -> bool:
    record: dict[str, Any] = {
        "offset": 7,
        "newest_offset": NOT_FOUND,
        "has_key": True,
        "has_value": True,
        "delete_horizon_ms": None,
        "now_ms": NOW_MS,
    }
    return keeps_record(**(record | changes))


def test_a_record_stays_unless_its_key_was_seen_later() -> None:
    assert keeps()
    assert keeps(newest_offset=7)
    assert not keeps(newest_offset=8)
    assert not keeps(has_key=False)


def test_a_tombstone_stays_until_its_batchs_horizon() -> None:
    assert keeps(has_value=False)
    assert keeps(has_value=False, delete_horizon_ms=NOW_MS + 1)
    assert not keeps(has_value=False, delete_horizon_ms=NOW_MS)
    assert keeps(delete_horizon_ms=NOW_MS), "a value has no horizon"


def test_the_last_batch_of_a_producer_stays_without_records() -> None:
    record = Record(offset=3, timestamp_ms=0, key=b"k", value=b"v")
    header = read_header(encode_batch([record], base_offset=3, producer_id=7, producer_epoch=0, base_sequence=5))
    batches = tuple(
        ProducerBatch(base_sequence=n, last_sequence=n, base_offset=n, last_offset=n, timestamp_ms=0) for n in (2, 3)
    )
    last = last_batches([ProducerEntry(producer_id=7, producer_epoch=0, batches=batches)])
    assert fate(header, kept_records=0, last_batches=last) is BatchFate.EMPTY
    assert fate(header, kept_records=1, last_batches=last) is BatchFate.KEEP
    assert fate(header, kept_records=0, last_batches={7: LastBatch(0, 4)}) is BatchFate.GO
    assert fate(header, kept_records=0, last_batches={}) is BatchFate.GO


def transactional(offset: int, producer_id: int = 7) -> BatchHeader:
    record = Record(offset=offset, timestamp_ms=0, key=b"k", value=b"v")
    return read_header(
        encode_batch(
            [record], base_offset=offset, producer_id=producer_id, producer_epoch=0, base_sequence=5, transactional=True
        )
    )


def marker(epoch: int = 0, producer_id: int = 7) -> BatchHeader:
    commit = TransactionMarker(type=MarkerType.COMMIT, coordinator_epoch=1)
    return read_header(encode_marker(commit, producer_id=producer_id, producer_epoch=epoch, timestamp_ms=0))


def marker_fate(
    left: TransactionsLeft, header: BatchHeader, *, horizon_ms: int | None = None, last: LastBatch | None = None
) -> MarkerFate:
    return left.marker_fate(
        header, delete_horizon_ms=horizon_ms, last_batches={} if last is None else {7: last}, now_ms=NOW_MS
    )


def test_only_batches_of_the_aborted_transaction_count_for_nothing() -> None:
    header = transactional(3)
    assert is_aborted(header, AbortedRanges([AbortedRange(producer_id=7, first_offset=2, last_offset=4)]))
    assert not is_aborted(header, AbortedRanges([AbortedRange(producer_id=8, first_offset=2, last_offset=4)]))
    assert not is_aborted(header, AbortedRanges([AbortedRange(producer_id=7, first_offset=4, last_offset=9)]))
    assert not is_aborted(marker(), AbortedRanges([AbortedRange(producer_id=7, first_offset=0, last_offset=9)]))


def test_a_marker_stays_for_as_long_as_a_batch_of_its_own_transaction() -> None:
    left = TransactionsLeft()
    left.left(transactional(3))
    left.left(transactional(4, producer_id=8))
    assert marker_fate(left, marker(), horizon_ms=NOW_MS) is MarkerFate.KEEP
    assert marker_fate(left, marker(), horizon_ms=NOW_MS) is MarkerFate.GO, "that is another transaction's"
    assert marker_fate(left, marker(producer_id=8), horizon_ms=NOW_MS) is MarkerFate.KEEP


def test_a_marker_of_which_nothing_else_is_left_goes_after_its_horizon() -> None:
    assert marker_fate(TransactionsLeft(), marker()) is MarkerFate.MARK
    assert marker_fate(TransactionsLeft(), marker(), horizon_ms=NOW_MS + 1) is MarkerFate.KEEP
    assert marker_fate(TransactionsLeft(), marker(), horizon_ms=NOW_MS) is MarkerFate.GO


def test_the_marker_that_alone_tells_the_epoch_of_a_producer_stays() -> None:
    told = last_batches([ProducerEntry(producer_id=7, producer_epoch=3)])[7]
    assert marker_fate(TransactionsLeft(), marker(epoch=3), horizon_ms=NOW_MS, last=told) is MarkerFate.KEEP
    assert marker_fate(TransactionsLeft(), marker(epoch=2), horizon_ms=NOW_MS, last=told) is MarkerFate.GO
    later = LastBatch(3, last_offset=50)
    assert marker_fate(TransactionsLeft(), marker(epoch=3), horizon_ms=NOW_MS, last=later) is MarkerFate.GO
