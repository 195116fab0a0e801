"""Lines about clients in the log: as many as a person can read, and the number of those left out.

Owns the budget. Whoever sends rubbish all day must not fill the disk with our complaints about it.
"""

import logging

from tiered.runtime import Clock

log = logging.getLogger(__name__)

LINES_A_PERIOD = 20
PERIOD_MS = 10_000
ONCE_MS = 60_000
MAX_SUBJECTS = 1_000


class Complaints:
    """Warnings, at most `LINES_A_PERIOD` in `PERIOD_MS`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since_ms = clock.monotonic_ms()
        self._written = 0
        self._left_out = 0
        self._told_ms: dict[tuple[object, ...], float] = {}

    def once(self, subject: tuple[object, ...], text: str, *arguments: object) -> None:
        """As `add`, unless it was said of the same subject in the last minute."""
        now_ms = self._clock.monotonic_ms()
        told_ms = self._told_ms.pop(subject, None)
        if told_ms is None or now_ms - told_ms >= ONCE_MS:
            told_ms = now_ms
            self.add(text, *arguments)
        self._told_ms[subject] = told_ms
        if len(self._told_ms) > MAX_SUBJECTS:
            del self._told_ms[next(iter(self._told_ms))]

    def add(self, text: str, *arguments: object) -> None:
        """Logs a warning, or counts it when there were many."""
        self.sum_up()
        if self._written < LINES_A_PERIOD:
            self._written += 1
            log.warning(text, *arguments)
        else:
            self._left_out += 1

    def sum_up(self) -> None:
        """Begins a new period when the last is over, and says how many lines it left out."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._since_ms < PERIOD_MS:
            return
        if self._left_out:
            log.warning("%d more connections were closed or refused; their lines were left out", self._left_out)
        self._since_ms, self._written, self._left_out = now_ms, 0, 0
