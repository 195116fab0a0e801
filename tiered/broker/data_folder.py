"""The data folder: where things are in it, and the lock that keeps a second broker out.

Owns the folder's layout and its lock. Must never read a log.
"""

import fcntl
import os
from pathlib import Path

from tiered.errors import AlreadyRunning
from tiered.ids import TopicPartition


class DataFolder:
    """An opened, locked data folder; `release` lets the next broker in."""

    def __init__(self, root: Path) -> None:
        """Creates what is missing. Raises AlreadyRunning when another process holds the folder."""
        self.root = root
        self.log_root.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._lock, 32, 0).decode("ascii", "replace").strip()
            os.close(self._lock)
            raise AlreadyRunning(
                f"another broker (process {holder or 'unknown'}) serves {root}: stop it, or choose another --data"
            ) from error
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)

    @property
    def log_root(self) -> Path:
        return self.root / "log"

    @property
    def cache(self) -> Path:
        return self.root / "cache"

    def log_of(self, topic_partition: TopicPartition) -> Path:
        """Directories go by topic id: a recreated topic never meets its predecessor's files."""
        return self.log_root / str(topic_partition.topic_id) / str(topic_partition.partition)

    def disk_bytes(self) -> tuple[int, int]:
        """(total, usable) bytes of the file system that holds the folder."""
        found = os.statvfs(self.root)
        return found.f_frsize * found.f_blocks, found.f_frsize * found.f_bavail

    def release(self) -> None:
        os.close(self._lock)
