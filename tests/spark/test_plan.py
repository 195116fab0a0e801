"""Splits: every offset is in exactly one, whatever the sizes; and what is pruned cannot hold a wanted row."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_tiered.plan import (
    ColdSplit,
    FilterBounds,
    OffsetRange,
    PartitionView,
    Split,
    SplitSizes,
    TailSplit,
    bounded,
    fit,
    limited,
    parts,
    splits,
    uncovered,
)
from tiered.errors import InvalidConfig
from tiered.formats.checkpoint import CommittedSegment

TOPIC_ID = UUID(int=7)
MIB = 1 << 20


def view(*, start: int = 0, cold_end: int = 0, end: int = 100, topic: str = "t", partition: int = 0) -> PartitionView:
    return PartitionView(
        topic=topic,
        topic_id=TOPIC_ID,
        partition=partition,
        log_start_offset=start,
        cold_end_offset=cold_end,
        end_offset=end,
    )


def segment(base: int, end: int, *, log_bytes: int, max_timestamp_ms: int = 10**12) -> CommittedSegment:
    return CommittedSegment(
        base_offset=base,
        end_offset=end,
        leader_epoch=0,
        object_key=f"segments/{base}",
        object_id=UUID(int=base + 1),
        size_bytes=log_bytes + 500,
        log_bytes=log_bytes,
        min_timestamp_ms=0,
        max_timestamp_ms=max_timestamp_ms,
        max_timestamp_is_proven=True,
        record_count=end - base,
        root_sha256="ab" * 32,
        previous_root_sha256="00" * 32,
        committed_at_ms=0,
    )


@st.composite
def partitions(draw: st.DrawFn) -> tuple[OffsetRange, list[CommittedSegment]]:
    """A range of one partition and the segments that cover its cold part."""
    base, segments = draw(st.integers(0, 100)), []
    for length in draw(st.lists(st.integers(1, 5000), max_size=6)):
        end = base + length
        segments.append(segment(base, end, log_bytes=draw(st.integers(61, 300 * MIB))))
        base = end
    first = segments[0].base_offset if segments else base
    tail = draw(st.integers(0, 3000))
    seen = view(start=first, cold_end=base, end=base + tail)
    start = draw(st.integers(first, base + tail))
    return OffsetRange(view=seen, start_offset=start, end_offset=draw(st.integers(start, base + tail))), segments


def offsets_of(split: Split) -> list[int]:
    """The offsets that a task gives for this split."""
    if isinstance(split, TailSplit):
        return list(range(split.start_offset, split.end_offset))
    return [
        offset
        for segment in split.segments
        for offset in range(max(segment.base_offset, split.start_offset), min(segment.end_offset, split.end_offset))
    ]


def record_bytes(segment: CommittedSegment) -> float:
    return segment.log_bytes / (segment.end_offset - segment.base_offset)


def bytes_of(split: Split) -> float:
    """What a task reads from the bucket for this split."""
    assert isinstance(split, ColdSplit)
    return sum(
        (min(segment.end_offset, split.end_offset) - max(segment.base_offset, split.start_offset))
        * record_bytes(segment)
        for segment in split.segments
    )


@given(
    partition=partitions(),
    split_bytes=st.integers(1 * MIB, 100 * MIB),
    open_cost_bytes=st.integers(0, 8 * MIB),
    min_partitions=st.none() | st.integers(1, 300),
    max_records=st.none() | st.integers(50, 3000),
)
def test_every_offset_is_in_exactly_one_split(
    partition: tuple[OffsetRange, list[CommittedSegment]],
    split_bytes: int,
    open_cost_bytes: int,
    min_partitions: int | None,
    max_records: int | None,
) -> None:
    wanted, segments = partition
    below, above = parts(wanted)
    planned = splits(
        [] if below is None else [(below, segments)],
        [] if above is None else [above],
        SplitSizes(
            split_bytes=split_bytes,
            open_cost_bytes=open_cost_bytes,
            min_partitions=min_partitions,
            max_records=max_records,
        ),
    )
    offsets = [offset for split in planned for offset in offsets_of(split)]
    assert offsets == list(range(wanted.start_offset, wanted.end_offset))
    assert all(offsets_of(split) for split in planned)
    assert len(planned) >= min(min_partitions or 0, len(offsets))
    if max_records is not None:
        assert all(split.end_offset - split.start_offset <= max_records for split in planned)


@given(
    sizes=st.lists(st.tuples(st.integers(1, 2000), st.integers(61, 300 * MIB)), min_size=1, max_size=60),
    split_bytes=st.integers(1 * MIB, 100 * MIB),
    open_cost_bytes=st.integers(0, 8 * MIB),
    min_partitions=st.none() | st.integers(1, 300),
)
def test_a_task_costs_no_more_than_its_share_allows(
    sizes: list[tuple[int, int]], split_bytes: int, open_cost_bytes: int, min_partitions: int | None
) -> None:
    segments: list[CommittedSegment] = []
    for offset_count, log_bytes in sizes:
        base = segments[-1].end_offset if segments else 0
        segments.append(segment(base, base + offset_count, log_bytes=log_bytes))
    end = segments[-1].end_offset
    wanted = OffsetRange(view=view(cold_end=end, end=end), start_offset=0, end_offset=end)
    planned = splits(
        [(wanted, segments)],
        [],
        SplitSizes(split_bytes=split_bytes, open_cost_bytes=open_cost_bytes, min_partitions=min_partitions),
    )
    opening = min(open_cost_bytes, split_bytes)
    total = sum(one.log_bytes + opening for one in segments)
    # A cut moves by an eighth of a share to an object's border, or by the records and the openings at it.
    slack = 2 * (opening + max(record_bytes(one) for one in segments))
    for split in planned:
        assert isinstance(split, ColdSplit)
        cost = bytes_of(split) + opening * len(split.segments)
        assert cost <= 1.25 * total / len(planned) + slack
        assert cost <= 1.5 * split_bytes + slack


def test_parallelism_follows_bytes_and_not_partitions() -> None:
    big = segment(0, 1000, log_bytes=1024 * MIB)
    small = [segment(1000 + n, 1001 + n, log_bytes=MIB) for n in range(128)]
    wanted = OffsetRange(view=view(cold_end=1128, end=1128), start_offset=0, end_offset=1128)
    planned = splits([(wanted, [big, *small])], [], SplitSizes(split_bytes=64 * MIB))
    assert len(planned) == 16 + 2
    assert [len(split.segments) for split in planned if isinstance(split, ColdSplit)][-3:] == [1, 64, 64]


def small_objects(count: int, *, records: int = 5) -> tuple[OffsetRange, list[CommittedSegment]]:
    segments = [segment(records * n, records * (n + 1), log_bytes=900) for n in range(count)]
    end = records * count
    return OffsetRange(view=view(cold_end=end, end=end), start_offset=0, end_offset=end), segments


def test_an_object_costs_its_opening_too() -> None:
    many = small_objects(2368)
    sizes = SplitSizes(split_bytes=128 * MIB, open_cost_bytes=4 * MIB)
    planned = splits([many], [], sizes)
    assert len(planned) == 2368 // 32
    assert {len(split.segments) for split in planned if isinstance(split, ColdSplit)} == {32}
    assert len(splits([many], [], SplitSizes(split_bytes=128 * MIB))) == 1
    assert len(splits([small_objects(1)], [], SplitSizes(split_bytes=1000, open_cost_bytes=4 * MIB))) == 2


def test_min_partitions_is_kept() -> None:
    sizes = SplitSizes(split_bytes=128 * MIB, open_cost_bytes=4 * MIB, min_partitions=8)
    big = OffsetRange(view=view(cold_end=1000, end=1000), start_offset=0, end_offset=1000)
    tail = OffsetRange(view=view(end=1000), start_offset=0, end_offset=1000)
    assert len(splits([(big, [segment(0, 1000, log_bytes=64 * MIB)])], [], sizes)) == 8
    assert len(splits([], [tail], sizes)) == 8
    few = splits([small_objects(3)], [], sizes)
    assert [offset for split in few for offset in offsets_of(split)] == list(range(15))
    assert len(few) == 8, "three objects are cut by offsets"
    assert len(splits([small_objects(1, records=4)], [], sizes)) == 4, "no task is without an offset"
    spread = splits([small_objects(64)], [], sizes)
    assert [len(split.segments) for split in spread if isinstance(split, ColdSplit)] == [8] * 8


def test_the_costliest_partition_is_cut_for_min_partitions() -> None:
    def cold(partition: int, log_bytes: int) -> tuple[OffsetRange, list[CommittedSegment]]:
        seen = view(partition=partition, cold_end=100, end=100)
        wanted = OffsetRange(view=seen, start_offset=0, end_offset=100)
        return wanted, [segment(0, 100, log_bytes=log_bytes)]

    tail = OffsetRange(view=view(partition=3, end=50), start_offset=0, end_offset=50)
    sizes = SplitSizes(split_bytes=128 * MIB, min_partitions=10)
    planned = splits([cold(0, MIB), cold(1, 60 * MIB), cold(2, 30 * MIB)], [tail], sizes)
    counts = [sum(split.partition == number for split in planned) for number in range(4)]
    # A record of the tail counts as much as the cold ones on average: 50 of them are 15 MiB.
    assert counts == [1, 5, 2, 2]


@pytest.mark.parametrize(
    "sizes", [SplitSizes(split_bytes=1), SplitSizes(split_bytes=64 * MIB, max_records=1)], ids=["bytes", "records"]
)
def test_more_tasks_than_a_driver_can_hold_are_refused_before_they_are_made(sizes: SplitSizes) -> None:
    huge = segment(0, 1 << 40, log_bytes=1 << 50)
    wanted = OffsetRange(view=view(cold_end=1 << 40, end=1 << 40), start_offset=0, end_offset=1 << 40)
    with pytest.raises(InvalidConfig, match="more than 100,000 tasks; raise splitBytes"):
        splits([(wanted, [huge])], [], sizes)


def test_the_seam_is_in_neither_part_twice() -> None:
    wanted = OffsetRange(view=view(cold_end=60, end=100), start_offset=50, end_offset=80)
    below, above = parts(wanted)
    assert below is not None
    assert above is not None
    assert (below.start_offset, below.end_offset, above.start_offset, above.end_offset) == (50, 60, 60, 80)
    assert parts(OffsetRange(view=view(cold_end=60), start_offset=70, end_offset=80))[0] is None
    assert parts(OffsetRange(view=view(cold_end=60), start_offset=0, end_offset=60))[1] is None


def test_what_is_gone_is_said_and_the_rest_is_left() -> None:
    fitted, lost = fit(view(start=20, end=100), 5, 60)
    assert (fitted.start_offset, fitted.end_offset) == (20, 60)
    assert "offsets 5 to 19 are gone" in lost[0]
    fitted, lost = fit(view(start=20, end=100), 30, 120)
    assert (fitted.start_offset, fitted.end_offset) == (30, 100)
    assert "ends at 100" in lost[0]
    assert fit(view(start=20, end=100), 20, 100)[1] == ()


def test_holes_between_segments_are_found() -> None:
    segments = [segment(10, 20, log_bytes=100), segment(25, 30, log_bytes=100)]
    assert uncovered(segments, 5, 40) == [(5, 10), (20, 25), (30, 40)]
    assert uncovered(segments, 12, 18) == []
    assert uncovered([], 0, 3) == [(0, 3)]


keys = st.tuples(st.sampled_from("ab"), st.integers(0, 3))


@given(
    partitions=st.dictionaries(keys, st.tuples(st.integers(0, 50), st.integers(0, 1000)), max_size=6),
    limit=st.integers(1, 300),
)
def test_a_limited_micro_batch_moves_and_never_exceeds(
    partitions: dict[tuple[str, int], tuple[int, int]], limit: int
) -> None:
    starts = {key: start for key, (start, _) in partitions.items()}
    ends = {key: start + length for key, (start, length) in partitions.items()}
    total = sum(length for _, length in partitions.values())
    rounds = 0
    while starts != ends:
        planned = limited(starts, ends, limit)
        moved = sum(planned[key] - starts[key] for key in starts)
        assert moved == min(limit, total)
        assert all(starts[key] <= planned[key] <= ends[key] for key in starts)
        starts, total, rounds = planned, total - moved, rounds + 1
        assert rounds < 10_000


def test_bounds_prune_partitions_offsets_and_segments() -> None:
    ranges = [
        OffsetRange(view=view(partition=number, cold_end=100), start_offset=0, end_offset=100) for number in range(3)
    ]
    left = bounded(ranges, FilterBounds(partitions=frozenset({1}), first_offset=10, last_offset=19))
    assert [(each.view.partition, each.start_offset, each.end_offset) for each in left] == [(1, 10, 20)]
    assert bounded(ranges, FilterBounds(topics=frozenset({"other"}))) == []
    assert bounded(ranges, FilterBounds(first_offset=100)) == []
    old, new = segment(0, 50, log_bytes=100, max_timestamp_ms=5), segment(50, 100, log_bytes=100, max_timestamp_ms=50)
    found = splits([(ranges[0], [old, new])], [], SplitSizes(split_bytes=MIB), FilterBounds(first_timestamp_ms=6))
    assert [kept.object_key for split in found if isinstance(split, ColdSplit) for kept in split.segments] == [
        "segments/50"
    ]
    # The smallest timestamp of a segment is no proven bound: nothing is left out for being too new.
    assert splits([(ranges[0], [new])], [], SplitSizes(split_bytes=MIB), FilterBounds(last_timestamp_ms=-5))
