"""How far ahead of one reader of cold data the store is asked, and for how much in one request.

Owns those two numbers. Pure: what a reader did in, the next numbers out. A reader that goes on in order gets requests
that double, because each costs a round trip and money; only one that had to wait is read further ahead, because it is
faster than the store. Must never exceed the limits, whatever the reader does.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadAheadLimits:
    """One request asks for `request_bytes` at most, to the nearest chunk; a reader is read ahead by `ahead_bytes` at
    the most."""

    request_bytes: int
    ahead_bytes: int


DEFAULT_LIMITS = ReadAheadLimits(request_bytes=8 << 20, ahead_bytes=32 << 20)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadAhead:
    """`request_bytes` is what the next request may ask for, one chunk at least. `ahead_bytes` should be held, or on
    their way, beyond the chunk that is being read."""

    request_bytes: int
    ahead_bytes: int


def began(limits: ReadAheadLimits) -> ReadAhead:
    """For a reader of whom nothing is known: its chunk alone, and the next one."""
    return ReadAhead(request_bytes=0, ahead_bytes=min(1, limits.ahead_bytes))


def moved_on(pace: ReadAhead, limits: ReadAheadLimits, *, chunk_bytes: int, waited: bool) -> ReadAhead:
    """For a reader that asks for the chunk after the one that it had. `waited`: it is not here yet."""
    request_bytes = min(limits.request_bytes, max(2 * pace.request_bytes, 2 * chunk_bytes))
    ahead_bytes = max(pace.ahead_bytes, request_bytes // 2)
    if waited:
        ahead_bytes *= 2
    return ReadAhead(request_bytes=request_bytes, ahead_bytes=min(limits.ahead_bytes, ahead_bytes))
