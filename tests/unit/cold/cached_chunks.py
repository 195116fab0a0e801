"""A chunk cache of its own for a test, and loads for it that tell what they were asked for."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from itertools import accumulate
from pathlib import Path
from uuid import uuid4

from tiered.cold.chunks.cache import ChunkCache, ChunkKey, ChunkRun, Loaded
from tiered.runtime import BlockingPool

OBJECT = uuid4()


class Loads:
    """Chunks whose content tells their key; `gate` holds loads back, `fail` makes them fail."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.fail: Exception | None = None
        self.calls: list[ChunkKey] = []
        self.runs: list[tuple[int, int]] = []
        self.buffers: list[memoryview] = []
        self.bad: dict[int, Exception] = {}
        self.most_at_once = 0
        self._running = 0
        self._lock = threading.Lock()

    def of(self, key: ChunkKey, length: int) -> Callable[[], bytes]:
        def load() -> bytes:
            with self._lock:
                self.calls.append(key)
                self._running += 1
                self.most_at_once = max(self.most_at_once, self._running)
            try:
                assert self.gate.wait(30)
                if self.fail is not None:
                    raise self.fail
                return content(key, length)
            finally:
                with self._lock:
                    self._running -= 1

        return load

    def run(self, first: ChunkKey, lengths: Sequence[int]) -> ChunkRun:
        """The chunks from `first` on; those in `bad` come as failures of their own."""

        def load(count: int, buffer: memoryview) -> Sequence[Loaded]:
            self.runs.append((first[1], count))
            self.buffers.append(buffer)
            keys = [(first[0], first[1] + number) for number in range(count)]
            found = [self.of(key, length)() for key, length in zip(keys, lengths, strict=False)]
            buffer[:] = b"".join(found)
            ends = list(accumulate(lengths[:count]))
            parts = [buffer[end - length : end] for end, length in zip(ends, lengths, strict=False)]
            return [self.bad.get(key[1], part) for key, part in zip(keys, parts, strict=True)]

        return ChunkRun(object_id=first[0], first_index=first[1], lengths=lengths, load=load)


def content(key: ChunkKey, length: int) -> bytes:
    return (f"{key[0]}/{key[1]}|".encode() * (length // 30 + 1))[:length]


def with_cache(
    directory: Path,
    test: Callable[[ChunkCache, Loads], Awaitable[None]],
    *,
    max_bytes: int = 10_000,
    max_bytes_in_flight: int = 1 << 20,
    threads: int = 8,
) -> None:
    async def run() -> None:
        pool = BlockingPool("download", threads=threads)
        loads = Loads()
        cache = ChunkCache(directory, max_bytes=max_bytes, pool=pool, max_bytes_in_flight=max_bytes_in_flight)
        try:
            async with asyncio.TaskGroup() as tasks:
                await cache.start(tasks)
                await test(cache, loads)
                loads.gate.set()
                await cache.stop()
        finally:
            loads.gate.set()
            pool.close()

    asyncio.run(run())


def on_disk(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.iterdir())


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.001)
