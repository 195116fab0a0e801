"""Writes markers into the partitions that this broker leads, for coordinators here and elsewhere.

Owns the order: append to every partition first, what comes together in one write, then wait for the followers of all,
or for the disk where there is none in sync. Must never answer for a marker that is not committed: the coordinator
forgets the transaction once all are.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from tiered.broker.context import BrokerContext
from tiered.broker.groups.slots import HeldSlots
from tiered.broker.partitions.acknowledge import acknowledged
from tiered.broker.partitions.partition import ALL, Appended, Partition
from tiered.broker.partitions.topics import OFFSETS_TOPIC, Topics
from tiered.broker.partitions.transactions import AskedMarker
from tiered.broker.transactions.broker_channel import Outcomes, ProducersMarker
from tiered.errors import NotLeader, TieredError, UnknownTopicOrPartition
from tiered.ids import TopicPartition
from tiered.runtime import in_turns

log = logging.getLogger(__name__)

TIMEOUT_MS = 20_000.0
"""As long as followers may take; the coordinator waits a little longer, and then asks again."""

MOST_TOGETHER = 100
"""So many markers are looked at before others get their turn, and what of them is for one partition is one write."""

_Found = dict[TopicPartition, TieredError | None]
_Asked = dict[int, AskedMarker]
"""By their places in the request."""


@dataclass(slots=True)
class _WaitState:
    """For the markers of one partition that were appended in one leader epoch."""

    end_offset: int = 0
    """Of the last one: what is before it is as safe."""
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
        async for where, asked in in_turns(self._by_partition(markers)):
            try:
                self._append(where, asked, outcomes, waits)
            except TieredError as error:
                failed = error.without_frames()
                for number in asked:
                    outcomes[number][where] = failed
        await asyncio.gather(*(self._committed(*key, wait) for key, wait in waits.items() if wait.markers))
        return outcomes

    def _by_partition(self, markers: Sequence[ProducersMarker]) -> Iterator[tuple[TopicPartition, _Asked]]:
        """What one write takes to a partition, each producer once."""
        for first in range(0, len(markers), MOST_TOGETHER):
            now_ms = self._context.clock.now_ms()
            together: dict[TopicPartition, _Asked] = {}
            producers = set[tuple[TopicPartition, int]]()
            for number, each in enumerate(markers[first : first + MOST_TOGETHER], first):
                asked = AskedMarker.of(each.marker, each.producer, raises_epoch=each.raises_epoch, now_ms=now_ms)
                for where in each.partitions:
                    key = where, each.producer.producer_id
                    if key in producers:  # What its last one leaves decides about this one.
                        yield where, together.pop(where)
                    producers.add(key)
                    together.setdefault(where, {})[number] = asked
            yield from together.items()

    def _append(
        self,
        where: TopicPartition,
        asked: _Asked,
        outcomes: Sequence[_Found],
        waits: dict[tuple[Partition, int], _WaitState],
    ) -> None:
        topic = self._topics.find_id(where.topic_id)
        if topic is None:
            raise UnknownTopicOrPartition(f"no topic has the id {where.topic_id}")
        if topic.name == OFFSETS_TOPIC:
            if where.partition not in self._slots:
                raise NotLeader(f"slot {where.partition} of groups belongs to another broker")
            self._offsets_decided(where.partition)
            for number in asked:
                outcomes[number][where] = None
            return
        partition = topic.partition(where.partition)
        refused = partition.append_markers(tuple(asked.values()), now_ms=self._context.clock.now_ms())
        # Also for one that stood already: whether it is committed, and on disk, nobody has said yet.
        wait = waits.setdefault((partition, partition.leader_epoch), _WaitState())
        wait.end_offset = partition.log.log_end_offset
        for place, number in enumerate(asked):
            found = outcomes[number]
            found[where] = refused.get(place)
            if found[where] is None:
                wait.markers.append(found)

    async def _committed(self, partition: Partition, leader_epoch: int, wait: _WaitState) -> None:
        end_offset = wait.end_offset
        appended = Appended(end_offset, end_offset, -1, partition.log_start_offset, leader_epoch)
        try:
            await acknowledged(self._context, partition, appended, acks=ALL, timeout_ms=TIMEOUT_MS)
            if partition.leadership is not None and partition.leadership.is_sole:
                # No other machine has it. Were it lost with the power, nobody would write it again.
                await self._context.flusher.flushed(partition.log, end_offset)
        except TieredError as error:
            for found in wait.markers:
                found[partition.topic_partition] = error.without_frames()
