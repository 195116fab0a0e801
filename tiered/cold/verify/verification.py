"""Verifies a store from itself alone: every checkpoint, every segment they name, the chain between them.

Owns the order of the work, its bounds, and what is reported. A few threads check segments, each one at a time, in order
of topics, partitions and offsets; their tails share a budget of bytes. A fault is compared with the checkpoints once
more before it is reported: brokers go on committing and retiring meanwhile. Must never ask SQL or a broker, never write
to the store, and never call a store that does not answer corruption.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from tiered.cold.bucket.orphans import Orphans, find_orphans
from tiered.cold.budget import Budget
from tiered.cold.object_store import ObjectStore
from tiered.cold.read_only_store import FIRST_BACKOFF_MS, PatientStore
from tiered.cold.verify.progress import ProgressFile
from tiered.cold.verify.scope import (
    Scope,
    ScopedPage,
    ScopedPartition,
    find_scope,
    group_faults,
    is_still_named,
    pages_of,
)
from tiered.cold.verify.segments import CheckedSegment, SegmentVerifier, memory_bytes
from tiered.errors import StoreUnavailable
from tiered.formats import object_key
from tiered.formats.checkpoint import PartitionCheckpoint
from tiered.formats.segment_check import ExpectedSegment, Fault, FaultKind, of_segment
from tiered.rules.segments.sampling import ChunkSample
from tiered.runtime import BlockingPool

MAX_PROBLEMS = 1_000
"""More are counted and not kept."""
MAX_UNREADABLE = 10
"""After so many segments in a row that the store did not give, it is away, and the run ends."""
MAX_MEMORY_BYTES = 256 << 20
_MAX_ORPHANS = 1_000
_TELL_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A fault with all its names. `topic` is empty and `partition` -1 for the cluster's checkpoint."""

    topic: str
    partition: int
    object_key: str
    fault: Fault

    @property
    def order(self) -> tuple[str, int, int, int, str]:
        chunk = -1 if self.fault.chunk is None else self.fault.chunk
        return self.topic, self.partition, self.fault.first_offset, chunk, self.object_key


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """The segments that the checkpoints promise, before one is read."""

    partitions: int
    segments: int
    log_bytes: int


@dataclass(slots=True)
class VerificationState:
    """The results of a run so far. `problems` are sorted at its end; `problem_count` counts those beyond the bound too.

    `never_uploaded` are partitions without a checkpoint. `missing_offsets` are those that the checkpoints know of, and
    that were not uploaded when they were written. `first_latest_upload_ms` and `last_latest_upload_ms` are the ends of
    the time in which partitions had their latest upload; None where none has any.
    `segments` and `log_bytes` are all that the checkpoints name, `known_segments` those in which an earlier run found
    nothing wrong, by the progress file, `unread_bytes` what a sample left out of checked segments, `retired_segments`
    those that brokers gave up while the run looked at them.
    """

    cluster_id: str = ""
    partitions: int = 0
    segments: int = 0
    log_bytes: int = 0
    checked_segments: int = 0
    checked_chunks: int = 0
    checked_bytes: int = 0
    unread_bytes: int = 0
    known_segments: int = 0
    retired_segments: int = 0
    deleted_topics: int = 0
    never_uploaded: int = 0
    missing_offsets: int = 0
    first_latest_upload_ms: int | None = None
    last_latest_upload_ms: int | None = None
    problem_count: int = 0
    problems: list[Problem] = field(default_factory=list)
    orphans: list[Orphans] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        return self.problem_count == 0

    def note_end(self, head: PartitionCheckpoint) -> None:
        """Counts what the store lacks of one partition, as far as its checkpoint says."""
        self.missing_offsets += max(0, (head.high_watermark or 0) - head.cold_end_offset)
        upload_ms = head.latest_upload_ms
        if upload_ms is not None:
            self.first_latest_upload_ms = min(upload_ms, self.first_latest_upload_ms or upload_ms)
            self.last_latest_upload_ms = max(upload_ms, self.last_latest_upload_ms or upload_ms)

    def add(self, problem: Problem) -> None:
        self.problem_count += 1
        self.problems.append(problem)
        if len(self.problems) >= 2 * MAX_PROBLEMS:
            self.sort()

    def sort(self) -> None:
        self.problems = sorted(self.problems, key=lambda each: each.order)[:MAX_PROBLEMS]


