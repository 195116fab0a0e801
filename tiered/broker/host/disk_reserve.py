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

log = logging.getLogger(__name__)

RESERVE_BYTES = 4 << 20
LOW_BYTES = 1 << 20
"""With less than this left, appends end and the reserve is given to everything else."""
FREE_AGAIN_BYTES = 2 << 20
"""With so much left beside the reserve, appends are taken again."""


class DiskReserve:
    """Looks at the disk now and then. `is_low` is read before every append."""

    __slots__ = ("_data", "_path", "is_low")

    def __init__(self, data: DataFolder) -> None:
        self._data = data
        self._path = data.root / "reserve"
        self.is_low = False

    def look(self) -> None:
        """Holds the reserve, gives it away or takes it back, as the disk is now. Blocks; raises OSError."""
        _, usable_bytes = self._data.disk_bytes()
        has_room = usable_bytes >= RESERVE_BYTES + FREE_AGAIN_BYTES
        if not self.is_low and usable_bytes < LOW_BYTES:
            self.is_low = True
            self._path.unlink(missing_ok=True)
            log.error("%s is full: produce is refused until there is space; uploads and reads go on", self._data.root)
        elif self.is_low and has_room:
            self._hold()
            self.is_low = False
            log.warning("%s has space again: produce goes on", self._data.root)
        elif not self.is_low and has_room and not self._path.exists():
            self._hold()

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
