"""Objects as files below one folder: the store of a first start, of tests and of a single machine.

Owns that folder. Objects appear by link or rename of a whole, synced file, so a crash leaves an object or
nothing. Must never follow a key out of its folder and never overwrite on a create-only put.
"""

import fcntl
import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tiered.cold.object_store import BLOCK_BYTES, ObjectFile, ObjectInfo, StoreCapabilities, check_key, read_joined
from tiered.cold.upload_deadline import UploadDeadline
from tiered.errors import CorruptObject, Invalid, InvalidConfig, LostRace, ObjectExists, ObjectMissing, StoreUnavailable
from tiered.runtime import SystemClock, new_uuid

# No key may contain "~" (see check_key), so these names never collide with one.
_OWN_FOLDER = "~tiered"
_CONTINUED = "~"
_MAX_NAME_CHARS = 200  # A key's part may be longer than a file name may be: a long topic and its id.
_HASHED_BYTES = 4 << 20  # Etags of larger objects come from inode, time and size: only small ones are compared.
_MKDIR_ATTEMPTS = 20
_RUN_BYTES = 2 << 20
"""A read costs little, and what is on its way is still in the processor's caches when somebody looks at it."""
_ABSENT = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
"""A folder is the beginning of other keys: there is no object of its name."""


class LocalStore:
    """An `ObjectStore` in a folder. Threads and processes may share one; conditional puts take a file lock."""

    def __init__(self, directory: Path) -> None:
        self._root = directory.absolute()
        self._own = self._root / _OWN_FOLDER
        self._was_there = False

    @property
    def url(self) -> str:
        return self._root.as_uri()

    @property
    def run_bytes(self) -> int:
        return _RUN_BYTES

    def put(self, key: str, data: bytes, *, create_only: bool = False, if_match: str | None = None) -> ObjectInfo:
        target = self._path(key)
        assert not (create_only and if_match is not None), "a new object has no etag to match"
        with _disk_errors(key), self._unfinished() as (fd, unfinished):
            _write_all(fd, data)
            os.fsync(fd)
            if create_only:
                return self._publish_new(key, unfinished, target)
            with self._lock():
                if if_match is not None:
                    found = self.head(key)
                    if found is None or found.etag != if_match:
                        raise LostRace(f"object {key} was changed by somebody else; read it again before writing")
                self._in_directory(target, lambda: unfinished.replace(target))
            return self._info(target)

    def put_segment(
        self, key: str, fd: int, log_bytes: int, tail: bytes, *, timeout_ms: float | None = None
    ) -> ObjectInfo:
        target = self._path(key)
        deadline = UploadDeadline(key, timeout_ms, SystemClock())
        total = log_bytes + len(tail)
        with _disk_errors(key), self._unfinished() as (out, unfinished):
            for start in range(0, total, BLOCK_BYTES):
                deadline.check()
                block = read_joined(
                    lambda length, position: os.pread(fd, length, position),
                    log_bytes,
                    tail,
                    start,
                    min(BLOCK_BYTES, total - start),
                )
                _write_all(out, block)
            os.fsync(out)
            deadline.check()
            return self._publish_new(key, unfinished, target)

    def get(self, key: str, *, max_bytes: int) -> tuple[bytes, str]:
        with self._opened(key) as fd:
            info = self._info_of(fd)
            if info.size_bytes > max_bytes:
                raise CorruptObject(f"object {key} has {info.size_bytes} bytes, more than the {max_bytes} it may have")
            return _read_all(fd, 0, info.size_bytes), info.etag

    def get_range(self, key: str, start: int, length: int) -> bytes:
        assert start >= 0
        assert length > 0
        with self._opened(key) as fd:
            data = _read_all(fd, start, length)
        _require_length(key, start, len(data), length)
        return data

    def read_into(self, key: str, start: int, buffer: memoryview) -> ObjectFile | None:
        assert start >= 0
        with _disk_errors(key), ExitStack() as on_failure:
            file = on_failure.enter_context(self._file(key))
            done = 0
            while done < len(buffer) and (count := os.preadv(file.fileno(), (buffer[done:],), start + done)):
                done += count
            _require_length(key, start, done, len(buffer))
            on_failure.pop_all()
        return file

    def head(self, key: str) -> ObjectInfo | None:
        path = self._path(key)
        with _disk_errors(key):
            try:
                return self._info(path)
            except _ABSENT:
                self._require_root()
                return None

    def delete(self, key: str) -> None:
        path = self._path(key)
        with _disk_errors(key):
            try:
                path.unlink()
                _sync_directory(path.parent)
            except (FileNotFoundError, NotADirectoryError):
                pass
            for folder in path.parents:
                if folder == self._root:
                    break
                try:
                    folder.rmdir()
                except OSError:
                    break  # Not empty, or somebody was quicker: either way there is nothing more to prune.

    def list(self, prefix: str, *, start_after: str | None = None, limit: int = 1000) -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = []
        self._require_root()
        with _disk_errors(prefix):
            for key, path in self._below(prefix, start_after or ""):
                if len(found) >= limit:
                    break
                try:
                    found.append((key, Path(path).stat().st_size))
                except FileNotFoundError:
                    continue  # Deleted while we walked: as if we had come a moment later.
        return found

    def probe(self) -> StoreCapabilities:
        key = f"probes/{new_uuid()}"
        etag = self.put(key, b"probe", create_only=True).etag
        if self.get(key, max_bytes=16) != (b"probe", etag):
            raise InvalidConfig(f"the folder {self._root} does not give back what was written; use another one")
        self.delete(key)
        return StoreCapabilities(create_only=True, if_match=True, checksum_accepted=True, checksum_verified=True)

    def abort_abandoned_uploads(self, prefix: str, *, started_before_ms: int) -> tuple[str, ...]:
        removed: list[str] = []
        with _disk_errors(prefix):
            for path in sorted(self._own.glob("*.unfinished")):
                try:
                    if path.stat().st_mtime_ns // 1_000_000 < started_before_ms:
                        path.unlink()
                        removed.append(path.name)
                except FileNotFoundError:
                    continue  # Its writer finished in this moment.
        return tuple(removed)

    def close(self) -> None:
        pass

    def _require_root(self) -> None:
        """A folder that goes away (unmounted?) must not look like a store whose objects were all lost."""
        if self._root.is_dir():
            self._was_there = True
        elif self._was_there:
            raise StoreUnavailable(f"the object folder {self._root} does not exist; is its file system mounted?")

    # Paths

    def _path(self, key: str) -> Path:
        parts: list[str] = []
        for part in check_key(key).split("/"):
            pieces = [part[begin : begin + _MAX_NAME_CHARS] for begin in range(0, len(part), _MAX_NAME_CHARS)]
            parts.extend([piece + _CONTINUED for piece in pieces[:-1]] + pieces[-1:])
        return self._root.joinpath(*parts)

    def _below(self, prefix: str, start_after: str) -> Iterator[tuple[str, str]]:
        """Keys that begin with the prefix, and their files, in byte order. Of the folders above it none is listed: a
        partition's is one of very many."""
        above = prefix.rpartition("/")[0]
        folder = self._root
        try:
            parts = self._path(above).relative_to(self._root).parts if above else ()
        except Invalid:
            return  # No key begins so.
        for part in parts:
            folder /= part
            try:
                if not stat.S_ISDIR(os.lstat(folder).st_mode):
                    return
            except FileNotFoundError:
                return
        yield from _walk(str(folder), above and above + "/", prefix, start_after)

    # Files

    @contextmanager
    def _unfinished(self) -> Iterator[tuple[int, Path]]:
        """A new file of our own to fill; what is not published of it is removed."""
        path = self._own / f"{new_uuid()}.unfinished"
        _make_directory(self._own)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)
        try:
            yield fd, path
        finally:
            os.close(fd)
            path.unlink(missing_ok=True)

    def _publish_new(self, key: str, unfinished: Path, target: Path) -> ObjectInfo:
        try:
            # A link, unlike a rename, refuses to replace.
            self._in_directory(target, lambda: os.link(unfinished, target))
        except FileExistsError as error:
            raise ObjectExists(f"object {key} exists already; it is left as it is") from error
        return self._info(target)

    def _in_directory(self, target: Path, publish: Callable[[], object]) -> None:
        for _ in range(_MKDIR_ATTEMPTS):
            _make_directory(target.parent)
            try:
                publish()
            except FileNotFoundError:
                continue  # A delete pruned the folder in between.
            _sync_directory(target.parent)
            self._was_there = True
            return
        raise StoreUnavailable(f"folder {target.parent} vanishes again and again; is something else deleting it?")

    @contextmanager
    def _lock(self) -> Iterator[None]:
        _make_directory(self._own)
        fd = os.open(self._own / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    @contextmanager
    def _opened(self, key: str) -> Iterator[int]:
        with _disk_errors(key), self._file(key) as file:
            yield file.fileno()

    def _file(self, key: str) -> ObjectFile:
        path = self._path(key)
        try:
            return ObjectFile(str(path), lambda _, __: _open_file(path))
        except _ABSENT as error:
            self._require_root()
            raise ObjectMissing(f"no object {key} in {self.url}") from error

    def _info(self, path: Path) -> ObjectInfo:
        fd = _open_file(path)
        try:
            return self._info_of(fd)
        finally:
            os.close(fd)

    def _info_of(self, fd: int) -> ObjectInfo:
        found = os.fstat(fd)
        if found.st_size <= _HASHED_BYTES:
            etag = hashlib.sha256(_read_all(fd, 0, found.st_size)).hexdigest()
        else:
            etag = f"{found.st_ino:x}-{found.st_mtime_ns:x}-{found.st_size:x}"
        age_ms = float(SystemClock().now_ms() - found.st_mtime_ns // 1_000_000)
        return ObjectInfo(size_bytes=found.st_size, etag=etag, age_ms=age_ms)


@contextmanager
def _disk_errors(key: str) -> Iterator[None]:
    try:
        yield
    except IsADirectoryError as error:
        raise Invalid(f"{key} is the beginning of other keys, not an object") from error
    except OSError as error:
        raise StoreUnavailable(f"the disk of the object folder refused {key}: {error.strerror}") from error


def _open_file(path: Path) -> int:
    """Waits for nobody: what opens a pipe would wait until somebody writes to it. Raises CorruptObject for one."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    mode = os.fstat(fd).st_mode
    if stat.S_ISREG(mode):
        return fd
    os.close(fd)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(f"{path} is a folder")
    raise CorruptObject(f"{path} is no file: whoever can write into the folder has put something else there")


def _walk(folder: str, above: str, prefix: str, start_after: str) -> Iterator[tuple[str, str]]:
    """Keys and their files below `folder`, in byte order; whole folders outside of what is asked are skipped."""
    for name, path, is_folder in sorted(_children(folder, "")):
        key = above + name
        if is_folder:
            inside = key.startswith(prefix) or prefix.startswith(key)
            if inside and (key > start_after or start_after.startswith(key)):
                yield from _walk(path, key, prefix, start_after)
        elif key.startswith(prefix) and key > start_after:
            yield key, path


def _children(folder: str, begun: str) -> Iterator[tuple[str, str, bool]]:
    """Parts of keys directly below `folder`, folders with a slash at their end: so they sort as keys do."""
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        return
    for entry in entries:
        if entry.name == _OWN_FOLDER:
            continue
        if entry.name.endswith(_CONTINUED):
            yield from _children(entry.path, begun + entry.name[: -len(_CONTINUED)])
        elif entry.is_dir(follow_symlinks=False):
            yield begun + entry.name + "/", entry.path, True
        else:
            yield begun + entry.name, entry.path, False


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _require_length(key: str, start: int, found: int, wanted: int) -> None:
    if found != wanted:
        raise CorruptObject(f"object {key} ends at byte {start + found}, before {start + wanted}: truncated")


def _read_all(fd: int, start: int, length: int) -> bytes:
    """Up to `length` bytes from `start`: fewer only where the file ends."""
    pieces: list[bytes] = []
    while length > 0:
        piece = os.pread(fd, length, start)
        if not piece:
            break
        pieces.append(piece)
        start += len(piece)
        length -= len(piece)
    return b"".join(pieces)


def _make_directory(path: Path) -> None:
    """Makes `path` and what is missing above it, each synced into its parent so that it outlives a crash."""
    if path.is_dir():
        return
    _make_directory(path.parent)
    try:
        path.mkdir(mode=0o750)
    except FileExistsError:
        return
    except FileNotFoundError:
        return  # A delete pruned the parent just now; a writer that needs the folder tries again.
    _sync_directory(path.parent)


def _sync_directory(path: Path) -> None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return  # Pruned meanwhile, and with it whatever was to be made durable.
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
