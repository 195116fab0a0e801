"""Reads single records of a partition from both tiers, for people: the pages of the HTTP door and its tails.

Owns the bounds of such a read (records, bytes, time, decompressed size) and the threads that decode. Must never
decode on the event loop, nor serve anything above what the caller may see. A consumer of Kafka's protocol never
comes here: it gets batches, unread.
"""

import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from tiered.account import OwnersTurns, current_owner
from tiered.broker.partitions.readable import Readable
from tiered.broker.tiering.tier_reader import TierReader
from tiered.errors import CorruptBatch, LogDirFailed, OffsetOutOfRange, StoreUnavailable
from tiered.file_slice import FileSlice, ReadBatches
from tiered.formats import record_batch
from tiered.formats.aborted_ranges import AbortedRange, AbortedRanges
from tiered.formats.record_batch import LOOK_EVERY_RECORDS, BatchHeader, Record
from tiered.rules.partition import read_plan
from tiered.runtime import BlockingPool, Clock

DECODE_THREADS = 2
MAX_WAITING_READS = 200
# The largest read of a tier. A batch that is larger is read whole.
READ_BYTES = 256 << 10
MAX_DECOMPRESSED_BYTES = 32 << 20
# Retention may take a segment between the plan and the read, over and over again.
TRIES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRecord:
    """A record as it lies in the log. `is_log_append_time`: its time is the broker's, not the producer's."""

    record: Record
    is_log_append_time: bool


