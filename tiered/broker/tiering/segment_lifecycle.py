"""The life of a segment: for uploads, retirement and purging it orders the writes to the object store and to SQL.

Upload (T2): flush and hash the local file, planned row, put, check what the store holds, commit. Each step
makes the next one safe, so a crash after any of them leaves either a planned row to sweep or a committed row
with a whole object. Retire: `log_start_offset` and the rows in one transaction. Purge: the object after its
grace period, then the row. Local files go only below what is committed (T4).

Owns the order and nothing else; rules decide what is due. Must never delete an object before its row can no
longer be committed, nor one that readers of the newest checkpoint may still ask for within the grace period.
"""

import logging
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from uuid import UUID

from tiered.broker.context import BrokerContext
from tiered.broker.one_by_one import OneByOne
from tiered.broker.partitions.partition import Partition
from tiered.broker.tiering import tier_plan
from tiered.broker.tiering.checkpoints import CheckpointWriter
from tiered.broker.tiering.clock_watch import ClockWatch
from tiered.broker.tiering.committed_rows import committed_segment
from tiered.broker.view.changes import Changes
from tiered.broker.view.feed import ChangeFeed
from tiered.broker.view.image import ClusterImage
from tiered.cold.bucket import uploader
from tiered.cold.bucket.uploader import DescribedSegment
from tiered.cold.object_store import ObjectInfo
from tiered.config import TopicConfig
from tiered.errors import (
    CorruptMetadata,
    LostRace,
    MetadataOutcomeUnknown,
    MetadataUnavailable,
    StoreUnavailable,
    TieredError,
    UploadOverdue,
)
from tiered.formats import object_key
from tiered.formats.checkpoint import CommittedSegment
from tiered.hot.log import SegmentFile
from tiered.ids import TopicPartition
from tiered.meta import segments, topics
from tiered.meta.segments import SegmentPlan, SegmentRow
from tiered.meta.topics import TopicRow
from tiered.runtime import QuietFailures, crash_point, new_uuid

log = logging.getLogger(__name__)

SWEEP_BATCH = 100
REFUSED_MS = 3_600_000.0
UNANSWERED_MS = 60_000.0
MAX_LEFT_OUT = 1_000
"""So many a listing leaves out."""
MAX_REFUSED_IN_A_ROW = 10
"""Then it is not about single objects; the next round begins behind these."""
PURGE_BATCHES = 100
# Purged rows say for so long what has become of an object.
FORGET_PURGED_AFTER_MS = 7 * 24 * 3600 * 1000
FORGET_DELETED_AFTER_MS = 24 * 3600 * 1000
FORGET_BATCH = 1_000
# A commit whose outcome is unknown is repeated until it is known: repeating it is harmless (T3).
SETTLE_TRIES = 5
NO_ROOT = "0" * 64


