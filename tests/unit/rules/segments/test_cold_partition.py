"""A partition as its bucket tells it: what can be read of it, and what is refused as incomplete."""

from dataclasses import replace
from uuid import UUID

import pytest

from tiered.errors import CorruptObject
from tiered.formats.checkpoint import CommittedSegment, PartitionCheckpoint
from tiered.formats.object_key import segment_key
from tiered.rules.partition.read_plan import CaughtUp, Cold, OutsideLog
from tiered.rules.segments.cold_partition import cold_partition

TOPIC_ID = UUID(int=1)


def segment(base_offset: int, end_offset: int) -> CommittedSegment:
    return CommittedSegment(
        base_offset=base_offset,
        end_offset=end_offset,
        leader_epoch=1,
        object_key=segment_key("orders", TOPIC_ID, 2, base_offset, end_offset, 1, UUID(int=base_offset + 1)),
        object_id=UUID(int=base_offset + 1),
        size_bytes=100,
        log_bytes=90,
        min_timestamp_ms=0,
        max_timestamp_ms=0,
        record_count=end_offset - base_offset,
        root_sha256=f"{end_offset:064x}",
        previous_root_sha256=f"{base_offset:064x}",
        committed_at_ms=0,
    )


def head(
    *segments: CommittedSegment, log_start_offset: int = 0, cold_end_offset: int | None = None
) -> PartitionCheckpoint:
    end = segments[-1].end_offset if segments else log_start_offset
    return PartitionCheckpoint(
        version=1,
        cluster_id="cluster-1",
        topic="orders",
        topic_id=TOPIC_ID,
        partition=2,
        partition_count=3,
        log_start_offset=log_start_offset,
        cold_end_offset=end if cold_end_offset is None else cold_end_offset,
        leader_epoch=1,
        pages=(),
        segments=segments,
    )


ROWS = (segment(0, 10), segment(10, 25), segment(25, 30))


def test_what_is_between_the_logs_start_and_the_stores_end_is_cold() -> None:
    found = cold_partition(head(*ROWS, log_start_offset=5), ROWS)
    assert (found.name, found.log_start_offset, found.cold_end_offset, found.cold_bytes) == ("orders-2", 5, 30, 300)
    assert found.plan_read(4) == OutsideLog(offset=4, log_start_offset=5, log_end_offset=30)
    assert found.plan_read(5) == Cold(offset=5, end_offset=30)
    assert found.plan_read(29) == Cold(offset=29, end_offset=30)
    assert found.plan_read(30) == CaughtUp(offset=30)
    assert found.plan_read(31) == OutsideLog(offset=31, log_start_offset=5, log_end_offset=30)


@pytest.mark.parametrize(("offset", "number"), [(0, 0), (9, 0), (10, 1), (24, 1), (25, 2), (29, 2)])
def test_each_offset_is_in_one_segment(offset: int, number: int) -> None:
    assert cold_partition(head(*ROWS), ROWS).segment_at(offset) is ROWS[number]


def test_a_log_whose_segments_are_all_retired_is_empty_where_it_starts() -> None:
    found = cold_partition(head(log_start_offset=30), ())
    assert (found.log_start_offset, found.cold_end_offset) == (30, 30)
    assert found.plan_read(30) == CaughtUp(offset=30)


@pytest.mark.parametrize(
    ("rows", "end", "fault"),
    [
        (ROWS[:1] + ROWS[2:], None, "offsets 10 to 24: 15 offsets are missing"),
        (ROWS[1:], None, "offsets 0 to 9: 10 offsets are missing"),
        (ROWS[:2], 30, "offsets 25 to 29: 5 offsets are missing"),
        ((), 30, "offsets 0 to 29: 30 offsets are missing"),
        ((ROWS[0], segment(8, 25)), None, "offsets 8 to 9: two segments hold them"),
        (ROWS, 25, "the store ends at 25"),
        ((ROWS[0], replace(ROWS[1], previous_root_sha256="f" * 64)), None, "one of them was replaced"),
    ],
)
def test_what_would_leave_records_out_is_refused(
    rows: tuple[CommittedSegment, ...], end: int | None, fault: str
) -> None:
    with pytest.raises(CorruptObject, match=fault):
        cold_partition(head(*rows, cold_end_offset=end), rows)
