"""Whether the clock can be believed when it says that records are old: what deletes by age asks here first.

Owns that decision. Pure: readings of the wall clock, of the time that has passed (with the machine awake or suspended)
and of the database's clock in, a judgement out. A wall clock that goes further than time has passed has been set,
rightly or wrongly; no rule can tell which, and deleted data does not come back. So it is not believed until it is back,
or somebody says that it is right. Must never forgive a jump because it was long ago, and never mind a clock that goes
back: nothing grows older.
"""

from dataclasses import dataclass

NEVER_MIND = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Both clocks of a process at one moment."""

    wall_ms: int
    elapsed_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """`believed` is the last reading that could be believed. The clock is `jumped_ms` ahead of where it would be from
    there, and `ahead_of_database_ms` of the database's; 0 where that is not too much. `database` is what that one said
    when last asked; None before."""

    believed: Reading
    database: Reading | None = None
    jumped_ms: int = 0
    ahead_of_database_ms: int = 0

    @property
    def is_trusted(self) -> bool:
        """True when ages may be told by the wall clock."""
        return self.ahead_ms == 0

    @property
    def ahead_ms(self) -> int:
        """How far the clock is ahead of what vouches for it; 0 while it is trusted."""
        return max(self.jumped_ms, self.ahead_of_database_ms)


def look(before: Judgement | None, now: Reading, *, database_ms: int | None, max_jump_ms: int) -> Judgement:
    """The judgement after this reading. `database_ms` is the database's clock at the same moment; None where it was not
    asked, and goes on from what it said before.

    More than `max_jump_ms` ahead is too much; -1 believes every clock, and so ends an earlier doubt.
    """
    database = before.database if before is not None else None
    if database_ms is not None:
        database = Reading(wall_ms=database_ms, elapsed_ms=now.elapsed_ms)
    if max_jump_ms == NEVER_MIND:
        return Judgement(believed=now, database=database)
    believed = now if before is None else before.believed
    jumped_ms = _ahead_ms(now, believed, max_jump_ms)
    return Judgement(
        believed=believed if jumped_ms else now,
        database=database,
        jumped_ms=jumped_ms,
        ahead_of_database_ms=0 if database is None else _ahead_ms(now, database, max_jump_ms),
    )


def _ahead_ms(now: Reading, since: Reading, max_jump_ms: int) -> int:
    """How much further the clock has gone since than time has passed; 0 where that is not too much."""
    ahead_ms = now.wall_ms - since.wall_ms - int(now.elapsed_ms - since.elapsed_ms)
    return ahead_ms if ahead_ms > max_jump_ms else 0
