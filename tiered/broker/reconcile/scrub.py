"""Reads the store, a little all the time, to check that uploaded chunks are still whole: every chunk once in a period.

Owns where the turn through the segments is, how much may be read now, and the file that keeps the place over restarts.
In a file of this broker and not in SQL, because it is worth nothing to other brokers: the partition's next leader has a
turn of its own, a lost file costs reading some chunks again, and SQL is spared a write for each part. Must never write
to the store, and never call damaged what could not be read.
"""

import asyncio
import json
import logging
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from tiered.broker.context import BrokerContext
from tiered.broker.one_by_one import OneByOne
from tiered.broker.partitions.partition import Partition
from tiered.broker.partitions.topics import Topics
from tiered.broker.reconcile.findings import OF_OBJECTS, Finding, FindingKind, Findings, kind_of
from tiered.cold.verify.segments import CheckedSegment, SegmentVerifier
from tiered.errors import StoreRefused, TieredError
from tiered.formats.checkpoint import CommittedSegment
from tiered.formats.segment_check import Fault
from tiered.hot.file_system import read_whole, replace_file
from tiered.ids import TopicId, TopicPartition
from tiered.meta import segments
from tiered.rules.segments import reconcile
from tiered.rules.segments.reconcile import Cursor
from tiered.rules.segments.sampling import ChunkSample
from tiered.rules.segments.segment_states import SegmentState
from tiered.runtime import BlockingPool, in_turns

log = logging.getLogger(__name__)

PLACE_FILE = "scrub.json"
"""`{"version": 1, "cluster_id": text, "topic_id": text, "partition": number, "offset": number, "chunk": number,
"turn_ended_at_ms": number}`; topic_id is empty between two turns, turn_ended_at_ms 0 before the first has ended."""
MAX_PLACE_BYTES = 4096
PART_BYTES = 8 << 20
MAX_PARTS = 200
"""Of one round, however small they are."""
LOOK_AGAIN_MS = 600_000
"""What was found damaged is read again so often, to see whether it was mended."""


