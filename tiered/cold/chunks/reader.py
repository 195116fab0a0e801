"""Reads of committed segments: the batches at an offset, or the first record at a time, chunk by chunk.

Owns which tails are open, and what is read ahead. Serves only chunks whose checksum stands in the tail of an object
whose root the metadata store knows. Must never cancel a download because a client gave up (T7), and never answer with
bytes that fail a check (T8).
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar
from uuid import UUID

from tiered.cold.bucket.segments import load_tail
from tiered.cold.budget import Budget
from tiered.cold.chunks.cache import ChunkCache, ChunkCacheState, ChunkRun
from tiered.cold.chunks.loads import ChecksState, ChunkLoads, named
from tiered.cold.object_store import ObjectStore
from tiered.cold.single_flight import SingleFlight
from tiered.errors import Corrupt, CorruptBatch, CorruptObject
from tiered.file_slice import FileSlice, ReadBatches
from tiered.formats import chunk_table, record_batch, segment_object
from tiered.formats.batch_times import record_times
from tiered.formats.checkpoint import CommittedSegment
from tiered.formats.chunk_table import NO_TIMESTAMP_MS, ChunkRow
from tiered.formats.segment_check import ExpectedSegment
from tiered.formats.segment_object import SegmentTail
from tiered.rules.pacing import read_ahead
from tiered.rules.pacing.read_ahead import DEFAULT_LIMITS, ReadAhead, ReadAheadLimits
from tiered.runtime import BlockingPool

T = TypeVar("T")

DEFAULT_OPEN_TAIL_BYTES = 32 << 20
REMEMBERED_READERS = 1024
REMEMBERED_CHUNKS = 65_536
"""Chunks from before decision 0028 that were looked into: 64 GiB of them, in about 10 MB."""
_ANY_TIME_MS = 2**63 - 1
_TAIL_OVERHEAD = 4  # A parsed table takes about so many times its bytes.


@dataclass(slots=True)
class ColdReaderState(ChecksState):
    """Counts since the start, for metrics."""

    reads: int = 0
    tails_opened: int = 0


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
        read_ahead: ReadAheadLimits = DEFAULT_LIMITS,
    ) -> None:
        self._store = store
        self._cache = cache
        self._pool = pool
        # Cutting a cached chunk must not queue behind downloads from a store that is away.
        self._cutting = BlockingPool("cold-cut", threads=1)
        # Nor behind look-ups by time: a hostile batch of a million records takes seconds to look through.
        self._looking = BlockingPool("cold-look", threads=1)
        self._open_tail_bytes = open_tail_bytes
        self._opening: SingleFlight[UUID, SegmentTail] = SingleFlight()
        self._tails: OrderedDict[UUID, tuple[SegmentTail, int]] = OrderedDict()
        self._tails_bytes = 0
        # A topic with the smallest chunks has tails of a hundred MB: one such at a time, and many usual ones.
        self._tail_room = Budget(open_tail_bytes)
        self._readers = SequentialReaders(read_ahead)
        self._greatest: OrderedDict[tuple[UUID, int], int] = OrderedDict()
        """Of chunks whose maximum is not proven, a time that none of their records is later than."""
        self.state = ColdReaderState()
        self._loads = ChunkLoads(store, self.state, cache.directory)

    @property
    def cache_state(self) -> ChunkCacheState:
        """The counts of the chunk cache, for metrics."""
        return self._cache.state

    async def start(self, tasks: asyncio.TaskGroup) -> None:
        """Wipes the cache. Downloads run as tasks of `tasks` until `stop`."""
        await self._cache.start(tasks)
        self._opening.start(tasks)

    async def stop(self) -> None:
        """Gives up downloads in progress; their waiters get `ShuttingDown`."""
        await self._opening.stop()
        await self._cache.stop()
        await asyncio.to_thread(self._cutting.close)
        await asyncio.to_thread(self._looking.close)

    async def read(
        self,
        place: ExpectedSegment,
        *,
        offset: int,
        max_bytes: int,
        joined_bytes: int = 0,
        following: CommittedSegment | None = None,
    ) -> ReadBatches:
        """Whole batches from the one that holds `offset`: at least one, otherwise at most `max_bytes`, and never
        beyond a chunk, but for those that are at hand right behind it in the same file: at most `joined_bytes` with
        them. `offset` lies in the segment. `following` is the one after it, where reading ahead goes on."""
        assert place.segment.base_offset <= offset < place.segment.end_offset, "SQL gave another segment"
        self.state.reads += 1
        tail = await self._open(place)
        index = chunk_table.chunk_for_offset(tail.chunks, offset)
        row = tail.chunks[index]
        chunk, was_held = await self._chunk_in_order(place, tail.chunks, index, following)
        end_offset = row.last_offset + 1
        if offset > row.first_offset or row.length > max_bytes:
            with self._naming(place):
                chunk, end_offset = await self._cutting.run(_cut, chunk, offset, max_bytes)
        elif was_held:
            chunk, index = self._joined(place, tail.chunks, index, chunk, min(max_bytes, joined_bytes), following)
            end_offset = tail.chunks[index].last_offset + 1
        return ReadBatches(records=chunk, aborted=segment_object.aborted_between(tail.aborted, offset, end_offset))

    async def offset_for_timestamp(
        self, place: ExpectedSegment, *, timestamp_ms: int, start_offset: int
    ) -> tuple[int, int] | None:
        """Offset and timestamp of the first record at or above `start_offset` whose timestamp is at least
        `timestamp_ms`; None when the segment has none. Timestamps need not ascend, and chunks whose greatest is not
        proven are read."""
        tail = await self._open(place)
        for index, row in enumerate(tail.chunks):
            if row.last_offset < start_offset or not row.may_hold(timestamp_ms):
                continue
            if self._greatest_known(place, index) < timestamp_ms:
                continue
            chunk = await self._chunk(place, tail.chunks, index)
            found = await self._look(place, _first_at, chunk, row.headers_are_proven, timestamp_ms, start_offset)
            if found is not None:
                return found
            if not row.max_timestamp_is_proven and start_offset <= row.first_offset:
                self._keep_greatest(place, index, timestamp_ms - 1)
        return None

    async def greatest_timestamp(
        self, place: ExpectedSegment, *, start_offset: int, best: tuple[int, int] | None
    ) -> tuple[int, int] | None:
        """Offset and timestamp of the first record at or above `start_offset` with the greatest timestamp, or `best`
        (of other segments) where that is later, or as late and before it. A record without a time counts for nothing.
        """
        tail = await self._open(place)
        # Chunks whose maximum is not proven have to be read in any case; then the latest ones, as long as they count.
        ranked = sorted(enumerate(tail.chunks), key=lambda each: _latest_first(each[1]))
        for index, row in ranked:
            if row.last_offset < start_offset or not row.record_count:
                continue
            bound_ms = row.max_timestamp_ms if row.max_timestamp_is_proven else self._greatest_known(place, index)
            if best is not None and (-bound_ms, row.first_offset) > (-best[1], best[0]):
                continue
            chunk = await self._chunk(place, tail.chunks, index)
            found = await self._look(place, _greatest_of, chunk, row.headers_are_proven, start_offset)
            if not row.max_timestamp_is_proven and start_offset <= row.first_offset:
                self._keep_greatest(place, index, NO_TIMESTAMP_MS if found is None else found[1])
            if found is not None and (best is None or (-found[1], found[0]) < (-best[1], best[0])):
                best = found
        return best

    def _greatest_known(self, place: ExpectedSegment, index: int) -> int:
        """No record of a chunk whose maximum is not proven is later than this, as far as somebody has looked."""
        return self._greatest.get((place.segment.object_id, index), _ANY_TIME_MS)

    def _keep_greatest(self, place: ExpectedSegment, index: int, timestamp_ms: int) -> None:
        key = (place.segment.object_id, index)
        self._greatest[key] = min(timestamp_ms, self._greatest.pop(key, _ANY_TIME_MS))
        if len(self._greatest) > REMEMBERED_CHUNKS:
            self._greatest.popitem(last=False)

    async def tail(self, place: ExpectedSegment) -> SegmentTail:
        """The segment's footer, chunk table, leader epochs, aborted transactions and producer snapshot."""
        return await self._open(place)

    # Tails

    async def _open(self, place: ExpectedSegment) -> SegmentTail:
        object_id = place.segment.object_id
        held = self._tails.get(object_id)
        if held is not None:
            self._tails.move_to_end(object_id)
            return held[0]
        return await self._opening.result(object_id, partial(self._fetch_tail, place))

    async def _fetch_tails(self, place: ExpectedSegment) -> Sequence[SegmentTail]:
        return (await self._fetch_tail(place),)

    async def _fetch_tail(self, place: ExpectedSegment) -> SegmentTail:
        weight = max(1, (place.segment.size_bytes - place.segment.log_bytes) * _TAIL_OVERHEAD)
        async with self._tail_room.taken(weight):
            tail = await self._pool.run(self._load_tail, place)
        self.state.tails_opened += 1
        self._tails[place.segment.object_id] = (tail, weight)
        self._tails_bytes += weight
        while self._tails_bytes > self._open_tail_bytes and len(self._tails) > 1:
            _, (_, freed) = self._tails.popitem(last=False)
            self._tails_bytes -= freed
        return tail

    def _load_tail(self, place: ExpectedSegment) -> SegmentTail:
        """Runs in a thread of the pool."""
        return self._loads.checked(place, partial(load_tail, self._store, place))

    # Chunks

    async def _chunk(self, place: ExpectedSegment, chunks: Sequence[ChunkRow], index: int) -> FileSlice:
        """One chunk, and nothing is expected of who asks for it."""
        held = self._cache.held((place.segment.object_id, index))
        return held if held is not None else await self._cache.loading(self._run(place, chunks, index, 0))

    async def _chunk_in_order(
        self, place: ExpectedSegment, chunks: Sequence[ChunkRow], index: int, following: CommittedSegment | None
    ) -> tuple[FileSlice, bool]:
        """One chunk for a reader that may go on to the next, and whether it is held: then it has been opened just now.
        What the reader will want is on its way before it has this one."""
        held = self._cache.held((place.segment.object_id, index))
        pace = self._moved(place, chunks[index], waited=held is None)
        # Chunks that this reader waits for begin before those that it is only expected to want.
        loading = None if held is not None else self._cache.loading(self._run(place, chunks, index, pace.request_bytes))
        self._look_ahead(place, chunks, index, pace, following)
        if held is not None:
            return held, True
        assert loading is not None
        return await loading, False

    def _joined(
        self,
        place: ExpectedSegment,
        chunks: Sequence[ChunkRow],
        index: int,
        chunk: FileSlice,
        max_bytes: int,
        following: CommittedSegment | None,
    ) -> tuple[FileSlice, int]:
        """A chunk that has been opened just now with those right behind it, as long as all have at most `max_bytes`;
        and the index of the last one."""
        object_id, pace = place.segment.object_id, None
        while index + 1 < len(chunks) and chunk.length + chunks[index + 1].length <= max_bytes:
            longer = self._cache.extended(chunk, (object_id, index), (object_id, index + 1))
            if longer is None:
                break
            chunk, index = longer, index + 1
            pace = self._moved(place, chunks[index], waited=False)
        if pace is not None:
            self._look_ahead(place, chunks, index, pace, following)
        return chunk, index

    def _moved(self, place: ExpectedSegment, row: ChunkRow, *, waited: bool) -> ReadAhead:
        """The pace of the reader that is given this chunk."""
        return self._readers.moved(
            place.topic,
            place.partition,
            first_offset=row.first_offset,
            last_offset=row.last_offset,
            chunk_bytes=row.length,
            waited=waited,
        )

    def _look_ahead(
        self,
        place: ExpectedSegment,
        chunks: Sequence[ChunkRow],
        index: int,
        pace: ReadAhead,
        following: CommittedSegment | None,
    ) -> None:
        """Begins to load what the reader of this chunk will want, in this segment and in the one after it."""
        left_bytes = self._read_ahead(place, chunks, index + 1, pace.ahead_bytes, pace.request_bytes)
        if left_bytes > 0 and following is not None:
            self._read_ahead_in(replace(place, segment=following), left_bytes, pace.request_bytes)

    def _read_ahead(
        self, place: ExpectedSegment, chunks: Sequence[ChunkRow], index: int, ahead_bytes: int, request_bytes: int
    ) -> int:
        """Begins to load so much from this chunk on, but for what is here already; how much is left for the segment
        after this one. Nothing when there is no room for more now."""
        while ahead_bytes > 0 and index < len(chunks):
            if self._cache.has((place.segment.object_id, index)):
                count = 1
            else:
                count = self._cache.read_ahead(self._run(place, chunks, index, request_bytes))
                if not count:
                    return 0
            ahead_bytes -= sum(row.length for row in chunks[index : index + count])
            index += count
        return ahead_bytes

    def _read_ahead_in(self, place: ExpectedSegment, ahead_bytes: int, request_bytes: int) -> None:
        """The same from the beginning of the segment to come; its tail first, if it is not open."""
        object_id = place.segment.object_id
        if object_id in self._tails:
            self._read_ahead(place, self._tails[object_id][0].chunks, 0, ahead_bytes, request_bytes)
        elif not self._opening.is_flying(object_id):
            self._opening.begin((object_id,), partial(self._fetch_tails, place))

    def _run(self, place: ExpectedSegment, chunks: Sequence[ChunkRow], index: int, request_bytes: int) -> ChunkRun:
        """The chunk and those after it, together `request_bytes` to the nearest chunk: a reader's pace
        doubles by whole chunks, where `chunk_table.runs` keeps below a bound."""
        end, total_bytes = index + 1, chunks[index].length
        while end < len(chunks) and total_bytes + chunks[end].length // 2 <= request_bytes:
            total_bytes += chunks[end].length
            end += 1
        rows = chunks[index:end]
        return ChunkRun(
            object_id=place.segment.object_id,
            first_index=index,
            lengths=[row.length for row in rows],
            load=lambda count, buffer: self._loads.load(place, rows[:count], buffer),
        )

    # Checks

    async def _look(self, place: ExpectedSegment, look: Callable[..., T], *arguments: object) -> T:
        """A look-up by time that is cancelled ends with its thread, so that whoever asks again and again has one."""
        with self._naming(place):
            return await self._looking.run_to_end(look, *arguments)

    @contextmanager
    def _naming(self, place: ExpectedSegment) -> Iterator[None]:
        """Raises CorruptObject for a chunk whose bytes are not what they should be."""
        try:
            yield
        except (Corrupt, EOFError) as error:
            self.state.corrupt += 1
            # The end of a file that somebody has cut since its chunk was checked.
            raise named(place, error if isinstance(error, Corrupt) else CorruptObject(str(error))) from error


