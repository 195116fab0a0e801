"""Carries decisions out: each partition of a decided transaction gets its marker, however long it takes.

Owns what is still to be delivered. Markers for one leader that come while a request to it is under way go together in
the next. Must never send a marker before the decision stands in SQL: whoever calls `send` has seen it there.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field

from tiered.broker.context import BrokerContext
from tiered.broker.partitions.topics import OFFSETS_TOPIC, Topics
from tiered.broker.transactions.broker_channel import Outcomes, ProducersMarker, TransactionChannels
from tiered.broker.view.image import ClusterImage
from tiered.errors import (
    ShuttingDown,
    StaleProducerEpoch,
    TieredError,
)
from tiered.formats.control_record import MarkerType, TransactionMarker
from tiered.ids import TopicPartition
from tiered.meta.brokers import BrokerRow
from tiered.rules.transactions.transaction_state import (
    RAISES_EPOCH,
    ProducerIdAndEpoch,
    Transaction,
    TransactionState,
)

log = logging.getLogger(__name__)

MARKERS_AT_ONCE = 1_000
RETRY_MS = 100.0
"""Leaders change, followers lag: the next try comes so soon, for as long as it takes."""
MAX_RETRY_MS = 1_000.0
"""Each further one comes later, up to so much: where thousands of transactions wait for one leader, all of them try."""
SLOW_TRIES = 15
"""After so many tries a line in the log says what is being waited for."""

WriteHere = Callable[[Sequence[ProducersMarker]], Awaitable[Sequence[Outcomes]]]


@dataclass(eq=False, slots=True)
class _DeliveryState:
    """A decided transaction, and the partitions that have no marker yet.

    Its topics were there before the change `known_at`, or this broker knows them.
    """

    transaction: Transaction
    marker: TransactionMarker
    known_at: int
    left: set[TopicPartition]
    tries: dict[TopicPartition, int] = field(default_factory=dict)

    @property
    def producer(self) -> ProducerIdAndEpoch:
        return ProducerIdAndEpoch(self.transaction.producer_id, self.transaction.producer_epoch)


@dataclass(eq=False, slots=True)
class _DestinationState:
    """What waits for one broker; a task sends it as long as there is anything."""

    waiting: dict[_DeliveryState, list[TopicPartition]] = field(default_factory=dict)
    is_sending: bool = False


class MarkerSender:
    """Between `start` and `stop` decisions may be handed in."""

    def __init__(
        self,
        *,
        context: BrokerContext,
        image: ClusterImage,
        topics: Topics,
        channels: TransactionChannels,
        write_here: WriteHere,
    ) -> None:
        self._context = context
        self._image = image
        self._topics = topics
        self._channels = channels
        self._write_here = write_here
        self.delivered: Callable[[Transaction], None] = lambda _: None
        """Told once every partition has its marker; the coordinator sets it."""
        self._deliveries: dict[str, _DeliveryState] = {}
        self._destinations: dict[int, _DestinationState] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._sending: set[asyncio.Task[None]] = set()

    def start(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks

    async def stop(self) -> None:
        """What is not delivered stays so: the next coordinator reads it in SQL."""
        self._tasks = None
        self._deliveries.clear()
        for task in self._sending:
            task.cancel()
        await asyncio.gather(*self._sending, return_exceptions=True)

    @property
    def undelivered_count(self) -> int:
        """Markers that are still to be written. For metrics."""
        return sum(len(delivery.left) for delivery in self._deliveries.values())

    def send(self, decided: Transaction, *, coordinator_epoch: int, held_since: int) -> None:
        """The decision stands in SQL: its markers are on their way from now on. A repeated call changes nothing.

        `held_since` is the number of the change by which this broker coordinates it. Before the feed has brought that,
        a topic that is not known here may be a new one.
        """
        known = self._deliveries.get(decided.transactional_id)
        if known is not None and known.transaction is decided:
            return
        assert decided.state.is_decided, decided.state
        commits = decided.state is TransactionState.PREPARE_COMMIT
        delivery = _DeliveryState(
            transaction=decided,
            marker=TransactionMarker(
                type=MarkerType.COMMIT if commits else MarkerType.ABORT, coordinator_epoch=coordinator_epoch
            ),
            known_at=held_since,
            left=set(decided.partitions),
        )
        self._deliveries[decided.transactional_id] = delivery
        self._route(delivery, decided.partitions)
        self._look(delivery)

    def forget(self, transactional_ids: Iterable[str]) -> None:
        """Others coordinate these now, and deliver what is left."""
        for transactional_id in transactional_ids:
            self._deliveries.pop(transactional_id, None)

    def _is_current(self, delivery: _DeliveryState) -> bool:
        return self._deliveries.get(delivery.transaction.transactional_id) is delivery

    def _look(self, delivery: _DeliveryState) -> None:
        if not delivery.left and self._is_current(delivery):
            del self._deliveries[delivery.transaction.transactional_id]
            self.delivered(delivery.transaction)

    # Where to

    def _route(self, delivery: _DeliveryState, partitions: Iterable[TopicPartition]) -> None:
        """Puts each partition where its leader is; what has no leader now is looked at again, what is gone is done."""
        later = []
        for partition in partitions:
            if self._was_deleted(partition, delivery.known_at):
                delivery.left.discard(partition)
                continue
            leader = self._leader_of(partition)
            if leader is None:
                later.append(partition)
                continue
            destination = self._destinations.setdefault(leader.broker_id, _DestinationState())
            destination.waiting.setdefault(delivery, []).append(partition)
            if not destination.is_sending and self._tasks is not None:
                destination.is_sending = True
                task = self._tasks.create_task(self._send_all(leader.broker_id, destination))
                self._sending.add(task)
                task.add_done_callback(self._sending.discard)
        if later:
            self._again(delivery, later, "it has no leader")

    def _was_deleted(self, partition: TopicPartition, known_at: int) -> bool:
        topic = self._topics.find_id(partition.topic_id)
        if topic is not None:
            # Slots of groups are as many as the settings say, also fewer than before.
            return topic.name == OFFSETS_TOPIC and partition.partition >= topic.partition_count
        return self._image.row(partition) is None and self._image.change_number >= known_at

    def _leader_of(self, partition: TopicPartition) -> BrokerRow | None:
        topic = self._topics.find_id(partition.topic_id)
        if topic is None or topic.name != OFFSETS_TOPIC:
            return self._image.leader_of(partition)
        slot = self._image.slots.get(partition.partition)  # Of a group's offsets: who coordinates the group.
        holder = None if slot is None else self._image.brokers.get(slot.broker_id)
        return None if holder is None or holder.fenced else holder

    def _again(self, delivery: _DeliveryState, partitions: Sequence[TopicPartition], why: object) -> None:
        delay_ms = 0.0
        for partition in partitions:
            tries = delivery.tries[partition] = delivery.tries.get(partition, 0) + 1
            delay_ms = max(delay_ms, min(RETRY_MS * tries, MAX_RETRY_MS))
            if tries % SLOW_TRIES == 0:
                topic = self._topics.find_id(partition.topic_id)
                log.warning(
                    "the transaction of %s is decided, and %s-%d has no marker yet: %s",
                    delivery.transaction.transactional_id,
                    "?" if topic is None else topic.name,
                    partition.partition,
                    why,
                )
        asyncio.get_running_loop().call_later(delay_ms / 1000.0, self._try_again, delivery, partitions)

    def _try_again(self, delivery: _DeliveryState, partitions: Sequence[TopicPartition]) -> None:
        if self._is_current(delivery):
            self._route(delivery, partitions)
            self._look(delivery)

    # One broker

    async def _send_all(self, broker_id: int, destination: _DestinationState) -> None:
        try:
            while batch := self._take(destination):
                await self._send(broker_id, batch)
        finally:
            destination.is_sending = False

    def _take(self, destination: _DestinationState) -> list[tuple[_DeliveryState, list[TopicPartition]]]:
        batch: list[tuple[_DeliveryState, list[TopicPartition]]] = []
        markers = 0
        while destination.waiting and markers < MARKERS_AT_ONCE:
            delivery = next(iter(destination.waiting))
            partitions = destination.waiting.pop(delivery)
            if self._is_current(delivery):
                batch.append((delivery, partitions))
                markers += len(partitions)
        return batch

    async def _send(self, broker_id: int, batch: Sequence[tuple[_DeliveryState, list[TopicPartition]]]) -> None:
        markers = [
            ProducersMarker(
                marker=delivery.marker,
                producer=delivery.producer,
                raises_epoch=delivery.transaction.protocol == RAISES_EPOCH,
                partitions=partitions,
            )
            for delivery, partitions in batch
        ]
        outcomes: Sequence[Outcomes]
        try:
            outcomes = await self._write(broker_id, markers)
        except TieredError as error:
            failed = error.without_frames()
            outcomes = [dict.fromkeys(partitions, failed) for _, partitions in batch]
        except Exception:
            # A tick boundary: what went wrong with one broker's markers is tried again as anything else.
            log.exception("markers for broker %d failed in an unforeseen way", broker_id)
            failed = ShuttingDown("the request for markers failed")
            outcomes = [dict.fromkeys(partitions, failed) for _, partitions in batch]
        for (delivery, partitions), outcome in zip(batch, outcomes, strict=True):
            self._told(delivery, partitions, outcome)

    async def _write(self, broker_id: int, markers: Sequence[ProducersMarker]) -> Sequence[Outcomes]:
        if broker_id == self._context.broker_id:
            return await self._write_here(markers)
        row = self._image.brokers.get(broker_id)
        if row is None:
            raise ShuttingDown(f"broker {broker_id} is registered no more")
        return await self._channels.write_markers(row, markers)

    def _told(self, delivery: _DeliveryState, partitions: Sequence[TopicPartition], outcome: Outcomes) -> None:
        if not self._is_current(delivery):
            return
        again: list[TopicPartition] = []
        why: TieredError | None = None
        for partition in partitions:
            error = outcome.get(partition)
            if error is None:
                delivery.left.discard(partition)
            elif isinstance(error, StaleProducerEpoch):
                # The producer has written there under a later epoch, which only an ended transaction allows.
                name = delivery.transaction.transactional_id
                log.info("%s: partition %d needs no marker: %s", name, partition.partition, error)
                delivery.left.discard(partition)
            else:
                # Where the topic is gone, the next look at the image tells; where another broker coordinates it now,
                # the slots do.
                again.append(partition)
                why = error
        if again:
            self._again(delivery, again, why)
        self._look(delivery)
