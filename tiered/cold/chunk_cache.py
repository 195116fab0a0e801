"""Verified chunks of cold segments on the local disk: one cache for all readers of a broker.

Owns its folder, which is wiped at start: what is in it was verified by this process. Loads are shared and end
in the cache whatever becomes of those who asked (T7). Must never hold more bytes than it may, and never keep a
chunk whose load failed.
"""

import asyncio
import errno
import logging
import os
import tempfile
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import TypeAlias
from uuid import UUID

from tiered.cold.byte_budget import ByteBudget
from tiered.cold.single_flight import SingleFlight
from tiered.errors import StoreUnavailable
from tiered.file_slice import FileSlice
from tiered.runtime import BlockingPool

log = logging.getLogger(__name__)

ChunkKey: TypeAlias = tuple[UUID, int]
"""The object and the index of the chunk in it."""

_SUFFIXES = (".chunk", ".unfinished")


class ChunkFile(FileIO):
    """A file that is closed, without a complaint, when the last slice of it goes."""

    def __del__(self) -> None:
        self.close()


@dataclass(slots=True)
class ChunkCacheState:
    """Counts since the start, for metrics; `held_bytes` is what the cache takes on disk now."""

    hits: int = 0
    loads: int = 0
    failures: int = 0
    evictions: int = 0
    uncached: int = 0
    hit_bytes: int = 0
    loaded_bytes: int = 0
    read_ahead: int = 0
    held_bytes: int = 0


class ChunkCache:
    """At most `max_bytes` of chunks in `directory`, least recently used ones going first.

    `pool` runs loads and disk writes; all loads together hold at most `max_bytes_in_flight`. Lives on one loop.
    """

    def __init__(
        self, directory: Path, *, max_bytes: int, pool: BlockingPool, max_bytes_in_flight: int = 64 << 20
    ) -> None:
        self._directory = directory
        self._max_bytes = max_bytes
        self._pool = pool
        self._budget = ByteBudget(max_bytes_in_flight)
        self._flights: SingleFlight[ChunkKey, FileSlice] = SingleFlight()
        self._lengths: OrderedDict[ChunkKey, int] = OrderedDict()
        self.state = ChunkCacheState()

    async def start(self, tasks: asyncio.TaskGroup) -> None:
        """Empties the folder. Loads run as tasks of `tasks` until `stop`."""
        await self._pool.run(self._wipe)
        self._flights.start(tasks)

    async def stop(self) -> None:
        """Loads in progress are given up; who waits for them gets `ShuttingDown`."""
        await self._flights.stop()

    @property
    def joined(self) -> int:
        """Reads that found their chunk already on its way."""
        return self._flights.joined

    @property
    def loading_bytes(self) -> int:
        """What loads in progress hold of the byte budget."""
        return self._budget.taken_bytes

    async def get(self, key: ChunkKey, load: Callable[[], bytes], *, length: int) -> FileSlice:
        """The whole chunk, `length` bytes: held, or loaded by `load` in a thread. Raises what `load` raises.

        `load` must verify what it answers with. A chunk that cannot be written to disk is served all the same,
        from memory, and loaded again the next time.
        """
        held = self._held(key)
        if held is not None:
            self.state.hits += 1
            self.state.hit_bytes += length
            return held
        return await self._flights.result(key, lambda: self._load(key, load, length))

    def read_ahead(self, key: ChunkKey, load: Callable[[], bytes], *, length: int) -> None:
        """Begins to load a chunk that will be wanted soon; does nothing when reads that somebody waits for
        could have to wait for it."""
        if key in self._lengths or self._flights.is_flying(key) or not self._budget.has_free(2 * length):
            return
        self.state.read_ahead += 1
        self._flights.begin(key, lambda: self._load(key, load, length))

    def _held(self, key: ChunkKey) -> FileSlice | None:
        length = self._lengths.get(key)
        if length is None:
            return None
        try:
            # Opened anew for each read. A shared one, found through a weak reference, may be closing in another
            # thread at that moment: a file that nobody holds lets go of the interpreter while it closes.
            file = ChunkFile(self._path(key))
        except OSError:
            # Somebody cleaned up behind our back: load it again.
            self._forget(key)
            return None
        self._lengths.move_to_end(key)
        return FileSlice(file=file, position=0, length=length)

    async def _load(self, key: ChunkKey, load: Callable[[], bytes], length: int) -> FileSlice:
        self.state.loads += 1
        try:
            async with self._budget.taken(length):
                data = await self._pool.run(load)
                self.state.loaded_bytes += len(data)
                assert len(data) == length, "a load answered with another length than announced"
                file = await self._keep(key, data)
        except BaseException:
            self.state.failures += 1
            raise
        return FileSlice(file=file, position=0, length=length)

    async def _keep(self, key: ChunkKey, data: bytes) -> FileIO:
        """The chunk in an open file: one of the cache, or a nameless one where the cache has no room for it."""
        length = len(data)
        while self.state.held_bytes + length > self._max_bytes and self._lengths:
            victim = next(iter(self._lengths))
            self._forget(victim)
            self.state.evictions += 1
            await self._pool.run(_remove, self._path(victim))
        if self.state.held_bytes + length > self._max_bytes:
            # Larger than the cache, or others are just writing into all of it.
            self.state.uncached += 1
            return await self._pool.run(_nameless, data)
        self.state.held_bytes += length
        try:
            file = await self._pool.run(_write, self._path(key), data)
        except OSError as error:
            self.state.held_bytes -= length
            self.state.uncached += 1
            log.warning("the chunk cache cannot be written, cold reads go on without it: %s", error.strerror)
            return await self._pool.run(_nameless, data)
        self._lengths[key] = length
        return file

    def _forget(self, key: ChunkKey) -> None:
        self.state.held_bytes -= self._lengths.pop(key)

    def _path(self, key: ChunkKey) -> Path:
        return self._directory / f"{key[0]}-{key[1]}.chunk"

    def _wipe(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        for path in self._directory.iterdir():
            if path.suffix in _SUFFIXES:
                path.unlink(missing_ok=True)


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        log.warning("an evicted chunk could not be removed before the next start: %s", error.strerror)


def _write(path: Path, data: bytes) -> FileIO:
    unfinished = path.with_suffix(".unfinished")
    try:
        # No fsync: after a crash the folder is wiped.
        unfinished.write_bytes(data)
        unfinished.rename(path)
        return ChunkFile(path)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise


def _nameless(data: bytes) -> FileIO:
    """An open file without a name that holds `data`; in memory where the system can."""
    try:
        if hasattr(os, "memfd_create"):
            file = ChunkFile(os.memfd_create("tiered-chunk", os.MFD_CLOEXEC), "rb+")
        else:
            fd, name = tempfile.mkstemp(prefix="tiered-chunk-")
            Path(name).unlink()
            file = ChunkFile(fd, "rb+")
        view = memoryview(data)
        while view:
            view = view[file.write(view) :]
    except OSError as error:
        reason = errno.errorcode.get(error.errno or 0, "?")
        raise StoreUnavailable(f"no room for a chunk that was read from the store ({reason}); free some") from error
    return file