class SequentialReaders:
    """The sequential readers of each partition, and how far ahead of each the store is asked: the paces
    (`rules.pacing.read_ahead`) of the last `REMEMBERED_READERS` readers that moved.

    A reader is known by the offset at which it would go on: several may read one partition at different places, and go
    on from one segment to the next.
    """

    def __init__(self, limits: ReadAheadLimits) -> None:
        self._limits = limits
        self._paces: OrderedDict[tuple[str, int, int], ReadAhead] = OrderedDict()

    def __len__(self) -> int:
        return len(self._paces)

    def moved(
        self, topic: str, partition: int, *, first_offset: int, last_offset: int, chunk_bytes: int, waited: bool
    ) -> ReadAhead:
        """The pace of the reader that asks for the chunk of these offsets now. `waited`: it is not here yet."""
        place = (topic, partition, last_offset + 1)
        pace = self._paces.pop((topic, partition, first_offset), None)
        if pace is not None:
            pace = read_ahead.moved_on(pace, self._limits, chunk_bytes=chunk_bytes, waited=waited)
        else:
            # It reads on in the same chunk, or nothing is known of it.
            pace = self._paces.get(place) or read_ahead.began(self._limits)
        self._paces[place] = pace
        self._paces.move_to_end(place)
        if len(self._paces) > REMEMBERED_READERS:
            self._paces.popitem(last=False)
        return pace


