"""The seam between a log and the disk: every file operation that the hot room makes.

Owns the list of operations and their real implementation. Failures leave as OSError; what they mean is
the log's decision. Must never retry, buffer or hide a failure. The tests have a second implementation
that fails, runs full and loses power; one contract suite holds for both.
"""

import ctypes
import errno
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import Protocol

from tiered.file_slice import OpenFile
from tiered.open_files import OUT_OF_FILES

TEMPORARY_SUFFIX = ".tmp"
PREPARED_SUFFIX = ".prepared" + TEMPORARY_SUFFIX

Data = bytes | bytearray | memoryview

_KEEP_SIZE = 1
_fallocate = getattr(ctypes.CDLL(None, use_errno=True), "fallocate", None)
"""Python has only `posix_fallocate`: it changes the size, and writes zeros where the file system allocates nothing."""


class FileSystem(Protocol):
    """The operations that a log needs of the disk. Paths are absolute. Every operation may raise OSError."""

    def open(self, path: str, *, writable: bool = False) -> OpenFile:
        """An existing file; FileNotFoundError when there is none."""

    def create(self, path: str) -> OpenFile:
        """A new, empty, writable file; FileExistsError when something is there. Durable after `sync_directory`."""

    def read(self, file: FileIO, length: int, position: int) -> bytes:
        """Up to `length` bytes from `position`; fewer at the end of the file only."""

    def write(self, file: FileIO, data: Data, position: int) -> int:
        """Writes some of `data` at `position` and answers how many bytes; at least one."""

    def reserve(self, file: FileIO, position: int, length: int) -> None:
        """Takes disk for `length` bytes from `position`, that nobody has written yet; the file's size stays. A
        `truncate` gives back what is beyond it."""

    def truncate(self, file: FileIO, size_bytes: int) -> None:
        """Cuts the file (or fills it with zeros) to `size_bytes`."""

    def sync(self, file: FileIO) -> None:
        """Returns when the file's bytes and size survive a power loss. After a failure nothing is known (fsyncgate)."""

    def sync_directory(self, path: str) -> None:
        """Returns when creations, renames and removals in this directory survive a power loss."""

    def rename(self, path: str, new_path: str) -> None:
        """Replaces `new_path` in one step; other processes and a crash see the old or the new file."""

    def unlink(self, path: str) -> None:
        """Removes the name. Open files of it stay readable."""

    def sizes(self, directory: str) -> dict[str, int]:
        """Name and size in bytes of every regular file in the directory; FileNotFoundError when it is missing."""

    def modified_ms(self, path: str) -> int:
        """When the file's bytes or size changed last, by this machine's clock, in milliseconds since 1970."""

    def make_directories(self, parent: str, names: Sequence[str]) -> None:
        """Creates the directories in `parent`, and its missing parents, durably; those that exist stay as they are.
        When it raises, none is there that may be gone after a power loss."""


