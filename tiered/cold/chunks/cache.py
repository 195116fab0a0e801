"""Verified chunks of cold segments on the local disk: one cache for all readers of a broker.

Owns its folder, which is wiped at start: this process verified every chunk in it; and it knows of the chunks that it
verified in the objects' own files, where those are on the same disk (ADR 0027). Loads are shared and end in the cache
even if their readers go away (T7); one load may bring several neighbouring chunks, each with an outcome of its own,
which stay and go together. Must never hold more bytes than it may, never keep a chunk whose load failed, and never do
disk work on the event loop but open a file (`files` does the rest in threads).
"""

import asyncio
import os
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import TypeAlias
from uuid import UUID

from tiered.cold.budget import Budget
from tiered.cold.chunks import files
from tiered.cold.chunks.buffers import LoadBuffers
from tiered.cold.object_store import ObjectFile
from tiered.cold.single_flight import SingleFlight
from tiered.file_slice import FileSlice
from tiered.runtime import BlockingPool

HELD_BACK_REQUEST_BYTES = 2 << 20
"""A load that runs beside the tail asks for no more: the shorter one is, the sooner the tail has its turn."""

ChunkKey: TypeAlias = tuple[UUID, int]
"""The object and the index of the chunk in it."""

Loaded: TypeAlias = bytes | memoryview | FileSlice | Exception
"""A chunk that was verified, in memory or in the object's own file, or why there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkRun:
    """Neighbouring chunks of one object, of so many bytes each, and how to load them with one request.

    `load(count, buffer)` runs in a thread and answers with the first `count` of them, verified. They may be in
    `buffer`, which is as long as they are together, and is used again once they are written; or in the object's file.
    An error that it raises is a failure of all; an error in its answer is a failure of that chunk alone.
    """

    object_id: UUID
    first_index: int
    lengths: Sequence[int]
    load: Callable[[int, memoryview], Sequence[Loaded]]

    def key(self, number: int) -> ChunkKey:
        return self.object_id, self.first_index + number


@dataclass(slots=True, eq=False)
class _Kept:
    """Chunks that lie in one file, with the position and length of each: a file of the cache, or, with a stamp, the
    object's own."""

    path: str
    stamp: tuple[int, int, int] | None = None
    size_bytes: int = 0
    places: dict[ChunkKey, tuple[int, int]] = field(default_factory=dict)

    def add(self, key: ChunkKey, position: int, length: int) -> None:
        self.places[key] = position, length
        self.size_bytes += length


@dataclass(slots=True)
class ChunkCacheState:
    """Counts since the start, for metrics; `held_bytes` are at hand now: on the cache's disk, or in place."""

    hits: int = 0
    loads: int = 0
    failures: int = 0
    evictions: int = 0
    uncached: int = 0
    hit_bytes: int = 0
    loaded_bytes: int = 0
    read_ahead: int = 0
    held_bytes: int = 0
    unread_bytes: int = 0
    """Chunks that were loaded before anybody asked for them, and those on their way; at most half of the cache."""


