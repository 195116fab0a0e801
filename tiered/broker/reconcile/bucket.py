"""The metadata store compared with the bucket: is every committed object there, and is every object known.

Owns how far the turn through the partitions is, and the requests of a round. An object that a listing seems to lack is
asked for by name, and its row read again, before it is reported. Deletes one thing: an object whose row says that it
was deleted. Must never do so without that row, and never take the store's silence for an answer.
"""

import logging
from bisect import bisect_left
from collections.abc import Collection, Sequence
from uuid import UUID

from sqlalchemy import Connection

from tiered.broker.context import BrokerContext
from tiered.broker.one_by_one import OneByOne
from tiered.broker.partitions.partition import Partition
from tiered.broker.partitions.topics import Topics
from tiered.broker.reconcile.findings import OF_COMPARISON, Finding, FindingKind, Findings
from tiered.broker.tiering.committed_rows import committed_segment
from tiered.broker.view.image import ClusterImage
from tiered.errors import StoreRefused
from tiered.formats import object_key
from tiered.formats.checkpoint import CommittedSegment
from tiered.ids import TopicPartition
from tiered.meta import segments
from tiered.meta.segments import SegmentRow
from tiered.rules.segments import reconcile
from tiered.rules.segments.reconcile import Comparison, Cursor, Listed, ObjectFate
from tiered.rules.segments.segment_states import SegmentState
from tiered.runtime import BlockingPool

log = logging.getLogger(__name__)

PAGE = 1_000
"""Rows and objects that are compared at once: what one LIST request answers with."""
_BRING_BACK = "put the object back (an older version in a versioned bucket, a copy), or move the log start above it"
REMOVE_BY_HAND = (
    "it stays until people remove it: if the database was put back from an older copy, the records may be nowhere else"
)
_RESTART = "restart this broker, and report it as a bug"


class RequestBudget:
    """The rest of a round's requests."""

    def __init__(self, wanted: int) -> None:
        self.left = wanted

    def take(self) -> bool:
        """Whether one more may be made; then it counts."""
        self.left -= 1
        return self.left >= 0


