"""Requests for chunks of a committed segment: one, or several neighbours at once, each checked against its SHA-256.

Owns the second look at what failed a check, and the words of the error. Everything here blocks and runs in a thread.
Must never answer with bytes that fail a check (T8), and never let one bad chunk spoil its neighbours.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from tiered.cold.chunk_cache import Loaded
from tiered.cold.object_store import ObjectStore
from tiered.errors import Corrupt, CorruptObject, ObjectMissing, TieredError
from tiered.formats.checkpoint import CommittedSegment
from tiered.formats.chunk_table import ChunkRow, base_offset_of

T = TypeVar("T")


@dataclass(slots=True)
class ChecksState:
    """Counts since the start, for metrics. `refetched`: reads that failed a check once and passed it the second
    time; `corrupt` and `missing` are reads that ended in that error."""

    refetched: int = 0
    corrupt: int = 0
    missing: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
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


class ChunkLoads:
    """Loads from `store` for several threads, and counts in `state`."""

    def __init__(self, store: ObjectStore, state: ChecksState) -> None:
        self._store = store
        self.state = state

    def load(self, where: Where, rows: Sequence[ChunkRow]) -> Sequence[Loaded]:
        """Neighbouring chunks with one request: each verified, or the error that names what is wrong with it.

        Raises what concerns them all: StoreUnavailable, and ObjectMissing.
        """
        if len(rows) == 1:
            return (self._alone(where, rows[0]),)
        start, end = rows[0].position, rows[-1].position + rows[-1].length
        try:
            data = memoryview(self._store.get_range(where.segment.object_key, start, end - start))
        except ObjectMissing as error:
            self.state.missing += 1
            raise where.named(error) from error
        except Corrupt:
            return [self._outcome(where, row) for row in rows]  # Truncated: what stands before the cut is whole.
        return [self._of(where, row, data[row.position - start :][: row.length]) for row in rows]

    def checked(self, where: Where, load: Callable[[], T]) -> T:
        """What `load` answers with. A failed check is tried once more, because the way here may be at fault and
        not the object; then the error names everything."""
        try:
            return load()
        except ObjectMissing as error:
            self.state.missing += 1
            raise where.named(error) from error
        except Corrupt:
            return self._second(where, load)

    def _of(self, where: Where, row: ChunkRow, data: memoryview) -> Loaded:
        """The chunk that came with its neighbours, or what came of asking for it alone."""
        if is_chunk(row, data):
            return data
        try:
            return self._second(where, partial(load_chunk, self._store, where.segment.object_key, row))
        except TieredError as error:
            return error

    def _outcome(self, where: Where, row: ChunkRow) -> Loaded:
        try:
            return self._alone(where, row)
        except TieredError as error:
            return error

    def _alone(self, where: Where, row: ChunkRow) -> bytes:
        return self.checked(where, partial(load_chunk, self._store, where.segment.object_key, row))

    def _second(self, where: Where, load: Callable[[], T]) -> T:
        try:
            loaded = load()
        except Corrupt as error:
            self.state.corrupt += 1
            raise where.named(error) from error
        self.state.refetched += 1
        return loaded


def load_chunk(store: ObjectStore, key: str, row: ChunkRow) -> bytes:
    """The chunk in one request. Raises CorruptObject when it is another one."""
    data = store.get_range(key, row.position, row.length)
    if not is_chunk(row, data):
        raise CorruptObject(
            f"the chunk of offsets {row.first_offset} to {row.last_offset} (bytes {row.position} to "
            f"{row.position + row.length - 1}) fails its SHA-256, or begins with another offset than its table says"
        )
    return data


def is_chunk(row: ChunkRow, data: bytes | memoryview) -> bool:
    """Whether this is the chunk of that row. The catalogue's root proves the hashes in their order, and nothing else of
    the table: with other offsets beside them, whoever looks up one would be given what comes later."""
    return hashlib.sha256(data).digest() == row.sha256 and base_offset_of(data) == row.first_offset