Wanted = Callable[[Record], bool]
Render = Callable[[StoredRecord], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When a read ends. `max_bytes` are rendered ones; the first record is given whatever its size."""

    max_records: int
    max_bytes: int
    max_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Records from one offset on: (offset, what `render` made of it). `next_offset` is where the next page begins.

    `is_end` when nothing follows now; otherwise a limit ended the page, which may have no records then.
    """

    records: tuple[tuple[int, bytes], ...]
    next_offset: int
    is_end: bool


@dataclass(slots=True)
class ReadCost:
    """What reads have cost so far, however they ended. `read_bytes` are those of the batches whose end was reached: one
    of several pages counts once. A thread decoded for `worked_ms`."""

    read_bytes: int = 0
    worked_ms: float = 0.0


class Undecodable(CorruptBatch):
    """The records of one batch cannot be shown: damaged, or larger than the bound. `end_offset` is after it."""

    def __init__(self, message: str, *, base_offset: int, end_offset: int) -> None:
        super().__init__(message)
        self.base_offset = base_offset
        self.end_offset = end_offset


class UnfinishedBatch:
    """The records that follow in the batch in whose middle a page ended, so that the next page need not unpack the
    batch anew. Has the unpacked batch in memory, MAX_DECOMPRESSED_BYTES at the most, until that page takes it."""

    def __init__(self) -> None:
        self._left: tuple[BatchHeader, int, Iterator[Record]] | None = None

    def __bool__(self) -> bool:
        return self._left is not None

    def keep(self, header: BatchHeader, next_offset: int, records: Iterator[Record]) -> None:
        self._left = header, next_offset, records

    def take(self, header: BatchHeader, offset: int) -> Iterator[Record] | None:
        """The records of this batch from `offset` on; None where others are kept."""
        left, self._left = self._left, None
        return left[2] if left is not None and left[:2] == (header, offset) else None


class RecordReader:
    """Pages of a partition's decoded records, from both tiers; read_committed ends at the last stable offset, without
    the records of aborted transactions.

    Control batches are left out.
    """

    def __init__(
        self, tiers: TierReader, clock: Clock, threads_name: str = "decode", *, ends_with_threads: bool = False
    ) -> None:
        """Where it `ends_with_threads`, a read that is cancelled ends when its thread has ended, which is soon."""
        self._tiers = tiers
        self._ends_with_threads = ends_with_threads
        self._clock = clock
        self._pool = BlockingPool(threads_name, threads=DECODE_THREADS, max_waiting=MAX_WAITING_READS)
        self._decoding = OwnersTurns()

    @property
    def pending(self) -> int:
        """Reads that decode or wait for a thread now."""
        return self._pool.pending

    def close(self) -> None:
        self._pool.close()

    async def read(
        self,
        partition: Readable,
        offset: int,
        *,
        limits: Limits,
        committed_only: bool,
        render: Render,
        wanted: Wanted | None = None,
        is_over: Callable[[], bool] | None = None,
        unfinished: UnfinishedBatch | None = None,
        cost: ReadCost | None = None,
        owner: Hashable = None,
    ) -> Page:
        """The records from `offset` on that are `wanted`, rendered, within the limits. A thread asks `is_over` after
        each record and each batch, and ends the page where that is true. `cost` grows also where the page fails. Reads
        of one `owner`, by default of whose step this is, decode one after the other: a batch may have millions of
        records before the first that is asked for.

        Raises Undecodable for a batch at the page's beginning, Throttled when too many wait, LogDirFailed,
        OffsetOutOfRange, CorruptObject, StoreUnavailable.
        """
        owner = current_owner() if owner is None else owner
        found: list[tuple[int, bytes]] = []
        cost = ReadCost() if cost is None else cost
        left_bytes = limits.max_bytes
        deadline_ms = self._clock.monotonic_ms() + limits.max_ms

        def page(*, is_end: bool) -> Page:
            return Page(records=tuple(found), next_offset=offset, is_end=is_end)

        while len(found) < limits.max_records and left_bytes > 0:
            decoding = _Decoding(
                offset=offset,
                max_records=limits.max_records - len(found),
                max_bytes=left_bytes,
                keeps_first=not found,
                render=render,
                wanted=wanted,
                is_late=lambda: self._clock.monotonic_ms() >= deadline_ms,
                is_over=is_over,
                unfinished=unfinished,
            )
            try:
                data = await self._range(partition, offset, committed_only, owner)
                if data is None:
                    return page(is_end=True)
                aborted = data.aborted if committed_only else ()
                await self._decode(decoding, data.records, aborted, owner)
            except Undecodable:
                if not found:
                    raise
                decoding.read_bytes = 0  # The next page begins with that batch, which counts there.
                return page(is_end=False)
            except (OSError, EOFError) as error:
                raise LogDirFailed(f"{partition.name} cannot be read from the broker's disk: {error}") from error
            finally:
                cost.read_bytes += decoding.read_bytes
                cost.worked_ms += decoding.worked_ms
            found += decoding.found
            left_bytes -= sum(len(rendered) for _, rendered in decoding.found)
            offset = decoding.offset
            if decoding.is_full:
                break
        return page(is_end=False)

    async def _decode(
        self, decoding: "_Decoding", part: FileSlice, aborted: Sequence[AbortedRange], owner: Hashable
    ) -> None:
        if self._ends_with_threads:
            await self._pool.run_to_end(self._timed, decoding, part, aborted, stop=decoding.stop)
        else:
            decode = partial(self._pool.run, self._timed, decoding, part, aborted)
            await self._decoding.to_its_end(owner, decode)

    def _timed(self, decoding: "_Decoding", part: FileSlice, aborted: Sequence[AbortedRange]) -> None:
        started_ms = self._clock.monotonic_ms()
        try:
            decoding.run(part, aborted)
        finally:
            decoding.worked_ms = self._clock.monotonic_ms() - started_ms

    async def _range(
        self, partition: Readable, offset: int, committed_only: bool, owner: Hashable
    ) -> ReadBatches | None:
        """Whole batches from the one that holds `offset`; None when nothing may be read there yet."""
        for _ in range(TRIES):
            batches = None
            match partition.plan_read(offset, committed_only=committed_only):
                case read_plan.Hot():
                    batches = partition.read_hot(offset, READ_BYTES, committed_only=committed_only, at_least_one=True)
                case read_plan.Cold():
                    batches = await self._tiers.read_cold(partition, offset, READ_BYTES, owner=owner)
                case read_plan.CaughtUp():
                    return None
                case read_plan.OutsideLog() as outside:
                    raise OffsetOutOfRange(
                        f"{partition.name}: offset {offset} is not in {outside.log_start_offset} to "
                        f"{outside.log_end_offset}; ask for one of these, or for earliest or latest"
                    )
            if batches is not None:
                return batches
        raise StoreUnavailable(f"{partition.name}: offset {offset} moves between the tiers; try again")


class _Stopped(Exception):
    """Nobody waits for the records any more."""


class _Decoding:
    """One range of batches becoming records, on a thread. `offset` is how far it came."""

    def __init__(
        self,
        *,
        offset: int,
        max_records: int,
        max_bytes: int,
        keeps_first: bool,
        render: Render,
        wanted: Wanted | None,
        is_late: Callable[[], bool],
        is_over: Callable[[], bool] | None,
        unfinished: UnfinishedBatch | None,
    ) -> None:
        self.offset = offset
        self.found: list[tuple[int, bytes]] = []
        self.is_full = False
        self.read_bytes = 0
        self.worked_ms = 0.0
        self._max_records = max_records
        self._left_bytes = max_bytes
        self._keeps_first = keeps_first
        self._render = render
        self._wanted = wanted
        self._is_late = is_late
        self._is_over = is_over
        self._unfinished = unfinished
        self._stopped = threading.Event()

    def stop(self) -> None:
        """From any thread: the thread that decodes ends soon."""
        self._stopped.set()

    def run(self, part: FileSlice, aborted: Sequence[AbortedRange]) -> None:
        """Raises Undecodable for the first batch; a later one ends the page before it."""
        data, hidden = part.read(), AbortedRanges(aborted)
        start_offset = self.offset
        for position, header in record_batch.whole_batches(data, 0, len(data)):
            if header.end_offset <= self.offset:
                continue
            try:
                is_hidden = header.is_transactional and hidden.hold(header.producer_id, header.base_offset)
                if not header.is_control and not is_hidden:
                    self._take_batch(data, position, header)
            except _Stopped:
                return
            except CorruptBatch as error:
                if self.found or self.offset > start_offset:
                    return
                self.read_bytes += header.size_bytes
                raise Undecodable(
                    f"offsets {header.base_offset} to {header.last_offset} cannot be shown: {error}. Go on with offset "
                    f"{header.end_offset}, or read them with a consumer",
                    base_offset=header.base_offset,
                    end_offset=header.end_offset,
                ) from error
            self.offset = self.offset if self.is_full else header.end_offset
            if self.offset >= header.end_offset:
                self.read_bytes += header.size_bytes
            self.is_full = self.is_full or self._is_late() or self._must_end()
            if self.is_full:
                return

    def _take_batch(self, data: bytes, position: int, header: BatchHeader) -> None:
        by_broker = header.is_log_append_time
        kept = None if self._unfinished is None else self._unfinished.take(header, self.offset)
        left = self._unpacked(data, position, header) if kept is None else kept
        for number, record in enumerate(left, start=1):
            if self._wanted is None or self._wanted(record):
                rendered = self._render(StoredRecord(record=record, is_log_append_time=by_broker))
                if len(rendered) > self._left_bytes and (self.found or not self._keeps_first):
                    self.is_full = True
                    return
                self.found.append((record.offset, rendered))
                self._left_bytes -= len(rendered)
            self.offset = record.offset + 1
            is_enough = len(self.found) >= self._max_records or self._left_bytes <= 0
            if is_enough or self._must_end() or (number % LOOK_EVERY_RECORDS == 0 and self._is_late()):
                self.is_full = True
                if self._unfinished is not None and self.offset < header.end_offset:
                    self._unfinished.keep(header, self.offset, left)
                return

    def _unpacked(self, data: bytes, position: int, header: BatchHeader) -> Iterator[Record]:
        record_batch.verify_crc(data, position, header.size_bytes)
        return record_batch.records(
            data,
            position,
            start_offset=self.offset,
            # No method: records that are kept would hold this, and this them.
            look=partial(_require_wanted, self._stopped),
            max_decompressed_bytes=MAX_DECOMPRESSED_BYTES,
        )

    def _must_end(self) -> bool:
        return self._stopped.is_set() or (self._is_over is not None and self._is_over())


def _require_wanted(stopped: threading.Event) -> None:
    if stopped.is_set():
        raise _Stopped
