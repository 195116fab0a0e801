"""Sealed pages and objects that take others' places: a head never keeps a page that names one which was replaced."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from uuid import UUID

import pytest

from tests.golden import regenerate as golden
from tiered.formats import segment_check
from tiered.formats.checkpoint import (
    CommittedSegment,
    PageRef,
    PartitionCheckpoint,
    decode_checkpoint_page,
    decode_partition_checkpoint,
    encode_partition_checkpoint,
    sealed,
)
from tiered.formats.checkpoint_pages import with_pages_of


def compacted(segment: CommittedSegment, times: int = 1) -> CommittedSegment:
    """As a swap leaves the row: another object and root, the same place in the chain."""
    return replace(
        segment,
        object_id=UUID(int=segment.object_id.int + times),
        root_sha256=f"{segment.base_offset * 10 + times:064x}",
        uploaded_root_sha256=segment.chain_root_sha256,
    )


def checkpoint_of(count: int, *, replaced: Collection[int] = (), log_start_offset: int = 0) -> PartitionCheckpoint:
    rows = [compacted(golden.committed(each)) if each in replaced else golden.committed(each) for each in range(count)]
    return replace(
        golden.partition_checkpoint(),
        log_start_offset=log_start_offset,
        cold_end_offset=100 * count,
        pages=(),
        segments=tuple(row for row in rows if row.end_offset > log_start_offset),
    )


def all_rows(head: PartitionCheckpoint, known: dict[str, bytes]) -> list[CommittedSegment]:
    pages = [decode_checkpoint_page(known[page.key], page) for page in head.pages]
    return [row for page in pages for row in page.segments] + list(head.segments)


@pytest.mark.parametrize(("replaced", "kept"), [((35,), 3), ((29,), 2), ((25, 5), 0), ((10,), 1)])
def test_pages_are_sealed_anew_from_the_first_on_in_which_an_object_was_replaced(
    replaced: tuple[int, ...], kept: int
) -> None:
    first = sealed(checkpoint_of(38), 10)
    wanted = checkpoint_of(38, replaced=replaced)
    second = sealed(with_pages_of(first.checkpoint, wanted), 10)
    assert second.checkpoint.pages[:kept] == first.checkpoint.pages[:kept]
    assert len(second.pages) == 3 - kept
    known = {reference.key: data for reference, data in (*first.pages, *second.pages)}
    assert all_rows(second.checkpoint, known) == list(wanted.segments)
    # From then on they are taken over as they are, whatever comes behind them.
    third = sealed(with_pages_of(second.checkpoint, checkpoint_of(39, replaced=replaced)), 10)
    assert third.pages == ()
    assert third.checkpoint.pages == second.checkpoint.pages


def test_an_object_that_is_replaced_once_more_is_found_too() -> None:
    before = sealed(checkpoint_of(38, replaced=[12]), 10).checkpoint
    rows = checkpoint_of(38, replaced=[12])
    again = replace(rows, segments=(*rows.segments[:12], compacted(rows.segments[12], 2), *rows.segments[13:]))
    assert with_pages_of(before, again).pages == before.pages[:1]


def test_a_page_across_the_log_start_is_looked_into_once_something_in_it_was_replaced() -> None:
    first = sealed(checkpoint_of(38, replaced=[3, 15]), 10)
    known = dict(first.pages)
    asked: list[PageRef] = []

    def read_page(reference: PageRef) -> Sequence[CommittedSegment]:
        asked.append(reference)
        return decode_checkpoint_page(known[reference], reference).segments

    retained = checkpoint_of(38, replaced=[3, 15], log_start_offset=1250)
    assert with_pages_of(first.checkpoint, retained, read_page).pages == first.checkpoint.pages[1:]
    assert asked == [first.checkpoint.pages[1]]
    changed = checkpoint_of(38, replaced=[3, 15, 17], log_start_offset=1250)
    assert with_pages_of(first.checkpoint, changed, read_page) == changed
    # A page that cannot be had is sealed anew as well.
    assert with_pages_of(first.checkpoint, retained) == retained


def test_a_page_that_somebody_else_put_into_the_head_is_not_taken_over() -> None:
    """Of all pages that this writer did not write, whatever they claim: their offsets and counts are easily right."""
    wanted = checkpoint_of(38)
    first = sealed(wanted, 10).checkpoint
    forged = replace(first.pages[1], key=first.pages[1].key[:-10] + "aaaaa.json", sha256="a" * 64)
    hostile = replace(first, pages=(first.pages[0], forged, first.pages[2]))
    after = sealed(with_pages_of(hostile, wanted), 10)
    assert after.checkpoint.pages == first.pages
    # It is no better across the log's start, nor for being known of another time.
    retained = checkpoint_of(38, log_start_offset=1250)
    assert forged not in with_pages_of(hostile, retained, known=frozenset(first.pages)).pages
    assert with_pages_of(hostile, wanted, known=frozenset(first.pages)).pages == first.pages[:1]


def test_a_page_that_its_writer_vouches_for_is_not_compared_again() -> None:
    """Shown by one that it would not take over: comparing costs the encoding of a thousand rows each time."""
    wanted = checkpoint_of(38)
    first = sealed(wanted, 10).checkpoint
    other = replace(first.pages[1], sha256="a" * 64)
    head = replace(first, pages=(first.pages[0], other, first.pages[2]))
    assert with_pages_of(head, wanted, known=frozenset(head.pages)).pages == head.pages


def test_a_head_tells_which_objects_were_replaced_and_says_nothing_of_others() -> None:
    head = checkpoint_of(3, replaced=[1])
    data = encode_partition_checkpoint(head)
    assert decode_partition_checkpoint(data) == head
    assert data.count(b"uploaded_root_sha256") == 1


def test_the_chain_goes_on_behind_a_replaced_object_and_still_shows_a_swapped_one() -> None:
    first, second = golden.committed(1), golden.committed(2)
    linked = replace(second, previous_root_sha256=first.root_sha256)
    assert list(segment_check.check_follows(compacted(first), linked, 0)) == []
    assert list(segment_check.check_follows(first, compacted(linked), 0)) == []
    other = replace(compacted(first), uploaded_root_sha256="f" * 64)
    (fault,) = segment_check.check_follows(other, linked, 0)
    assert fault.kind is segment_check.FaultKind.CHAIN


@pytest.mark.parametrize(("start", "end", "kept"), [(3, 6, 0), (12, 18, 1), (18, 23, 1), (29, 31, 2), (30, 34, 3)])
@pytest.mark.parametrize("log_start_offset", [0, 950, 1050])
def test_pages_are_sealed_anew_from_the_first_on_of_which_something_was_joined(
    start: int, end: int, kept: int, log_start_offset: int
) -> None:
    """Within a page, across a border of two, and behind all; the log start in and before the page that begins there."""
    first = sealed(checkpoint_of(38), 10)
    rows = checkpoint_of(38).segments
    joined = replace(
        compacted(rows[end - 1], 7),
        base_offset=rows[start].base_offset,
        previous_root_sha256=rows[start].previous_root_sha256,
        joined_count=end - start,
    )
    segments = (*rows[:start], joined, *rows[end:])
    wanted = replace(
        checkpoint_of(38, log_start_offset=log_start_offset),
        segments=tuple(each for each in segments if each.end_offset > log_start_offset),
    )
    known = {reference.key: data for reference, data in first.pages}
    second = sealed(
        with_pages_of(
            first.checkpoint,
            wanted,
            lambda page: decode_checkpoint_page(known[page.key], page).segments,
            known=first.checkpoint.pages,
        ),
        10,
    )
    known |= {reference.key: data for reference, data in second.pages}
    below = [each for each in all_rows(second.checkpoint, known) if each.end_offset > log_start_offset]
    assert below == list(wanted.segments)
    if not log_start_offset:
        assert second.checkpoint.pages[:kept] == first.checkpoint.pages[:kept]


def test_a_page_whose_first_row_was_joined_to_one_that_retention_has_left_is_sealed_anew() -> None:
    """The page before it is gone with the log start, so nothing but the missing row tells."""
    first = sealed(checkpoint_of(38), 10)
    rows = checkpoint_of(38).segments
    joined = replace(compacted(rows[10], 7), base_offset=rows[9].base_offset, joined_count=2)
    wanted = replace(checkpoint_of(38, log_start_offset=1000), segments=(joined, *rows[11:]))
    head = with_pages_of(first.checkpoint, wanted, known=first.checkpoint.pages)
    assert (head.pages, head.segments) == ((), wanted.segments)


def test_a_page_that_nobody_can_read_is_not_kept_where_the_log_starts_in_a_row_joined_across_its_beginning() -> None:
    first = sealed(checkpoint_of(38), 10)
    rows = checkpoint_of(38).segments
    joined = replace(compacted(rows[19], 7), base_offset=rows[9].base_offset, joined_count=11)
    wanted = replace(checkpoint_of(38, log_start_offset=1950), segments=(joined, *rows[20:]))
    assert with_pages_of(first.checkpoint, wanted, known=first.checkpoint.pages) == wanted
