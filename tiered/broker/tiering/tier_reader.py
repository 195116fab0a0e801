"""Reads that may need the object store or the disk: cold ranges, and lookups by time over both tiers.

Owns no state of its own. Must never serve an offset below `log_start_offset`, nor any that the caller may not see:
callers bound the answer by the high watermark or the last stable offset.
"""

from collections.abc import Awaitable, Callable, Hashable
from functools import partial
from typing import Any

from tiered.account import OwnersTurns, current_owner
from tiered.broker.partitions.partition import Partition
from tiered.broker.partitions.readable import Readable
from tiered.cold.chunks.reader import ColdReader
from tiered.errors import Corrupt, StoreUnavailable, Throttled
from tiered.file_slice import FileSlice, ReadBatches
from tiered.formats.checkpoint import CommittedSegment
from tiered.hot import resident
from tiered.metrics import CountersState
from tiered.runtime import BlockingPool

_Run = Callable[..., Awaitable[Any]]

LOOKUP_THREADS = 2
COLD_READS_OF_OWNER = 16
"""At one time, twice as many as run at once by default. Further reads of an owner wait in their requests, and go with
them; those that have begun end in the cache. Who reads and hangs up, again and again, would otherwise have thousands of
downloads go before those of others."""
DISK_READS_OF_OWNER = 4
"""At one time, half of the disk's threads by default: flushes wait for a thread, too."""
# Local retention may take a segment between the looks at the two tiers, over and over again.
TRIES = 5


