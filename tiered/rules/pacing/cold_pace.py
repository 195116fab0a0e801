"""How many loads from the store may run at once beside the tail: all while nobody reads or writes at the tail, else as
many as the broker bears without coming late.

Owns that one number. Pure: what was observed and the time in, another number out. Lateness halves it. One more is tried
after a pause that doubles each time a try has failed, because each failed try is felt by the tail; a try that has
stood makes the next one come sooner. Must never go below one, or who reads what is cold would wait for ever.
"""

from dataclasses import dataclass, replace

SHORTEST_PAUSE_MS, FIRST_PAUSE_MS, LONGEST_PAUSE_MS = 500.0, 2_000.0, 60_000.0
LATE_SHARE = 0.1
"""Of the time that was observed: a loop that comes later than this keeps the tail waiting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdPace:
    """`allowed` of `most` loads may run at once. Beside a tail, one more is tried at `tries_at_ms`."""

    most: int
    allowed: int
    beside_tail: bool = False
    pause_ms: float = FIRST_PAUSE_MS
    tries_at_ms: float = 0.0


def alone(most: int) -> ColdPace:
    """For a broker whose tail nobody uses."""
    assert most >= 1
    return ColdPace(most=most, allowed=most)


def observed(pace: ColdPace, *, late_share: float, tail_is_used: bool, now_ms: float) -> ColdPace:
    """The pace after a time in which loads were under way. `late_share` is the share of it by which the event loop came
    later than it was due; `tail_is_used` says that records were written or read at the tail."""
    if not tail_is_used:
        return alone(pace.most)
    if not pace.beside_tail:
        # The tail comes first: a reader that had it all begins anew with one load.
        return ColdPace(most=pace.most, allowed=1, beside_tail=True, tries_at_ms=now_ms + FIRST_PAUSE_MS)
    is_late = late_share > LATE_SHARE
    if not is_late and (now_ms < pace.tries_at_ms or pace.allowed == pace.most):
        return pace
    pause_ms = pace.pause_ms
    if pace.allowed > 1:
        pause_ms = min(LONGEST_PAUSE_MS, 2 * pause_ms) if is_late else max(SHORTEST_PAUSE_MS, pause_ms / 2)
    allowed = max(1, pace.allowed // 2) if is_late else pace.allowed + 1
    return replace(pace, allowed=allowed, pause_ms=pause_ms, tries_at_ms=now_ms + pause_ms)
