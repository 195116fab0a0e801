"""Reads of committed segments: the batches at an offset, or the first record at a time, chunk by chunk.

Owns which tails are open, and what is read ahead. Serves only chunks whose SHA-256 stands in a table whose
root the catalogue knows. Must never cancel a download because a client gave up (T7), and never answer with
bytes that fail a check (T8).
"""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar
from uuid import UUID

from tiered.cold.chunk_cache import ChunkCache, ChunkCacheState
from tiered.cold.object_store import ObjectStore
from tiered.cold.single_flight import SingleFlight
from tiered.errors import Corrupt, CorruptBatch, CorruptObject, ObjectMissing
from tiered.file_slice import FileSlice
from tiered.formats import chunk_table, record_batch, segment_object
from tiered.formats.checkpoint import CommittedSegment
from tiered.formats.chunk_table import ChunkRow
from tiered.formats.segment_object import SegmentTail
from tiered.runtime import BlockingPool

T = TypeVar("T")

MAX_TAIL_BYTES = 256 << 20
DEFAULT_OPEN_TAIL_BYTES = 32 << 20
DEFAULT_READ_AHEAD_CHUNKS = 4
_TAIL_OVERHEAD = 4  # A parsed table takes about so many times its bytes.
_REMEMBERED_READERS = 1024


@dataclass(slots=True)
class ColdReaderState:
    """Counts since the start, for metrics. `refetched`: reads that failed a check once and passed it the second
    time; `corrupt` and `missing` are reads that ended in that error."""

    reads: int = 0
    tails_opened: int = 0
    refetched: int = 0
    corrupt: int = 0
    missing: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Where:
    """A segment with the names that people know it by."""

    topic: str
    partition: int
    segment: CommittedSegment

    def named(self, error: Corrupt) -> Corrupt:
        """The same failure as an error that names everything (T8)."""
        segment = self.segment
        what = (
            f"topic {self.topic} partition {self.partition} offsets {segment.base_offset} to "
            f"{segment.end_offset - 1}, object {segment.object_key}"
        )
        if isinstance(error, ObjectMissing):
            return ObjectMissing(f"{what}: the object is missing; restore it, or move the log start above it")
        return CorruptObject(f"{what}: {error}; restore the object, or move the log start above it")


