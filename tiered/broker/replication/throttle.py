"""How fast replicas that are being added may be filled, so that they leave room for everybody else.

Owns one budget of bytes a second. Must never drop anything: it says how long to wait before the next bytes.
"""

from collections.abc import Callable

from tiered.config.setting import LONG_MAX
from tiered.runtime import Clock

LONGEST_PAUSE_MS = 1_000.0
"""Whoever waits asks again after this long: another rate holds from then on, for what was taken before too."""


class Throttle:
    """Bytes that were taken are paid for in time, at the rate of the moment."""

    def __init__(self, clock: Clock, bytes_per_second: Callable[[], int]) -> None:
        self._clock = clock
        self._bytes_per_second = bytes_per_second
        self._owed_bytes = 0.0
        self._reckoned_ms = clock.monotonic_ms()

    def pause_ms(self, size_bytes: int) -> float:
        """How long to wait, and then to ask again, after `size_bytes` have been taken; 0 when nothing is owed."""
        rate = self._bytes_per_second()
        now_ms = self._clock.monotonic_ms()
        paid_bytes = (now_ms - self._reckoned_ms) * rate / 1000.0
        self._reckoned_ms = now_ms
        self._owed_bytes = 0.0 if rate >= LONG_MAX else max(0.0, self._owed_bytes - paid_bytes) + size_bytes
        return min(LONGEST_PAUSE_MS, self._owed_bytes * 1000.0 / rate)
