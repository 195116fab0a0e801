"""A controlled shutdown's first half (rule 9): what this broker leads goes to others while it still serves.

Owns the order: everything flushed, then one transaction that takes this broker out of service and elects others,
then a moment in which clients hear who leads now. Must never hold up a shutdown: what cannot be done in time is
left to the others, who find this broker silent.
"""

import asyncio
import logging
from uuid import UUID

from tiered.broker.context import BrokerContext
from tiered.broker.groups.coordinator import GroupCoordinator
from tiered.broker.partitions.topics import Topics
from tiered.broker.view.feed import ChangeFeed
from tiered.broker.view.image import ClusterImage
from tiered.errors import TieredError
from tiered.ids import InSyncReplica
from tiered.meta import elections as stored
from tiered.meta.partitions import PartitionRow
from tiered.rules.replication import elections
from tiered.rules.replication.replica_set import ReplicaSet, Standings

log = logging.getLogger(__name__)

DEADLINE_MS = 5_000
ANSWER_MS = 100
"""So long this broker still answers after it has handed over: clients hear NOT_LEADER, and look who leads."""


async def hand_over(
    *, context: BrokerContext, topics: Topics, image: ClusterImage, feed: ChangeFeed, groups: GroupCoordinator
) -> None:
    """Returns when others lead, as far as there are any, or when that took too long. Heartbeats have ended."""
    if not context.settings.cluster.controlled_shutdown_enable:
        return
    if all(row.broker_id == context.broker_id for row in image.live()):
        return  # No other broker could lead; the partitions wait for this broker.
    try:
        async with asyncio.timeout(DEADLINE_MS / 1000.0):
            await _hand_over(context, topics, feed, groups)
    except (TieredError, TimeoutError) as error:
        log.warning(
            "at shutdown: partitions were not handed over, others will find them: %s", str(error) or "it took too long"
        )


async def _hand_over(context: BrokerContext, topics: Topics, feed: ChangeFeed, groups: GroupCoordinator) -> None:
    # Records that followers have not fetched yet must not have their only copy where a power loss could take it.
    for partition in list(topics.partitions()):
        if partition.leadership is not None and partition.log.failed is None:
            try:
                await context.flusher.flushed(partition.log, partition.log.log_end_offset)
            except TieredError as error:
                log.warning("%s: what followers lack is not on the disk: %s", partition.name, error)
    min_isr: dict[UUID, int] = {topic.topic_id: topic.config.min_insync_replicas for topic in topics}

    def decide(row: PartitionRow, standings: Standings) -> ReplicaSet | None:
        return elections.after_failure(row.replica_set, standings, min_isr=min_isr.get(row.topic_id, 1))

    # First the groups: their new coordinators are known before this broker is out of service.
    await groups.hand_over()
    me = InSyncReplica(context.broker_id, context.state.broker_epoch)
    elected = await context.database.run(
        lambda conn: stored.change_replica_sets(conn, decide, fence=(me,)), deadline_ms=DEADLINE_MS
    )
    await feed.caught_up(elected.change_number)
    log.info("%d partitions were handed over", len(elected.changed))
    await asyncio.sleep(ANSWER_MS / 1000.0)