class ChunkCache:
    """At most `max_bytes` of chunks, in `directory` or in place, least recently used ones going first.

    `pool` runs loads, at most `loads_at_once` and fewer while `turns` holds them back; all loads together hold at most
    `max_bytes_in_flight`. Lives on one loop.
    """

    def __init__(
        self,
        directory: Path,
        *,
        max_bytes: int,
        pool: BlockingPool,
        max_bytes_in_flight: int = 64 << 20,
        loads_at_once: int = 8,
    ) -> None:
        self.directory = directory
        self._prefix = f"{directory}{os.sep}"
        self._max_bytes = max_bytes
        self._pool = pool
        # One thread, so that what is to go is gone before what comes is written; and not one of `pool`, where a chunk
        # that has arrived would wait behind downloads that have not begun.
        self._writing = BlockingPool("chunk-cache", threads=1)
        self._budget = Budget(max_bytes_in_flight)
        self._buffers = LoadBuffers()
        self._flights: SingleFlight[ChunkKey, FileSlice] = SingleFlight()
        self.turns = Budget(loads_at_once)
        self._loads_under_way = 0
        self._has_begun = asyncio.Event()
        self._held: dict[ChunkKey, _Kept] = {}
        self._files: OrderedDict[_Kept, None] = OrderedDict()
        self._unread: dict[ChunkKey, int] = {}
        self.state = ChunkCacheState()

    async def start(self, tasks: asyncio.TaskGroup) -> None:
        """Empties the folder. Loads run as tasks of `tasks` until `stop`."""
        await self._pool.run(files.wiped, self.directory)
        self._flights.start(tasks)

    async def stop(self) -> None:
        """Loads in progress are given up; their waiters get `ShuttingDown`."""
        await self._flights.stop()
        await asyncio.to_thread(self._writing.close)

    @property
    def joined(self) -> int:
        """Reads that found their chunk already on its way."""
        return self._flights.joined

    @property
    def loading_bytes(self) -> int:
        """The part of the byte budget that loads in progress hold."""
        return self._budget.taken_now

    @property
    def loading_chunks(self) -> int:
        """Chunks on their way, those included whose request has not begun."""
        return self._flights.flying

    async def wait_for_load(self) -> None:
        """Returns while something is loaded."""
        self._has_begun.clear()
        if not self.loading_chunks:
            await self._has_begun.wait()

    def has(self, key: ChunkKey) -> bool:
        """True when the chunk is held, or on its way."""
        return key in self._held or self._flights.is_flying(key)

    def held(self, key: ChunkKey) -> FileSlice | None:
        """The whole chunk if it is held; else `loading` has it later."""
        found = self._open(key)
        if found is not None:
            self._read(key)
            self.state.hits += 1
            self.state.hit_bytes += found.length
        return found

    def extended(self, part: FileSlice, key: ChunkKey, following: ChunkKey) -> FileSlice | None:
        """`part`, which ends with the chunk `key`, and the chunk `following`; None unless that is held, right behind it
        in the same file. `part` was opened in this turn of the loop, so that its file is the one that is held."""
        kept, other = self._held.get(key), self._held.get(following)
        if kept is None or other is None or (other.path, other.stamp) != (kept.path, kept.stamp):
            return None
        position, length = other.places[following]
        if position != part.position + part.length:
            return None
        self._files.move_to_end(other)
        self._read(following)
        self.state.hits += 1
        self.state.hit_bytes += length
        return FileSlice(file=part.file, position=part.position, length=part.length + length)

    def loading(self, run: ChunkRun) -> "asyncio.Future[FileSlice]":
        """The first chunk of `run`, on its way when this returns, with as many of the others as nobody has to wait for.

        Ends with what was raised for that chunk. To give up the wait stops no load. A chunk that cannot be written to
        disk is served all the same, from memory, and loaded again the next time.
        """
        key = run.key(0)
        self._read(key)
        if self._flights.is_flying(key):
            return self._flights.join(key)
        self._begin(run, 1 + self._room_ahead(run, 1), asked=1)
        return self._flights.landing(key)

    async def get(self, key: ChunkKey, load: Callable[[], bytes], *, length: int) -> FileSlice:
        """The whole chunk, `length` bytes: held, or loaded by `load` in a thread. Raises what `load` raises.

        `load` must verify what it answers with.
        """
        held = self.held(key)
        if held is not None:
            return held
        run = ChunkRun(object_id=key[0], first_index=key[1], lengths=(length,), load=lambda _, __: (load(),))
        return await self.loading(run)

    def read_ahead(self, run: ChunkRun) -> int:
        """Begins to load chunks that will be wanted soon, from the first of `run` to the one before the first that is
        here or on its way; how many. Leaves out loads that could delay a waiting reader, and chunks that would push
        unread ones out of the cache."""
        if self.turns.is_held_back and self._loads_under_way >= self.turns.allowed:
            return 0  # It would only stand in the way of those that somebody waits for.
        count = self._room_ahead(run, 0)
        if count:
            self._begin(run, count, asked=0)
        return count

    def _room_ahead(self, run: ChunkRun, number: int) -> int:
        """How many chunks of `run`, from this one on, may be loaded though nobody has asked for them."""
        # As much as the first one stays free: for one that somebody asks for in the meantime.
        spare_bytes = self._budget.spare - sum(run.lengths[:number]) - run.lengths[0]
        if self.turns.is_held_back:
            spare_bytes = min(spare_bytes, HELD_BACK_REQUEST_BYTES - sum(run.lengths[:number]))
        unread_bytes = self._max_bytes // 2 - self.state.unread_bytes
        count = 0
        for each, length in enumerate(run.lengths[number:], number):
            spare_bytes -= length
            unread_bytes -= length
            if spare_bytes < 0 or unread_bytes < 0 or self.has(run.key(each)):
                break
            count += 1
        return count

    def _begin(self, run: ChunkRun, count: int, *, asked: int) -> None:
        keys = [run.key(number) for number in range(count)]
        self._flights.begin(keys, lambda: self._load(run, keys))
        self._loads_under_way += 1
        self._has_begun.set()
        self.state.read_ahead += count - asked
        for key, length in zip(keys[asked:], run.lengths[asked:], strict=False):
            self._unread[key] = length
            self.state.unread_bytes += length

    def _read(self, key: ChunkKey) -> None:
        """Somebody has asked for it, or nobody ever will."""
        self.state.unread_bytes -= self._unread.pop(key, 0)

    def _open(self, key: ChunkKey) -> FileSlice | None:
        kept = self._held.get(key)
        if kept is None:
            return None
        try:
            # Opened anew for each read. A shared one, found through a weak reference, may be closing in another
            # thread at that moment: a file that nobody holds lets go of the interpreter while it closes.
            file = files.opened(kept.path, kept.stamp)
        except OSError:
            # Somebody cleaned up behind our back: load it again.
            self._forget(kept)
            return None
        self._files.move_to_end(kept)
        position, length = kept.places[key]
        return FileSlice(file=file, position=position, length=length)

    async def _load(self, run: ChunkRun, keys: Sequence[ChunkKey]) -> Sequence[FileSlice | Exception]:
        lengths = run.lengths[: len(keys)]
        failures = len(keys)
        self.state.loads += len(keys)
        try:
            async with self._budget.taken(sum(lengths)), self.turns.taken(1):
                buffer = self._buffers.lend(sum(lengths))
                loaded = await self._pool.run(run.load, len(keys), buffer)
                slices = await self._keep(keys, lengths, loaded)
                # Not after an error: a load that was given up may still be running.
                self._buffers.give_back(buffer)
            failures = sum(isinstance(each, Exception) for each in loaded)
        finally:
            self._loads_under_way -= 1
            self.state.failures += failures
            for key in keys:
                if key not in self._held:
                    self._read(key)
        return slices

    async def _keep(
        self, keys: Sequence[ChunkKey], lengths: Sequence[int], loaded: Sequence[Loaded]
    ) -> Sequence[FileSlice | Exception]:
        """Each chunk in an open file: the object's own, one of the cache, or a nameless one where that has no room."""
        in_memory: dict[ChunkKey, bytes | memoryview] = {}
        in_place: dict[ChunkKey, FileSlice] = {}
        for key, length, chunk in zip(keys, lengths, loaded, strict=True):
            if isinstance(chunk, Exception):
                continue
            if isinstance(chunk, FileSlice):
                in_place[key] = chunk
            else:
                assert len(chunk) == length, "a load answered with another length than announced"
                in_memory[key] = chunk
            self.state.loaded_bytes += length
        for file, parts in groupby(in_place.items(), lambda item: item[1].file):
            assert isinstance(file, ObjectFile), "a load answers with memory, or with files of the store"
            await self._left_in_place(file, dict(parts))
        slices = in_place | (await self._written(in_memory) if in_memory else {})
        return [each if isinstance(each, Exception) else slices[key] for key, each in zip(keys, loaded, strict=True)]

    async def _written(self, chunks: Mapping[ChunkKey, bytes | memoryview]) -> dict[ChunkKey, FileSlice]:
        """The chunks in one file, which the next reader finds unless the disk or the cache has no room for it."""
        # Named for a chunk that is in it: one that failed is loaded again, and its file would take this one's place.
        kept = _Kept(self._path(next(iter(chunks))))
        for key, data in chunks.items():
            kept.add(key, kept.size_bytes, len(data))
        victims, is_wanted = self._make_room(kept.size_bytes)
        is_held = False
        try:
            path = kept.path if is_wanted else None
            file = await self._writing.run(files.written, victims, path, list(chunks.values()))
            is_held = file.is_named
        finally:
            if is_wanted and not is_held:
                self.state.held_bytes -= kept.size_bytes
        self._settle(kept, is_held=is_held)
        return {
            key: FileSlice(file=file, position=position, length=length)
            for key, (position, length) in kept.places.items()
        }

    async def _left_in_place(self, file: ObjectFile, chunks: Mapping[ChunkKey, FileSlice]) -> None:
        """Notes where they are, which is where the next reader finds them; the cache has no copy."""
        kept = _Kept(str(file.name), file.stamp)
        for key, part in chunks.items():
            kept.add(key, part.position, part.length)
        victims, is_wanted = self._make_room(kept.size_bytes)
        self._settle(kept, is_held=is_wanted)
        if victims:
            await self._writing.run(files.removed, victims)

    def _settle(self, kept: _Kept, *, is_held: bool) -> None:
        if is_held:
            self._files[kept] = None
            self._held.update(dict.fromkeys(kept.places, kept))
        else:
            self.state.uncached += len(kept.places)

    def _make_room(self, length: int) -> tuple[list[str], bool]:
        """Forgets the least recently used until there is room, and takes it; their files, which are still to be
        removed, and whether there is room. Without it `length` is more than the cache, or others are just written into
        all of it."""
        victims: list[str] = []
        while self.state.held_bytes + length > self._max_bytes and self._files:
            victim = next(iter(self._files))
            self._forget(victim)
            self.state.evictions += len(victim.places)
            if victim.stamp is None:
                victims.append(victim.path)
        is_wanted = self.state.held_bytes + length <= self._max_bytes
        if is_wanted:
            self.state.held_bytes += length
        return victims, is_wanted

    def _forget(self, kept: _Kept) -> None:
        del self._files[kept]
        self.state.held_bytes -= kept.size_bytes
        for key in kept.places:
            del self._held[key]
            self._read(key)

    def _path(self, key: ChunkKey) -> str:
        # No Path: made for each read of a chunk, it was a twentieth of the event loop's work.
        return f"{self._prefix}{key[0]}-{key[1]}"
