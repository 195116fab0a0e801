"""Replicas of this broker that their disk has let down: others take over what they led.

Owns the list of them, and giving them up: the broker serves on, while a replica that cannot be read or written, or
was never opened, must neither lead nor count as in sync. Must never give up what nobody else could lead.
"""

import logging
from uuid import UUID

from tiered.broker.context import BrokerContext
from tiered.broker.partitions.topics import Topics
from tiered.broker.view.feed import ChangeFeed
from tiered.broker.view.image import ClusterImage
from tiered.ids import TopicPartition
from tiered.meta import elections as stored
from tiered.meta.partitions import PartitionRow
from tiered.rules.replication import elections
from tiered.rules.replication.replica_set import ReplicaSet, Standings

log = logging.getLogger(__name__)


class FailedReplicas:
    """`resign` is called every now and then; what SQL cannot take now is given up later."""

    def __init__(self, *, context: BrokerContext, feed: ChangeFeed, image: ClusterImage, topics: Topics) -> None:
        self._context = context
        self._feed = feed
        self._image = image
        self._topics = topics
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
        if not self._failed:
            return
        min_isr: dict[UUID, int] = {topic.topic_id: topic.config.min_insync_replicas for topic in self._topics}

        def without(row: PartitionRow, standings: Standings) -> ReplicaSet | None:
            return elections.resigned(
                row.replica_set, standings, broker_id=self._context.broker_id, min_isr=min_isr.get(row.topic_id, 1)
            )

        image = self._image
        wanted = [key for key in self._failed if (row := image.row(key)) and without(row, image.standings)]
        if not wanted:
            return
        elected = await self._feed.commit(lambda conn: stored.change_replica_sets(conn, without, only=wanted))
        log.warning("%d replicas that their disk let down were given up: others lead there", len(elected.changed))
