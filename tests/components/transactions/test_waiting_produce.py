"""Produce requests while the coordinator of their transaction takes its time, or does not answer."""

import asyncio
import threading
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from tests.clients import clients
from tests.clients.raw import RawConnection
from tests.components.batches import batch
from tests.components.guarded_broker import GuardedBroker, allow
from tests.support.rules_only_coordinator import PRODUCER, RulesOnly, ValuesAlong, open_transaction
from tiered.broker.transactions.verification import Verifications
from tiered.cold.budget import Budget
from tiered.errors import CoordinatorNotAvailable, TieredError
from tiered.ids import TopicPartition
from tiered.rules.transactions.transaction_state import ProducerIdAndEpoch
from tiered.wire import produce
from tiered.wire.produce import PartitionResult

NAME, TOPIC = "pay", "orders"
NOT_ENOUGH_REPLICAS, TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 19, 53
ADDS = 12
WAIT_S = 30.0


class Slow(RulesOnly):
    """Answers once the test lets it, and with its error while it has one."""

    def __init__(self) -> None:
        super().__init__(open_transaction(NAME))
        self.begun = threading.Semaphore(0)
        self.gate = asyncio.Event()
        self.error: TieredError | None = None

    async def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        *,
        protocol: int,
    ) -> None:
        self.begun.release()
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        await super().add_partitions(transactional_id, producer, partitions, protocol=protocol)


class Coordinated:
    """A broker whose transactions are coordinated by `slow`."""

    def __init__(self, guarded: GuardedBroker) -> None:
        self.guarded = guarded
        self.slow = Slow()
        guarded.rules(
            [
                allow("ALL", "TOPIC", TOPIC),
                allow("ALL", "TRANSACTIONAL_ID", NAME),
                allow("ALL", "CLUSTER", "kafka-cluster"),
            ]
        )
        admin = clients.admin(f"127.0.0.1:{guarded.kafka_port}")
        admin.create_topics([NewTopic(TOPIC, 1)])[TOPIC].result(WAIT_S)
        verifications = Verifications(
            context=guarded.broker.context,
            here=self.slow,
            coordinator_elsewhere=lambda transactional_id: None,
            channels=ValuesAlong(),
        )
        guarded.run(lambda: setattr(guarded.broker, "verifications", verifications))

    def let_go(self, error: TieredError | None = None) -> None:
        self.slow.error = error
        self.guarded.run(self.slow.gate.set)


@pytest.fixture
def coordinated(tmp_path: Path) -> Iterator[Coordinated]:
    with GuardedBroker(tmp_path / "data") as guarded:
        yield Coordinated(guarded)


def send(connection: RawConnection, sequence: int, *, transactional: bool = True) -> None:
    """A batch of the producer, or one of nobody in particular."""
    data = batch(
        producer_id=PRODUCER.producer_id if transactional else -1,
        producer_epoch=PRODUCER.producer_epoch if transactional else -1,
        base_sequence=sequence if transactional else -1,
        transactional=transactional,
    )
    body = produce.encode_produce_request(
        [produce.TopicBatches(TOPIC, None, [(0, data)])],
        ADDS,
        acks=1,
        timeout_ms=5000,
        transactional_id=NAME if transactional else None,
    )
    connection.send(produce.API_KEY, ADDS, body)


def received(connection: RawConnection) -> PartitionResult:
    _, answer = connection.receive(produce.API_KEY, ADDS)
    (told,) = produce.decode_produce_response(answer, 0, len(answer), ADDS).topics
    return told.partitions[0]


def test_what_comes_behind_a_batch_that_waits_is_not_begun(coordinated: Coordinated) -> None:
    with RawConnection(coordinated.guarded) as connection:
        for sequence in range(4):
            send(connection, sequence)
        send(connection, 0, transactional=False)
        assert coordinated.slow.begun.acquire(timeout=WAIT_S)
        assert connection.answers_nothing()
        assert not coordinated.slow.begun.acquire(blocking=False), "the second batch was asked about beside the first"
        coordinated.let_go()
        assert [received(connection).base_offset for _ in range(5)] == [0, 1, 2, 3, 4]
    assert coordinated.slow.asked == 1, "the transaction was open for all but the first"


def test_a_batch_that_waits_holds_up_no_other_connection(coordinated: Coordinated) -> None:
    with RawConnection(coordinated.guarded) as waiting, RawConnection(coordinated.guarded) as other:
        send(waiting, 0)
        assert coordinated.slow.begun.acquire(timeout=WAIT_S)
        send(other, 0, transactional=False)
        assert received(other).base_offset == 0
        coordinated.let_go()
        assert received(waiting).base_offset == 1


def test_no_later_batch_takes_the_place_of_one_that_could_not_be_verified(coordinated: Coordinated) -> None:
    """The producer's batches are in flight together: the second must not become the first of a new producer."""
    with RawConnection(coordinated.guarded) as connection:
        coordinated.let_go(CoordinatorNotAvailable("SQL is away"))
        send(connection, 0)
        assert received(connection).error_code == NOT_ENOUGH_REPLICAS
        coordinated.let_go()
        send(connection, 1)
        assert received(connection).error_code == NOT_ENOUGH_REPLICAS
        for sequence in range(2):
            send(connection, sequence)
            assert received(connection).base_offset == sequence


def test_requests_that_wait_take_a_bounded_part_of_the_memory(coordinated: Coordinated) -> None:
    broker = coordinated.guarded.broker
    with RawConnection(coordinated.guarded) as waiting, RawConnection(coordinated.guarded) as second:
        coordinated.guarded.run(lambda: setattr(broker.validation, "room", Budget(1)))
        send(waiting, 0)
        assert coordinated.slow.begun.acquire(timeout=WAIT_S)
        send(second, 0)
        assert received(second).error_code == NOT_ENOUGH_REPLICAS
        coordinated.let_go()
        assert received(waiting).base_offset == 0
    assert coordinated.slow.asked == 1


def test_nobody_is_asked_for_a_producer_that_may_not_use_the_transactional_id(coordinated: Coordinated) -> None:
    coordinated.guarded.rules([allow("ALL", "TOPIC", TOPIC)])
    with RawConnection(coordinated.guarded) as connection:
        send(connection, 0)
        assert received(connection).error_code == TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert not coordinated.slow.begun.acquire(blocking=False)
