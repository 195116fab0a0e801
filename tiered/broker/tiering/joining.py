"""Small segments in the store are put together to one, by the leader of their partition, one join after the other.

Owns which partitions may have something to join, and the order in which a join writes SQL and the store: planned row,
object, check, swap (T2, decision 0032). `rules.segments.joining` chooses the segments, `cold.bucket.rewrite` makes the
object. An interruption leaves a planned row that nobody owns, which the controller sweeps, or a swap that has happened.
Must never join what the partition's checkpoint in the bucket does not name yet: who restores from the bucket alone
could not tell an upload from what it was joined to.
"""

import logging
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from uuid import UUID

from sqlalchemy import Connection

from tiered.broker.context import BrokerContext
from tiered.broker.one_by_one import OneByOne
from tiered.broker.partitions.partition import Partition
from tiered.broker.partitions.topics import Topics
from tiered.broker.tiering.checkpoints import CheckpointWriter
from tiered.broker.tiering.committed_rows import written_object
from tiered.broker.tiering.segment_lifecycle import SETTLE_TRIES, SegmentLifecycle
from tiered.broker.view.feed import ChangeFeed
from tiered.cold.bucket import rewrite
from tiered.cold.bucket.rewrite import JoinOrder, Rewritten
from tiered.cold.object_store import ObjectStore
from tiered.errors import Corrupt, LostRace, MetadataUnavailable, Pinned, StoreUnavailable, TieredError
from tiered.formats import object_key
from tiered.formats.checkpoint import CommittedSegment
from tiered.ids import TopicPartition
from tiered.meta import pins, replacements, segments
from tiered.meta.replacements import NewObject, WrittenObject
from tiered.rules.segments import joining
from tiered.rules.segments.retention import UNLIMITED
from tiered.runtime import BlockingPool, crash_point, new_uuid

log = logging.getLogger(__name__)

JOINS_OF_ONE_PARTITION = 50
"""Then others have their turn, and its checkpoint is written."""
UNREADABLE_MS = 3_600_000.0


