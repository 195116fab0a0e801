"""Topics take turns in the upload pipeline, none starves, and what waited longest goes first."""

from dataclasses import replace
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from tiered.ids import TopicId, TopicPartition
from tiered.rules.pacing.upload_turns import DueUpload, UploadTurns, next_upload, taken

MAX_BYTES = 1 << 30
SIZES = st.integers(1, MAX_BYTES)


def topic(number: int) -> TopicId:
    return TopicId(UUID(int=number + 1))


def segment(topic_number: int, *, partition: int = 0, size_bytes: int = 100, since_ms: int = 0) -> DueUpload:
    where = TopicPartition(topic(topic_number), partition)
    return DueUpload(where=where, base_offset=0, size_bytes=size_bytes, since_ms=since_ms)


def drain(due: list[DueUpload]) -> list[DueUpload]:
    """All of them in the order in which they go."""
    order, turns = [], UploadTurns()
    while (chosen := next_upload(due, turns)) is not None:
        due = [each for each in due if each != chosen]
        turns = taken(turns, chosen)
        order.append(chosen)
    return order


def test_one_topic_goes_oldest_first_over_its_partitions() -> None:
    due = [segment(0, partition=number, since_ms=since) for number, since in enumerate((30, 10, 20))]
    assert [each.since_ms for each in drain(due)] == [10, 20, 30]


def test_after_an_outage_the_oldest_segment_of_all_goes_first_and_topics_then_alternate() -> None:
    due = [
        *(segment(0, partition=number, since_ms=number) for number in range(4)),
        *(segment(1, partition=number, since_ms=100 + number) for number in range(2)),
    ]
    assert [(each.where.topic_id, each.since_ms) for each in drain(due)] == [
        (topic(0), 0), (topic(1), 100), (topic(0), 1), (topic(1), 101), (topic(0), 2), (topic(0), 3),
    ]  # fmt: skip


def test_turns_are_counted_in_bytes() -> None:
    due = [
        *(segment(0, partition=number, size_bytes=400) for number in range(3)),
        *(segment(1, partition=number, size_bytes=100, since_ms=1) for number in range(8)),
    ]
    first = drain(due)[:5]
    assert sum(each.size_bytes for each in first if each.where.topic_id == topic(1)) == 400


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3), SIZES, st.integers(0, 9)), max_size=30))
def test_everything_that_waits_goes_once_and_nothing_waits_for_nothing(
    asked: list[tuple[int, int, int, int]],
) -> None:
    due = list(
        {
            (number, partition): segment(number, partition=partition, size_bytes=size, since_ms=since)
            for number, partition, size, since in asked
        }.values()
    )
    assert sorted(drain(due), key=lambda each: each.where) == sorted(due, key=lambda each: each.where)


@given(sizes=st.lists(st.lists(SIZES, min_size=40, max_size=40), min_size=2, max_size=5))
def test_topics_that_always_have_something_differ_by_two_segments_at_the_most(sizes: list[list[int]]) -> None:
    turns, had, next_size = UploadTurns(), [0] * len(sizes), [0] * len(sizes)
    for _ in range(40):
        due = [
            segment(number, size_bytes=sizes[number][next_size[number]], since_ms=number)
            for number in range(len(sizes))
        ]
        chosen = next_upload(due, turns)
        assert chosen is not None
        turns = taken(turns, chosen)
        number = due.index(chosen)
        had[number] += chosen.size_bytes
        next_size[number] += 1
        assert max(had) - min(had) <= 2 * MAX_BYTES
        assert len(turns.ahead_bytes) <= len(sizes)
        assert all(at > turns.now_bytes for at in turns.ahead_bytes.values()), "who is not ahead is forgotten"


@given(
    before=st.lists(st.tuples(st.integers(0, 3), SIZES), max_size=60),
    size_bytes=SIZES,
    sizes=st.lists(SIZES, min_size=4, max_size=4),
)
def test_a_topic_that_comes_late_waits_for_one_segment_of_each_other_topic_at_the_most(
    before: list[tuple[int, int]], size_bytes: int, sizes: list[int]
) -> None:
    turns = UploadTurns()
    for number, size in before:
        turns = taken(turns, segment(number, size_bytes=size))
    late = segment(4, size_bytes=size_bytes, since_ms=1 << 40)
    others = [segment(number, size_bytes=sizes[number]) for number in range(4)]
    went: list[DueUpload] = []
    while late not in went:
        chosen = next_upload([*others, late], turns)
        assert chosen is not None
        turns = taken(turns, chosen)
        went.append(chosen)
    assert len({each.where for each in went}) == len(went)


@given(turns=st.integers(0, 50), idle=st.integers(1, 50))
def test_a_topic_that_waited_for_nothing_has_no_claim_on_the_past(turns: int, idle: int) -> None:
    state = UploadTurns()
    for _ in range(turns + idle):
        state = taken(state, segment(0))
    had = {topic(0): 0, topic(1): 0}
    due = [segment(0), replace(segment(1), since_ms=1)]
    for _ in range(10):
        chosen = next_upload(due, state)
        assert chosen is not None
        state = taken(state, chosen)
        had[chosen.where.topic_id] += 1
    assert had == {topic(0): 5, topic(1): 5}
