"""The verdicts of retention as people read them: segments in a row that share a verdict, as one.

Owns the grouping. Pure; decides nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tiered.rules.segments.retention import Verdict, Why


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """`segments` segments in a row with one verdict. `newest_ms` is the time of their newest record."""

    base_offset: int
    end_offset: int
    segments: int
    size_bytes: int
    newest_ms: int
    deletes: bool
    why: Why
    pin: str | None


def runs_of(verdicts: Iterable[Verdict]) -> tuple[Run, ...]:
    """The verdicts, oldest first as they are, with neighbours of one kind put together."""
    runs: list[Run] = []
    for each in verdicts:
        last = runs[-1] if runs else None
        if last is not None and (last.why, last.pin) == (each.why, each.pin):
            runs[-1] = replace(
                last,
                end_offset=each.end_offset,
                segments=last.segments + 1,
                size_bytes=last.size_bytes + each.size_bytes,
                newest_ms=max(last.newest_ms, each.newest_ms),
            )
        else:
            runs.append(
                Run(
                    base_offset=each.base_offset,
                    end_offset=each.end_offset,
                    segments=1,
                    size_bytes=each.size_bytes,
                    newest_ms=each.newest_ms,
                    deletes=each.deletes,
                    why=each.why,
                    pin=each.pin,
                )
            )
    return tuple(runs)