class ColdReader:
    """Serves many readers of one broker. `pool` runs the requests to the store; the cache bounds their bytes.

    Every read may raise CorruptObject or ObjectMissing, naming topic, partition, offsets and key, and
    StoreUnavailable or Throttled, which pass.
    """

    def __init__(
        self,
        store: ObjectStore,
        cache: ChunkCache,
        pool: BlockingPool,
        *,
        open_tail_bytes: int = DEFAULT_OPEN_TAIL_BYTES,
        read_ahead_chunks: int = DEFAULT_READ_AHEAD_CHUNKS,
    ) -> None:
        self._store = store
        self._cache = cache
        self._pool = pool
        # Cutting a cached chunk must not queue behind downloads from a store that is away.
        self._cutting = BlockingPool("cold-cut", threads=1)
        self._open_tail_bytes = open_tail_bytes
        self._read_ahead_chunks = read_ahead_chunks
        self._opening: SingleFlight[UUID, SegmentTail] = SingleFlight()
        self._tails: OrderedDict[UUID, tuple[SegmentTail, int]] = OrderedDict()
        self._tails_bytes = 0
        self._last_chunk: OrderedDict[UUID, int] = OrderedDict()
        self.state = ColdReaderState()

    @property
    def cache_state(self) -> ChunkCacheState:
        """What the chunk cache has done, for metrics."""
        return self._cache.state

    async def start(self, tasks: asyncio.TaskGroup) -> None:
        """Wipes the cache. Downloads run as tasks of `tasks` until `stop`."""
        await self._cache.start(tasks)
        self._opening.start(tasks)

    async def stop(self) -> None:
        """Gives up downloads in progress; who waits gets `ShuttingDown`."""
        await self._opening.stop()
        await self._cache.stop()
        await asyncio.to_thread(self._cutting.close)

    async def read(
        self, segment: CommittedSegment, *, topic: str, partition: int, offset: int, max_bytes: int
    ) -> FileSlice:
        """Whole batches from the one that holds `offset`: at least one, otherwise at most `max_bytes`, and never
        beyond a chunk. `offset` lies in the segment."""
        assert segment.base_offset <= offset < segment.end_offset, "the catalogue gave another segment"
        self.state.reads += 1
        where = _Where(topic=topic, partition=partition, segment=segment)
        tail = await self._open(where)
        index = chunk_table.chunk_for_offset(tail.chunks, offset)
        chunk = await self._chunk(where, tail.chunks, index)
        self._read_ahead(where, tail.chunks, index)
        row = tail.chunks[index]
        if offset <= row.first_offset and row.length <= max_bytes:
            return chunk
        return await self._examine(where, _cut, chunk, offset, max_bytes)

    async def offset_for_timestamp(
        self, segment: CommittedSegment, *, topic: str, partition: int, timestamp_ms: int, start_offset: int
    ) -> tuple[int, int] | None:
        """Offset and timestamp of the first record at or above `start_offset` whose timestamp is at least
        `timestamp_ms`; None when the segment has none. Timestamps need not ascend."""
        where = _Where(topic=topic, partition=partition, segment=segment)
        tail = await self._open(where)
        first = chunk_table.chunks_for_timestamp(tail.chunks, timestamp_ms)
        if first is None:
            return None
        for index in range(first, len(tail.chunks)):
            row = tail.chunks[index]
            if row.max_timestamp_ms < timestamp_ms or row.last_offset < start_offset:
                continue
            chunk = await self._chunk(where, tail.chunks, index)
            found = await self._examine(where, _first_at, chunk, timestamp_ms, start_offset)
            if found is not None:
                return found
        return None

    async def tail(self, segment: CommittedSegment, *, topic: str, partition: int) -> SegmentTail:
        """The segment's footer, chunk table, leader epochs, aborted transactions and producer snapshot."""
        return await self._open(_Where(topic=topic, partition=partition, segment=segment))

    # Tails

    async def _open(self, where: _Where) -> SegmentTail:
        object_id = where.segment.object_id
        held = self._tails.get(object_id)
        if held is not None:
            self._tails.move_to_end(object_id)
            return held[0]
        return await self._opening.result(object_id, partial(self._fetch_tail, where))

    async def _fetch_tail(self, where: _Where) -> SegmentTail:
        tail = await self._pool.run(self._load_tail, where)
        self.state.tails_opened += 1
        weight = (where.segment.size_bytes - where.segment.log_bytes) * _TAIL_OVERHEAD
        self._tails[where.segment.object_id] = (tail, weight)
        self._tails_bytes += weight
        while self._tails_bytes > self._open_tail_bytes and len(self._tails) > 1:
            _, (_, freed) = self._tails.popitem(last=False)
            self._tails_bytes -= freed
        return tail

    def _load_tail(self, where: _Where) -> SegmentTail:
        """Runs in a thread of the pool."""
        return self._checked(where, partial(load_tail, self._store, where.segment, where.partition))

    # Chunks

    async def _chunk(self, where: _Where, chunks: Sequence[ChunkRow], index: int) -> FileSlice:
        row = chunks[index]
        return await self._cache.get(
            (where.segment.object_id, index), partial(self._load_chunk, where, row), length=row.length
        )

    def _read_ahead(self, where: _Where, chunks: Sequence[ChunkRow], index: int) -> None:
        """Starts on the next chunk, and on several once a reader goes through the object in order."""
        object_id = where.segment.object_id
        sequential = self._last_chunk.get(object_id, -2) in (index - 1, index)
        self._last_chunk[object_id] = index
        self._last_chunk.move_to_end(object_id)
        if len(self._last_chunk) > _REMEMBERED_READERS:
            self._last_chunk.popitem(last=False)
        ahead = self._read_ahead_chunks if sequential else min(1, self._read_ahead_chunks)
        for next_index in range(index + 1, min(index + 1 + ahead, len(chunks))):
            row = chunks[next_index]
            self._cache.read_ahead((object_id, next_index), partial(self._load_chunk, where, row), length=row.length)

    def _load_chunk(self, where: _Where, row: ChunkRow) -> bytes:
        """Runs in a thread of the pool."""
        return self._checked(where, partial(_load_chunk, self._store, where.segment.object_key, row))

    # Checks

    def _checked(self, where: _Where, load: Callable[[], T]) -> T:
        """What `load` answers with. A failed check is tried once more, because the way here may be at fault and
        not the object; then the error names everything."""
        try:
            return load()
        except ObjectMissing as error:
            self.state.missing += 1
            raise where.named(error) from error
        except Corrupt:
            try:
                loaded = load()
            except Corrupt as error:
                self.state.corrupt += 1
                raise where.named(error) from error
            self.state.refetched += 1
            return loaded

    async def _examine(self, where: _Where, examine: Callable[..., T], *arguments: object) -> T:
        try:
            return await self._cutting.run(examine, *arguments)
        except Corrupt as error:
            self.state.corrupt += 1
            raise where.named(error) from error


