"""The life of a segment's metadata store row: one transition table, and nothing that is not in it.

Owns which state follows which. Pure: `meta.segments` turns each transition into one conditional update,
fenced by the leader epoch; nothing else may change a row's state.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from tiered.errors import Invalid


class SegmentState(StrEnum):
    """Where a row is in its life. The values are what the SQL column holds."""

    PLANNED = "planned"
    """Announced before its object exists, so that SQL alone finds every orphan (T2)."""
    COMMITTED = "committed"
    """Its object is whole and checked; readers may use it."""
    RETIRED = "retired"
    """Below `log_start_offset`, or replaced; its object waits for the grace period and for pins (T6)."""
    PURGED = "purged"
    """Its object is deleted."""


class SegmentEvent(StrEnum):
    """The events of a row after it was planned."""

    COMMIT = "commit"
    """The object was put and checked, and the leader is still the leader (T3)."""
    RETIRE = "retire"
    """Retention, DeleteRecords or the deletion of the topic took its offsets away, or compaction has put another object
    in its place."""
    PURGE = "purge"
    """The object of a retired row was deleted."""
    FAIL = "fail"
    """The upload was given up and whatever it left in the store was deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """The one state an event starts from, and the one it leads to."""

    before: SegmentState
    after: SegmentState


TRANSITIONS: Mapping[SegmentEvent, Transition] = MappingProxyType(
    {
        SegmentEvent.COMMIT: Transition(before=SegmentState.PLANNED, after=SegmentState.COMMITTED),
        SegmentEvent.RETIRE: Transition(before=SegmentState.COMMITTED, after=SegmentState.RETIRED),
        SegmentEvent.PURGE: Transition(before=SegmentState.RETIRED, after=SegmentState.PURGED),
        SegmentEvent.FAIL: Transition(before=SegmentState.PLANNED, after=SegmentState.PURGED),
    }
)
"""Every event has one source and one target, so each is one conditional update."""


def next_state(state: SegmentState, event: SegmentEvent) -> SegmentState:
    """The state after `event` happened to a row in `state`. Raises `Invalid` for what the table does not hold."""
    transition = TRANSITIONS[event]
    if state is not transition.before:
        raise Invalid(
            f"cannot {event} a segment that is {state}: only a {transition.before} one can be; "
            "read its row again before acting on it"
        )
    return transition.after
