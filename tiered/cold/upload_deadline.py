"""Until when one upload may go on.

Owns that moment and the error that tells of it. Must never end anything itself: the uploader asks before each step, so
that no file is closed under a thread that reads it, and no request is left behind without a waiter.
"""

from tiered.errors import UploadOverdue
from tiered.runtime import Clock


class UploadDeadline:
    """`timeout_ms` from now, or never for None. Any thread may ask."""

    def __init__(self, key: str, timeout_ms: float | None, clock: Clock) -> None:
        self._key = key
        self._clock = clock
        self._end_ms = None if timeout_ms is None else clock.monotonic_ms() + timeout_ms

    @property
    def remaining_s(self) -> float | None:
        """Seconds that are left, not below 0; None without an end, as the waits of the standard library take it."""
        return None if self._end_ms is None else max(0.0, self._end_ms - self._clock.monotonic_ms()) / 1000.0

    @property
    def is_over(self) -> bool:
        return self.remaining_s == 0.0

    def check(self, last: object = None) -> None:
        """Raises `missed` when it is over."""
        if self.is_over:
            raise self.missed(last)

    def missed(self, last: object = None) -> UploadOverdue:
        """The error; `last` is what the upload has met until then, if anything."""
        return UploadOverdue(
            f"{self._key} was not stored by its deadline{'' if last is None else f' (last: {last})'}; it is tried "
            "again. If this goes on, look at the store, or raise tiered.upload.timeout.ms where a segment needs longer"
        )
