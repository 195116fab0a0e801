"""Requests for chunks of a committed segment: one, or several neighbours at once, each held against its checksum.

Owns the second look at what failed a check, and the words of the error. Everything here blocks and runs in a thread.
Must never answer with bytes that fail a check (T8), and never let one bad chunk spoil its neighbours.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from tiered.cold.chunks.cache import Loaded
from tiered.cold.chunks.files import are_together
from tiered.cold.object_store import ObjectFile, ObjectStore
from tiered.errors import Corrupt, CorruptObject, ObjectMissing, TieredError
from tiered.file_slice import FileSlice
from tiered.formats.chunk_table import ChunkRow
from tiered.formats.segment_check import ExpectedSegment, accepted_chunk

T = TypeVar("T")


@dataclass(slots=True)
class ChecksState:
    """Counts since the start, for metrics. `refetched`: reads that failed a check once and passed it the second
    time; `corrupt` and `missing` are reads that ended in that error."""

    refetched: int = 0
    corrupt: int = 0
    missing: int = 0


def named(place: ExpectedSegment, error: Corrupt) -> Corrupt:
    """The broker's message for it: the same failure with all that is concerned (T8)."""
    return place.named(
        error,
        remedy="; restore the object, or move the log start above it",
        if_missing="; restore it, or move the log start above it",
    )


class ChunkLoads:
    """Loads from `store` for several threads, and counts in `state`."""

    def __init__(self, store: ObjectStore, state: ChecksState, cache_directory: Path) -> None:
        self._store = store
        self._cache_directory = cache_directory
        self.state = state

    def load(self, place: ExpectedSegment, rows: Sequence[ChunkRow], buffer: memoryview) -> Sequence[Loaded]:
        """Neighbouring chunks with one request, in `buffer`: each verified, or the error that names what is wrong with
        it.

        Raises what concerns them all: StoreUnavailable, and ObjectMissing.
        """
        start = rows[0].position
        chunks = [(row, buffer[row.position - start :][: row.length]) for row in rows]
        if len(rows) == 1:
            return (self._alone(place, *chunks[0]),)
        try:
            file = self._read(place, start, buffer)
        except ObjectMissing as error:
            self.state.missing += 1
            raise named(place, error) from error
        except Corrupt:
            return [self._outcome(place, *chunk) for chunk in chunks]  # Truncated: what stands before the cut is whole.
        return [self._of(place, *chunk, file) for chunk in chunks]

    def checked(self, place: ExpectedSegment, load: Callable[[], T]) -> T:
        """What `load` answers with. A failed check is tried once more, because the way here may be at fault and
        not the object; then the error names everything."""
        try:
            return load()
        except ObjectMissing as error:
            self.state.missing += 1
            raise named(place, error) from error
        except Corrupt:
            return self._second(place, load)

    def _of(self, place: ExpectedSegment, row: ChunkRow, data: memoryview, file: ObjectFile | None) -> Loaded:
        """The chunk that came with its neighbours, or what came of asking for it alone."""
        try:
            accepted_chunk(row, data)
        except CorruptObject:
            try:
                return self._second(place, partial(self._load_chunk, place, row, data))
            except TieredError as error:
                return error.without_frames()  # They have the file that its neighbours are in.
        return _chunk(row, data, file)

    def _outcome(self, place: ExpectedSegment, row: ChunkRow, buffer: memoryview) -> Loaded:
        try:
            return self._alone(place, row, buffer)
        except TieredError as error:
            return error

    def _alone(self, place: ExpectedSegment, row: ChunkRow, buffer: memoryview) -> Loaded:
        return self.checked(place, partial(self._load_chunk, place, row, buffer))

    def _load_chunk(self, place: ExpectedSegment, row: ChunkRow, buffer: memoryview) -> Loaded:
        file = self._read(place, row.position, buffer)
        try:
            accepted_chunk(row, buffer)
        except Corrupt:
            if file is not None:
                file.close()
            raise
        return _chunk(row, buffer, file)

    def _read(self, place: ExpectedSegment, position: int, buffer: memoryview) -> ObjectFile | None:
        """The object's file where it can be served in place: on the disk where the cache would have a copy. Another one
        may be on a network, for which the event loop must not wait."""
        file = self._store.read_into(place.segment.object_key, position, buffer)
        return file if file is not None and are_together(file, self._cache_directory) else None

    def _second(self, place: ExpectedSegment, load: Callable[[], T]) -> T:
        try:
            loaded = load()
        except Corrupt as error:
            self.state.corrupt += 1
            raise named(place, error) from error
        self.state.refetched += 1
        return loaded


def _chunk(row: ChunkRow, data: memoryview, file: ObjectFile | None) -> memoryview | FileSlice:
    return data if file is None else FileSlice(file=file, position=row.position, length=row.length)