class Scrub:
    """One broker's turns through the segments of the partitions that it leads."""

    def __init__(self, *, context: BrokerContext, topics: Topics, pool: BlockingPool, findings: Findings) -> None:
        self._context = context
        self._topics = topics
        self._pool = pool
        self._findings = findings
        self._verifier = SegmentVerifier(self._context.store, ChunkSample(), advance=lambda _: None)
        self._path = str(self._context.data.root / PLACE_FILE)
        self._at: Cursor | None = None
        self._kept: Cursor | None = None
        self._is_read = False
        self._credit_bytes = 0.0
        self._told_ms: float | None = None
        self._slow_downs = 0
        self._checking = OneByOne("scrubbing", counters=context.counters)
        self._unread: set[str] = set()
        """Objects of this turn that could not be read."""
        self._tried_again_ms: dict[str, int] = {}
        self.turn_ended_at_ms = 0
        """When every chunk had been read last, by the wall clock; 0 while nobody knows."""

    async def round(self) -> None:
        """Reads what is due. Raises StoreUnavailable and MetadataUnavailable: the next round goes on."""
        settings = self._context.settings
        rate = settings.reconcile.tiered_scrub_max_bytes_per_second
        led = {
            partition.topic_partition: partition
            async for partition in in_turns(self._topics.partitions())
            if partition.leadership is not None and partition.cold_bytes > 0
        }
        now_ms = self._context.clock.monotonic_ms()
        elapsed_ms = (
            settings.reconcile.tiered_reconcile_interval_ms if self._told_ms is None else now_ms - self._told_ms
        )
        self._told_ms = now_ms
        self._credit_bytes = reconcile.scrub_credit(
            self._credit_bytes,
            elapsed_ms=elapsed_ms,
            total_bytes=sum(each.cold_bytes for each in led.values()),
            period_ms=settings.reconcile.tiered_scrub_period_ms,
            max_bytes_per_second=rate,
            max_credit_ms=2.0 * settings.reconcile.tiered_reconcile_interval_ms,
        )
        if rate == 0 or self._is_slowed_down():
            return
        await self._read_place()
        self._checking.begin()
        try:
            await self._look_again()
            await self._go_on(led, await self._pool.run(reconcile.in_turn, list(led)), rate)
        finally:
            await self._keep_place()

    def _is_slowed_down(self) -> bool:
        """Whether the store has asked to slow down since the last look: work that can wait does."""
        before, self._slow_downs = self._slow_downs, self._context.store.slow_downs
        return self._slow_downs > before

    async def _go_on(
        self, led: Mapping[TopicPartition, Partition], ordered: Sequence[TopicPartition], rate: int
    ) -> None:
        answered: Cursor | None = None
        for _ in range(MAX_PARTS):
            if self._credit_bytes <= 0:
                return
            found = self._next(led, ordered)
            if found is None:
                self._end_turn()
                return
            partition, segment = found
            assert self._at is not None
            answered = answered or self._at
            try:
                part = await self._check(
                    partition, segment, self._at.chunk, max_bytes=min(PART_BYTES, int(self._credit_bytes) + 1)
                )
            except Exception as error:
                self._checking.failed(segment.object_key, error)
                self._unread.add(segment.object_key)
                self._at = replace(self._at, offset=segment.end_offset, chunk=0)
                if self._checking.is_away:
                    if not isinstance(error, StoreRefused):
                        self._at = answered
                    raise
                continue
            self._checking.worked(segment.object_key)
            answered = None
            if part.next_chunk is None:
                self._at = replace(self._at, offset=segment.end_offset, chunk=0)
            else:
                self._at = replace(self._at, offset=segment.base_offset, chunk=part.next_chunk)
            if self._credit_bytes > 0 and await self._pause(part.size_bytes / rate):
                return

    def _end_turn(self) -> None:
        if self._at is not None:
            self._at = None
            if not self._unread:
                self.turn_ended_at_ms = self._context.clock.now_ms()
        self._checking.keep(self._unread)
        self._unread = set()

    async def _pause(self, seconds: float) -> bool:
        """So that a round's bytes are not read all at once; whether the store asked to slow down meanwhile."""
        await asyncio.sleep(seconds)
        return self._is_slowed_down()

    def _next(
        self, led: Mapping[TopicPartition, Partition], ordered: Sequence[TopicPartition]
    ) -> tuple[Partition, CommittedSegment] | None:
        """The segment that the turn is at, with `self._at` in it; None when the turn is over."""
        while (key := reconcile.next_partition(ordered, self._at)) is not None:
            if self._at is None or key != self._at.topic_partition:
                self._at = Cursor(topic_id=key.topic_id, partition=key.partition)
            partition, at = led[key], self._at
            segment = _first_from(partition, at.offset) if partition.leadership is not None else None
            if segment is not None:
                if segment.base_offset != at.offset:
                    self._at = Cursor(topic_id=key.topic_id, partition=key.partition, offset=segment.base_offset)
                return partition, segment
            self._at = Cursor(topic_id=key.topic_id, partition=key.partition + 1)
        return None

    async def _check(
        self, partition: Partition, segment: CommittedSegment, first_chunk: int, *, max_bytes: int
    ) -> CheckedSegment:
        """Checks a part, and tells of what was wrong with it and is so still."""
        where = partition.topic_partition
        # A segment may come from the cluster that this one was restored from.
        place = partition.place_of(segment)
        part = await self._pool.run(
            lambda: self._verifier.check_part(place, first_chunk=first_chunk, max_bytes=max_bytes)
        )
        self._credit_bytes -= max(1, part.size_bytes)
        self._context.counters.scrubbed_bytes += part.size_bytes
        self._context.counters.scrubbed_chunks += part.chunks
        faults = part.faults
        if faults and not await self._is_committed(segment):
            faults = ()  # Retention or the deletion of the topic was faster.
        end_chunk = first_chunk + max(1, part.chunks)

        def is_looked_at(finding: Finding) -> bool:
            if finding.name != segment.object_key or finding.kind not in OF_OBJECTS:
                return False
            if finding.kind is FindingKind.CATALOGUE:
                return False
            return finding.chunk == -1 or first_chunk <= finding.chunk < end_chunk

        told = [_finding(partition, segment, fault) for fault in faults]
        self._findings.replace(where, is_looked_at, told, self._context.clock.now_ms())
        return part

    async def _is_committed(self, segment: CommittedSegment) -> bool:
        found = await self._context.database.read(lambda conn: segments.load_some(conn, [segment.object_id]))
        row = found.get(segment.object_id)
        return row is not None and row.state is SegmentState.COMMITTED

    async def _look_again(self) -> None:
        """Reads one thing that was found damaged a while ago once more: somebody may have mended it."""
        before_ms = self._context.clock.now_ms() - LOOK_AGAIN_MS
        damaged = [each for each in self._findings.all() if each.kind is FindingKind.DAMAGED]
        tried_ms = self._tried_again_ms = {
            each.name: max(each.seen_at_ms, self._tried_again_ms.get(each.name, 0)) for each in damaged
        }
        oldest = min(damaged, key=lambda each: tried_ms[each.name], default=None)
        if oldest is None or tried_ms[oldest.name] >= before_ms:
            return
        tried_ms[oldest.name] = self._context.clock.now_ms()
        topic = self._topics.find_id(oldest.topic_id)
        partition = None if topic is None else topic.hosted(oldest.partition)
        segment = None if partition is None else partition.committed_segment_at(oldest.first_offset)
        if partition is not None and segment is not None and segment.object_key == oldest.name:
            try:
                await self._check(partition, segment, max(0, oldest.chunk), max_bytes=1)
            except TieredError as error:
                log.info("%s: damage cannot be looked at again now: %s", partition.name, error)

    # The place

    async def _read_place(self) -> None:
        if self._is_read:
            return
        data = await self._context.disk.run(
            lambda: read_whole(self._context.files, self._path, max_bytes=MAX_PLACE_BYTES)
        )
        self._is_read = True
        try:
            found = json.loads(data or b"")
            if (found["version"], found["cluster_id"]) != (1, self._context.state.cluster_id):
                return
            self.turn_ended_at_ms = int(found["turn_ended_at_ms"])
            if found["topic_id"]:
                self._at = self._kept = Cursor(
                    topic_id=TopicId(UUID(found["topic_id"])),
                    partition=int(found["partition"]),
                    offset=int(found["offset"]),
                    chunk=int(found["chunk"]),
                )
        except (ValueError, KeyError, TypeError, AttributeError):
            return  # None yet, or a torn one: the turn begins anew.

    async def _keep_place(self) -> None:
        at = self._at
        if at == self._kept:
            return
        content = {
            "version": 1,
            "cluster_id": self._context.state.cluster_id,
            "topic_id": "" if at is None else str(at.topic_id),
            "partition": 0 if at is None else at.partition,
            "offset": 0 if at is None else at.offset,
            "chunk": 0 if at is None else at.chunk,
            "turn_ended_at_ms": self.turn_ended_at_ms,
        }
        data = json.dumps(content).encode()
        try:
            await self._context.disk.run(lambda: replace_file(self._context.files, self._path, data, durable=False))
        except OSError:
            return  # A full disk has other troubles; the place is kept with the next round.
        self._kept = at


def _first_from(partition: Partition, offset: int) -> CommittedSegment | None:
    """The first committed segment that ends after `offset`."""
    committed = partition.committed
    index = bisect_right(committed, offset, key=lambda segment: segment.end_offset)
    return committed[index] if index < len(committed) else None


def _finding(partition: Partition, segment: CommittedSegment, fault: Fault) -> Finding:
    return Finding(
        kind=kind_of(fault.kind),
        topic=partition.topic,
        topic_id=partition.topic_partition.topic_id,
        partition=partition.topic_partition.partition,
        message=fault.message,
        advice="put the object back (an older version in a versioned bucket, a copy); nobody is served what is damaged",
        name=segment.object_key,
        first_offset=fault.first_offset,
        last_offset=fault.last_offset,
        chunk=-1 if fault.chunk is None else fault.chunk,
    )
