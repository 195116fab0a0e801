"""Times of records as Confluent's API writes them: `2026-01-31T12:00:00.123Z`.

Owns the form, in both directions. Pure.
"""

from datetime import UTC, datetime, timedelta

from tiered.errors import InvalidRequest

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def timestamp_ms_of(given: str | None) -> int | None:
    """Milliseconds since 1970; None stays None. Raises InvalidRequest for anything else."""
    if given is None:
        return None
    try:
        moment = datetime.fromisoformat(given)
        if moment.tzinfo is None:
            raise ValueError
        timestamp_ms = (moment - _EPOCH) // timedelta(milliseconds=1)
    except (ValueError, OverflowError):
        timestamp_ms = -1
    if timestamp_ms < 0:
        raise InvalidRequest(f"timestamp is {given[:40]!r}: write it from 1970 on, as in 2026-01-31T12:00:00.123Z")
    return timestamp_ms


def text_of(timestamp_ms: int) -> str:
    """The time with its milliseconds, in UTC."""
    moment = _EPOCH + timedelta(milliseconds=timestamp_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