class BucketComparison:
    """One broker's turns through the partitions that it leads."""

    def __init__(
        self, *, context: BrokerContext, image: ClusterImage, topics: Topics, pool: BlockingPool, findings: Findings
    ) -> None:
        self._context = context
        self._image = image
        self._topics = topics
        self._pool = pool
        self._findings = findings
        self._at: Cursor | None = None
        self._began_ms: float | None = None
        self._is_under_way = False
        self._comparing = OneByOne("comparing with the bucket", counters=context.counters)
        self.turns = 0
        """Turns that ended."""

    async def round(self, requests: RequestBudget | None = None) -> None:
        """Goes on with the turn, for as many requests as a round may make; begins one if that is due. What fails is
        left to the next turn. Raises StoreUnavailable and MetadataUnavailable where it is about none alone: the next
        round goes on where this one was."""
        now_ms = self._context.clock.monotonic_ms()
        if not self._is_under_way:
            period_ms = self._context.settings.reconcile.tiered_reconcile_period_ms
            if not reconcile.is_turn_due(began_ms=self._began_ms, now_ms=now_ms, period_ms=period_ms):
                return
            self._began_ms, self._at, self._is_under_way = now_ms, None, True
        requests = requests or RequestBudget(self._context.settings.reconcile.tiered_reconcile_max_requests)
        # One of which nothing was ever uploaded needs no look.
        stored = [partition for partition in self._topics.partitions() if partition.cold_end_offset > 0]
        self._comparing.begin()
        self._comparing.keep(partition.name for partition in stored)
        ordered = await self._pool.run(reconcile.in_turn, [partition.topic_partition for partition in stored])
        answered: Cursor | None = None
        while requests.left > 0:
            partition = self._next(ordered)
            if partition is None:
                self._is_under_way = False
                self.turns += 1
                return
            assert self._at is not None
            answered = answered or self._at
            try:
                await self._page(partition, requests)
            except Exception as error:
                self._comparing.failed(partition.name, error)
                if self._comparing.is_away:
                    if not isinstance(error, StoreRefused):
                        self._at = answered
                    raise
                self._at = Cursor(topic_id=self._at.topic_id, partition=self._at.partition + 1)
            else:
                self._comparing.worked(partition.name)
                answered = None

    def _next(self, ordered: Sequence[TopicPartition]) -> Partition | None:
        """The partition that the turn is at: one that this broker leads."""
        while (key := reconcile.next_partition(ordered, self._at)) is not None:
            if self._at is None or key != self._at.topic_partition:
                self._at = Cursor(topic_id=key.topic_id, partition=key.partition)
            partition = self._topics.hosted(key)
            if partition is not None and partition.leadership is not None:
                return partition
            self._at = Cursor(topic_id=key.topic_id, partition=key.partition + 1)
        return None

    async def _page(self, partition: Partition, requests: RequestBudget) -> None:
        assert self._at is not None
        at = self._at
        where, start = partition.topic_partition, at.offset
        # Rows first: whatever they name was there before it was listed.
        rows = await self._context.database.read(
            lambda conn: segments.list_committed(conn, where.topic_id, where.partition, from_offset=start, limit=PAGE)
        )
        prefix = object_key.partition_segments_prefix(partition.topic, where.topic_id, where.partition)
        requests.take()
        self._context.counters.reconcile_requests += 1

        def look() -> Comparison:
            listed = self._context.store.list(prefix, start_after=f"{prefix}{start:020}", limit=PAGE)
            # In the thread as well: a thousand keys take long enough for the event loop to miss it.
            return reconcile.compare_page(
                [committed_segment(row) for row in rows],
                reconcile.listed_segments(listed),
                start_offset=start,
                rows_end=len(rows) < PAGE,
                listing_ends=len(listed) < PAGE,
            )

        found = await self._pool.run(look)
        told, end = await self._examine(partition, found, rows, requests)
        self._context.counters.reconcile_objects += found.compared
        if partition.leadership is None:
            return

        def is_looked_at(finding: Finding) -> bool:
            is_within = start <= finding.first_offset and (end is None or finding.first_offset < end)
            return finding.kind in OF_COMPARISON and is_within

        self._findings.replace(where, is_looked_at, told, self._context.clock.now_ms())
        if end is None:
            self._at = Cursor(topic_id=at.topic_id, partition=at.partition + 1)
        else:
            self._at = Cursor(topic_id=at.topic_id, partition=at.partition, offset=end)

    async def _examine(
        self, partition: Partition, found: Comparison, rows: Sequence[SegmentRow], requests: RequestBudget
    ) -> tuple[list[Finding], int | None]:
        """The certain differences, and where the page ends now: before objects for which no request was left."""
        end = found.end_offset
        lost: dict[UUID, Finding] = {}
        for row in sorted((*found.missing, *found.other_size), key=lambda each: each.base_offset):
            if not requests.take():
                end = row.base_offset
                break
            finding = await self._ask_for(partition, row)
            if finding is not None:
                lost[row.object_id] = finding
        unnamed = [each for each in found.unnamed if end is None or each.key.base_offset < end]
        committed = [each for each in rows if end is None or each.base_offset < end]
        disputed = _disputed(partition, committed)
        known = await self._known({*lost, *(each.key.object_id for each in unnamed), *disputed})
        told = [each for object_id, each in lost.items() if _is_committed(known.get(object_id))]
        told += self._catalogue(partition, disputed, known)
        for each in unnamed:
            row_of_it = known.get(each.key.object_id)
            match reconcile.fate_of(
                each.name,
                state=None if row_of_it is None else row_of_it.state,
                object_key=None if row_of_it is None else row_of_it.object_key,
            ):
                case ObjectFate.SWEEP:
                    if not requests.take():
                        return told, each.key.base_offset
                    await self._sweep(partition, each)
                case ObjectFate.REPORT:
                    told.append(_unknown(partition, each))
                case ObjectFate.LEAVE:
                    pass
        return told, end

    async def _ask_for(self, partition: Partition, row: CommittedSegment) -> Finding | None:
        """The finding if the store, asked for the object by its name, still has none or another size."""
        self._context.counters.reconcile_requests += 1
        there = await self._pool.run(self._context.store.head, row.object_key)
        if there is None:
            return _of_row(partition, row, FindingKind.MISSING, "the object is not in the store")
        if there.size_bytes != row.size_bytes:
            words = f"the object has {there.size_bytes} bytes, {row.size_bytes} were committed"
            return _of_row(partition, row, FindingKind.WRONG_SIZE, words)
        return None

    async def _known(self, ids: Collection[UUID]) -> dict[UUID, SegmentRow]:
        """The rows as they are now."""
        wanted = sorted(ids)

        def load(conn: Connection) -> dict[UUID, SegmentRow]:
            found: dict[UUID, SegmentRow] = {}
            for first in range(0, len(wanted), segments.MAX_IDS):
                found |= segments.load_some(conn, wanted[first : first + segments.MAX_IDS])
            return found

        return await self._context.database.read(load) if wanted else {}

    async def _sweep(self, partition: Partition, each: Listed) -> None:
        """Deletes an object that was deleted before by its row: nothing follows that state, so nobody can need it."""
        self._context.counters.reconcile_requests += 1
        try:
            await self._pool.run(self._context.store.delete, each.name)
        except StoreRefused as error:
            log.warning("%s: an object that came back after its deletion may not be deleted: %s", partition.name, error)
            return
        self._context.counters.orphans_swept += 1
        log.info("%s: swept an object that came back after its deletion: %s", partition.name, each.name)

    def _catalogue(
        self, partition: Partition, disputed: Collection[UUID], known: dict[UUID, SegmentRow]
    ) -> list[Finding]:
        """Where this broker's memory is not what SQL says, though every change of SQL was applied here."""
        if not disputed:
            return []
        applied = self._image.change_number
        here = {each.object_id: each for each in partition.committed}
        told = []
        for object_id in disputed:
            row, own = known.get(object_id), here.get(object_id)
            if _is_committed(row) == (own is not None) or (row is not None and row.change_number > applied):
                continue
            if own is not None:
                words = f"this broker takes it for committed, the database says {row.state if row else 'nothing'}"
                told.append(_of_row(partition, own, FindingKind.CATALOGUE, words, _RESTART))
            elif row is not None:
                words = "the database has it for committed, this broker does not know it"
                told.append(_of_row(partition, committed_segment(row), FindingKind.CATALOGUE, words, _RESTART))
        return told


