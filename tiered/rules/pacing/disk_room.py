"""Whether a disk has room: for appends of this broker, and for what other brokers can do in its place.

Owns the two thresholds and their hysteresis. Pure: `broker.host.disk_reserve` looks at the disk.
"""

from dataclasses import dataclass

LOW_BYTES = 1 << 20
"""With less than this left, appends end and the reserve is given to everything else."""
FREE_AGAIN_BYTES = 2 << 20
"""With so much left beside the reserve, appends are taken again."""
AMPLE_SHARE = 100
MOST_AMPLE_BYTES = 256 << 20
"""A hundredth of the disk, or this if it is less, is ample room beside the reserve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskRoom:
    """What the last look at the disk has shown."""

    is_low: bool = False
    """Appends are refused."""
    is_short: bool = False
    """Other brokers lead, and are in sync, where they can. Begins with `is_low` and ends later, with ample room:
    leaders must not change whenever a little room comes and goes."""

    def after(self, *, total_bytes: int, usable_bytes: int, reserve_bytes: int) -> "DiskRoom":
        """The same after a look that showed so much. `reserve_bytes` are not usable while the disk is not low."""
        free_again_bytes = reserve_bytes + FREE_AGAIN_BYTES
        is_low = usable_bytes < (free_again_bytes if self.is_low else LOW_BYTES)
        ample_bytes = reserve_bytes + min(total_bytes // AMPLE_SHARE, MOST_AMPLE_BYTES)
        return DiskRoom(is_low=is_low, is_short=is_low or (self.is_short and usable_bytes < ample_bytes))
