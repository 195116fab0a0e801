"""What brokers ask each other about transactions, over the simulated network: values in place of bytes.

Owns what the two doors do with a request, and what an error is after it was a code on the wire. Must never answer for a
process that does not serve.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from tests.simulation.network import Late, Unanswered
from tiered.broker.broker import Broker
from tiered.broker.transactions.broker_channel import KINDS, AskedTransaction, Outcomes, ProducersMarker
from tiered.errors import RequestTimedOut, ShuttingDown, TieredError, UnknownTopicOrPartition
from tiered.ids import TopicPartition
from tiered.meta.brokers import BrokerRow
from tiered.peer.answers import broker_error
from tiered.rules.transactions.transaction_state import RAISES_EPOCH
from tiered.server.kafka.error_mapping import error_code

if TYPE_CHECKING:
    from tests.simulation.machine import Machine

T = TypeVar("T")

ADD_TIMEOUT_S = 5.0
MARKERS_TIMEOUT_S = 4.0
"""Shorter than the product's, so that a run has many of them: a leader may still be busy with what is repeated."""


class SimTransactionChannels:
    """A broker's `TransactionChannels`, to whichever process serves on the other's machine."""

    def __init__(self, machine: "Machine") -> None:
        self._machine = machine
        self._closed = False

    async def add_partitions(self, coordinator: BrokerRow, asked: Sequence[AskedTransaction]) -> Sequence[Outcomes]:
        return await self._ask(
            coordinator.broker_id, lambda broker: _answer_questions(broker, asked), timeout_s=ADD_TIMEOUT_S
        )

    async def write_markers(self, leader: BrokerRow, markers: Sequence[ProducersMarker]) -> Sequence[Outcomes]:
        return await self._ask(
            leader.broker_id,
            lambda broker: _write_markers(broker, markers),
            timeout_s=MARKERS_TIMEOUT_S,
            late=self._machine.world.nemesis.breaks(self._machine, markers),
        )

    def close(self) -> None:
        self._closed = True

    async def _ask(
        self,
        broker_id: int,
        work: Callable[[Broker], Awaitable[T]],
        *,
        timeout_s: float,
        late: Late | None = None,
    ) -> T:
        if self._closed:
            raise ShuttingDown("this broker is stopping, and asks nobody any more")
        source = self._machine
        world = source.world
        target = world.machines[broker_id]
        process = target.process
        if process is None:
            raise RequestTimedOut(f"broker {broker_id}: connection refused")

        async def answer() -> T:
            broker = target.broker
            if broker is None or target.process is not process or not target.is_serving:
                raise Unanswered("not serving")
            return await work(broker)

        try:
            return await world.network.call(source.name, target.name, process, answer, timeout_s=timeout_s, late=late)
        except Unanswered as error:
            raise RequestTimedOut(str(error)) from None


async def _answer_questions(broker: Broker, asked: Sequence[AskedTransaction]) -> Sequence[Outcomes]:
    """As `api.add_partitions_to_txn`."""
    return [await _answer_question(broker, each) for each in asked]


async def _answer_question(broker: Broker, asked: AskedTransaction) -> Outcomes:
    known = [each for each in asked.partitions if broker.topics.find_id(each.topic_id) is not None]
    found: dict[TopicPartition, TieredError | None] = {
        each: UnknownTopicOrPartition("not here yet") for each in asked.partitions
    }
    transactions = broker.transactions
    try:
        if asked.adds:
            await transactions.add_partitions(asked.transactional_id, asked.producer, known, protocol=RAISES_EPOCH)
            found.update(dict.fromkeys(known))
        else:
            found.update(await transactions.check_partitions(asked.transactional_id, asked.producer, known))
    except TieredError as error:
        found.update(dict.fromkeys(known, error))
    return _sent(found)


async def _write_markers(broker: Broker, markers: Sequence[ProducersMarker]) -> Sequence[Outcomes]:
    """As `api.write_txn_markers`."""
    return [_sent(outcomes) for outcomes in await broker.marker_writer.write(markers)]


def _sent(outcomes: Mapping[TopicPartition, TieredError | None]) -> Outcomes:
    """What is left of the errors once they were codes."""
    return {where: None if error is None else _as_received(error) for where, error in outcomes.items()}


def _as_received(error: TieredError) -> TieredError:
    code = error_code(error)
    kind = KINDS.get(code)
    return broker_error(code, str(error)) if kind is None else kind(str(error))
