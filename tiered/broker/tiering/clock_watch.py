"""Whether this broker's clock can be believed: retention by age and purges stop while it cannot.

Owns the last judgement and what the log says of it. How a clock is judged is decided by `rules.segments.clock_watch`.
"""

import logging

from tiered.broker.context import BrokerContext
from tiered.rules.segments import clock_watch
from tiered.rules.segments.clock_watch import Judgement, Reading

log = logging.getLogger(__name__)


class ClockWatch:
    """The watch on one broker's clock."""

    def __init__(self, *, context: BrokerContext) -> None:
        self._context = context
        self._judgement: Judgement | None = None

    def age_now_ms(self) -> int:
        """The moment that ages count to: the earlier one of this broker's clock and the database's, so that one that is
        ahead makes nothing old."""
        own_ms = self._context.clock.now_ms()
        if self._context.settings.tiering.tiered_retention_max_clock_jump_ms == clock_watch.NEVER_MIND:
            return own_ms
        return min(own_ms, self._context.cluster_now_ms)

    def look(self, database_ms: int | None = None) -> Judgement:
        """Whether ages may be told by the clock, by a look at it now. Says in the log when that changes."""
        clock, was_trusted = self._context.clock, self._judgement is None or self._judgement.is_trusted
        self._judgement = clock_watch.look(
            self._judgement,
            Reading(wall_ms=clock.now_ms(), elapsed_ms=clock.elapsed_ms()),
            database_ms=database_ms,
            max_jump_ms=self._context.settings.tiering.tiered_retention_max_clock_jump_ms,
        )
        self._context.counters.retention_clock_ahead_ms = self._judgement.ahead_ms
        if was_trusted and not self._judgement.is_trusted:
            log.error("retention by age and purges have stopped: %s", reason_to_doubt(self._judgement))
        elif not was_trusted and self._judgement.is_trusted:
            log.warning("the clock is believed again: retention by age and purges go on")
        return self._judgement


def reason_to_doubt(clock: Judgement) -> str:
    """Why the clock is not trusted, and what to do; empty while it is."""
    if clock.is_trusted:
        return ""
    if clock.jumped_ms:
        what = f"the clock is {clock.jumped_ms / 1000:.0f} s ahead of where it was when it was last believed"
    else:
        what = f"the clock is {clock.ahead_of_database_ms / 1000:.0f} s ahead of the database's"
    return (
        f"{what}, so records would be deleted that are not old. Set it right; if it is right, restart the broker, or "
        "raise tiered.retention.max.clock.jump.ms until this has passed"
    )
