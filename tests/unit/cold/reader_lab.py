"""A cold reader over a local store in a temporary folder, for tests of what it answers and what it asks for."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.unit.cold.stored_segments import StoredSegment, place_of
from tiered.cold.chunks.cache import ChunkCache
from tiered.cold.chunks.reader import ColdReader
from tiered.cold.local import LocalStore
from tiered.cold.object_store import ObjectFile
from tiered.file_slice import FileSlice
from tiered.formats.checkpoint import CommittedSegment
from tiered.rules.pacing.read_ahead import ReadAheadLimits
from tiered.runtime import BlockingPool

NO_READ_AHEAD = ReadAheadLimits(request_bytes=0, ahead_bytes=0)


class WatchedStore(LocalStore):
    """Notes what is asked for. `gate` holds answers back; `flip_next` damages one of them on its way. As a store
    elsewhere is, its objects are no files for readers, but where `is_in_place`."""

    is_in_place = False

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.ranges: list[tuple[str, int, int]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.flip_next: int | None = None

    def get_range(self, key: str, start: int, length: int) -> bytes:
        data = bytearray(length)
        self.read_into(key, start, memoryview(data))
        return bytes(data)

    def read_into(self, key: str, start: int, buffer: memoryview) -> ObjectFile | None:
        self.ranges.append((key, start, len(buffer)))
        assert self.gate.wait(30)
        file = super().read_into(key, start, buffer)
        if self.flip_next is not None:
            buffer[self.flip_next] ^= 0x10
            self.flip_next = None
        return file if self.is_in_place else None


def run_with(reader: ColdReader, pool: BlockingPool, test: Callable[[], Awaitable[None]]) -> None:
    """Runs the test while the reader is at work; the pool is of no use afterwards."""

    async def run() -> None:
        async with asyncio.TaskGroup() as tasks:
            await reader.start(tasks)
            await test()
            await reader.stop()

    try:
        asyncio.run(run())
    finally:
        pool.close()


class Lab:
    """A reader over a local store in a temporary folder."""

    def __init__(
        self,
        directory: Path,
        *,
        cache_directory: Path | None = None,
        cache_bytes: int = 1 << 20,
        read_ahead: ReadAheadLimits = NO_READ_AHEAD,
        open_tail_bytes: int = 1 << 20,
    ) -> None:
        (directory / "objects").mkdir(parents=True)
        self.directory = directory
        self.store = WatchedStore(directory / "objects")
        self._pool = BlockingPool("download", threads=4)
        self.cache = ChunkCache(cache_directory or directory / "cache", max_bytes=cache_bytes, pool=self._pool)
        self.reader = ColdReader(
            self.store,
            self.cache,
            self._pool,
            read_ahead=read_ahead,
            open_tail_bytes=open_tail_bytes,
        )

    def run(self, test: Callable[[], Awaitable[None]]) -> None:
        run_with(self.reader, self._pool, test)

    async def read(
        self,
        stored: StoredSegment,
        offset: int,
        max_bytes: int = 1 << 20,
        *,
        joined_bytes: int = 0,
        following: CommittedSegment | None = None,
    ) -> FileSlice:
        found = await self.reader.read(
            place_of(stored.committed),
            offset=offset,
            max_bytes=max_bytes,
            joined_bytes=joined_bytes,
            following=following,
        )
        return found.records

    async def at_time(self, stored: StoredSegment, timestamp_ms: int, start_offset: int = 0) -> tuple[int, int] | None:
        return await self.reader.offset_for_timestamp(
            place_of(stored.committed), timestamp_ms=timestamp_ms, start_offset=start_offset
        )

    def object_path(self, stored: StoredSegment) -> Path:
        return self.directory / "objects" / stored.committed.object_key

    def flip(self, stored: StoredSegment, position: int) -> None:
        path = self.object_path(stored)
        data = bytearray(path.read_bytes())
        data[position] ^= 0x10
        path.write_bytes(data)
