"""When a log closes its active segment and begins another.

Owns the four reasons: size, age, offsets too far from the base, index full. Pure: the log rolls.
"""

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
