"""Files of the chunk cache: the chunks of one request in one file, one after the other.

Owns how they are written, opened and removed, and what happens when the disk does not take them. Creating a file
costs more than writing a chunk into it, so that a request brings one file and not one for each chunk. Must never run
on the event loop but for opening.
"""

import errno
import logging
import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from io import FileIO
from pathlib import Path

from tiered.cold.object_store import ObjectFile
from tiered.errors import StoreUnavailable
from tiered.file_slice import OpenFile

log = logging.getLogger(__name__)

FINISHED, _UNFINISHED = ".chunk", ".unfinished"


class ChunkFile(OpenFile):
    """A file that this module has written."""

    is_named = False
    """It is one of the cache's, which the next reader finds by its name."""


def opened(path: str, stamp: tuple[int, int, int] | None) -> OpenFile:
    """The file that `written` named so; with a stamp the object's own. Raises OSError when it is gone, or another."""
    if stamp is None:
        return ChunkFile(path + FINISHED)
    # Not waiting for a writer, if somebody has put a pipe there: the event loop opens it.
    file = ObjectFile(path, lambda name, _: os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
    if file.stamp != stamp:
        raise FileNotFoundError(f"{path} is not the file that was verified")
    return file


def are_together(file: FileIO, directory: Path) -> bool:
    """True when both are on one disk; False where nobody can tell, as when the folder has been deleted."""
    try:
        return os.fstat(file.fileno()).st_dev == directory.stat().st_dev
    except OSError:
        return False


def wiped(directory: Path) -> None:
    """Makes the folder, its owner's alone, and removes what an earlier process left in it."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in directory.iterdir():
        if path.suffix in (FINISHED, _UNFINISHED):
            path.unlink(missing_ok=True)


def written(victims: Sequence[str], path: str | None, pieces: Sequence[bytes | memoryview]) -> ChunkFile:
    """The pieces in a file, after the victims are gone; without a path, or where the disk does not take them, in a
    nameless one. Raises StoreUnavailable when there is no room for that either."""
    removed(victims)
    return _nameless(pieces) if path is None else _named(path, pieces)


def removed(victims: Sequence[str]) -> None:
    """Removes the files that `written` named so."""
    for victim in victims:
        try:
            Path(victim + FINISHED).unlink(missing_ok=True)
        except OSError as error:
            log.warning("an evicted chunk could not be removed before the next start: %s", error.strerror)


def _named(path: str, pieces: Sequence[bytes | memoryview]) -> ChunkFile:
    unfinished = Path(path + _UNFINISHED)
    try:
        # No fsync: after a crash the folder is wiped.
        file = ChunkFile(unfinished, "wb+")
        _write_whole(file, pieces)
        unfinished.rename(path + FINISHED)
    except OSError as error:
        log.warning("the chunk cache cannot be written, cold reads go on without it: %s", error.strerror)
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        return _nameless(pieces)
    file.is_named = True
    return file


def _nameless(pieces: Sequence[bytes | memoryview]) -> ChunkFile:
    """An open file without a name; in memory where the system can."""
    try:
        if hasattr(os, "memfd_create"):
            file = ChunkFile(os.memfd_create("tiered-chunk", os.MFD_CLOEXEC), "rb+")
        else:
            fd, name = tempfile.mkstemp(prefix="tiered-chunk-")
            Path(name).unlink()
            file = ChunkFile(fd, "rb+")
        _write_whole(file, pieces)
    except OSError as error:
        reason = errno.errorcode.get(error.errno or 0, "?")
        raise StoreUnavailable(f"no room for a chunk that was read from the store ({reason}); free some") from error
    return file


def _write_whole(file: FileIO, pieces: Sequence[bytes | memoryview]) -> None:
    for piece in pieces:
        view = memoryview(piece)
        while view:
            view = view[file.write(view) :]
