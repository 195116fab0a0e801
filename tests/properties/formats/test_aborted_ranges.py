"""Ranges of aborted transactions, however many and however they overlap."""

from hypothesis import given
from hypothesis import strategies as st

from tiered.formats.aborted_ranges import AbortedRange, AbortedRanges

NUMBERS = st.integers(0, 12)
RANGES = st.lists(
    st.builds(AbortedRange, producer_id=st.integers(0, 2), first_offset=NUMBERS, last_offset=NUMBERS), max_size=12
)


@given(RANGES, st.integers(0, 3), st.integers(-1, 13))
def test_a_batch_was_aborted_when_any_range_of_its_producer_holds_it(
    ranges: list[AbortedRange], producer_id: int, base_offset: int
) -> None:
    held = any(
        each.producer_id == producer_id and each.first_offset <= base_offset <= each.last_offset for each in ranges
    )
    assert AbortedRanges(ranges).hold(producer_id, base_offset) == held
