"""A broker's clocks in virtual time.

Owns the wall clock's error, which the nemesis changes; the monotonic clock is right. Must never decide anything.
"""

from tests.simulation.loop import SimLoop

EPOCH_MS = 1_700_000_000_000
"""When every simulation begins."""


class SimClock:
    """A `tiered.runtime.Clock`; one for each machine."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self.error_ms = 0

    def now_ms(self) -> int:
        return EPOCH_MS + int(self._loop.time() * 1000.0) + self.error_ms

    def monotonic_ms(self) -> float:
        return self._loop.time() * 1000.0

    def elapsed_ms(self) -> float:
        return self.monotonic_ms()

    def worked_ms(self) -> float:
        return self.monotonic_ms()
