"""A few megabytes of the data folder's disk that appends may not take.

A disk that records have filled to the last byte leaves no room for the metadata store and the checkpoints, without
which nothing can be uploaded and so nothing deleted: it would stay full, through restarts too. Owns the file that holds
the room, and the word on whether appends are taken. Must never touch a log.
"""

import logging
import os
from contextlib import suppress

from tiered.broker.host.data_folder import DataFolder
from tiered.errors import LogDirFailed
from tiered.rules.pacing.disk_room import FREE_AGAIN_BYTES, DiskRoom

log = logging.getLogger(__name__)

RESERVE_BYTES = 4 << 20


class DiskReserve:
    """Looks at the disk now and then. `is_low` is read before every append."""

    __slots__ = ("_data", "_path", "is_low", "is_short")

    def __init__(self, data: DataFolder) -> None:
        self._data = data
        self._path = data.root / "reserve"
        self.is_low = False
        self.is_short = False
        """Whether other brokers lead, and are in sync, where they can (`DiskRoom`)."""

    def look(self) -> None:
        """Holds the reserve, gives it away or takes it back, as the disk is now. Blocks; raises OSError."""
        total_bytes, usable_bytes = self._data.disk_bytes()
        was_low = self.is_low
        room = DiskRoom(is_low=was_low, is_short=self.is_short).after(
            total_bytes=total_bytes, usable_bytes=usable_bytes, reserve_bytes=RESERVE_BYTES
        )
        if room.is_low and not was_low:
            self.is_low = self.is_short = True
            self._path.unlink(missing_ok=True)
            log.error("%s is full: produce is refused until there is space; uploads and reads go on", self._data.root)
        elif was_low and not room.is_low:
            self._hold()
            log.warning("%s has space again: produce goes on", self._data.root)
        elif not room.is_low and usable_bytes >= RESERVE_BYTES + FREE_AGAIN_BYTES and not self._path.exists():
            self._hold()
        self.is_low, self.is_short = room.is_low, room.is_short

    def require_room(self) -> None:
        """Returns while appends are taken. Raises LogDirFailed."""
        if self.is_low:
            raise LogDirFailed(
                f"the disk of {self._data.root} is full; nothing was appended. Free space or add some: appends go on "
                "by themselves"
            )

    def _hold(self) -> None:
        with suppress(OSError):  # Without a reserve the broker works all the same.
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                os.posix_fallocate(file, 0, RESERVE_BYTES)
            finally:
                os.close(file)
