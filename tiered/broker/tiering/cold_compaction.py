"""Compaction of the cold tier: due segments, in waves, and the order in which a wave writes SQL and the store.

For a wave of segments: planned rows, then the objects, each checked, then one swap for each partition (T2, decision
0016). An interruption leaves planned rows, which are swept like those of uploads, or a swap that has happened.

Owns that order. The caller, which has the machines, finds the newest offset of each key and rewrites the segments
(`cold.bucket.rewrite`): a Spark job. Blocks, and knows no broker: it has SQL and the store. Must never delete an object
before its row can no longer be swapped in, nor go on with a partition of which a swap has failed: waves are in order of
offsets, so that a tombstone is marked only once everything older was compacted.
"""

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from uuid import UUID

from sqlalchemy import Connection

from tiered.broker.tiering.committed_rows import committed_segment, written_object
from tiered.cold.bucket import checkpoints
from tiered.cold.bucket.rewrite import RewriteOrder, Rewritten
from tiered.cold.bucket.segments import load_tail
from tiered.cold.object_store import ObjectStore
from tiered.config import BrokerSettings, TopicConfig
from tiered.errors import (
    Corrupt,
    CorruptMetadata,
    Fenced,
    InvalidConfig,
    MetadataUnavailable,
    Pinned,
    StoreRefused,
    TieredError,
    UnknownTopicOrPartition,
)
from tiered.formats import object_key
from tiered.formats.producer_snapshot import decode_producers
from tiered.formats.segment_check import ExpectedSegment
from tiered.meta import cluster, partitions, pins, replacements, segments, settings, topics
from tiered.meta.clock import database_now_ms
from tiered.meta.engine import Database
from tiered.meta.partitions import PartitionRow
from tiered.meta.pins import PinRow
from tiered.meta.replacements import NewObject
from tiered.meta.segments import SegmentRow
from tiered.meta.topics import TopicRow
from tiered.rules.segments import compaction
from tiered.rules.segments.compaction import Compacted, Due, LastBatch
from tiered.runtime import crash_point, new_uuid

log = logging.getLogger(__name__)

