"""Fetches several partitions at once, from whoever leads them.

Owns the connections for long polls: a request for all partitions of a leader answers as soon as one of them
has something. Must never decode a record.
"""

import asyncio
from collections.abc import Mapping, Sequence

from tiered.cli.client.cluster import Cluster
from tiered.cli.client.kafka_errors import NONE, is_retriable, reason
from tiered.cli.failure import CommandFailed
from tiered.errors import RequestTimedOut
from tiered.peer import READ_UNCOMMITTED, ConnectionLost, Peer
from tiered.peer.group_admin import TopicPartition
from tiered.runtime import Clock
from tiered.wire.fetch import FetchPartition, FetchPartitionResult, FetchRequest, FetchTopic

MAX_WAIT_MS = 500
MAX_BYTES = 16 << 20
MAX_PARTITION_BYTES = 4 << 20
RETRY_FOR_MS = 30_000.0
RETRY_EVERY_MS = 250.0


class Fetcher:
    """Reads partitions through leaders that it looks up again when they change."""

    def __init__(self, cluster: Cluster, clock: Clock, *, isolation_level: int = READ_UNCOMMITTED) -> None:
        self.isolation_level = isolation_level
        self._cluster = cluster
        self._clock = clock
        self._leaders: dict[TopicPartition, tuple[str, int]] = {}
        self._peers: dict[tuple[str, int], Peer] = {}
        self._failing_since_ms: float | None = None

    def close(self) -> None:
        """Ends its connections."""
        for peer in self._peers.values():
            peer.close()

    async def fetch(self, positions: Mapping[TopicPartition, int]) -> list[tuple[str, FetchPartitionResult]]:
        """What is there from each {partition: offset} on; nothing when nothing came within half a second.

        Results stand with their topic's name, and have no error code, or one that trying again does not heal. Raises
        CommandFailed when a leader could not be found or reached for half a minute.
        """
        try:
            if not self._leaders.keys() >= positions.keys():
                await self._find_leaders(sorted({topic for topic, _ in positions}))
            by_leader: dict[tuple[str, int], dict[TopicPartition, int]] = {}
            for where, offset in positions.items():
                if where not in self._leaders:
                    raise ConnectionLost(f"partition {where[1]} of {where[0]} has no leader now")
                by_leader.setdefault(self._leaders[where], {})[where] = offset
            answers = await asyncio.gather(*(self._ask(address, mine) for address, mine in by_leader.items()))
        except (ConnectionLost, RequestTimedOut) as error:
            await self._heal(CommandFailed(str(error)))
            return []
        results = [result for answer in answers for result in answer]
        for topic, result in results:
            if result.error_code != NONE and is_retriable(result.error_code):
                await self._heal(
                    CommandFailed(f"partition {result.partition_index} of {topic}: {reason(result.error_code, None)}")
                )
                return []
        self._failing_since_ms = None
        return results

    async def _find_leaders(self, topics: Sequence[str]) -> None:
        described = await self._cluster.metadata(topics)
        self._leaders = {
            (name, each.partition): (described.brokers[each.leader_id].host, described.brokers[each.leader_id].port)
            for name in topics
            if name in described.topics
            for each in described.topics[name].partitions
            if each.leader_id in described.brokers
        }

    async def _ask(
        self, address: tuple[str, int], positions: Mapping[TopicPartition, int]
    ) -> Sequence[tuple[str, FetchPartitionResult]]:
        peer = self._peers.get(address)
        if peer is None or not peer.is_open:
            peer = self._peers[address] = await Peer.connect(*address, security=self._cluster.security)
        asked: dict[str, list[FetchPartition]] = {}
        for (topic, number), offset in positions.items():
            asked.setdefault(topic, []).append(FetchPartition(number, -1, offset, -1, -1, MAX_PARTITION_BYTES))
        answer = await peer.fetch(
            FetchRequest(
                replica_id=-1,
                replica_epoch=-1,
                max_wait_ms=MAX_WAIT_MS,
                min_bytes=1,
                max_bytes=MAX_BYTES,
                isolation_level=self.isolation_level,
                session_id=0,
                session_epoch=-1,
                topics=[FetchTopic(name, None, partitions) for name, partitions in asked.items()],
            )
        )
        if answer.error_code != NONE:
            raise CommandFailed(reason(answer.error_code, None))
        return [(topic.name or "", result) for topic in answer.topics for result in topic.partitions]

    async def _heal(self, failure: CommandFailed) -> None:
        """Waits and forgets the leaders; raises `failure` when that has not helped for half a minute."""
        now_ms = self._clock.monotonic_ms()
        if self._failing_since_ms is None:
            self._failing_since_ms = now_ms
        elif now_ms - self._failing_since_ms > RETRY_FOR_MS:
            raise failure
        self._leaders = {}
        await asyncio.sleep(RETRY_EVERY_MS / 1000)
