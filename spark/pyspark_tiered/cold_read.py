"""Reads of the bucket by Spark: a cold split in a task, the first record at a time on the driver.

A split is read with ranged GETs in flight, and decoded to Arrow batches of about 4 MiB. Owns how much of an object is
in memory at once: `RUNS_IN_FLIGHT` runs of what its store says (`run_bytes`), whatever the object's size. Runs in
processes that live on between tasks. Must never give a record from a chunk that `cold.bucket.segments` has not
accepted, and never take a chunk's or a segment's largest timestamp for a record's place: timestamps need not be in
order.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from pyspark_tiered.plan import ColdSplit, PartitionView
from tiered.cold.bucket.segments import load_run, load_tail
from tiered.cold.object_store import ObjectStore
from tiered.cold.opening import open_store
from tiered.errors import Corrupt
from tiered.formats.arrow import decode_chunk, to_timestamp_us
from tiered.formats.bad_batches import Decoding, warn_of
from tiered.formats.checkpoint import CommittedSegment
from tiered.formats.segment_check import ExpectedSegment
from tiered.formats.segment_object import AbortedIndexEntry, ChunkRow, SegmentTail, aborted_between, runs

if TYPE_CHECKING:
    import pyarrow as pa

RUNS_IN_FLIGHT = 3


@lru_cache(maxsize=8)
def store_of(url: str) -> ObjectStore:
    """The store behind `url`. One per process: a new S3 client costs a few tenths of a second."""
    return open_store(url)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """Neighbouring chunks of one object, fetched with one GET."""

    place: ExpectedSegment
    tail: SegmentTail
    chunks: Sequence[ChunkRow]

    def aborted(self) -> list[AbortedIndexEntry]:
        """The aborted transactions that have a part in these chunks."""
        return aborted_between(self.tail.aborted, self.chunks[0].first_offset, self.chunks[-1].last_offset + 1)


def read_cold(
    store: ObjectStore,
    split: ColdSplit,
    *,
    columns: Sequence[str],
    read_committed: bool = False,
    pure: bool = False,
    skip_bad_batches: bool = False,
) -> Iterator["pa.RecordBatch"]:
    """The split's records in order of offset, as Arrow batches. `skip_bad_batches` steps over those that nobody can
    decode, with a warning.

    Raises `ObjectMissing`, or `CorruptObject` when an object is not what the checkpoint says (both name topic,
    partition, offsets and key), and `StoreUnavailable` after the store's own retries.
    """
    with ThreadPoolExecutor(RUNS_IN_FLIGHT + 1, thread_name_prefix="cold-read") as threads:
        for run, data in _SplitReader(store, split).fetched(threads):
            with naming(run.place):
                decoding = Decoding(
                    topic=split.topic,
                    partition=split.partition,
                    start_offset=split.start_offset,
                    end_offset=split.end_offset,
                    columns=columns,
                    aborted=run.aborted() if read_committed else (),
                    pure=pure,
                    on_bad_batch=partial(warn_of, split.topic, split.partition) if skip_bad_batches else None,
                )
                yield from decoding.records(data)


@contextmanager
def naming(place: ExpectedSegment) -> Iterator[None]:
    """A fault of the segment is reported with topic, partition, offsets, key and advice."""
    try:
        yield
    except Corrupt as error:
        raise place.named(
            error,
            remedy="; restore the object, or read around these offsets",
            if_missing=". If retention or compaction removed it while this job ran, start the job again, and give it "
            "option catalog or raise tiered.purge.grace.ms; otherwise the store has lost it",
        ) from error


class _SplitReader:
    """One pass over one split."""

    def __init__(self, store: ObjectStore, split: ColdSplit) -> None:
        self._store = store
        self._split = split

    def fetched(self, threads: ThreadPoolExecutor) -> Iterator[tuple[_Run, bytes]]:
        """Each run with its checked bytes, in order. At most `RUNS_IN_FLIGHT` are fetched or wait at a time."""
        waiting: deque[tuple[_Run, Future[bytes]]] = deque()
        try:
            for run in self._runs(threads):
                waiting.append((run, threads.submit(self._fetch, run)))
                if len(waiting) == RUNS_IN_FLIGHT:
                    first, data = waiting.popleft()
                    yield first, data.result()
            while waiting:
                first, data = waiting.popleft()
                yield first, data.result()
        finally:
            for _, data in waiting:
                data.cancel()

    def _runs(self, threads: ThreadPoolExecutor) -> Iterator[_Run]:
        """The wanted chunks of all segments. The next object's tail is on its way while one is read."""
        segments = self._split.segments
        coming = threads.submit(self._open, segments[0]) if segments else None
        for number in range(len(segments)):
            assert coming is not None
            place, tail = coming.result()
            coming = threads.submit(self._open, segments[number + 1]) if number + 1 < len(segments) else None
            for chunks in runs(self._wanted(tail), self._store.run_bytes):
                yield _Run(place=place, tail=tail, chunks=chunks)

    def _wanted(self, tail: SegmentTail) -> Iterator[ChunkRow]:
        split = self._split
        for chunk in tail.chunks:
            if (
                chunk.first_offset < split.end_offset
                and chunk.last_offset >= split.start_offset
                and split.bounds.may_hold_times(chunk.proven_min_timestamp_ms, chunk.proven_max_timestamp_ms)
            ):
                yield chunk

    def _open(self, segment: CommittedSegment) -> tuple[ExpectedSegment, SegmentTail]:
        place = self._split.place_of(segment)
        with naming(place):
            return place, load_tail(self._store, place)

    def _fetch(self, run: _Run) -> bytes:
        """The run's bytes, each chunk accepted."""
        with naming(run.place):
            return load_run(self._store, run.place, run.chunks)


# By time


def first_offset_at(
    store: ObjectStore, view: PartitionView, segments: Sequence[CommittedSegment], timestamp_ms: int
) -> int:
    """The first offset in `segments` (in order) not below `view.log_start_offset`, with that timestamp or a later one.

    -1 when there is none. Raises `CorruptObject` and `ObjectMissing`, naming the object.
    """
    for segment in segments:
        if not segment.may_hold(timestamp_ms):
            continue
        found = _in_segment(store, view, segment, timestamp_ms)
        if found is not None:
            return found
    return -1


def _in_segment(store: ObjectStore, view: PartitionView, segment: CommittedSegment, timestamp_ms: int) -> int | None:
    assert view.topic_id is not None, "a cold range has a topic id"
    place = ExpectedSegment(topic=view.topic, topic_id=view.topic_id, partition=view.partition, segment=segment)
    with naming(place):
        for chunk in load_tail(store, place).chunks:
            if not chunk.may_hold(timestamp_ms) or chunk.last_offset < view.log_start_offset:
                continue
            found = _in_chunk(load_run(store, place, (chunk,)), view, timestamp_ms)
            if found is not None:
                return found
    return None


def _in_chunk(data: bytes, view: PartitionView, timestamp_ms: int) -> int | None:
    import pyarrow as pa
    import pyarrow.compute as pc

    batches = decode_chunk(
        data,
        topic=view.topic,
        partition=view.partition,
        start_offset=view.log_start_offset,
        columns=("offset", "timestamp"),
    )
    for batch in batches:
        late = pc.greater_equal(batch.column(1).cast(pa.int64()), to_timestamp_us(timestamp_ms))
        first: int = pc.index(late, True).as_py()
        if first >= 0:
            offset: int = batch.column(0)[first].as_py()
            return offset
    return None
