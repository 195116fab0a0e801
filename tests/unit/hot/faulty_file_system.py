"""A file system that fails on request, runs full and loses power: the tests' second implementation of the seam.

It writes through to real files, and keeps a journal of what a power loss may take back: bytes written
since the file's last sync, and creations, renames and removals since the directory's last sync.
"""

import errno
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path

from tests.support.unwritten_pages import UnwrittenPages
from tiered.file_slice import OpenFile
from tiered.hot.file_system import Data, RealFileSystem


@dataclass
class Fault:
    operation: str
    code: int
    name_part: str
    remaining: int


@dataclass
class FaultyFileSystem:
    """`space_left` bytes may still be written; `largest_write` makes writes short; `fail` arms errors."""

    stash: Path
    space_left: int | None = None
    largest_write: int | None = None
    real: RealFileSystem = field(default_factory=RealFileSystem)
    faults: list[Fault] = field(default_factory=list)
    calls: dict[str, int] = field(default_factory=dict)
    unwritten: UnwrittenPages = field(default_factory=UnwrittenPages)
    _synced_bytes: dict[str, int] = field(default_factory=dict)
    _undo: dict[str, list[Callable[[], None]]] = field(default_factory=dict)
    _stashed: int = 0

    def fail(self, operation: str, code: int = errno.EIO, *, name_part: str = "", times: int = 1_000_000) -> None:
        self.faults.append(Fault(operation, code, name_part, times))

    def heal(self) -> None:
        self.faults.clear()
        self.space_left = None
        self.largest_write = None

    def _step(self, operation: str, path: str) -> None:
        self.calls[operation] = self.calls.get(operation, 0) + 1
        for fault in self.faults:
            if fault.operation == operation and fault.name_part in Path(path).name and fault.remaining > 0:
                fault.remaining -= 1
                raise OSError(fault.code, os.strerror(fault.code), path)

    def open(self, path: str, *, writable: bool = False) -> OpenFile:
        self._step("open", path)
        file = self.real.open(path, writable=writable)
        self._synced_bytes.setdefault(path, os.fstat(file.fileno()).st_size)
        return file

    def create(self, path: str) -> OpenFile:
        self._step("create", path)
        file = self.real.create(path)
        self._synced_bytes[path] = 0
        self.unwritten.removed(path)
        self._journal(path, lambda: Path(path).unlink(missing_ok=True))
        return file

    def read(self, file: FileIO, length: int, position: int) -> bytes:
        self._step("read", str(file.name))
        return self.real.read(file, length, position)

    def write(self, file: FileIO, data: Data, position: int) -> int:
        self._step("write", str(file.name))
        allowed = len(data) if self.largest_write is None else min(len(data), self.largest_write)
        if self.space_left is not None:
            allowed = min(allowed, self.space_left)
            if allowed == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(file.name))
            self.space_left -= allowed
        written = self.real.write(file, memoryview(data)[:allowed], position)
        self.unwritten.written(str(file.name), position, written)
        return written

    def reserve(self, file: FileIO, position: int, length: int) -> None:
        self._step("reserve", str(file.name))
        if self.space_left is not None and self.space_left < length:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(file.name))
        self.real.reserve(file, position, length)

    def truncate(self, file: FileIO, size_bytes: int) -> None:
        self._step("truncate", str(file.name))
        self.real.truncate(file, size_bytes)
        path = str(file.name)
        self._synced_bytes[path] = min(self._synced_bytes.get(path, 0), size_bytes)
        self.unwritten.truncated(path, size_bytes)

    def sync(self, file: FileIO) -> None:
        path = str(file.name)
        try:
            self._step("sync", path)
        except OSError:
            self.unwritten.sync_failed(path, self._synced_bytes.get(path, 0))
            raise
        self._synced_bytes[path] = self.unwritten.on_disk(path, os.fstat(file.fileno()).st_size)

    def sync_directory(self, path: str) -> None:
        self._step("sync_directory", path)
        self._undo.pop(path, None)

    def rename(self, path: str, new_path: str) -> None:
        self._step("rename", path)
        old, old_synced = self._keep(new_path), self._synced_bytes.get(new_path)
        self.real.rename(path, new_path)
        new_synced = self._synced_bytes[new_path] = self._synced_bytes.pop(path, 0)
        self.unwritten.renamed(path, new_path)

        def undo() -> None:
            Path(new_path).rename(path)
            self._synced_bytes[path] = new_synced
            if old is not None:
                os.link(old, new_path)
                if old_synced is not None:  # What had been on disk of the old file still is.
                    self._synced_bytes[new_path] = old_synced

        self._journal(path, undo)

    def unlink(self, path: str) -> None:
        self._step("unlink", path)
        kept = self._keep(path)
        self.real.unlink(path)
        self.unwritten.removed(path)
        assert kept is not None
        self._journal(path, lambda: os.link(kept, path))

    def sizes(self, directory: str) -> dict[str, int]:
        self._step("sizes", directory)
        return self.real.sizes(directory)

    def modified_ms(self, path: str) -> int:
        self._step("modified_ms", path)
        return self.real.modified_ms(path)

    def make_directories(self, parent: str, names: Sequence[str]) -> None:
        self._step("make_directories", parent)
        self.real.make_directories(parent, names)

    def _keep(self, path: str) -> Path | None:
        if not Path(path).exists():
            return None
        self.stash.mkdir(parents=True, exist_ok=True)
        self._stashed += 1
        kept = self.stash / str(self._stashed)
        os.link(path, kept)
        return kept

    def _journal(self, path: str, undo: Callable[[], None]) -> None:
        self._undo.setdefault(str(Path(path).parent), []).append(undo)

    def lose_power(self, directory: Path, chance: random.Random) -> None:
        """Leaves in `directory` one of the states that a power loss at this moment could leave."""
        self.unwritten.drop()
        unsynced = self._undo.pop(str(directory), [])
        for undo in reversed(unsynced[chance.randint(0, len(unsynced)) :]):
            undo()
        for path in directory.iterdir():
            size = path.stat().st_size
            synced = min(self._synced_bytes.get(str(path), size), size)
            survived = chance.randint(synced, size)
            with path.open("r+b") as file:
                file.truncate(survived)
                if chance.random() < 0.3:  # The size reached the disk, the bytes did not.
                    file.truncate(size)
            self._synced_bytes[str(path)] = path.stat().st_size
