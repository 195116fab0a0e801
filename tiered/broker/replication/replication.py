"""Replication on one broker: what it follows, what followers ask of it, and its ISRs.

Owns which fetcher follows which partition; the rows that the feed applies decide. Must never read or write a log.
"""

import asyncio
from collections.abc import Callable, Iterable

from tiered.broker.context import BrokerContext
from tiered.broker.partitions.partition import Partition
from tiered.broker.partitions.role import Role
from tiered.broker.partitions.topics import Topics
from tiered.broker.replication.answer import FollowerAnswers
from tiered.broker.replication.fetcher import ReplicaFetcher
from tiered.broker.replication.isr_changes import IsrChanges
from tiered.broker.view.image import ClusterImage
from tiered.ids import TopicPartition
from tiered.meta.brokers import BrokerRow

Line = tuple[int, int]
"""A leader's broker id, and the number of the connection to it."""


class Replication:
    """The followers and the leader in one broker. Used from its event loop. `fetcher` makes the connection number n to
    a leader."""

    def __init__(
        self,
        *,
        context: BrokerContext,
        image: ClusterImage,
        topics: Topics,
        isr_changes: IsrChanges,
        answers: FollowerAnswers,
        fetcher: Callable[[int, int], ReplicaFetcher],
    ) -> None:
        self._context = context
        self._image = image
        self._topics = topics
        self._group: asyncio.TaskGroup | None = None
        self._fetchers: dict[Line, tuple[ReplicaFetcher, asyncio.Task[None]]] = {}
        self._followed: dict[TopicPartition, tuple[Partition, Line]] = {}
        self._leaders: dict[int, BrokerRow] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._fetcher_to = fetcher
        self.isr_changes = isr_changes
        self.answers = answers

    def start(self, group: asyncio.TaskGroup) -> None:
        """Begins to follow the partitions in the feed, and to change ISRs."""
        self._group = group
        self._tasks.append(group.create_task(self.isr_changes.run()))
        self.rows_applied(list(self._topics.partitions()))

    async def stop(self) -> None:
        """Follows nothing any more. A truncation that is under way ends first."""
        self._group = None
        tasks = [*self._tasks, *(task for _, task in self._fetchers.values())]
        self._tasks.clear()
        self._fetchers.clear()
        self._followed.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # What the feed tells

    def rows_applied(self, partitions: Iterable[Partition]) -> None:
        """Rows of these partitions are new: each is followed where its leader is now."""
        if self._group is None:
            return
        for partition in partitions:
            key = partition.topic_partition
            line = self._line(partition)
            before = self._followed.get(key)
            if before is not None and (before[0] is not partition or before[1] != line):
                self._leave(key)
            if line is not None:
                self._followed[key] = partition, line
                self._fetcher(line).follow(partition)

    def removed(self, partitions: Iterable[Partition]) -> None:
        """These partitions have left this broker, or are deleted."""
        for partition in partitions:
            self._leave(partition.topic_partition)
            partition.leave()

    def brokers_changed(self) -> None:
        """Registrations are new: connections to brokers that have another address or process now are made anew."""
        known = self._image.brokers
        for (leader_id, _), (fetcher, _) in self._fetchers.items():
            before, after = self._leaders.get(leader_id), known.get(leader_id)
            if before is not None and after is not None and _address(before) != _address(after):
                fetcher.reconnect()
        self._leaders = {leader_id: known[leader_id] for leader_id, _ in self._fetchers if leader_id in known}

    def _line(self, partition: Partition) -> Line | None:
        """The leader that is asked for the partition, and the connection; None when it is not followed."""
        row = partition.row
        if partition.halted is not None or partition.closed or partition.log.failed is not None:
            return None
        if row is None or row.leader < 0 or row.leader == self._context.broker_id:
            return None
        if partition.role is not Role.FOLLOWER and not partition.is_truncating:
            return None
        key = partition.topic_partition
        number = (key.topic_id.int + key.partition) % self._context.settings.cluster.num_replica_fetchers
        return row.leader, number

    def _leave(self, key: TopicPartition) -> None:
        """Ends the connection that nothing is followed on any more."""
        found = self._followed.pop(key, None)
        if found is None or found[1] not in self._fetchers:
            return
        fetcher, task = self._fetchers[found[1]]
        fetcher.leave(key)
        if not len(fetcher):
            del self._fetchers[found[1]]
            task.cancel()

    def _fetcher(self, line: Line) -> ReplicaFetcher:
        found = self._fetchers.get(line)
        if found is None:
            assert self._group is not None
            fetcher = self._fetcher_to(*line)
            found = self._fetchers[line] = fetcher, self._group.create_task(fetcher.run())
            leader = self._image.brokers.get(line[0])
            if leader is not None:
                self._leaders[line[0]] = leader
        return found[0]


def _address(row: BrokerRow) -> tuple[str, int, int]:
    return row.host, row.port, row.broker_epoch
