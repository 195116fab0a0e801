"""Replicas of this broker that their disk has let down, or that it should not lead: others take over what they led.

Owns the list of them, and giving them up: the broker serves on, while a replica that cannot be read or written, or
was never opened, must neither lead nor count as in sync. While the disk is full that is so of all replicas of this
broker that others can do without. While it alone does not reach the object store it leads nothing that others can, and
stays in sync. Must never give up what nobody else could lead.

The ISR alone tells the other brokers: they elect nobody who is not in it, and the preferred leader is elected again
when it has caught up. So a replica that was given up for a full disk is not fetched until there is room
(`replication.fetcher`), or it would be in sync again at once.
"""

import logging
from collections.abc import Iterator, Sequence
from typing import Protocol
from uuid import UUID

from tiered.broker.context import BrokerContext
from tiered.broker.partitions.partition import Partition
from tiered.broker.partitions.topics import Topics
from tiered.broker.view.feed import ChangeFeed
from tiered.broker.view.image import ClusterImage
from tiered.broker.view.store_reach import StoreReach
from tiered.ids import TopicPartition
from tiered.meta import elections as stored
from tiered.meta.elections import Decide
from tiered.meta.partitions import PartitionRow
from tiered.rules.replication import elections
from tiered.rules.replication.replica_set import ReplicaSet, Standings
from tiered.runtime import in_turns

log = logging.getLogger(__name__)


class Resignation(Protocol):
    """The effect on a partition of giving up one broker's replica; None where it stays."""

    def __call__(
        self, before: ReplicaSet, standings: Standings, *, broker_id: int, min_isr: int
    ) -> ReplicaSet | None: ...


class FailedReplicas:
    """`resign` is called every now and then; what SQL cannot take now is given up later."""

    def __init__(
        self, *, context: BrokerContext, feed: ChangeFeed, image: ClusterImage, topics: Topics, reach: StoreReach
    ) -> None:
        self._context = context
        self._reach = reach
        self._feed = feed
        self._image = image
        self._topics = topics
        self._kept_at = -1
        """The change as of which nobody else could lead what this broker should not."""
        self._failed: set[TopicPartition] = set()

    def __contains__(self, key: TopicPartition) -> bool:
        return key in self._failed

    def add(self, key: TopicPartition) -> None:
        self._failed.add(key)

    def discard(self, key: TopicPartition) -> None:
        """It works again, or is not held here any more."""
        self._failed.discard(key)

    async def resign(self) -> None:
        """Leaves the ISRs that go on without these replicas. Raises MetadataUnavailable."""
        if self._failed:
            count = await self._give_up(list(self._failed), self._without(elections.resigned))
            if count:
                log.warning("%d replicas that their disk let down were given up: others lead there", count)
        if self._context.reserve.is_short:
            spare = [partition.topic_partition for partition in self._spare()]
            count = await self._give_up(spare, self._without(elections.spared))
            if count:
                log.warning("the disk is full: %d replicas are left to other brokers until there is space", count)
        if self._reach.is_others_turn() and self._image.change_number != self._kept_at:
            led = [
                partition.topic_partition for partition in self._topics.partitions() if partition.leadership is not None
            ]
            change_number = self._image.change_number
            count = await self._give_up(led, self._passed_on)
            if not count:
                self._kept_at = change_number
            else:
                log.warning("this broker alone does not reach the object store: %d partitions are led by others", count)

    def _spare(self) -> Iterator[Partition]:
        """The partitions that lose nothing when another broker leads: what this broker appended, acknowledged with
        acks=1 too, its followers have. They soon do, for nothing is appended any more."""
        for partition in self._topics.partitions():
            if partition.leadership is None or partition.high_watermark >= partition.log.log_end_offset:
                yield partition

    def _passed_on(self, row: PartitionRow, standings: Standings) -> ReplicaSet | None:
        return elections.passed_on(row.replica_set, standings, broker_id=self._context.broker_id)

    def _without(self, rule: Resignation) -> Decide:
        min_isr: dict[UUID, int] = {topic.topic_id: topic.config.min_insync_replicas for topic in self._topics}

        def without(row: PartitionRow, standings: Standings) -> ReplicaSet | None:
            return rule(
                row.replica_set, standings, broker_id=self._context.broker_id, min_isr=min_isr.get(row.topic_id, 1)
            )

        return without

    async def _give_up(self, keys: Sequence[TopicPartition], decide: Decide) -> int:
        """How many of these partitions `decide` changed."""
        image = self._image
        wanted = []
        async for key in in_turns(keys):
            row = image.row(key)
            if row is not None and decide(row, image.standings) is not None:
                wanted.append(key)
        if not wanted:
            return 0
        elected = await self._feed.commit(lambda conn: stored.change_replica_sets(conn, decide, only=wanted))
        return len(elected.changed)