class SegmentLifecycle:
    """Moves segments of this broker's partitions through their states."""

    def __init__(
        self,
        *,
        context: BrokerContext,
        changes: Changes,
        checkpoints: CheckpointWriter,
        clock_watch: ClockWatch,
        feed: ChangeFeed,
        first_lost_offset: Callable[[TopicPartition], int | None],
        image: ClusterImage,
    ) -> None:
        self._context = context
        self._changes = changes
        self._checkpoints = checkpoints
        self._clock_watch = clock_watch
        self._feed = feed
        self._first_lost_offset = first_lost_offset
        self._image = image
        self._in_progress: set[UUID] = set()
        self._forgetting = OneByOne("forgetting deleted topics", counters=context.counters)
        self._refused: dict[UUID, float] = {}
        """Objects that may not be deleted, and until when they are left alone, by the monotonic clock."""
        self._unanswered: dict[UUID, float] = {}
        """As `_refused`, of objects that ended a round: the next one begins with others."""
        self._refusals = QuietFailures(
            log,
            "an object may not be deleted; others are, and it is tried again every hour "
            "(tiered_objects_undeletable has how many there are): %(error)s",
        )

    # Upload

    async def upload(self, partition: Partition, base_offset: int) -> CommittedSegment:
        """The committed segment. `base_offset` is that of a closed local segment, wholly below the last stable
        offset (T1). Raises StoreUnavailable, MetadataUnavailable, LostRace, FencedLeaderEpoch or LogDirFailed;
        the partition is then as before, and what was left behind will be swept."""
        # Taken now: a broker that is replaced meanwhile learns the next epoch, in which it must commit nothing.
        leader_epoch = partition.leader_epoch
        local = partition.log.segment_for_upload(base_offset)
        object_id = new_uuid()
        started_ms = self._context.clock.monotonic_ms()
        self._in_progress.add(object_id)
        try:
            # Bytes must survive here until they are in the store: unflushed bytes are not hashed.
            await self._context.flusher.flushed(partition.log, local.end_offset)
            previous_root = await self._previous_root(partition)
            described = await self._context.uploads.run(self._describe, partition, local, previous_root)
            # The same moment as the row's deadline, by the clock that does not jump.
            end_by_ms = self._context.clock.monotonic_ms() + self._context.settings.tiering.tiered_upload_timeout_ms
            plan = self._plan(partition, leader_epoch, local, described, object_id, previous_root)
            await self._insert_plan(partition, plan)
            crash_point("upload.planned")
            await self._put(local, described, plan, end_by_ms)
            row = await self._commit(plan)
            crash_point("upload.committed")
        finally:
            # The file closes with its last reader: a thread may still read it when this task was cancelled.
            self._in_progress.discard(object_id)
        committed = committed_segment(row)
        # The feed says so too; here it is known for certain, also when the feed is behind.
        partition.uploaded(committed)
        self._context.counters.uploads_committed += 1
        self._context.counters.uploaded_bytes += committed.size_bytes
        self._context.counters.upload_durations.observe(self._context.clock.monotonic_ms() - started_ms)
        self._checkpoints.partition_changed(partition)
        log.info("%s: offsets %d to %d are in the store", partition.name, committed.base_offset, committed.end_offset)
        return committed

    async def _previous_root(self, partition: Partition) -> str:
        """The root hash that the next object's footer names: the chain shows a swapped or missing object."""
        if partition.committed:
            return partition.committed[-1].chain_root_sha256
        where = partition.topic_partition
        newest = await self._context.database.run(
            lambda conn: segments.newest_ever_committed(conn, where.topic_id, where.partition)
        )
        return NO_ROOT if newest is None else committed_segment(newest).chain_root_sha256

    def _describe(self, partition: Partition, local: SegmentFile, previous_root: str) -> DescribedSegment:
        """Reads and hashes the local file; runs in a thread. Corrupt bytes end the upload, never reach the store."""
        return uploader.describe(
            local.fileno(),
            local.size_bytes,
            chunk_bytes=partition.config.tiered_chunk_bytes,
            cluster_id=self._context.state.cluster_id,
            topic_id=partition.topic_partition.topic_id,
            topic=partition.topic,
            partition=partition.topic_partition.partition,
            leader_epochs=local.leader_epochs,
            aborted=local.aborted,
            producer_snapshot=local.producer_snapshot,
            previous_root_sha256=bytes.fromhex(previous_root),
            times_proven_from=local.times_proven_from,
        )

    def _plan(
        self,
        partition: Partition,
        leader_epoch: int,
        local: SegmentFile,
        described: DescribedSegment,
        object_id: UUID,
        previous_root: str,
    ) -> SegmentPlan:
        where = partition.topic_partition
        table = described.table
        now_ms = self._context.cluster_now_ms
        return SegmentPlan(
            object_id=object_id,
            topic_id=where.topic_id,
            partition=where.partition,
            base_offset=local.base_offset,
            end_offset=local.end_offset,
            leader_epoch=leader_epoch,
            owner=self._context.broker_id,
            object_key=object_key.segment_key(
                partition.topic,
                where.topic_id,
                where.partition,
                local.base_offset,
                local.end_offset,
                leader_epoch,
                object_id,
            ),
            size_bytes=local.size_bytes + len(described.tail),
            log_bytes=local.size_bytes,
            min_timestamp_ms=table.min_timestamp_ms,
            max_timestamp_ms=table.max_timestamp_ms,
            max_timestamp_is_proven=table.max_timestamp_is_proven,
            record_count=table.record_count,
            root_sha256=table.root_sha256.hex(),
            previous_root_sha256=previous_root,
            planned_at_ms=now_ms,
            deadline_ms=now_ms + self._context.settings.tiering.tiered_upload_timeout_ms,
        )

    async def _insert_plan(self, partition: Partition, plan: SegmentPlan) -> None:
        try:
            await self._context.database.run(lambda conn: segments.plan(conn, plan))
        except LostRace:
            # SQL knows of a commit whose answer never came: take it over, and the next tick goes on from there.
            await self.catch_up(partition)
            raise

    async def catch_up(self, partition: Partition) -> None:
        """Takes over what SQL has committed for this partition beyond what is known here."""
        where = partition.topic_partition
        rows = await self._context.database.run(
            lambda conn: segments.list_committed(
                conn, where.topic_id, where.partition, from_offset=partition.cold_end_offset
            )
        )
        partition.learn_segments([committed_segment(row) for row in rows])
        if rows:
            self._checkpoints.partition_changed(partition)

    async def _put(self, local: SegmentFile, described: DescribedSegment, plan: SegmentPlan, end_by_ms: float) -> None:
        key = plan.object_key

        def put() -> ObjectInfo:
            left_ms = max(0.0, end_by_ms - self._context.clock.monotonic_ms())
            return self._context.store.put_segment(
                key, local.fileno(), local.size_bytes, described.tail, timeout_ms=left_ms
            )

        try:
            await self._context.uploads.run(put)
            crash_point("upload.stored")
            await self._context.uploads.run(
                uploader.verify_stored, self._context.store, key, plan.size_bytes, described.tail
            )
            crash_point("upload.verified")
        except UploadOverdue:
            raise  # The row's deadline has come too: the next sweep abandons it and deletes what is there.
        except TieredError:
            await self.give_up(plan.object_id, key)
            raise

    async def _commit(self, plan: SegmentPlan) -> SegmentRow:
        for attempt in range(SETTLE_TRIES):
            try:
                return await self._context.database.run(
                    lambda conn: segments.commit(
                        conn, plan.object_id, leader_epoch=plan.leader_epoch, now_ms=self._context.cluster_now_ms
                    )
                )
            except MetadataUnavailable:
                # The row may be committed: the object stays, and the next start or sweep asks again.
                if attempt == SETTLE_TRIES - 1:
                    raise
            except TieredError:
                await self.give_up(plan.object_id, plan.object_key)
                raise
        raise AssertionError("unreachable")

    async def give_up(self, object_id: UUID, key: str) -> None:
        """Cleans up after an upload or a join that failed, as far as possible now; the sweep does the rest. Nothing
        goes where it was committed after all."""
        try:
            await self._remove_orphans(((object_id, key),))
        except TieredError as error:
            log.info("%s: an unfinished upload will be swept later: %s", key, error)

    async def _remove_orphans(self, found: Sequence[tuple[UUID, str]]) -> int:
        """How many orphans are gone: first they can no longer be committed, then the object goes, then the row."""
        ids = [object_id for object_id, _ in found]
        now_ms = self._context.cluster_now_ms
        rows = await self._context.database.run(lambda conn: segments.abandon(conn, ids, now_ms=now_ms))
        crash_point("sweep.abandoned")
        async with self._deleting(rows) as gone:
            crash_point("sweep.deleted")
            return await self._context.database.run(lambda conn: segments.fail_planned(conn, gone, now_ms=now_ms))

    # Retention

    async def move_log_start(self, partition: Partition, log_start_offset: int, *, is_explicit: bool = False) -> None:
        """`log_start_offset` in SQL first, with the rows below it retired; from there it comes here, to all other
        replicas and to the checkpoint. Raises FencedLeaderEpoch when this broker leads no more, and Pinned where a
        snapshot holds what would go, or a pin does unless somebody `is_explicit` about it."""
        where, leader_epoch = partition.topic_partition, partition.leader_epoch
        await self.retire(where, leader_epoch, partition.config, log_start_offset, is_explicit=is_explicit)

    async def retire(
        self, where: TopicPartition, leader_epoch: int, config: TopicConfig, log_start_offset: int, *, is_explicit: bool
    ) -> None:
        """As `move_log_start`, also of a partition that is not open here."""
        now_ms = self._context.cluster_now_ms
        try:
            await self._feed.commit(
                lambda conn: segments.retire_before(
                    conn,
                    where.topic_id,
                    where.partition,
                    leader_epoch=leader_epoch,
                    new_log_start_offset=log_start_offset,
                    now_ms=now_ms,
                    purge_after_ms=now_ms + config.tiered_purge_grace_ms,
                    is_explicit=is_explicit,
                )
            )
        except MetadataOutcomeUnknown:
            # The objects may be retired, and gone after their grace: no reader may be sent to them then.
            self._changes.doubt()
            raise
        crash_point("retire.committed")

    async def delete_local(self, partition: Partition) -> None:
        """Removes the local segments that local retention gives up; open readers keep their files. A segment that the
        store has lost stays: consumers read it, and it may be the last copy. All stay while the store may be another
        cluster's: no restore would find the copy there."""
        if not self._context.store.is_ours:
            return
        before = tier_plan.local_delete_before(partition, self._context.clock.now_ms())
        lost = self._first_lost_offset(partition.topic_partition)
        if lost is not None:
            before = min(before, lost)
        if before and not partition.closed:  # Another object may own the same files by now.
            partition.changed()
            removed = await self._context.disk.run(partition.log.delete_local_before, before)
            self._context.counters.local_segments_deleted += len(removed)

    # Sweeping

    async def sweep(self, *, at_start: bool = False) -> None:
        """Removes what failed uploads left, then objects whose grace is over. Bounded a round.

        At start every planned row of this broker is an orphan: no upload is in progress. Later only those
        past their deadline that are not in progress.
        """
        now_ms = self._context.cluster_now_ms
        before_ms = now_ms + 1 if at_start else now_ms - self._context.settings.tiering.tiered_upload_timeout_ms
        left_out = {*self._in_progress, *self._left_alone()}
        planned = await self._context.database.run(
            lambda conn: segments.list_planned(
                conn, owner=self._context.broker_id, planned_before_ms=before_ms, limit=SWEEP_BATCH + len(left_out)
            )
        )
        orphans = [(row.object_id, row.object_key) for row in planned if row.object_id not in left_out]
        failed: Exception | None = None
        try:
            if orphans:
                self._context.counters.orphans_swept += await self._remove_orphans(orphans[:SWEEP_BATCH])
                log.info("swept %d unfinished uploads", len(orphans[:SWEEP_BATCH]))
        except (TieredError, OSError) as error:
            # No `finally`: where the rest failed too, nobody would see that a stop has cancelled this.
            failed = error
        await self._purge(now_ms)
        if failed is not None:
            raise failed

    async def sweep_of_the_dead(self) -> None:
        """Removes what failed uploads left of brokers that are not in service: they may never come back."""
        live = {row.broker_id for row in self._image.live()}
        before_ms = self._context.cluster_now_ms - self._context.settings.tiering.tiered_upload_timeout_ms
        left_out = self._left_alone()
        found = await self._context.database.run(
            lambda conn: segments.list_overdue_planned(
                conn, planned_before_ms=before_ms, limit=SWEEP_BATCH + len(left_out), except_owners=live
            )
        )
        orphans = [(row.object_id, row.object_key) for row in found if row.object_id not in left_out][:SWEEP_BATCH]
        if orphans:
            self._context.counters.orphans_swept += await self._remove_orphans(orphans)
            log.info("swept %d uploads that dead brokers left unfinished", len(orphans))

    async def abort_abandoned_uploads(self) -> None:
        """Frees the parts that killed uploads left in the store, where they cost money and nobody sees them."""
        before_ms = self._context.cluster_now_ms - self._context.settings.tiering.tiered_upload_timeout_ms
        aborted = await self._context.uploads.run(
            lambda: self._context.store.abort_abandoned_uploads(object_key.SEGMENTS_PREFIX, started_before_ms=before_ms)
        )
        if aborted:
            log.info("freed the parts of %d dead uploads", len(aborted))

    async def _purge(self, now_ms: int) -> None:
        """Deletes what retention gave up: of partitions that this broker leads, and as controller of deleted topics."""
        if not self._clock_watch.look().is_trusted:
            return  # By a clock that jumped, every grace would be over.
        me = self._context.broker_id
        await self._purge_all(partial(segments.list_purgeable, now_ms=now_ms, leader=me, limit=SWEEP_BATCH))
        if self._context.state.is_controller:
            await self._purge_all(partial(segments.list_purgeable_of_deleted_topics, now_ms=now_ms, limit=SWEEP_BATCH))
        self._context.counters.objects_refused = len(self._refused)

    async def _purge_all(self, list_some: Callable[..., Sequence[SegmentRow]]) -> None:
        waiting: set[UUID] = set()
        for _ in range(PURGE_BATCHES):
            if await self._purge_batch(list_some, waiting) < SWEEP_BATCH or len(waiting) >= MAX_LEFT_OUT:
                return

    async def _purge_batch(self, list_some: Callable[..., Sequence[SegmentRow]], waiting: set[UUID]) -> int:
        """How many objects it looked at. `waiting` are those that a checkpoint may still name: they block none behind
        them."""
        left_out = (*waiting, *self._left_alone())[:MAX_LEFT_OUT]
        rows = await self._context.database.run(lambda conn: list_some(conn, left_out=left_out))
        if not rows:
            return 0
        # No checkpoint may name an object that is gone: readers plan from them. Some were retired by others than us.
        await self._feed.refresh()
        await self._checkpoints.write_stale()
        fresh = [row for row in rows if not self._checkpoints.is_stale(row.topic_id, row.partition)]
        waiting.update({row.object_id for row in rows} - {row.object_id for row in fresh})
        async with self._deleting(fresh) as gone:
            if gone:
                purged_at_ms = self._context.cluster_now_ms
                self._context.counters.objects_purged += await self._context.database.run(
                    lambda conn: segments.mark_purged(conn, gone, now_ms=purged_at_ms)
                )
        return len(rows)

    def _left_alone(self) -> set[UUID]:
        """Objects whose deletion failed not long ago."""
        now_ms = self._context.clock.monotonic_ms()
        self._refused = {key: until_ms for key, until_ms in self._refused.items() if until_ms > now_ms}
        self._unanswered = {key: until_ms for key, until_ms in self._unanswered.items() if until_ms > now_ms}
        return {*self._refused, *self._unanswered}

    @asynccontextmanager
    async def _deleting(self, rows: Iterable[SegmentRow]) -> AsyncIterator[list[UUID]]:
        """The ids of those whose objects are gone, to be noted within it.

        An object that may not be deleted, as under a lock, holds up no other: it is named, and tried again after an
        hour. Where the store gives no answer, or refuses one after the other, that is raised behind the note of those
        that are gone. Raises StoreUnavailable.
        """
        gone: list[UUID] = []
        failure: TieredError | None = None
        in_a_row = 0
        for row in rows:
            try:
                await self._context.uploads.run(self._context.store.delete, row.key_to_delete)
            except (StoreUnavailable, CorruptMetadata) as error:
                in_a_row += 1
                is_of_object = isinstance(error, CorruptMetadata) or (
                    error.may_be_of_one_object and await self._is_let_in()
                )
                if is_of_object:
                    self._refusals.failed(error)
                    self._refused[row.object_id] = self._context.clock.monotonic_ms() + REFUSED_MS
                else:
                    self._unanswered[row.object_id] = self._context.clock.monotonic_ms() + UNANSWERED_MS
                if not is_of_object or in_a_row == MAX_REFUSED_IN_A_ROW:
                    failure = error.without_frames()
                    break
            else:
                crash_point("purge.deleted")
                in_a_row = 0
                gone.append(row.object_id)
        yield gone
        if failure is not None:
            raise failure

    async def _is_let_in(self) -> bool:
        """Whether the store answers who wants nothing but to read: else a refusal says nothing about one object."""
        try:
            await self._context.uploads.run(self._context.store.look, object_key.cluster_checkpoint_key())
        except TieredError:
            return False
        return True

    async def forget_deleted_topics(self) -> None:
        """Ends deleted topics of which no object is left: their checkpoints first, then their last rows.

        One whose checkpoints may not be deleted holds up no other. Raises StoreUnavailable behind them.
        """
        # Brokers learn of a deletion by its tombstone: one that was cut off for a while must still find it.
        grace_ms = FORGET_DELETED_AFTER_MS if len(self._image.brokers) > 1 else -1
        before_ms = self._context.cluster_now_ms - grace_ms
        limit = SWEEP_BATCH + self._forgetting.failing_count
        found = await self._context.database.run(
            lambda conn: topics.list_forgettable(conn, deleted_before_ms=before_ms, limit=limit)
        )
        if not found:
            return
        if self._checkpoints.cluster_is_stale:
            await self._checkpoints.write_stale()
        ids: list[UUID] = []

        async def remove(topic: TopicRow) -> None:
            await self._checkpoints.remove(topic.topic_id, topic.partition_count)
            crash_point("forget.checkpoints_removed")
            ids.append(topic.topic_id)

        try:
            await self._forgetting.run(found, remove, name=lambda topic: f"{topic.name} ({topic.topic_id})")
        finally:
            if ids:
                await self._context.database.run(
                    lambda conn: topics.forget_deleted(conn, deleted_before_ms=before_ms, only=ids, limit=limit)
                )

    async def forget_purged(self) -> None:
        """Keeps the metadata store from growing for ever: rows of objects that are long gone."""
        before_ms = self._context.cluster_now_ms - FORGET_PURGED_AFTER_MS
        while await self._context.database.run(
            lambda conn: segments.forget_purged(conn, purged_before_ms=before_ms, limit=FORGET_BATCH)
        ):
            pass
