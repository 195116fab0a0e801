"""Batches behind a refused one are refused with it, and those who were silent longest are forgotten first."""

import pytest

from tests.support.partition_appends import batch
from tiered.broker.partitions.producers import KEPT_MS, MOST_PRODUCERS, Producers
from tiered.errors import LogDirFailed, OutOfOrderSequence
from tiered.formats.record_batch import BatchHeader, read_header
from tiered.rules.partition.producer_state import ACCEPT


def header(producer_id: int, sequence: int) -> BatchHeader:
    return read_header(batch("v", producer_id=producer_id, sequence=sequence), 0)


def test_what_comes_behind_a_refused_batch_is_refused_for_the_same_reason_until_that_one_is_in() -> None:
    producers = Producers({})
    for known in (False, True):
        first = int(known)
        producers.refused(header(1, first), LogDirFailed("no room"), 0)
        with pytest.raises(LogDirFailed, match="a batch before this one was refused: no room"):
            producers.verdict(header(1, first + 1), 0)
        assert producers.verdict(header(1, first), 0) is ACCEPT, "the refused one itself may come again"
        producers.note(header(1, first), first, 0)
    assert producers.verdict(header(1, 2), 0) is ACCEPT


def test_a_gap_is_a_gap_once_the_refusal_is_too_old_to_be_its_reason() -> None:
    producers = Producers({})
    producers.note(header(1, 0), 0, 0)
    producers.refused(header(1, 1), LogDirFailed("no room"), 0)
    with pytest.raises(LogDirFailed):
        producers.verdict(header(1, 2), KEPT_MS - 1)
    with pytest.raises(OutOfOrderSequence):
        producers.verdict(header(1, 2), KEPT_MS)


def test_refusals_of_ever_more_producers_fill_no_memory() -> None:
    producers = Producers({})
    for producer_id in range(MOST_PRODUCERS + 1):
        producers.refused(header(producer_id, 0), LogDirFailed("no room"), 0)
    assert producers.verdict(header(0, 1), 0) is ACCEPT, "the oldest refusal went"
    with pytest.raises(LogDirFailed):
        producers.verdict(header(1, 1), 0)


def test_those_who_were_silent_longest_go_first() -> None:
    producers = Producers({})
    for at_ms, producer_id in enumerate((1, 2, 3)):
        producers.note(header(producer_id, 0), at_ms, at_ms)
    producers.note(header(1, 1), 3, 3)
    assert producers.forget(2) == 1
    assert list(producers.entries) == [3, 1]
    producers.expire(12, 10)
    assert list(producers.entries) == [1]


def test_a_producer_from_before_the_start_counts_from_the_first_look_on() -> None:
    before = Producers({})
    before.note(header(1, 0), 0, 0)
    after = Producers(dict(before.entries))
    after.expire(1_000_000, 10)
    assert len(after) == 1
    after.expire(1_000_010, 10)
    assert len(after) == 0
