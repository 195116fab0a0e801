"""When a log closes its active segment and begins another.

Owns the four reasons: size, age, offsets too far from the base, index full; and how many small segments one log may
close. Pure: the log rolls.
"""

SMALL_SEGMENT_BYTES = 1 << 20
SMALL_AT_ONCE, SMALL_PER_S = 500, 5
"""Each segment costs a millisecond of the event loop, files, rows in SQL and requests to the store, however little is
in it. A topic's own `segment.bytes`, `segment.ms` or `segment.index.bytes` may ask for one with each batch: one writer
with 10,000 batches in ten seconds kept all others waiting for a second each, and had 10,000 files open."""

MAX_RELATIVE_OFFSET = 2**31 - 1
"""Indexes and batches keep offsets relative to the segment's base in a signed 32-bit field."""


NEVER_MS = 2**63 - 1
"""What is due then is never due: Kafka's greatest number, and the default of some times."""


def should_roll(
    *,
    segment_bytes_now: int,
    incoming_bytes: int,
    first_append_ms: int | None,
    now_ms: int,
    segment_bytes: int,
    segment_ms: int,
    base_offset: int,
    incoming_last_offset: int,
    index_is_full: bool,
) -> bool:
    """True when the active segment must be closed before `incoming_bytes` are appended.

    With `incoming_bytes` 0 it answers for a log at rest (age alone, in effect). An empty segment never
    rolls: a batch larger than `segment_bytes` gets an empty one for itself. Age counts from the moment
    the first batch was appended, by the broker's clock: timestamps of records do not matter, so that a
    replay of old records does not roll at every batch. A clock that went back makes no segment old.
    """
    if segment_bytes_now == 0:
        return False
    if segment_bytes_now + incoming_bytes > segment_bytes:
        return True
    if first_append_ms is not None and now_ms - first_append_ms >= segment_ms:
        return True
    return index_is_full or incoming_last_offset - base_offset > MAX_RELATIVE_OFFSET


class SmallClosesState:
    """The small segments that one log may still close as it is written: `SMALL_AT_ONCE` after a quiet time, then
    `SMALL_PER_S` a second. Beyond that a segment grows on, up to `SMALL_SEGMENT_BYTES`."""

    __slots__ = ("_at_ms", "_left")

    def __init__(self) -> None:
        self._left = float(SMALL_AT_ONCE)
        self._at_ms = 0

    def may_close(self, segment_bytes: int, now_ms: int) -> bool:
        """Whether a segment may be closed now that has so many bytes, or would have them with the next batch; counts it
        if it is small. A clock that went back gives nothing, and counts on from there."""
        if segment_bytes >= SMALL_SEGMENT_BYTES:
            return True
        self._left = min(SMALL_AT_ONCE, self._left + max(0, now_ms - self._at_ms) * SMALL_PER_S / 1000.0)
        self._at_ms = now_ms
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True
