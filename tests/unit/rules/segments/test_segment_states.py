"""The transition table of segment rows: what it allows, and that it allows nothing else."""

from itertools import product

import pytest

from tiered.errors import Invalid
from tiered.rules.segments.segment_states import TRANSITIONS, SegmentEvent, SegmentState, next_state

ALLOWED = {
    (SegmentState.PLANNED, SegmentEvent.COMMIT): SegmentState.COMMITTED,
    (SegmentState.COMMITTED, SegmentEvent.RETIRE): SegmentState.RETIRED,
    (SegmentState.RETIRED, SegmentEvent.PURGE): SegmentState.PURGED,
    (SegmentState.PLANNED, SegmentEvent.FAIL): SegmentState.PURGED,
}


@pytest.mark.parametrize(("state", "event"), list(product(SegmentState, SegmentEvent)))
def test_only_the_four_transitions_of_the_design_exist(state: SegmentState, event: SegmentEvent) -> None:
    expected = ALLOWED.get((state, event))
    if expected is not None:
        assert next_state(state, event) is expected
    else:
        with pytest.raises(Invalid, match=f"cannot {event} a segment that is {state}"):
            next_state(state, event)


def test_every_event_is_in_the_table() -> None:
    assert set(TRANSITIONS) == set(SegmentEvent)


def test_a_purged_row_never_changes_again() -> None:
    assert all(transition.before is not SegmentState.PURGED for transition in TRANSITIONS.values())


def test_no_row_returns_to_an_earlier_state() -> None:
    order = list(SegmentState)
    assert all(order.index(t.before) < order.index(t.after) for t in TRANSITIONS.values())
