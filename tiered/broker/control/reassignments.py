"""Moving partitions between brokers, and elections on request: what admin requests ask for, and each tick's work.

Owns the way from a request to the feed: one transaction, then the wait until this broker has applied it. Must never
copy a record: followers fetch what they are added for, and join the in-sync replicas by themselves; `advance`, which
the controller calls, swaps a target in once it has caught up.
"""

import logging
from collections.abc import Collection, Mapping
from uuid import UUID

from tiered.broker.context import BrokerContext
from tiered.broker.partitions.topics import Topics
from tiered.broker.view.feed import ChangeFeed
from tiered.broker.view.image import ClusterImage
from tiered.errors import InvalidTopic, TieredError, UnknownTopicOrPartition
from tiered.ids import TopicPartition
from tiered.meta import reassignments
from tiered.meta.partitions import PartitionRow
from tiered.meta.reassignments import Outcomes, Target
from tiered.rules.replication import reassignment

__all__ = ["Reassignments", "Target", "named"]
log = logging.getLogger(__name__)

Errors = Mapping[TopicPartition, TieredError | None]


def named(topics: Topics, name: str, index: int) -> TopicPartition:
    """The partition with this name. Raises UnknownTopicOrPartition, and InvalidTopic for one that has no replicas."""
    topic = topics.by_name(name)
    if topic.is_internal:
        raise InvalidTopic(f"topic {name} is internal and has no replicas: its records live in SQL")
    if not 0 <= index < topic.partition_count:
        raise UnknownTopicOrPartition(f"{name} has no partition {index}; refresh metadata")
    return TopicPartition(topic.topic_id, index)


class Reassignments:
    """Moves of replicas and elections that people ask for, through one broker."""

    def __init__(self, *, context: BrokerContext, topics: Topics, image: ClusterImage, feed: ChangeFeed) -> None:
        self._context = context
        self._topics = topics
        self._image = image
        self._feed = feed

    async def advance(self) -> None:
        """Completes every move whose target has caught up. Asks SQL only when the image shows one that has.

        Raises MetadataUnavailable; the next tick tries again.
        """
        image = self._image
        ready = [
            row.topic_partition
            for row in self.under_way()
            if reassignment.progress(row.replica_set, image.standings, min_isr=self._min_isr(row.topic_id)) is not None
        ]
        if not ready:
            return
        done = await self._context.database.run(lambda conn: reassignments.advance(conn, ready, min_isr=self._min_isr))
        await self._feed.caught_up(done.change_number)
        log.info("completed the reassignment of %d partitions", len(ready))

    def under_way(self) -> list[PartitionRow]:
        """The partitions that are being moved, in no order."""
        return list(self._image.moving)

    async def alter(self, targets: Mapping[TopicPartition, Target | None], *, may_resize: bool) -> Errors:
        """Begins moves, and cancels those whose target is None. Raises MetadataUnavailable."""
        if not targets:
            return {}
        done = await self._context.database.run(
            lambda conn: reassignments.alter(conn, targets, min_isr=self._min_isr, may_resize=may_resize)
        )
        return await self._applied(done)

    async def elect_preferred(self, only: Collection[TopicPartition]) -> Errors:
        """Gives partitions back to their preferred leaders. Raises MetadataUnavailable."""
        if not only:
            return {}
        return await self._applied(
            await self._context.database.run(lambda conn: reassignments.elect_preferred(conn, only))
        )

    async def elect_unclean(self, only: Collection[TopicPartition]) -> Errors:
        """Elects out-of-sync replicas where the topic allows it and nobody else is left. Raises MetadataUnavailable."""
        if not only:
            return {}

        def may_lose(topic_id: UUID) -> bool:
            topic = self._topics.find_id(topic_id)
            return topic is not None and topic.config.unclean_leader_election_enable

        done = await self._context.database.run(lambda conn: reassignments.elect_unclean(conn, only, may_lose=may_lose))
        return await self._applied(done)

    async def unregister(self, broker_id: int) -> None:
        """Forgets a broker that will not come back.

        Raises BrokerNotRegistered, PolicyViolation, MetadataUnavailable.
        """
        await self._feed.caught_up(
            await self._context.database.run(lambda conn: reassignments.unregister(conn, broker_id))
        )

    async def _applied(self, done: Outcomes) -> Errors:
        await self._feed.caught_up(done.change_number)
        return done.errors

    def _min_isr(self, topic_id: UUID) -> int:
        topic = self._topics.find_id(topic_id)
        return 1 if topic is None else topic.config.min_insync_replicas