def _disputed(partition: Partition, rows: Sequence[SegmentRow]) -> set[UUID]:
    """Objects that either the rows or this broker takes for committed, of the offsets that the rows are about."""
    if not rows:
        return set()
    committed = partition.committed
    first = bisect_left(committed, rows[0].base_offset, key=lambda each: each.base_offset)
    end = bisect_left(committed, rows[-1].end_offset, key=lambda each: each.base_offset)
    here = {each.object_id for each in committed[first:end]}
    return here ^ {row.object_id for row in rows}


def _is_committed(row: SegmentRow | None) -> bool:
    return row is not None and row.state is SegmentState.COMMITTED


def _of_row(
    partition: Partition, row: CommittedSegment, kind: FindingKind, message: str, advice: str = _BRING_BACK
) -> Finding:
    return Finding(
        kind=kind,
        topic=partition.topic,
        topic_id=partition.topic_partition.topic_id,
        partition=partition.topic_partition.partition,
        message=message,
        advice=advice,
        name=row.object_key,
        first_offset=row.base_offset,
        last_offset=row.end_offset - 1,
    )


def _unknown(partition: Partition, each: Listed) -> Finding:
    return Finding(
        kind=FindingKind.UNKNOWN_OBJECT,
        topic=partition.topic,
        topic_id=each.key.topic_id,
        partition=each.key.partition,
        message=f"the metadata store does not know this object of {each.size_bytes} bytes",
        advice=REMOVE_BY_HAND,
        name=each.name,
        first_offset=each.key.base_offset,
        last_offset=each.key.end_offset - 1,
    )
