"""What rows, listings and files disagree about, and how fast the store is read."""

import math
from dataclasses import dataclass
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiered.formats.checkpoint import CommittedSegment
from tiered.formats.object_key import segment_key
from tiered.ids import TopicId, TopicPartition
from tiered.rules.segments import reconcile
from tiered.rules.segments.reconcile import (
    Comparison,
    Cursor,
    ObjectFate,
    compare_files,
    compare_page,
    fate_of,
    listed_segments,
)
from tiered.rules.segments.segment_states import SegmentState

TOPIC_ID = TopicId(UUID("6f1d2c1e-0000-4000-8000-00000000cafe"))
MONTH_MS = 30 * 24 * 3_600_000


def row(base: int, end: int, *, number: int = 0, size_bytes: int = 100) -> CommittedSegment:
    object_id = UUID(int=base * 1_000 + number, version=4)
    return CommittedSegment(
        base_offset=base,
        end_offset=end,
        leader_epoch=1,
        object_key=segment_key("orders", TOPIC_ID, 0, base, end, 1, object_id),
        object_id=object_id,
        size_bytes=size_bytes,
        log_bytes=size_bytes - 10,
        min_timestamp_ms=0,
        max_timestamp_ms=0,
        record_count=end - base,
        root_sha256="0" * 64,
        previous_root_sha256="0" * 64,
        committed_at_ms=0,
    )


def objects(*rows: CommittedSegment) -> list[tuple[str, int]]:
    """A listing in which these, and nothing else, are as they were committed."""
    return sorted((each.object_key, each.size_bytes) for each in rows)


def compare(
    rows: list[CommittedSegment],
    listed: list[tuple[str, int]],
    *,
    start: int = 0,
    rows_end: bool = True,
    listing_ends: bool = True,
) -> Comparison:
    return compare_page(rows, listed_segments(listed), start_offset=start, rows_end=rows_end, listing_ends=listing_ends)


LOG = [row(0, 10), row(10, 20), row(20, 30)]


def test_a_store_that_holds_what_was_committed_has_no_difference() -> None:
    found = compare(LOG, objects(*LOG))
    assert (found.missing, found.other_size, found.unnamed, found.end_offset) == ((), (), (), None)
    assert found.compared == 3


def test_a_missing_a_truncated_and_an_unnamed_object_are_each_found() -> None:
    cut = row(10, 20, size_bytes=99)
    stranger = row(20, 30, number=7)
    found = compare(LOG, objects(cut, LOG[2], stranger))
    assert found.missing == (LOG[0],)
    assert found.other_size == (LOG[1],)
    assert [each.name for each in found.unnamed] == [stranger.object_key]


def test_what_is_nothing_of_ours_is_left_alone() -> None:
    assert compare(LOG, [*objects(*LOG), ("segments/readme.txt", 5)]).unnamed == ()


def test_rows_behind_the_end_of_a_listing_are_for_the_next_page() -> None:
    found = compare(LOG, objects(LOG[0], LOG[1]), listing_ends=False)
    assert found.missing == ()
    assert found.end_offset == 10, "others that begin at 10 may follow"
    assert compare(LOG, objects(*LOG[1:]), start=10).missing == ()


def test_objects_behind_the_last_row_of_a_page_are_for_the_next_page() -> None:
    found = compare(LOG[:2], objects(*LOG), rows_end=False)
    assert (found.unnamed, found.end_offset) == ((), 20)


@given(st.data())
def test_turns_in_pages_of_any_size_find_the_same_as_one_look(data: st.DataObject) -> None:
    rows = [row(10 * number, 10 * number + 10) for number in range(data.draw(st.integers(0, 12)))]
    there = [each for each in rows if data.draw(st.booleans())]
    strangers = [
        row(data.draw(st.integers(0, 130)), 140, number=number + 1) for number in range(data.draw(st.integers(0, 8)))
    ]
    listing = objects(*there, *strangers)
    page = data.draw(st.integers(1, 4))
    missing: list[CommittedSegment] = []
    unnamed: set[str] = set()
    start: int | None = 0
    while start is not None:
        some = [each for each in rows if each.end_offset > start][:page]
        names = [each for each in listing if listed_segments([each])[0].key.base_offset >= start][:page]
        found = compare(some, names, start=start, rows_end=len(some) < page, listing_ends=len(names) < page)
        missing += found.missing
        unnamed |= {each.name for each in found.unnamed}
        assert found.end_offset is None or found.end_offset > start, "every page goes on"
        start = found.end_offset
    truly_missing = [each for each in rows if each not in there]
    assert [each for each in truly_missing if each not in missing] == [], "nothing that is missing goes unseen"
    assert unnamed <= {each.object_key for each in strangers}


