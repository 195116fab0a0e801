"""Points in time as people write them.

Owns the reading of them.
"""

from datetime import UTC, datetime


def moment_ms(text: str) -> int | None:
    """Milliseconds since 1970 for ISO 8601, which is UTC unless it says otherwise; None for anything else."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def point_ms(text: str) -> int | None:
    """The same for what follows an `@`: milliseconds since 1970 as they are, or ISO 8601."""
    if text.isascii() and text.isdigit() and len(text) < 16:
        return int(text)
    return moment_ms(text)
