"""A limit on requests to a service that says when they are too many: additive increase, multiplicative decrease.

Owns that one number. Pure: the time in, another limit out. A request from before the limit was last lowered says
nothing new when it fails: ten requests that are refused together are one sign, not ten. Must never go below one, or
nobody would ever find out that it is well again.
"""

from dataclasses import dataclass, replace

NEVER_MS = float("-inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveLimit:
    """`allowed` may run at once now, `most` when all is well. It grows by one after `step` successes in a row."""

    most: int
    step: int
    allowed: int
    successes: int = 0
    lowered_at_ms: float = NEVER_MS


def unlimited(most: int, *, step: int) -> AdaptiveLimit:
    """All of `most`, until something says that it is too much."""
    assert most >= 1
    assert step >= 1
    return AdaptiveLimit(most=most, step=step, allowed=most)


def succeeded(limit: AdaptiveLimit) -> AdaptiveLimit:
    """The limit after a success."""
    if limit.allowed >= limit.most:
        return limit  # Asked after every request, and nearly always the answer.
    successes = limit.successes + 1
    if successes < limit.step:
        return replace(limit, successes=successes)
    return replace(limit, allowed=limit.allowed + 1, successes=0)


def overloaded(limit: AdaptiveLimit, *, began_ms: float, now_ms: float) -> AdaptiveLimit:
    """The limit after something that began at `began_ms` was refused, or not answered, for there being too much."""
    if began_ms < limit.lowered_at_ms:
        return limit
    return AdaptiveLimit(most=limit.most, step=limit.step, allowed=max(1, limit.allowed // 2), lowered_at_ms=now_ms)
