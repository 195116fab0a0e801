"""Keeps the bucket's checkpoints up with SQL, so that the bucket is enough by itself.

Owns which checkpoints are stale and what was written last. A partition's is its leader's to write, the cluster's is
the controller's. Must never hold up an upload or a request: what
cannot be written now stays stale and is written on a later tick. SQL decides, a checkpoint follows.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from uuid import UUID

from sqlalchemy import Connection

from tiered.broker.context import BrokerContext
from tiered.broker.host.resource_configs import ResourceConfigs
from tiered.broker.one_by_one import AWAY, IN_A_ROW
from tiered.broker.partitions.partition import Partition
from tiered.broker.partitions.topics import Topics
from tiered.broker.view.image import ClusterImage
from tiered.cold.bucket import checkpoints
from tiered.errors import CorruptMetadata, ObjectExists, StoreRefused, TieredError
from tiered.formats import segment_check
from tiered.formats.acl_entries import AclEntry
from tiered.formats.checkpoint import ClusterCheckpoint, PageRef, PartitionCheckpoint, TopicEntry
from tiered.formats.pin_entries import PinEntry, PinnedOffsets
from tiered.meta import pins
from tiered.meta.pins import PinRow
from tiered.meta.security import AclRow
from tiered.runtime import QuietFailures, crash_point, in_turns

log = logging.getLogger(__name__)

MAX_WRITES_A_ROUND = 200


class CheckpointWriter:
    """Writes stale checkpoints, a bounded number a round, one at a time."""

    def __init__(
        self, *, context: BrokerContext, image: ClusterImage, resource_configs: ResourceConfigs, topics: Topics
    ) -> None:
        self._context = context
        self._image = image
        self._resource_configs = resource_configs
        self._topics = topics
        self._stale: dict[tuple[UUID, int], Partition] = {}
        self._cluster_is_stale = True
        self._cluster_changes = 0
        self._cluster_written: tuple[ClusterCheckpoint, str] | None = None
        """What the last write left in the store, and its etag."""
        self._settings: dict[str, dict[str, str]] = {}
        self._acls: tuple[tuple[AclRow, ...], tuple[AclEntry, ...]] = ((), ())
        """The rows that entries were last made of, and those."""
        self._pins: frozenset[UUID] = frozenset()
        self._pages: dict[tuple[UUID, int], frozenset[PageRef]] = {}
        """Of each partition that is led here, the pages that hold what SQL says: it costs much to compare them."""
        self._removed: dict[UUID, set[int]] = {}
        """Of deleted topics, the partitions whose checkpoints are gone."""
        self._turn = asyncio.Lock()
        self._failures = QuietFailures(
            log,
            "the checkpoint of %(name)s could not be written; stale ones are tried again and again: %(error)s",
            "checkpoints are written again",
        )

    def opened(self, partition: Partition) -> None:
        """The bucket may lack the last commit or retirement, by this or another leader: it is written again."""
        if partition.cold_end_offset > 0:
            self.partition_changed(partition)

    def partition_changed(self, partition: Partition) -> None:
        where = partition.topic_partition
        self._stale[where.topic_id, where.partition] = partition

    def cluster_changed(self) -> None:
        """Topics or their configs are other than the bucket's checkpoint says, or may be."""
        self._cluster_is_stale = True
        self._cluster_changes += 1

    def settings_changed(self, stored: Mapping[int | None, Mapping[str, str]]) -> None:
        """The settings that were altered at run time, by broker id; None is for all."""
        self._settings = {
            "" if broker_id is None else str(broker_id): dict(values) for broker_id, values in stored.items() if values
        }
        self.cluster_changed()

    async def look_at_pins(self) -> None:
        """Pins and snapshots are taken and given up by any broker, past the feed: the controller asks for them now and
        then. Raises MetadataUnavailable."""
        if self._context.state.is_controller and await self._context.database.read(pins.list_ids) != self._pins:
            self.cluster_changed()

    def is_stale(self, topic_id: UUID, partition: int) -> bool:
        """True while the bucket's checkpoints may still name objects that SQL has retired."""
        topic = self._topics.find_id(topic_id)
        if topic is None:
            return self._cluster_is_stale  # Deleted: readers who plan from the bucket must not find the topic.
        # Of one that cannot be opened nobody has looked what its checkpoint says.
        return partition in topic.unopened or (topic_id, partition) in self._stale

    @property
    def cluster_is_stale(self) -> bool:
        """True while the bucket may still list topics that are gone, and this broker is the one to write it."""
        return self._cluster_is_stale and self._context.state.is_controller

    @property
    def stale_count(self) -> int:
        return len(self._stale) + self.cluster_is_stale

    async def write_stale(self) -> None:
        """Writes what is stale, if the store is ours. A failure leaves it stale, is counted, and raises nothing."""
        if not self._context.store.is_ours:
            return
        async with self._turn:
            failures = self._context.counters.checkpoint_failures
            was_stale = self.stale_count > 0
            if self.cluster_is_stale:
                await self._write_cluster()
            for key, partition in list(self._stale.items()):
                if partition.leadership is None:
                    del self._stale[key]  # Its leader writes it, and begins with that when it is elected.
                    self._pages.pop(key, None)
            away_in_a_row = 0
            for key, partition in list(self._stale.items())[:MAX_WRITES_A_ROUND]:
                # Stale until it is written: a deletion of an object asks for it meanwhile.
                segments, log_start_offset = partition.committed, partition.log_start_offset
                error = await self._write_partition(partition)
                if error is not None:
                    self._failed(partition.name, error)
                    # Behind the others, so that they have their turn.
                    self._stale[key] = self._stale.pop(key, partition)
                elif (segments, log_start_offset) == (partition.committed, partition.log_start_offset):
                    self._stale.pop(key, None)
                away_in_a_row = away_in_a_row + 1 if isinstance(error, AWAY) else 0
                if away_in_a_row == IN_A_ROW:
                    break
            if was_stale and failures == self._context.counters.checkpoint_failures:
                self._failures.worked()

    async def remove(self, topic_id: UUID, partition_count: int) -> None:
        """Removes the checkpoints of a deleted topic, whose objects are gone. One that may not be deleted blocks no
        other, and what is gone is not deleted again. Raises StoreUnavailable."""
        removed = self._removed.setdefault(topic_id, set())
        refused: StoreRefused | None = None
        async with self._turn:
            for partition in range(partition_count):
                self._stale.pop((topic_id, partition), None)
                self._pages.pop((topic_id, partition), None)
                if partition in removed:
                    continue
                delete = partial(checkpoints.delete_partition_checkpoint, self._context.store, topic_id, partition)
                try:
                    await self._context.uploads.run(delete)
                except StoreRefused as error:
                    refused = error.without_frames()
                else:
                    removed.add(partition)
        if refused is not None:
            raise refused
        del self._removed[topic_id]

    async def create_cluster_checkpoint(self) -> None:
        """Writes the cluster's checkpoint where the store has none: the store is this cluster's then. Any broker does.

        Raises TieredError; returns also where somebody else was first."""
        checkpoint = await self._cluster_checkpoint(await self._context.database.read(_list_pins))
        with suppress(ObjectExists):
            await self._context.uploads.run(checkpoints.create_cluster_checkpoint, self._context.store, checkpoint)

    async def _write_cluster(self) -> None:
        changes = self._cluster_changes
        try:
            held = await self._context.database.read(_list_pins)
            checkpoint = await self._cluster_checkpoint(held)
            known, self._cluster_written = self._cluster_written, None  # Nor is it known after a failure.
            self._cluster_written = await self._context.uploads.run(
                checkpoints.write_cluster_checkpoint, self._context.store, checkpoint, known
            )
        except TieredError as error:
            self._failed("the cluster", error)
        else:
            self._cluster_is_stale = changes != self._cluster_changes
            self._pins = frozenset(each.pin_id for each in held)

    async def _cluster_checkpoint(self, held: tuple[PinRow, ...]) -> ClusterCheckpoint:
        """What changes while it is made may be in it or not: then it is stale, and written again."""
        version = self._image.change_number
        topics = [
            TopicEntry(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_count=topic.partition_count,
                configs=dict(topic.overrides),
                replication_factor=self._image.replication_factor(topic.topic_id) or topic.replication_factor,
            )
            async for topic in in_turns(self._topics)
            if not topic.is_internal
        ]
        rows = self._context.state.security.acls
        if self._acls[0] is not rows:
            self._acls = rows, await self._context.uploads.run(_acl_entries, rows)
        resources = self._resource_configs.stored.items()
        return ClusterCheckpoint(
            version=version,
            cluster_id=self._context.state.cluster_id,
            topics=tuple(topics),
            settings=self._settings,
            pins=tuple(_entry(each) for each in held),
            acls=self._acls[1],
            resource_configs={f"{kind}:{name}": dict(some) async for (kind, name), some in in_turns(resources)},
        )

    async def _write_partition(self, partition: Partition) -> TieredError | None:
        """None when the bucket has it."""
        where = partition.topic_partition
        topic = self._topics.find_id(where.topic_id)
        if topic is None:
            return None  # Deleted: the topic is gone from the cluster's checkpoint.
        checkpoint = PartitionCheckpoint(
            version=0,
            cluster_id=self._context.state.cluster_id,
            topic=partition.topic,
            topic_id=where.topic_id,
            partition=where.partition,
            partition_count=topic.partition_count,
            log_start_offset=partition.log_start_offset,
            cold_end_offset=partition.cold_end_offset,
            leader_epoch=partition.leader_epoch,
            pages=(),
            segments=partition.committed,
            high_watermark=partition.high_watermark,
        )
        fault = _fault_of_ends(checkpoint)
        if fault is not None:
            words = f"{fault}; the bucket's stays as it was. If it goes on, restart the broker: it reads SQL anew"
            return CorruptMetadata(words)
        key = where.topic_id, where.partition
        write = partial(checkpoints.write_partition_checkpoint, known=self._pages.get(key, frozenset()))
        try:
            crash_point("checkpoint.before")
            written = await self._context.uploads.run(write, self._context.store, checkpoint)
            crash_point("checkpoint.written")
        except TieredError as error:
            return error.without_frames()
        if written.pages:
            self._pages[key] = frozenset(written.pages)
        return None

    def _failed(self, name: str, error: TieredError) -> None:
        """However many are stale, one line."""
        self._context.counters.checkpoint_failures += 1
        self._failures.failed(error, of=name)