class TierReader:
    """Asynchronous reads of a partition."""

    def __init__(self, cold: ColdReader, disk: BlockingPool, counters: CountersState) -> None:
        self._cold = cold
        self._disk = disk
        # Apart from the disk's threads: a hostile batch of a million records takes seconds to look through, and
        # flushes must not wait for that.
        self._lookups = BlockingPool("lookup", threads=LOOKUP_THREADS, max_waiting=1000)
        self._reading = OwnersTurns(COLD_READS_OF_OWNER)
        self._reading_disk = OwnersTurns(DISK_READS_OF_OWNER)
        self._looking_up = OwnersTurns()
        self._counters = counters

    async def read_cold(
        self, partition: Readable, offset: int, max_bytes: int, joined_bytes: int = 0, *, owner: Hashable = None
    ) -> ReadBatches | None:
        """Whole batches from the one that holds `offset`, at least one, and which transactions of theirs were aborted;
        None when retention was faster. `joined_bytes`: how much may come of several chunks that are at hand. The reads
        of one `owner` wait for each other where there are many.

        Raises CorruptObject, which names topic, partition, offsets and key, and StoreUnavailable.
        """
        try:
            read = partial(self._in_store, partition, offset, max_bytes, joined_bytes)
            batches = await self._reading.to_its_end(owner, read)
        except Corrupt:
            self._counters.cold_corruptions += 1
            raise
        except Throttled as error:
            # Java's consumer ends on the code for quotas in a Fetch answer, and tries again on this one.
            raise StoreUnavailable(f"{partition.name}: {error}") from error
        self._counters.fetched_cold_bytes += 0 if batches is None else batches.records.length
        return batches

    async def _in_store(
        self, partition: Readable, offset: int, max_bytes: int, joined_bytes: int
    ) -> ReadBatches | None:
        segment = partition.committed_segment_at(offset)
        if segment is None:
            return None
        return await self._cold.read(
            partition.place_of(segment),
            offset=offset,
            max_bytes=max_bytes,
            joined_bytes=joined_bytes,
            following=partition.committed_segment_at(segment.end_offset),
        )

    def is_resident(self, part: FileSlice) -> bool:
        """True when sending the bytes now would not wait for the disk."""
        return resident.is_resident(part)

    async def make_resident(self, part: FileSlice, *, owner: Hashable = None) -> None:
        """Returns once the bytes are in memory, so that sending them does not stop the event loop. The reads of one
        `owner` wait for each other where there are many."""
        if not self.is_resident(part):
            await self._reading_disk.to_its_end(owner, partial(self._disk.run, resident.make_resident, part))

    async def offset_for_timestamp(
        self, partition: Readable, timestamp_ms: int, *, ends_with_thread: bool = False
    ) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record at or after `timestamp_ms`; None when there is none. Raises OSError
        when the disk fails. Lookups of one owner wait for each other: one may look at millions of records. With
        `ends_with_thread` a cancelled one waits for nobody, and ends when its thread has ended."""
        if ends_with_thread:
            return await self._first_at(partition, timestamp_ms, self._lookups.run_to_end)
        look_up = partial(self._first_at, partition, timestamp_ms, self._lookups.run)
        return await self._looking_up.to_its_end(current_owner(), look_up)

    async def _first_at(self, partition: Readable, timestamp_ms: int, run: _Run) -> tuple[int, int] | None:
        assert isinstance(partition, Partition)

        async def look() -> tuple[int, int] | None:
            first = await self._first_in_store(partition, timestamp_ms)
            if first is not None:
                return first
            local: tuple[int, int] | None = await run(
                partition.log.offset_for_timestamp, timestamp_ms, partition.high_watermark
            )
            return local

        return await _in_both_tiers(partition, look)

    async def _first_in_store(self, partition: Readable, timestamp_ms: int) -> tuple[int, int] | None:
        local_start = partition.offsets.local_log_start_offset
        for segment in partition.committed:
            if segment.base_offset >= local_start or not segment.may_hold(timestamp_ms):
                continue
            found = await self._in_segment(partition, segment, timestamp_ms)
            if found is not None:
                return found
        return None

    async def _in_segment(
        self, partition: Readable, segment: CommittedSegment, timestamp_ms: int
    ) -> tuple[int, int] | None:
        return await self._cold.offset_for_timestamp(
            partition.place_of(segment),
            timestamp_ms=timestamp_ms,
            start_offset=partition.log_start_offset,
        )

    async def max_timestamp(self, partition: Readable) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record with the greatest timestamp; None where no record has one."""
        return await self._looking_up.to_its_end(current_owner(), partial(self._greatest, partition))

    async def _greatest(self, partition: Readable) -> tuple[int, int] | None:
        assert isinstance(partition, Partition)

        async def look() -> tuple[int, int] | None:
            local_start = partition.log.local_log_start_offset
            hot = await self._lookups.run(partition.log.max_timestamp_offset)
            return await self._greatest_in_store(partition, local_start, hot)

        return await _in_both_tiers(partition, look)

    async def _greatest_in_store(
        self, partition: Readable, end_offset: int, best: tuple[int, int] | None
    ) -> tuple[int, int] | None:
        """The same of the segments that begin below `end_offset`, and of `best`."""
        cold = [segment for segment in partition.committed if segment.base_offset < end_offset]
        # As in one segment: those whose greatest time is not proven come first.
        cold.sort(key=lambda each: (bool(each.max_timestamp_is_proven), -each.max_timestamp_ms, each.base_offset))
        for segment in cold:
            known = -segment.max_timestamp_ms, segment.base_offset
            if segment.max_timestamp_is_proven and best is not None and known > (-best[1], best[0]):
                break
            best = await self._cold.greatest_timestamp(
                partition.place_of(segment), start_offset=partition.log_start_offset, best=best
            )
        return best


async def _in_both_tiers(
    partition: Partition, look: Callable[[], Awaitable[tuple[int, int] | None]]
) -> tuple[int, int] | None:
    """What `look` finds in one tier and then in the other, of a moment at which nothing moved between the two: what did
    would have been missed in both."""
    for _ in range(TRIES):
        local_start = partition.log.local_log_start_offset
        try:
            seen = await look()
        except FileNotFoundError:
            if partition.log.local_log_start_offset == local_start:
                raise
            continue
        if partition.log.local_log_start_offset == local_start:
            return seen
    raise StoreUnavailable(f"{partition.name}: its segments move to the store as they are looked at; try again")
