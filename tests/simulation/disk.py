"""A disk that runs full, fails and loses power: one for each machine, real files on a memory file system below it.

Owns the journal of what a power loss may take back: bytes written since the file's last sync, and creations,
renames and removals since the directory's last sync. What kill -9 leaves is everything: the page cache survives.
"""

import errno
import os
import shutil
from collections.abc import Callable, Sequence
from io import FileIO
from pathlib import Path
from random import Random

from tests.simulation.loop import Process
from tests.support.unwritten_pages import UnwrittenPages
from tiered.file_slice import OpenFile
from tiered.hot.file_system import Data, RealFileSystem

SECTOR_BYTES = 512


class Disk:
    """What the machine's file system holds, and what of it is durable. Outlives processes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.real = RealFileSystem()
        self.is_full = False
        self.broken: set[str] = set()
        """Operations that fail with EIO: read, write, sync, ..."""
        self._unwritten = UnwrittenPages()
        self._stash = root.parent / f"{root.name}.stash"
        self._stash.mkdir()
        self._stashed = 0
        self._synced: dict[str, int] = {}
        self._undo: dict[str, list[Callable[[], None]]] = {}

    def step(self, operation: str, path: str) -> None:
        """Raises what the disk has to complain of."""
        if self.is_full and operation in ("write", "create"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        if operation in self.broken:
            if operation == "sync":
                self._unwritten.sync_failed(path, self._synced.get(path, 0))
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    def opened(self, path: str, size_bytes: int) -> None:
        self._synced.setdefault(path, size_bytes)

    def created(self, path: str) -> None:
        self._synced[path] = 0
        self._unwritten.removed(path)
        self._journal(path, lambda: Path(path).unlink(missing_ok=True))

    def written(self, path: str, position: int, length: int) -> None:
        self._unwritten.written(path, position, length)

    def truncated(self, path: str, size_bytes: int) -> None:
        self._synced[path] = min(self._synced.get(path, 0), size_bytes)
        self._unwritten.truncated(path, size_bytes)

    def synced(self, path: str, size_bytes: int) -> None:
        self._synced[path] = self._unwritten.on_disk(path, size_bytes)

    def synced_directory(self, path: str) -> None:
        self._undo.pop(path, None)

    def rename(self, path: str, new_path: str) -> None:
        old, old_synced = self._keep(new_path), self._synced.get(new_path)
        try:
            self.real.rename(path, new_path)
        except OSError:
            if old is not None:
                Path(old).rename(new_path)
            raise
        self._synced[new_path] = self._synced.pop(path, 0)
        self._unwritten.renamed(path, new_path)

        def undo() -> None:
            Path(new_path).rename(path)
            self._synced[path] = self._synced.pop(new_path, 0)
            if old is not None:
                Path(old).rename(new_path)
                self._synced[new_path] = old_synced or 0

        self._journal(path, undo)

    def unlink(self, path: str) -> None:
        kept, synced = self._keep(path), self._synced.get(path)
        if kept is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        self._unwritten.removed(path)

        def undo() -> None:
            Path(kept).rename(path)
            self._synced[path] = synced or 0

        self._journal(path, undo)

    def _keep(self, path: str) -> str | None:
        """Where the file at `path` is now, out of everybody's sight."""
        kept = f"{self._stash}/{self._stashed + 1}"
        try:
            os.rename(path, kept)  # noqa: PTH104
        except FileNotFoundError:
            return None
        self._stashed += 1
        return kept

    def _journal(self, path: str, undo: Callable[[], None]) -> None:
        self._undo.setdefault(path.rpartition("/")[0], []).append(undo)

    def lose_power(self, chance: Random) -> None:
        """Leaves one of the states that a power loss at this moment could leave."""
        self._unwritten.drop()
        for directory in sorted(self._undo):
            if not Path(directory).is_dir():
                continue  # A deleted topic's folder goes as a whole, and stays away.
            unsynced = self._undo[directory]
            for undo in reversed(unsynced[chance.randint(0, len(unsynced)) :]):
                undo()
        self._undo.clear()
        for path in sorted(self._synced):
            try:
                size = Path(path).stat().st_size
            except FileNotFoundError:
                continue
            synced = min(self._synced[path], size)
            if synced < size:
                survived = chance.randint(synced, size)
                if chance.random() < 0.3:  # The size reached the disk, the last sectors did not.
                    survived = max(synced, survived // SECTOR_BYTES * SECTOR_BYTES)
                    os.truncate(path, survived)
                    os.truncate(path, size)
                else:
                    os.truncate(path, survived)
            self._synced[path] = Path(path).stat().st_size

    @property
    def has_unwritten_pages(self) -> bool:
        """Whether `drop_dirty_pages` would take anything."""
        return self._unwritten.any

    def drop_dirty_pages(self) -> bool:
        """Whoever reads what a failed fsync has left behind reads the disk from here on (fsyncgate). Whether any was
        lost."""
        return bool(self._unwritten.drop())

    def wipe(self) -> None:
        """The machine comes back with an empty disk."""
        shutil.rmtree(self.root, ignore_errors=True)
        self._synced.clear()
        self._undo.clear()
        self._unwritten = UnwrittenPages()


class ProcessFiles:
    """A `tiered.hot.file_system.FileSystem`: the machine's disk as one process sees it, until it dies."""

    def __init__(self, disk: Disk, process: Process) -> None:
        self._disk = disk
        self._process = process
        self._real = disk.real

    def _step(self, operation: str, path: str) -> None:
        if self._process.is_dead:
            raise OSError(errno.EIO, "the process is dead", path)
        self._disk.step(operation, path)

    def open(self, path: str, *, writable: bool = False) -> OpenFile:
        self._step("open", path)
        file = self._real.open(path, writable=writable)
        self._disk.opened(path, os.fstat(file.fileno()).st_size)
        return file

    def create(self, path: str) -> OpenFile:
        self._step("create", path)
        file = self._real.create(path)
        self._disk.created(path)
        return file

    def read(self, file: FileIO, length: int, position: int) -> bytes:
        self._step("read", str(file.name))
        return self._real.read(file, length, position)

    def write(self, file: FileIO, data: Data, position: int) -> int:
        self._step("write", str(file.name))
        written = self._real.write(file, data, position)
        self._disk.written(str(file.name), position, written)
        return written

    def reserve(self, file: FileIO, position: int, length: int) -> None:
        self._step("reserve", str(file.name))
        self._real.reserve(file, position, length)

    def truncate(self, file: FileIO, size_bytes: int) -> None:
        self._step("truncate", str(file.name))
        self._real.truncate(file, size_bytes)
        self._disk.truncated(str(file.name), size_bytes)

    def sync(self, file: FileIO) -> None:
        self._step("sync", str(file.name))
        self._disk.synced(str(file.name), os.fstat(file.fileno()).st_size)

    def sync_directory(self, path: str) -> None:
        self._step("sync_directory", path)
        self._disk.synced_directory(path)

    def rename(self, path: str, new_path: str) -> None:
        self._step("rename", path)
        self._disk.rename(path, new_path)

    def unlink(self, path: str) -> None:
        self._step("unlink", path)
        self._disk.unlink(path)

    def sizes(self, directory: str) -> dict[str, int]:
        self._step("sizes", directory)
        return dict(sorted(self._real.sizes(directory).items()))

    def modified_ms(self, path: str) -> int:
        self._step("modified_ms", path)
        return 0  # The files' own times are those of the real clock.

    def make_directories(self, parent: str, names: Sequence[str]) -> None:
        self._step("make_directories", parent)
        self._real.make_directories(parent, names)
