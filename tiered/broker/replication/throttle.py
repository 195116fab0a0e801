"""How fast replicas that are being added may be filled, so that they leave room for everybody else.

Owns one budget of bytes a second. Must never drop anything: it says how long to wait before the next bytes.
"""

from collections.abc import Callable

from tiered.config.setting import LONG_MAX
from tiered.runtime import Clock


class Throttle:
    """Bytes that were taken are paid for in time."""

    def __init__(self, clock: Clock, bytes_per_second: Callable[[], int]) -> None:
        self._clock = clock
        self._bytes_per_second = bytes_per_second
        self._free_at_ms = 0.0

    def pause_ms(self, size_bytes: int) -> float:
        """How long to wait after `size_bytes` have been taken; 0 without a limit."""
        rate = self._bytes_per_second()
        if rate >= LONG_MAX:
            return 0.0
        now_ms = self._clock.monotonic_ms()
        self._free_at_ms = max(self._free_at_ms, now_ms) + size_bytes * 1000.0 / rate
        return self._free_at_ms - now_ms