def _cut(chunk: FileSlice, offset: int, max_bytes: int) -> tuple[FileSlice, int]:
    """The part of the chunk from the batch that holds `offset` on, and the offset where it ends: at least one batch,
    else at most `max_bytes`."""
    data = chunk.read()
    start: int | None = None
    end = end_offset = 0
    for position, header in record_batch.exact_batches(data, 0, len(data)):
        batch_end = position + header.size_bytes
        if start is None:
            if header.last_offset < offset:
                continue
            start = position
        elif batch_end - start > max_bytes:
            break
        end, end_offset = batch_end, header.end_offset
    if start is None:
        raise CorruptBatch(f"no batch of its chunk holds offset {offset}")
    return FileSlice(file=chunk.file, position=chunk.position + start, length=end - start), end_offset


def _latest_first(row: ChunkRow) -> tuple[bool, int]:
    return row.max_timestamp_is_proven, -row.max_timestamp_ms


def _batch_times(
    chunk: FileSlice, headers_are_proven: bool, timestamp_ms: int, start_offset: int
) -> Iterator[tuple[int, int]]:
    """Offset and time of the records from `start_offset` on; batches whose header proves that all are earlier than
    `timestamp_ms` are left out, and so are those that nobody can decode."""
    data = chunk.read()
    for position, header in record_batch.exact_batches(data, 0, len(data)):
        is_proven = headers_are_proven or header.is_log_append_time
        if header.last_offset < start_offset or (is_proven and header.max_timestamp_ms < timestamp_ms):
            continue
        with suppress(CorruptBatch):
            for offset, record_ms in record_times(data, position):
                if offset >= start_offset:
                    yield offset, record_ms


def _first_at(
    chunk: FileSlice, headers_are_proven: bool, timestamp_ms: int, start_offset: int
) -> tuple[int, int] | None:
    """Offset and timestamp of the first record that qualifies."""
    for offset, record_ms in _batch_times(chunk, headers_are_proven, timestamp_ms, start_offset):
        if record_ms >= timestamp_ms:
            return offset, record_ms
    return None


def _greatest_of(chunk: FileSlice, headers_are_proven: bool, start_offset: int) -> tuple[int, int] | None:
    """Offset and timestamp of the first record with the greatest timestamp; None where no record has one."""
    best: tuple[int, int] | None = None
    for offset, record_ms in _batch_times(chunk, headers_are_proven, 0, start_offset):
        if record_ms >= 0 and (best is None or record_ms > best[1]):
            best = offset, record_ms
    return best