SETTLE_TRIES = 5
"""A swap whose outcome is unknown is repeated until it is known: repeating it is harmless."""
_OF_ONE_PARTITION = (Fenced, Pinned, Corrupt, StoreRefused)
"""Errors that say nothing of other partitions. SQL or a store that is away ends the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Closed:
    """A committed row as the rule for local segments sees it."""

    base_offset: int
    end_offset: int
    size_bytes: int
    max_timestamp_ms: int
    created_ms: int
    written_ms: int
    times_are_proven: bool
    closed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class DuePartition:
    """A compacted partition with something in the store. `rows` are the segments that a pass may look at; `held_by` is
    the snapshot that keeps it from those above, if one does."""

    topic: TopicRow
    config: TopicConfig
    partition: int
    due: Due
    rows: tuple[SegmentRow, ...]
    newest: SegmentRow
    held_by: str | None

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.topic.name}-{self.partition}"

    def place_of(self, row: SegmentRow) -> ExpectedSegment:
        """The row as one of this partition's, which its object must say too."""
        return ExpectedSegment(
            topic=self.topic.name,
            topic_id=self.topic.topic_id,
            partition=self.partition,
            segment=committed_segment(row),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DueCompactions:
    """The segments that are due."""

    cluster_id: str
    upload_timeout_ms: int
    partitions: tuple[DuePartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One segment to rewrite: its row, the id of the new object, and all that whoever rewrites it has to know."""

    partition: DuePartition
    row: SegmentRow
    object_id: UUID
    rewrite: RewriteOrder


@dataclass(slots=True, kw_only=True)
class ColdCompactionState:
    """The progress of a run. `failed` says by partition why it was not compacted to its end."""

    looked_at_segments: int = 0
    replaced_segments: int = 0
    removed_records: int = 0
    removed_bytes: int = 0
    failed: dict[str, str] = field(default_factory=dict)


class ColdCompaction:
    """One run. Raises InvalidConfig when the store is not that of the database's cluster, and what SQL and the store
    raise."""

    def __init__(self, database: Database, store: ObjectStore) -> None:
        self._database = database
        self._store = store
        self.state = ColdCompactionState()

    # What there is to do

    def look(self, names: Collection[str] | None = None) -> DueCompactions:
        """Every partition of the compacted topics, or of those of these names. Raises UnknownTopicOrPartition."""
        wanted = self._database.run_sync(partial(_wanted, names=names))
        checkpoint = checkpoints.read_cluster_checkpoint(self._store)
        if checkpoint is None or checkpoint.cluster_id != wanted.cluster_id:
            whose = "nothing of a cluster" if checkpoint is None else f"the objects of cluster {checkpoint.cluster_id}"
            raise InvalidConfig(
                f"{self._store.url} holds {whose}, and the database describes cluster {wanted.cluster_id}: give the "
                "store and the database that the brokers have"
            )
        looked: list[DuePartition] = []
        # One transaction for each: with SQLite, brokers wait for it.
        for where in wanted.partitions:
            try:
                if where.fault:
                    raise CorruptMetadata(where.fault)
                found = self._database.run_sync(partial(_partition, where=where, wanted=wanted))
            except CorruptMetadata as error:
                self._failed(f"{wanted.topics[where.topic_id][0].name}-{where.partition}", error)
                continue
            if found is not None:
                looked.append(found)
        return DueCompactions(
            cluster_id=wanted.cluster_id, upload_timeout_ms=wanted.upload_timeout_ms, partitions=tuple(looked)
        )

    def waves(
        self, chosen: Sequence[DuePartition], *, wave_bytes: int
    ) -> Iterator[list[tuple[DuePartition, SegmentRow]]]:
        """The segments of the chosen partitions, so many bytes at a time, each partition's in order. Those that failed
        are left out."""
        wave: list[tuple[DuePartition, SegmentRow]] = []
        size_bytes = 0
        for partition in chosen:
            for row in partition.rows:
                if wave and (size_bytes + row.log_bytes > wave_bytes or len(wave) == replacements.MAX_ROWS):
                    yield wave
                    wave, size_bytes = [], 0
                if partition.name in self.state.failed:
                    break
                wave.append((partition, row))
                size_bytes += row.log_bytes
        if wave:
            yield wave

    # A wave

    def begin(self, found: DueCompactions, wave: Sequence[tuple[DuePartition, SegmentRow]]) -> list[Order]:
        """The segments to rewrite, with their rows planned. A partition that lost a segment meanwhile, or whose newest
        object cannot be read, has failed; the others go on."""
        orders: list[Order] = []
        # Readers have had the objects of this wave until now, so tombstones count from now.
        now_ms = self._database.run_sync(database_now_ms)
        for partition in _partitions_of(each for each, _ in wave):
            rows = [row for each, row in wave if each is partition]
            try:
                some = self._orders(found, partition, rows, now_ms)
                new = [
                    NewObject(before=(each.row,), object_id=each.object_id, object_key=each.rewrite.object_key)
                    for each in some
                ]
                self._database.run_sync(partial(replacements.plan, wanted=new, timeout_ms=found.upload_timeout_ms))
            except _OF_ONE_PARTITION as error:
                self._failed(partition.name, error)
                continue
            orders += some
        crash_point("compact.planned")
        return orders

    def finish(self, orders: Sequence[Order], rewritten: Mapping[UUID, Rewritten | TieredError | None]) -> None:
        """Puts the new objects in the places of the old, partition by partition. `rewritten` has what became of each
        order by its object id; None where nothing changed, and an error where the object cannot be read: then nothing
        more of its partition is compacted."""
        crash_point("compact.stored")
        for partition in _partitions_of(order.partition for order in orders):
            ours = [order for order in orders if order.partition is partition]
            results = [(order, rewritten[order.object_id]) for order in ours]
            changed = [(order, done) for order, done in results if isinstance(done, Rewritten)]
            try:
                for _, done in results:
                    if isinstance(done, TieredError):
                        raise done
                if changed:
                    self._swap(partition, changed)
            except _OF_ONE_PARTITION as error:
                self._failed(partition.name, error)
                self.give_up(ours)
                continue
            self.state.looked_at_segments += len(ours)
            for order, done in changed:
                self.state.replaced_segments += 1
                self.state.removed_records += done.removed_records
                self.state.removed_bytes += order.row.size_bytes - done.size_bytes
            self.give_up([order for order in ours if rewritten[order.object_id] is None])
        crash_point("compact.swapped")

    def give_up(self, orders: Sequence[Order]) -> None:
        """Sweeps what is left of orders that are not carried out: first they can no longer be swapped in, then the
        objects go, then the rows. Raises nothing: the controller sweeps what stays."""
        ids = [order.object_id for order in orders]
        try:
            for first in range(0, len(ids), replacements.MAX_ROWS):
                some = ids[first : first + replacements.MAX_ROWS]
                now_ms = self._database.run_sync(database_now_ms)
                rows = self._database.run_sync(partial(segments.abandon, object_ids=some, now_ms=now_ms))
                for row in rows:
                    self._store.delete(row.key_to_delete)
                gone = [row.object_id for row in rows]
                self._database.run_sync(partial(segments.fail_planned, object_ids=gone, now_ms=now_ms))
        except TieredError as error:
            log.warning("what is left of %d unfinished objects will be swept by the brokers: %s", len(ids), error)

    def _swap(self, partition: DuePartition, changed: Sequence[tuple[Order, Rewritten]]) -> None:
        written = [
            written_object(done, object_id=order.object_id, before=[order.row.object_id]) for order, done in changed
        ]
        for attempt in range(SETTLE_TRIES):
            try:
                self._database.run_sync(
                    lambda conn: replacements.swap(
                        conn,
                        partition.topic.topic_id,
                        partition.partition,
                        written,
                        purge_grace_ms=partition.config.tiered_purge_grace_ms,
                    )
                )
            except MetadataUnavailable:
                # It may have happened: then the objects are in the log, and they are no orphans.
                if attempt == SETTLE_TRIES - 1:
                    raise
            else:
                return

    def _orders(
        self, found: DueCompactions, partition: DuePartition, rows: Sequence[SegmentRow], now_ms: int
    ) -> list[Order]:
        last_batches = self._last_batches(partition)
        orders = []
        for row in rows:
            object_id = new_uuid()
            rewrite = RewriteOrder(
                cluster_id=found.cluster_id,
                place=partition.place_of(row),
                object_key=object_key.segment_key(
                    partition.topic.name,
                    partition.topic.topic_id,
                    partition.partition,
                    row.base_offset,
                    row.end_offset,
                    row.leader_epoch,
                    object_id,
                ),
                chunk_bytes=partition.config.tiered_chunk_bytes,
                now_ms=now_ms,
                delete_retention_ms=partition.config.delete_retention_ms,
                timeout_ms=found.upload_timeout_ms,
                last_batches=last_batches,
            )
            orders.append(Order(partition=partition, row=row, object_id=object_id, rewrite=rewrite))
        return orders

    def _last_batches(self, partition: DuePartition) -> dict[int, LastBatch]:
        """The last batch of each producer, as far as the store knows."""
        tail = load_tail(self._store, partition.place_of(partition.newest))
        if not tail.producer_snapshot:
            return {}
        return compaction.last_batches(decode_producers(tail.producer_snapshot))

    def cannot_read(self, partition: DuePartition, error: TieredError) -> None:
        """An object of the partition cannot be read: it is left out of all waves."""
        self._failed(partition.name, error)

    def _failed(self, name: str, error: TieredError) -> None:
        self.state.failed[name] = str(error)
        log.warning("%s: nothing more of it is compacted in this run: %s", name, error)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """The scope of a run, before any of its segments was looked at."""

    cluster_id: str
    now_ms: int
    upload_timeout_ms: int
    topics: Mapping[UUID, tuple[TopicRow, TopicConfig]]
    partitions: tuple[PartitionRow, ...]
    snapshots: tuple[PinRow, ...]


def _wanted(conn: Connection, names: Collection[str] | None) -> _Wanted:
    stored = settings.load_all(conn)
    broker_settings = BrokerSettings.of(dynamic_default=stored.get(None, {}))
    living = {row.name: row for row in topics.load_all(conn) if row.deleted_at_ms is None}
    unknown = sorted(set(names or ()) - living.keys())
    if unknown:
        raise UnknownTopicOrPartition(f"topic {unknown[0]} is not in the metadata store; check --topic")
    configs = {name: TopicConfig.of(row.configs, broker_settings) for name, row in living.items()}
    for name in names or ():
        if not configs[name].is_compacted:
            raise InvalidConfig(f"topic {name} has no cleanup.policy=compact: nothing of it may be removed by key")
    wanted = {
        row.topic_id: (row, configs[name])
        for name, row in living.items()
        if configs[name].is_compacted and (names is None or name in names)
    }
    return _Wanted(
        cluster_id=cluster.load(conn).cluster_id,
        now_ms=database_now_ms(conn),
        upload_timeout_ms=broker_settings.tiering.tiered_upload_timeout_ms,
        topics=wanted,
        partitions=tuple(row for row in partitions.load_all(conn) if row.topic_id in wanted),
        snapshots=pins.list_live(conn, named=True),
    )


def _partition(conn: Connection, where: PartitionRow, wanted: _Wanted) -> DuePartition | None:
    topic, config = wanted.topics[where.topic_id]
    rows = segments.list_committed(conn, where.topic_id, where.partition, from_offset=where.log_start_offset)
    if not rows:
        return None
    free, held_by = _before_snapshots(rows, where, wanted.snapshots)
    end_offset = free[-1].end_offset if free else rows[0].base_offset
    due = compaction.due(
        [
            _Closed(
                base_offset=row.base_offset,
                end_offset=row.end_offset,
                size_bytes=row.log_bytes,
                max_timestamp_ms=row.max_timestamp_ms,
                created_ms=row.committed_at_ms or 0,
                written_ms=row.committed_at_ms or 0,
                times_are_proven=row.max_timestamp_is_proven,
            )
            for row in free
        ],
        # Waves are in order of offsets: below the last object that was replaced, all was looked at.
        Compacted(
            clean_end_offset=max((row.end_offset for row in free if committed_segment(row).is_compacted), default=0)
        ),
        log_start_offset=where.log_start_offset,
        high_watermark=end_offset,
        last_stable_offset=end_offset,
        min_dirty_ratio=config.min_cleanable_dirty_ratio,
        min_lag_ms=config.min_compaction_lag_ms,
        max_lag_ms=config.max_compaction_lag_ms,
        now_ms=wanted.now_ms,
    )
    return DuePartition(
        topic=topic,
        config=config,
        partition=where.partition,
        due=due,
        rows=tuple(row for row in free if row.end_offset <= due.end_offset),
        newest=rows[-1],
        held_by=held_by,
    )


def _before_snapshots(
    rows: Sequence[SegmentRow], where: PartitionRow, snapshots: Sequence[PinRow]
) -> tuple[list[SegmentRow], str | None]:
    """The rows below the first that a snapshot holds. The rows above it have to wait too: a tombstone among them may
    not go while what it deletes stays."""
    held = [
        (each.start_offset, each.end_offset, snapshot.name)
        for snapshot in snapshots
        if snapshot.topic_id == where.topic_id
        for each in snapshot.ranges
        if each.partition == where.partition and each.start_offset < each.end_offset
    ]
    free: list[SegmentRow] = []
    for row in rows:
        for start_offset, end_offset, name in held:
            if start_offset < row.end_offset and end_offset > row.base_offset:
                return free, name
        free.append(row)
    return free, None


def _partitions_of(found: Iterator[DuePartition]) -> list[DuePartition]:
    """Each once, in order."""
    return list({id(each): each for each in found}.values())