def load_tail(store: ObjectStore, segment: CommittedSegment, partition: int) -> SegmentTail:
    """The tail in one request: the catalogue knows how long it is, and what must stand in it."""
    tail_bytes = segment.size_bytes - segment.log_bytes
    if not 0 < tail_bytes <= MAX_TAIL_BYTES:
        raise CorruptObject(f"the catalogue gives its tail {tail_bytes} bytes")
    tail = segment_object.read_tail(
        store.get_range(segment.object_key, segment.log_bytes, tail_bytes), segment.size_bytes
    )
    footer = tail.footer
    found = (footer.base_offset, footer.end_offset, footer.log_bytes, footer.root_sha256.hex(), footer.partition)
    if found != (segment.base_offset, segment.end_offset, segment.log_bytes, segment.root_sha256, partition):
        raise CorruptObject(
            f"its footer is that of other batches (offsets {footer.base_offset} to {footer.end_offset - 1}, root "
            f"{footer.root_sha256.hex()[:16]} where the catalogue has {segment.root_sha256[:16]})"
        )
    if footer.previous_root_sha256.hex() != segment.previous_root_sha256:
        raise CorruptObject("its footer follows another segment than the catalogue says")
    return tail


def _load_chunk(store: ObjectStore, key: str, row: ChunkRow) -> bytes:
    data = store.get_range(key, row.position, row.length)
    if hashlib.sha256(data).digest() != row.sha256:
        raise CorruptObject(
            f"the chunk of offsets {row.first_offset} to {row.last_offset} (bytes {row.position} to "
            f"{row.position + row.length - 1}) fails its SHA-256"
        )
    return data


def _cut(chunk: FileSlice, offset: int, max_bytes: int) -> FileSlice:
    """The part of the chunk from the batch that holds `offset` on: at least one batch, else at most `max_bytes`."""
    data = chunk.read()
    start: int | None = None
    end = 0
    for position, header in record_batch.exact_batches(data, 0, len(data)):
        batch_end = position + header.size_bytes
        if start is None:
            if header.last_offset < offset:
                continue
            start = position
        elif batch_end - start > max_bytes:
            break
        end = batch_end
    if start is None:
        raise CorruptBatch(f"no batch of its chunk holds offset {offset}")
    return FileSlice(file=chunk.file, position=chunk.position + start, length=end - start)


def _first_at(chunk: FileSlice, timestamp_ms: int, start_offset: int) -> tuple[int, int] | None:
    """Offset and timestamp of the first record that qualifies; decodes only batches that may hold it."""
    data = chunk.read()
    for position, header in record_batch.exact_batches(data, 0, len(data)):
        if header.max_timestamp_ms < timestamp_ms or header.last_offset < start_offset:
            continue
        for record in record_batch.records(data, position):
            if record.timestamp_ms >= timestamp_ms and record.offset >= start_offset:
                return record.offset, record.timestamp_ms
    return None