def _fault_of_ends(checkpoint: PartitionCheckpoint) -> str | None:
    """Why readers would refuse it, by its first and its last segment alone: it must replace none that they take."""
    segments = checkpoint.segments
    first = segment_check.check_follows(None, segments[0], checkpoint.log_start_offset) if segments else ()
    fault = next(iter(first), None) or segment_check.check_end(checkpoint, segments[-1] if segments else None)
    return None if fault is None else f"{fault.message} (offsets {fault.first_offset} to {fault.last_offset})"


def _acl_entries(acls: Iterable[AclRow]) -> tuple[AclEntry, ...]:
    return tuple(
        AclEntry(
            resource_type=row.resource_type,
            resource_name=row.resource_name,
            pattern_type=row.pattern_type,
            principal=row.principal,
            host=row.host,
            operation=row.operation,
            permission=row.permission,
        )
        for row in acls
    )


def _list_pins(conn: Connection) -> tuple[PinRow, ...]:
    return (*pins.list_live(conn, named=True), *pins.list_live(conn, named=False))


def _entry(row: PinRow) -> PinEntry:
    return PinEntry(
        pin_id=row.pin_id,
        name=row.name,
        topic_id=row.topic_id,
        owner=row.owner,
        created_at_ms=row.created_at_ms,
        expires_at_ms=row.expires_at_ms,
        ranges=tuple(
            PinnedOffsets(partition=each.partition, start_offset=each.start_offset, end_offset=each.end_offset)
            for each in row.ranges
        ),
    )
