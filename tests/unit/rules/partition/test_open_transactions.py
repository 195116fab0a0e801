"""The order of open transactions, and the rows of those that were aborted."""

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from tests.support.transactions import marker_header, transactional_header
from tiered.formats.control_record import MarkerType, TransactionMarker
from tiered.formats.producer_snapshot import ProducerEntry
from tiered.formats.segment_object import AbortedIndexEntry
from tiered.rules.partition.open_transactions import OpenTransactions, PlacedBatch

ABORT = TransactionMarker(type=MarkerType.ABORT, coordinator_epoch=0)
COMMIT = TransactionMarker(type=MarkerType.COMMIT, coordinator_epoch=0)

_STEPS = st.lists(st.tuples(st.integers(0, 3), st.sampled_from(("records", "commit", "abort", "plain"))), max_size=40)


def placed(steps: list[tuple[int, str]]) -> list[PlacedBatch]:
    """One batch for each step, two offsets each."""
    found: list[PlacedBatch] = []
    for place, (producer_id, kind) in enumerate(steps):
        if kind in ("commit", "abort"):
            found.append((marker_header(producer_id), 2 * place, COMMIT if kind == "commit" else ABORT))
        else:
            found.append((transactional_header(producer_id, is_transactional=kind == "records"), 2 * place, None))
    return found


def rows_by_hand(batches: list[PlacedBatch]) -> list[AbortedIndexEntry]:
    """For each abort, everything looked up anew in the batches before it."""
    rows = []
    for place, (header, offset, marker) in enumerate(batches):
        if marker is None:
            continue
        firsts: dict[int, int] = {}
        for other, at, ended in batches[:place]:
            if ended is not None:
                firsts.pop(other.producer_id, None)
            elif other.is_transactional:
                firsts.setdefault(other.producer_id, at)
        if header.producer_id in firsts and marker.type is MarkerType.ABORT:
            first = firsts.pop(header.producer_id)
            stable = min(firsts.values(), default=offset + 1)
            rows.append(
                AbortedIndexEntry(
                    producer_id=header.producer_id, first_offset=first, last_offset=offset, last_stable_offset=stable
                )
            )
    return rows


@given(steps=_STEPS)
def test_rows_are_those_that_a_look_at_all_batches_finds(steps: list[tuple[int, str]]) -> None:
    batches = placed(steps)
    assert OpenTransactions().aborted_in(batches) == rows_by_hand(batches)


@given(steps=_STEPS, cut=st.integers(0, 40))
def test_looking_ahead_changes_nothing_and_going_on_from_entries_is_the_same(
    steps: list[tuple[int, str]], cut: int
) -> None:
    batches = placed(steps)
    whole = OpenTransactions()
    for batch in batches[:cut]:
        whole.note(*batch)
    ahead = whole.aborted_in(batches[cut:])
    assert whole.aborted_in(batches[cut:]) == ahead
    assert OpenTransactions().aborted_in(batches[:cut]) + ahead == rows_by_hand(batches)
    entries = [
        ProducerEntry(producer_id=number, producer_epoch=0, current_transaction_first_offset=first)
        for number, first in reversed(list(whole._first_offsets.items()))
    ]
    assert OpenTransactions(entries).aborted_in(batches[cut:]) == ahead


def test_a_control_batch_of_another_kind_ends_nothing() -> None:
    transactions = OpenTransactions()
    transactions.note(transactional_header(7), 3, None)
    assert transactions.note(marker_header(7), 4, None) is None
    assert transactions.first_offsets() == [3]


def test_an_end_costs_no_more_where_many_are_open() -> None:
    """Whoever opens a hundred thousand would have each end of them hold up the broker."""
    many = OpenTransactions()
    for header, offset, marker in placed([(producer_id, "records") for producer_id in range(5_000)]):
        many.note(header, offset, marker)
    tracemalloc.start()
    try:
        (row,) = many.aborted_in([(marker_header(7), 100_000, ABORT)])
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (row.first_offset, row.last_stable_offset) == (14, 0)
    assert most_bytes < 10_000