class _SpareDescriptor:
    """Keeps one descriptor for short work that ends what was begun: when none is left, a truncation that has removed
    files must still make that durable. Safe between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spare: int | None = None

    @contextmanager
    def opened(self, path: str, flags: int) -> Iterator[int]:
        """A descriptor of the file, for as long as it is used. Raises OSError."""
        with self._lock:
            if self._spare is None:
                with suppress(OSError):
                    self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            try:
                descriptor = os.open(path, flags | os.O_CLOEXEC)
            except OSError as error:
                if error.errno not in OUT_OF_FILES or self._spare is None:
                    raise
                os.close(self._spare)
                self._spare = None
                descriptor = os.open(path, flags | os.O_CLOEXEC)
        try:
            yield descriptor
        finally:
            os.close(descriptor)


_spare = _SpareDescriptor()


class RealFileSystem:
    """The machine's file system."""

    def open(self, path: str, *, writable: bool = False) -> OpenFile:
        return OpenFile(path, "r+b" if writable else "rb")

    def create(self, path: str) -> OpenFile:
        return OpenFile(path, "x+b", opener=_of_this_user)

    def read(self, file: FileIO, length: int, position: int) -> bytes:
        data = os.pread(file.fileno(), length, position)
        while data and len(data) < length:
            more = os.pread(file.fileno(), length - len(data), position + len(data))
            if not more:
                break
            data += more
        return data

    def write(self, file: FileIO, data: Data, position: int) -> int:
        return os.pwrite(file.fileno(), data, position)

    def reserve(self, file: FileIO, position: int, length: int) -> None:
        if _fallocate is None:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        if _fallocate(file.fileno(), _KEEP_SIZE, ctypes.c_int64(position), ctypes.c_int64(length)):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    def truncate(self, file: FileIO, size_bytes: int) -> None:
        os.ftruncate(file.fileno(), size_bytes)

    def sync(self, file: FileIO) -> None:
        os.fdatasync(file.fileno())

    def sync_directory(self, path: str) -> None:
        with _spare.opened(path, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
            os.fsync(descriptor)

    def rename(self, path: str, new_path: str) -> None:
        os.replace(path, new_path)  # noqa: PTH105

    def unlink(self, path: str) -> None:
        os.unlink(path)  # noqa: PTH108

    def sizes(self, directory: str) -> dict[str, int]:
        found: dict[str, int] = {}
        with os.scandir(directory) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # Unlinked between the listing and the look.
                    if entry.is_file(follow_symlinks=False):
                        found[entry.name] = entry.stat(follow_symlinks=False).st_size
        return found

    def modified_ms(self, path: str) -> int:
        return Path(path).stat().st_mtime_ns // 1_000_000

    def make_directories(self, parent: str, names: Sequence[str]) -> None:
        above = Path(parent)
        try:
            there = set(os.listdir(parent))
        except FileNotFoundError:
            self.make_directories(str(above.parent), (above.name,))
            there = set()
        missing = [above / name for name in names if name not in there]
        if not missing:
            return
        try:
            for path in missing:
                path.mkdir(exist_ok=True)
            self.sync_directory(parent)
        except OSError:
            for path in missing:
                with suppress(OSError):
                    path.rmdir()
            raise


def _of_this_user(path: str, flags: int) -> int:
    """Nothing that a broker keeps was meant for other users of the machine."""
    return os.open(path, flags, 0o600)


def write_all(fs: FileSystem, file: FileIO, data: Data, position: int) -> None:
    """Writes the whole of `data` at `position`; raises OSError, with any part of it written."""
    written = fs.write(file, data, position)
    if written == len(data):
        return
    view = memoryview(data)
    while written < len(view):
        written += fs.write(file, view[written:], position + written)


def read_whole(fs: FileSystem, path: str, *, max_bytes: int) -> bytes | None:
    """The first `max_bytes` of a small file, or None when there is none."""
    try:
        file = fs.open(path)
    except FileNotFoundError:
        return None
    with file:
        return fs.read(file, max_bytes, 0)


def replace_file(fs: FileSystem, path: str, data: Data, *, durable: bool) -> None:
    """Puts `data` in place of the file at `path`, in one step: a crash leaves the old or the new content.

    With `durable` it returns only when the new content survives a power loss; without, a power loss may
    leave the old content, the new, or (the reader must check) a torn one.
    """
    temporary = path + TEMPORARY_SUFFIX
    _write_anew(fs, temporary, data, durable=durable)
    try:
        fs.rename(temporary, path)
    except OSError:
        with suppress(OSError):
            fs.unlink(temporary)
        raise
    if durable:
        fs.sync_directory(path.rpartition("/")[0])


def prepare_file(fs: FileSystem, path: str, data: Data) -> None:
    """Writes beside the file at `path`, durably, what `use_prepared` puts in its place without needing any space.

    Raises OSError, with nothing changed.
    """
    _write_anew(fs, path + PREPARED_SUFFIX, data, durable=True)


def use_prepared(fs: FileSystem, path: str) -> None:
    """Puts what was prepared in the place of the file at `path`; durable after `sync_directory`. Raises OSError."""
    fs.rename(path + PREPARED_SUFFIX, path)


def _write_anew(fs: FileSystem, path: str, data: Data, *, durable: bool) -> None:
    """Writes a file that nobody reads yet, in place of what an earlier try left. Raises OSError; then it is gone."""
    with suppress(FileNotFoundError):
        fs.unlink(path)
    try:
        with fs.create(path) as file:
            write_all(fs, file, data, 0)
            if durable:
                fs.sync(file)
    except OSError:
        with suppress(OSError):
            fs.unlink(path)
        raise
