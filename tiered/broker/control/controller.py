"""One broker's work for all: it fences brokers that fall silent, and sees that every partition has a leader.

Owns that work while the broker holds the lease. Every change is a compare-and-swap that decides on the rows as the
transaction finds them, so two controllers at once do no harm (rule 10). Must never decide what a partition becomes:
`rules.replication.elections` does. One round at a time; a round that fails is begun again with the next heartbeat.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable
from uuid import UUID

from tiered.broker.context import BrokerContext
from tiered.broker.control.reassignments import Reassignments
from tiered.broker.partitions.topics import Topics
from tiered.broker.tiering.checkpoints import CheckpointWriter
from tiered.broker.view.feed import ChangeFeed
from tiered.broker.view.image import ClusterImage
from tiered.config import TopicConfig
from tiered.errors import TieredError
from tiered.ids import InSyncReplica, TopicPartition
from tiered.meta import elections as stored
from tiered.meta.partitions import PartitionRow
from tiered.rules.replication import elections
from tiered.rules.replication.replica_set import NO_LEADER, ReplicaSet, Standings
from tiered.runtime import QuietFailures, Worker, in_turns

log = logging.getLogger(__name__)

NO_CONFIG = TopicConfig()


class Controller:
    """Begins its work with `lead`, which each heartbeat that holds the lease calls; ends it with `resign`."""

    def __init__(
        self,
        *,
        context: BrokerContext,
        reassignments: Reassignments,
        balance_slots: Callable[[], Awaitable[object]],
        checkpoints: CheckpointWriter,
        feed: ChangeFeed,
        image: ClusterImage,
        topics: Topics,
    ) -> None:
        self._context = context
        self._reassignments = reassignments
        self._balance_slots = balance_slots
        self._checkpoints = checkpoints
        self._feed = feed
        self._image = image
        self._topics = topics
        self._worker = Worker()
        self._beat = asyncio.Event()
        self._silent: tuple[InSyncReplica, ...] = ()
        self._unsettled: set[TopicPartition] = set()
        """Partitions that may lack a leader, or name one that is out of service."""
        self._must_look_at_all = True
        self._balanced_ms: float | None = None
        self._failures = QuietFailures(
            log,
            "controller: %(name)s failed and is tried again and again: %(error)s",
            "controller: %(name)s works again",
        )

    @property
    def is_leading(self) -> bool:
        """Whether this broker holds the lease, as its last heartbeat saw it."""
        return self._context.state.is_controller

    def start(self, group: asyncio.TaskGroup) -> None:
        self._worker.start(group, self._work())

    async def stop(self) -> None:
        """Begins nothing more. Until the lease is given up, what only the controller writes is still this broker's."""
        await self._worker.stop()

    # What heartbeats and the feed say

    def lead(self, silent: Collection[InSyncReplica]) -> None:
        """The lease is held; these registrations have fallen silent."""
        if not self._context.state.is_controller:
            self._context.state.is_controller = True
            self._must_look_at_all = True
            self._balanced_ms = self._context.clock.monotonic_ms()
            self._checkpoints.cluster_changed()  # The controller before this one may not have written the last change.
            log.info("this broker is the controller now")
        self._silent = tuple(silent)
        self._beat.set()

    def resign(self) -> None:
        """The lease is not held, or that is not known."""
        if self._context.state.is_controller:
            self._context.state.is_controller = False
            log.info("this broker is not the controller any more")

    def changed(self, rows: Iterable[PartitionRow], *, brokers_changed: bool) -> None:
        """The feed has applied these rows."""
        self._must_look_at_all = self._must_look_at_all or brokers_changed
        self._unsettled.update(row.topic_partition for row in rows)
        if self._context.state.is_controller:
            self._beat.set()

    def configs_changed(self, topic_ids: Iterable[UUID], *, of_all: bool) -> None:
        """Topics have new configs, or all of them: what is to become of their partitions depends on these."""
        self._must_look_at_all = self._must_look_at_all or of_all
        self._unsettled.update(row.topic_partition for topic_id in topic_ids for row in self._image.rows_of(topic_id))
        if self._context.state.is_controller:
            self._beat.set()

    # The task

    async def _work(self) -> None:
        while True:
            await self._beat.wait()
            self._beat.clear()
            if self._context.state.is_controller:
                await self._quietly("fencing and electing", self._elect)
                await self._quietly("giving partitions back to their preferred leaders", self._balance)
                await self._quietly("reassigning partitions", self._reassignments.advance)
                await self._quietly("sharing the groups' slots", self._balance_slots)

    async def _quietly(self, name: str, work: Callable[[], Awaitable[object]]) -> None:
        try:
            await work()
        except TieredError as error:
            self._failures.failed(error, name)
        except Exception:
            # A tick boundary: the next heartbeat begins anew.
            log.exception("controller: %s failed in an unforeseen way", name)
        else:
            self._failures.worked(name)

    # Elections

    async def _elect(self) -> None:
        silent = tuple(each for each in self._silent if self._image.is_current(each))
        wanted = await self._unsettled_partitions()
        if not silent and not wanted:
            return
        # A copy: it is looked at in a thread.
        topics = self._topics if silent else filter(None, map(self._topics.find_id, {key.topic_id for key in wanted}))
        configs: dict[UUID, TopicConfig] = {topic.topic_id: topic.config for topic in topics}
        decide = _decision(lambda topic_id: configs.get(topic_id, NO_CONFIG))
        elected = await self._context.database.run(
            lambda conn: stored.change_replica_sets(conn, decide, fence=silent, only=None if silent else wanted)
        )
        self._silent = ()
        counters = self._context.counters
        counters.brokers_fenced += len(elected.fenced)
        counters.unclean_elections += sum(self._was_unclean(row) for row in elected.changed)
        for each in elected.fenced:
            log.warning("broker %d is silent and was fenced: others lead what it led", each.broker_id)
        await self._feed.caught_up(elected.change_number)

    async def _unsettled_partitions(self) -> list[TopicPartition]:
        """Where an election would change something, as far as the image knows."""
        image = self._image
        if self._must_look_at_all:
            self._must_look_at_all = False
            self._unsettled.update(image.rows)
        looked_at, self._unsettled = self._unsettled, set()
        decide = _decision(self._config_of)
        found = []
        async for key in in_turns(looked_at):
            row = image.row(key)
            if row is not None and not row.fault and decide(row, image.standings) is not None:
                found.append(key)
        self._unsettled.update(found)  # Until the feed has shown that they are settled.
        return found

    def _was_unclean(self, row: PartitionRow) -> bool:
        """Whether somebody leads who was not in sync, as far as the image knew."""
        before = self._image.row(row.topic_partition)
        was_unclean = before is not None and row.leader != NO_LEADER and before.replica_set.member(row.leader) is None
        if was_unclean:
            log.error("partition %s was given to broker %d, which lacks records", row.topic_partition, row.leader)
        return was_unclean

    def _config_of(self, topic_id: UUID) -> TopicConfig | None:
        topic = self._topics.find_id(topic_id)
        return None if topic is None else topic.config

    # Preferred leaders

    async def _balance(self) -> None:
        settings = self._context.settings
        now_ms = self._context.clock.monotonic_ms()
        due_ms = 1000.0 * settings.cluster.leader_imbalance_check_interval_seconds
        if self._balanced_ms is not None and now_ms - self._balanced_ms < due_ms:
            return
        self._balanced_ms = now_ms
        wanted = self._imbalanced() if settings.cluster.auto_leader_rebalance_enable else []
        if not wanted:
            return

        def decide(row: PartitionRow, standings: Standings) -> ReplicaSet | None:
            return elections.preferred(row.replica_set, standings)

        elected = await self._context.database.run(lambda conn: stored.change_replica_sets(conn, decide, only=wanted))
        log.info("%d partitions went back to their preferred leaders", len(elected.changed))
        await self._feed.caught_up(elected.change_number)

    def _imbalanced(self) -> list[TopicPartition]:
        """Partitions led by others than they prefer, of brokers that have too many of these."""
        image = self._image
        preferring: Counter[int] = Counter()
        lacking: dict[int, list[TopicPartition]] = {}
        for key, row in image.rows.items():
            if row.fault:
                continue
            wanted = row.replicas[0]
            preferring[wanted] += 1
            if row.leader not in (wanted, NO_LEADER) and elections.preferred(row.replica_set, image.standings):
                lacking.setdefault(wanted, []).append(key)
        limit = self._context.settings.cluster.leader_imbalance_per_broker_percentage
        return [
            key
            for broker_id, keys in lacking.items()
            if 100 * len(keys) > limit * preferring[broker_id]
            for key in keys
        ]


def _decision(
    config_of: Callable[[UUID], TopicConfig | None],
) -> Callable[[PartitionRow, Standings], ReplicaSet | None]:
    """The effect of a failure on a partition, by its topic's settings."""

    def decide(row: PartitionRow, standings: Standings) -> ReplicaSet | None:
        before, config = row.replica_set, config_of(row.topic_id) or NO_CONFIG
        after = elections.after_failure(before, standings, min_isr=config.min_insync_replicas)
        if config.unclean_leader_election_enable and (after or before).leader == NO_LEADER:
            return elections.unclean(before, standings) or after
        return after

    return decide
