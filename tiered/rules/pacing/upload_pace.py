"""How many uploads run at once, and how long none begins while the object store or SQL is away.

Owns that decision. A failure that is not about one partition halves the uploads and lets all of them rest, longer each
time: a store that was away for hours was then asked once a minute, by one upload, and not by every partition that has
something to say. Each success allows one more. Pure: the time is an argument. Must never rest for longer than a bound,
nor let what failed together count as many failures.
"""

from dataclasses import dataclass

from tiered.rules.pacing import adaptive_limit
from tiered.rules.pacing.adaptive_limit import AdaptiveLimit

FIRST_REST_MS = 1_000
MAX_REST_MS = 60_000
_MAX_DOUBLINGS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadPace:
    """`limit` is about how many, `rest_until_ms` about when; `failures` have come since the last success."""

    limit: AdaptiveLimit
    rest_until_ms: float = adaptive_limit.NEVER_MS
    failures: int = 0


def full_pace(uploads: int) -> UploadPace:
    """As many as were configured, at once."""
    return UploadPace(limit=adaptive_limit.unlimited(uploads, step=1))


def may_begin(pace: UploadPace, *, running: int, now_ms: float) -> bool:
    """Whether one more upload may begin beside `running` others."""
    return running < pace.limit.allowed and now_ms >= pace.rest_until_ms


def succeeded(pace: UploadPace) -> UploadPace:
    """The pace after an upload was committed: resting uploads need not wait any longer."""
    return UploadPace(limit=adaptive_limit.succeeded(pace.limit))


def failed(pace: UploadPace, *, began_ms: float, now_ms: float) -> UploadPace:
    """The pace after an upload that began at `began_ms` failed because of what all uploads need."""
    if began_ms < pace.limit.lowered_at_ms:
        return pace
    failures = pace.failures + 1
    return UploadPace(
        limit=adaptive_limit.overloaded(pace.limit, began_ms=began_ms, now_ms=now_ms),
        rest_until_ms=now_ms + rest_ms(failures),
        failures=failures,
    )


def rest_ms(failures: int) -> int:
    """How long to wait after so many failures in a row: twice as long each time, within a bound."""
    return min(MAX_REST_MS, FIRST_REST_MS << min(failures - 1, _MAX_DOUBLINGS))