def survey(store: ObjectStore, topics: Collection[str] | None) -> Survey:
    """How much there is to verify, for a progress bar. Blocks."""
    scope = find_scope(store, topics)
    segments = log_bytes = 0
    for partition in scope.partitions:
        for page in pages_of(store, scope, partition):
            segments += len(page.segments)
            log_bytes += sum(each.log_bytes for each in page.segments)
    return Survey(partitions=len(scope.partitions), segments=segments, log_bytes=log_bytes)


class VerificationFindings:
    """The findings of one run over `store`, or over `topics` of it, whoever checks its segments. Every call blocks."""

    def __init__(self, store: ObjectStore, topics: Collection[str] | None) -> None:
        self._store = store
        self._topics = topics
        self._suspects: dict[ScopedPartition, list[Fault]] = {}
        self.state = VerificationState()

    def begin(self) -> Scope:
        """The segments that there are to check. Raises InvalidConfig when there are none."""
        scope = find_scope(self._store, self._topics)
        self.state.cluster_id = scope.cluster_id
        self.state.deleted_topics = scope.deleted_topics
        self.state.never_uploaded = scope.never_uploaded
        if scope.fault is not None:
            self._add("", -1, object_key.cluster_checkpoint_key(), scope.fault)
        return scope

    def pages(self, scope: Scope) -> Iterator[ScopedPage]:
        """The segments to check. Faults of the checkpoints that name them are reported at the end."""
        for partition in scope.partitions:
            self.state.partitions += 1
            suspects = self._suspects.setdefault(partition, [])
            head = None
            for page in pages_of(self._store, scope, partition):
                head = page.head
                suspects.extend(page.faults)
                self.state.segments += len(page.segments)
                self.state.log_bytes += sum(each.log_bytes for each in page.segments)
                yield page
            if head is not None:
                self.state.note_end(head)

    def checked(self, place: ExpectedSegment, checked: CheckedSegment) -> None:
        """The verdict on one segment."""
        self.state.checked_segments += 1
        self.state.checked_chunks += checked.chunks
        self.state.unread_bytes += place.segment.log_bytes - checked.size_bytes
        self.add_all(place, checked.faults)

    def add_all(self, place: ExpectedSegment, faults: Iterable[Fault]) -> None:
        """Faults of a segment."""
        for fault in faults:
            self._add(place.topic, place.partition, place.segment.object_key, fault)

    def end(self, scope: Scope, *, with_orphans: bool) -> None:
        """Faults of the checkpoints themselves, and objects that no checkpoint names."""
        for partition, suspects in self._suspects.items():
            if suspects:
                # Faults that are still there: a leader may have been amid a change.
                again = {fault for page in pages_of(self._store, scope, partition) for fault in page.faults}
                for fault in (each for each in suspects if each in again):
                    self._add(partition.topic, partition.partition, partition.head_key, fault)
        if self._topics is None:
            for key, fault in group_faults(self._store):
                self._add("", -1, key, fault)
        if with_orphans:
            self.state.orphans = list(islice(find_orphans(self._store, self._topics), _MAX_ORPHANS))
        self.state.sort()

    def _add(self, topic: str, partition: int, key: str, fault: Fault) -> None:
        self.state.add(Problem(topic=topic, partition=partition, object_key=key, fault=fault))