@pytest.mark.parametrize(
    ("state", "fate"),
    [
        (SegmentState.PLANNED, ObjectFate.LEAVE),
        (SegmentState.COMMITTED, ObjectFate.LEAVE),
        (SegmentState.RETIRED, ObjectFate.LEAVE),
        (SegmentState.PURGED, ObjectFate.SWEEP),
        (None, ObjectFate.REPORT),
    ],
)
def test_only_an_object_that_the_catalogue_calls_deleted_is_deleted(
    state: SegmentState | None, fate: ObjectFate
) -> None:
    key = None if state is None else "segments/a"
    assert fate_of("segments/a", state=state, object_key=key) is fate


def test_an_object_under_another_key_than_its_row_says_is_left_to_people() -> None:
    assert fate_of("segments/a", state=SegmentState.PURGED, object_key="segments/b") is ObjectFate.REPORT


# Files


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


SEGMENTS = [Segment(0, 10), Segment(10, 20), Segment(20, 25, closed=False)]
FILES = {"00000000000000000000.log": 100, "00000000000000000010.log": 100, "00000000000000000020.log": 40}
OTHERS = {"00000000000000000000.index": 8, "leader-epochs": 10, "00000000000000000000.log.deleted": 5}


def test_a_folder_that_holds_the_log_has_no_difference() -> None:
    assert not compare_files(FILES | OTHERS, SEGMENTS)


def test_a_file_that_is_none_of_the_log_s_and_one_that_is_gone_or_cut_are_found() -> None:
    found = compare_files({"00000000000000000005.log": 7, "00000000000000000010.log": 99}, SEGMENTS)
    assert found.unused == {"00000000000000000005.log"}
    assert found.lacking == {0, 10}, "of the active segment nothing is said: it is being written"


def test_what_a_second_look_does_not_see_was_never_wrong() -> None:
    first = compare_files({}, SEGMENTS)
    assert not first.seen_again(compare_files(FILES, SEGMENTS))


# Turns


def test_a_turn_goes_through_the_partitions_in_order_whatever_comes_and_goes() -> None:
    zero, one, two = (TopicPartition(TOPIC_ID, number) for number in range(3))
    earlier = TopicPartition(TopicId(UUID(int=5)), 7)
    assert reconcile.in_turn([two, earlier, zero]) == [earlier, zero, two]
    assert reconcile.next_partition([zero, two], None) == zero
    assert reconcile.next_partition([one, two], Cursor(topic_id=TOPIC_ID, partition=0)) == one
    assert reconcile.next_partition([zero, one], Cursor(topic_id=TOPIC_ID, partition=2)) is None
    assert reconcile.next_partition([], None) is None


def test_the_next_turn_begins_a_period_after_the_last_one_began() -> None:
    assert reconcile.is_turn_due(began_ms=None, now_ms=0.0, period_ms=100)
    assert not reconcile.is_turn_due(began_ms=0.0, now_ms=99.0, period_ms=100)
    assert reconcile.is_turn_due(began_ms=0.0, now_ms=100.0, period_ms=100)


def credit(before: float, *, elapsed_ms: float, total_bytes: int, max_bytes_per_second: int = 1 << 20) -> float:
    return reconcile.scrub_credit(
        before,
        elapsed_ms=elapsed_ms,
        total_bytes=total_bytes,
        period_ms=MONTH_MS,
        max_bytes_per_second=max_bytes_per_second,
        max_credit_ms=120_000,
    )


@given(total_bytes=st.integers(1, 1 << 40), read_bytes=st.integers(1, 16 << 20))
def test_reading_never_gets_ahead_of_the_period_or_of_the_rate(total_bytes: int, read_bytes: int) -> None:
    left, read = 0.0, 0
    for _ in range(200):
        left = credit(left, elapsed_ms=60_000, total_bytes=total_bytes)
        parts = max(0, math.ceil(left / read_bytes))
        left -= parts * read_bytes
        read += parts * read_bytes
    fair = 200 * 60_000 / MONTH_MS * total_bytes
    assert read <= min(fair, 200 * 60.0 * (1 << 20)) + read_bytes, "what was read too much is owed"
    assert read >= min(fair, 200 * 60.0 * (1 << 20)) * 0.99


def test_a_pause_is_not_followed_by_a_burst() -> None:
    assert credit(0.0, elapsed_ms=86_400_000, total_bytes=1 << 50) == 120 * (1 << 20)


def test_a_rate_of_nothing_reads_nothing() -> None:
    assert credit(0.0, elapsed_ms=60_000, total_bytes=1 << 30, max_bytes_per_second=0) == 0