class Joining:
    """The joins of one broker."""

    def __init__(
        self,
        *,
        checkpoints: CheckpointWriter,
        context: BrokerContext,
        feed: ChangeFeed,
        lifecycle: SegmentLifecycle,
        topics: Topics,
    ) -> None:
        self._checkpoints = checkpoints
        self._context = context
        self._feed = feed
        self._lifecycle = lifecycle
        self._topics = topics
        self._pool = BlockingPool("join", threads=1)
        self._partitions: dict[TopicPartition, None] = {}
        self._left_alone: dict[UUID, float] = {}
        """Objects that were not joined because one beside them cannot be read, and until when, by the monotonic
        clock."""
        self._steps = OneByOne("joining segments", counters=context.counters)

    def uploaded(self, where: TopicPartition) -> None:
        """A segment more is in the store: there may be enough of them now."""
        self._partitions[where] = None

    def close(self, *, wait: bool = True) -> None:
        """Nothing is begun after this."""
        self._pool.close(wait=wait)

    async def round(self) -> None:
        """Joins what is due of the partitions that have had an upload since they were looked at, oldest segments
        first."""
        noted = [partition for where in self._partitions if (partition := self._led(where)) is not None]
        self._partitions = {partition.topic_partition: None for partition in noted}
        await self._steps.run(noted, self._join_all, name=lambda partition: partition.name)

    def _led(self, where: TopicPartition) -> Partition | None:
        partition = self._topics.hosted(where)
        return partition if partition is not None and partition.leadership is not None else None

    async def _join_all(self, partition: Partition) -> None:
        """Joins what is due of one partition. What is left, and what was joined and may be joined again, has its turn
        in the next round: so its checkpoint is written once for many joins."""
        where = partition.topic_partition
        self._partitions.pop(where, None)
        if not self._may_go_on(partition) or not await self._due(partition, lambda _segment: True):
            return
        await self._checkpoints.write_stale()
        named = frozenset(segment.object_id for segment in partition.committed)
        if self._checkpoints.is_stale(where.topic_id, where.partition):
            self.uploaded(where)
            return
        snapshots = await self._snapshots(partition)
        self._forget_left_alone()

        def is_free(segment: CommittedSegment) -> bool:
            if segment.object_id not in named or segment.object_id in self._left_alone:
                return False
            return not any(start < segment.end_offset and end > segment.base_offset for start, end in snapshots)

        for _ in range(JOINS_OF_ONE_PARTITION):
            run = await self._due(partition, is_free)
            if not run or not self._may_go_on(partition):
                return
            self.uploaded(where)
            try:
                await self._join(partition, run)
            except (LostRace, Pinned) as error:
                log.info("%s: segments were not joined: %s", partition.name, error)
                return
            except (Corrupt, StoreUnavailable) as error:
                if isinstance(error, Corrupt) or error.may_be_of_one_object:
                    self._leave_alone(run)
                raise

    async def _due(
        self, partition: Partition, is_free: Callable[[CommittedSegment], bool]
    ) -> tuple[CommittedSegment, ...]:
        config = partition.config
        deletes = config.deletes_old_segments
        choose = partial(
            joining.next_join,
            segment_bytes=config.segment_bytes,
            retention_bytes=config.retention_bytes if deletes else UNLIMITED,
            retention_ms=config.retention_ms if deletes else UNLIMITED,
            is_free=is_free,
        )
        return await self._pool.run(choose, partition.committed)

    def _leave_alone(self, run: Sequence[CommittedSegment]) -> None:
        """One of them cannot be read: the others of the partition are joined meanwhile."""
        until_ms = self._context.clock.monotonic_ms() + UNREADABLE_MS
        self._left_alone |= {segment.object_id: until_ms for segment in run}

    def _forget_left_alone(self) -> None:
        now_ms = self._context.clock.monotonic_ms()
        self._left_alone = {key: until_ms for key, until_ms in self._left_alone.items() if until_ms > now_ms}

    def _may_go_on(self, partition: Partition) -> bool:
        context = self._context
        is_led = not partition.closed and partition.leadership is not None and partition.config.uploads
        return is_led and context.store.is_ours and not context.reserve.is_low

    async def _snapshots(self, partition: Partition) -> list[tuple[int, int]]:
        """The offsets that no other object may take. Pins hold back nothing: their readers go on in what they have."""
        where = partition.topic_partition
        rows = await self._context.database.read(lambda conn: pins.list_live(conn, named=True, topic_id=where.topic_id))
        ranges = [offsets for row in rows for offsets in row.ranges if offsets.partition == where.partition]
        return [(offsets.start_offset, offsets.end_offset) for offsets in ranges]

    async def _join(self, partition: Partition, run: tuple[CommittedSegment, ...]) -> None:
        """Raises LostRace, Pinned, MetadataUnavailable, StoreUnavailable or Corrupt: then the log is as before, and
        what is left behind is swept."""
        where, timeout_ms = partition.topic_partition, self._context.settings.tiering.tiered_upload_timeout_ms
        clock = self._context.clock
        # The same moment as the row's deadline: what is stored later nobody would sweep.
        end_by_ms = clock.monotonic_ms() + timeout_ms
        object_id = new_uuid()
        key = object_key.segment_key(
            partition.topic,
            where.topic_id,
            where.partition,
            run[0].base_offset,
            run[-1].end_offset,
            run[-1].leader_epoch,
            object_id,
        )
        ids = tuple(segment.object_id for segment in run)

        def plan(conn: Connection) -> None:
            rows = segments.load_some(conn, ids)
            if len(rows) != len(ids):
                raise LostRace("some of them are unknown to the metadata store")
            wanted = NewObject(before=tuple(rows[old_id] for old_id in ids), object_id=object_id, object_key=key)
            replacements.plan(conn, [wanted], timeout_ms=timeout_ms)

        await self._context.database.run(plan)
        crash_point("join.planned")
        order = JoinOrder(
            cluster_id=self._context.state.cluster_id,
            places=tuple(partition.place_of(segment) for segment in run),
            object_key=key,
            chunk_bytes=partition.config.tiered_chunk_bytes,
            left_ms=lambda: max(0.0, end_by_ms - clock.monotonic_ms()),
        )
        try:
            done = await self._pool.run(_joined, self._context.store, order, self._context.data.root)
            crash_point("join.stored")
            await self._swap(partition, written_object(done, object_id=object_id, before=ids))
        except TieredError:
            await self._lifecycle.give_up(object_id, key)
            raise
        crash_point("join.swapped")
        self._context.counters.segments_joined += len(run)
        log.info(
            "%s: %d objects of offsets %d to %d are one now, of %d bytes",
            partition.name,
            len(run),
            run[0].base_offset,
            run[-1].end_offset,
            done.size_bytes,
        )

    async def _swap(self, partition: Partition, written: WrittenObject) -> None:
        where, grace_ms = partition.topic_partition, partition.config.tiered_purge_grace_ms
        for attempt in range(SETTLE_TRIES):
            try:
                await self._feed.commit(
                    lambda conn: replacements.swap(
                        conn, where.topic_id, where.partition, [written], purge_grace_ms=grace_ms
                    )
                )
            except MetadataUnavailable:
                # It may have happened, and then it is harmless to repeat.
                if attempt == SETTLE_TRIES - 1:
                    raise
            else:
                return


def _joined(store: ObjectStore, order: JoinOrder, folder: Path) -> Rewritten:
    """Runs in a thread. The scratch file has no name, so that nothing stays of it whatever happens."""
    with tempfile.TemporaryFile(dir=folder) as scratch:
        return rewrite.join(store, order, scratch)
