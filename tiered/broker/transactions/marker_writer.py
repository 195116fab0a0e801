"""Writes markers into the partitions that this broker leads, for coordinators here and elsewhere.

Owns the order: append to every partition first, then wait for the followers of all together, or for the disk where
there is none in sync. Must never answer for a marker that is not committed: the coordinator forgets the transaction
once all are.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tiered.broker.context import BrokerContext
from tiered.broker.groups.slots import HeldSlots
from tiered.broker.partitions.acknowledge import acknowledged
from tiered.broker.partitions.partition import ALL, Appended, Partition
from tiered.broker.partitions.topics import OFFSETS_TOPIC, Topics
from tiered.broker.transactions.broker_channel import Outcomes, ProducersMarker
from tiered.errors import NotLeader, TieredError, UnknownTopicOrPartition
from tiered.ids import TopicPartition
from tiered.runtime import in_turns

log = logging.getLogger(__name__)

TIMEOUT_MS = 20_000.0
"""As long as followers may take; the coordinator waits a little longer, and then asks again."""

_Found = dict[TopicPartition, TieredError | None]


@dataclass(slots=True)
class _WaitState:
    """For the markers of one partition that were appended in one leader epoch."""

    appended: Appended
    """Of the last one."""
    markers: list[_Found] = field(default_factory=list)


class MarkerWriter:
    """Of one broker."""

    def __init__(
        self, *, context: BrokerContext, topics: Topics, slots: HeldSlots, offsets_decided: Callable[[int], None]
    ) -> None:
        """`offsets_decided` is told the slot of a group whose waiting offsets were decided: SQL has them already."""
        self._context = context
        self._topics = topics
        self._slots = slots
        self._offsets_decided = offsets_decided

    async def write(self, markers: Sequence[ProducersMarker]) -> Sequence[Outcomes]:
        """What became of each marker in each of its partitions: None once it is committed there, or has been.

        The error is UnknownTopicOrPartition, NotLeader, NotEnoughReplicas, NotEnoughReplicasAfterAppend,
        RequestTimedOut, TransactionCoordinatorFenced, StaleProducerEpoch or LogDirFailed.
        """
        outcomes: list[_Found] = [{} for _ in markers]
        waits: dict[tuple[Partition, int], _WaitState] = {}
        async for marker, found in in_turns(zip(markers, outcomes, strict=True)):
            for where in marker.partitions:
                try:
                    written = self._append(marker, where)
                except TieredError as error:
                    found[where] = error.without_frames()
                    continue
                found[where] = None
                if written is not None:
                    partition, appended = written
                    wait = waits.setdefault((partition, appended.leader_epoch), _WaitState(appended))
                    wait.appended = appended  # The last one: what is before it is as safe.
                    wait.markers.append(found)
        await asyncio.gather(*(self._committed(partition, wait) for (partition, _), wait in waits.items()))
        return outcomes

    def _append(self, marker: ProducersMarker, where: TopicPartition) -> tuple[Partition, Appended] | None:
        """What to wait for; None where there is nothing."""
        topic = self._topics.find_id(where.topic_id)
        if topic is None:
            raise UnknownTopicOrPartition(f"no topic has the id {where.topic_id}")
        if topic.name == OFFSETS_TOPIC:
            if where.partition not in self._slots:
                raise NotLeader(f"slot {where.partition} of groups belongs to another broker")
            self._offsets_decided(where.partition)
            return None
        partition = topic.partition(where.partition)
        appended = partition.append_marker(
            marker.marker,
            marker.producer,
            raises_epoch=marker.raises_epoch,
            now_ms=self._context.clock.now_ms(),
        )
        if appended is None:
            # It stands already. Whether it is committed, and on disk, nobody has said yet.
            end_offset = partition.log.log_end_offset
            appended = Appended(end_offset, end_offset, -1, partition.log_start_offset, partition.leader_epoch)
        return partition, appended

    async def _committed(self, partition: Partition, wait: _WaitState) -> None:
        try:
            await acknowledged(self._context, partition, wait.appended, acks=ALL, timeout_ms=TIMEOUT_MS)
            if partition.leadership is not None and partition.leadership.is_sole:
                # No other machine has it. Were it lost with the power, nobody would write it again.
                await self._context.flusher.flushed(partition.log, wait.appended.end_offset)
        except TieredError as error:
            for found in wait.markers:
                found[partition.topic_partition] = error.without_frames()
