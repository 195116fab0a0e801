"""Points in time as people write them.

Owns the reading of them.
"""

from argparse import ArgumentTypeError
from datetime import UTC, datetime

from tiered.cli.arguments import duration_ms
from tiered.runtime import SystemClock


def moment_ms(text: str) -> int | None:
    """Milliseconds since 1970 for ISO 8601, which is UTC unless it says otherwise; None for anything else."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def point_ms(text: str) -> int | None:
    """The same for what follows an `@`: also milliseconds since 1970 as they are, and `-2h` for so long ago."""
    if text.isascii() and text.isdigit() and len(text) < 16:
        return int(text)
    if text.startswith("-"):
        try:
            return SystemClock().now_ms() - duration_ms(text[1:])
        except ArgumentTypeError:
            return None
    return moment_ms(text)