class StoreVerifier:
    """One run over `store`, or over `topics` of it.

    Raises InvalidConfig when there is nothing to verify, StoreUnavailable when the store is away. A single segment
    that cannot be read is a problem of the kind `unreadable`.
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        sample: ChunkSample | None = None,
        topics: Collection[str] | None = None,
        parallel: int = 4,
        progress: ProgressFile | None = None,
        with_orphans: bool = False,
        first_backoff_ms: float = FIRST_BACKOFF_MS,
    ) -> None:
        self._store = PatientStore(store, first_backoff_ms=first_backoff_ms)
        self._topics = topics
        self._findings = VerificationFindings(self._store, topics)
        self._parallel = parallel
        self._progress = progress
        self._with_orphans = with_orphans
        self._pool = BlockingPool("verify", threads=parallel)
        self._memory = Budget(MAX_MEMORY_BYTES)
        self._segments = SegmentVerifier(
            self._store, sample or ChunkSample(), advance=self._advance, looks_at_records=True
        )
        self._read_bytes = 0
        self._counting = threading.Lock()
        self._taking = asyncio.Lock()
        self._pages: Iterator[ScopedPage] = iter(())
        self._ready: deque[ExpectedSegment] = deque()
        self._unreadable_in_a_row = 0
        self.state = self._findings.state

    def close(self) -> None:
        """Closes the store, and waits for what still runs in threads: each ends with its request."""
        self._store.close()
        self._pool.close()

    async def survey(self) -> Survey:
        """How much there is to verify, for a progress bar."""
        return await self._pool.run(survey, self._store, self._topics)

    async def run(self, changed: Callable[[VerificationState], None] | None = None) -> VerificationState:
        """The findings, when everything has been checked. `changed` is called a few times a second meanwhile."""
        scope = await self._pool.run(self._findings.begin)
        self._pages = self._findings.pages(scope)
        try:
            async with asyncio.TaskGroup() as tasks:
                telling = tasks.create_task(self._tell(changed))
                async with asyncio.TaskGroup() as workers:
                    for _ in range(self._parallel):
                        workers.create_task(self._work())
                telling.cancel()
        except BaseExceptionGroup as group:
            raise _first(group) from None
        self.state.checked_bytes = self._read_bytes
        await self._pool.run(lambda: self._findings.end(scope, with_orphans=self._with_orphans))
        return self.state

    # Segments

    async def _take(self) -> ExpectedSegment | None:
        """The next segment; None when there are no more. Reads one page ahead of the workers at most."""
        async with self._taking:
            while not self._ready:
                page = await self._pool.run(next, self._pages, None)
                if page is None:
                    return None
                for place in page.places():
                    if self._progress is not None and self._progress.has(place.segment):
                        self.state.known_segments += 1
                    else:
                        self._ready.append(place)
            return self._ready.popleft()

    async def _work(self) -> None:
        while (place := await self._take()) is not None:
            async with self._memory.taken(memory_bytes(place.segment)):
                try:
                    checked = await self._pool.run(self._segments.check, place)
                except StoreUnavailable as error:
                    self._unreadable_in_a_row += 1
                    if self._unreadable_in_a_row >= MAX_UNREADABLE:
                        raise
                    self._findings.add_all(place, (unreadable(place, error),))
                    continue
            self._unreadable_in_a_row = 0
            if checked.faults and not await self._pool.run(is_still_named, self._store, place):
                self.state.retired_segments += 1
                continue
            self._findings.checked(place, checked)
            if not checked.faults and self._progress is not None:
                self._progress.add(place.segment)

    def _advance(self, size_bytes: int) -> None:
        """Called by threads. They do not wake the event loop for it: that took a tenth of their time."""
        with self._counting:
            self._read_bytes += size_bytes

    async def _tell(self, changed: Callable[[VerificationState], None] | None) -> None:
        while changed is not None:
            self.state.checked_bytes = self._read_bytes
            changed(self.state)
            await asyncio.sleep(_TELL_S)


def unreadable(place: ExpectedSegment, error: StoreUnavailable) -> Fault:
    """A segment that the store did not give: nothing is known to be wrong with it."""
    return of_segment(place.segment, FaultKind.UNREADABLE, f"it could not be read: {error}")


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
