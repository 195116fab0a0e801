"""Leaders that ask other brokers: of a transaction, the leader of a partition and the coordinator are two brokers."""

import time

import pytest
from confluent_kafka.admin import NewTopic

from tests.clients import clients
from tests.clients.raw import RawConnection
from tests.clients.three_brokers import ThreeBrokers
from tests.components.transactions.raw_transactions import RawProducer
from tiered.wire import messages

pytest_plugins = ["tests.clients.three_brokers"]

FIND_COORDINATOR, OF_TRANSACTIONS = 10, 1
LEADER = 2
INVALID_PRODUCER_EPOCH, TRANSACTION_ABORTABLE = 47, 120
VERIFY_ONLY, ADDS = 11, 12
WAIT_S = 30.0


def coordinator_of(brokers: ThreeBrokers, transactional_id: str) -> int:
    """The id of the broker that coordinates it."""
    request = messages.request(FIND_COORDINATOR, 4).FindCoordinatorRequest(
        key_type=OF_TRANSACTIONS, coordinator_keys=[transactional_id]
    )
    deadline = time.monotonic() + WAIT_S
    with RawConnection(brokers.brokers[0]) as connection:
        while True:
            (found,) = connection.ask(FIND_COORDINATOR, 4, request).coordinators
            if found.error_code == 0:
                return int(found.node_id)
            assert time.monotonic() < deadline, found
            time.sleep(0.05)


def coordinated_elsewhere(brokers: ThreeBrokers, prefix: str) -> tuple[str, int]:
    """A transactional id that the leader does not coordinate, and who does."""
    for number in range(100):
        found = coordinator_of(brokers, f"{prefix}-{number}")
        if found != LEADER:
            return f"{prefix}-{number}", found
    raise AssertionError("the leader coordinates everything")


@pytest.fixture
def topic(three_brokers: ThreeBrokers, request: pytest.FixtureRequest) -> str:
    """Two partitions, led by broker 2."""
    name = str(request.node.name).removeprefix("test_")[:60].replace("[", "-").replace("]", "")
    wanted = NewTopic(name, 2, replica_assignment=[[LEADER, 3, 1]] * 2)
    clients.admin(three_brokers.bootstrap).create_topics([wanted])[name].result(20)
    deadline = time.monotonic() + WAIT_S
    for broker in three_brokers.brokers:
        with RawConnection(broker) as connection:
            while connection.fetch(name, 0).error_code not in (0, 6):
                assert time.monotonic() < deadline
                time.sleep(0.05)
    return name


def test_a_leader_asks_the_broker_that_coordinates_the_transaction(three_brokers: ThreeBrokers, topic: str) -> None:
    name, coordinator = coordinated_elsewhere(three_brokers, topic)
    with (
        RawConnection(three_brokers.brokers[coordinator - 1]) as asked,
        RawConnection(three_brokers.brokers[LEADER - 1]) as leader,
    ):
        producer = RawProducer.begin(asked, name)
        producer.add(topic, 0)
        told = producer.produce(leader, topic, {0: producer.batch(), 1: producer.batch()}, version=VERIFY_ONLY)
        assert [told[number].error_code for number in (0, 1)] == [0, TRANSACTION_ABORTABLE]
        assert producer.partitions() == {topic: {0}}


def test_a_leader_puts_partitions_into_a_transaction_of_another_broker(three_brokers: ThreeBrokers, topic: str) -> None:
    name, coordinator = coordinated_elsewhere(three_brokers, topic)
    with (
        RawConnection(three_brokers.brokers[coordinator - 1]) as asked,
        RawConnection(three_brokers.brokers[LEADER - 1]) as leader,
    ):
        fenced = RawProducer.begin(asked, name)
        producer = RawProducer.begin(asked, name)
        assert fenced.produce(leader, topic, {0: fenced.batch()}, version=ADDS)[0].error_code == INVALID_PRODUCER_EPOCH
        told = producer.produce(leader, topic, {0: producer.batch(), 1: producer.batch()}, version=ADDS)
        assert {each.error_code for each in told.values()} == {0}
        assert producer.partitions() == {topic: {0, 1}}


def test_the_markers_of_a_coordinator_reach_the_leader(three_brokers: ThreeBrokers, topic: str) -> None:
    name, coordinator = coordinated_elsewhere(three_brokers, topic)
    with (
        RawConnection(three_brokers.brokers[coordinator - 1]) as asked,
        RawConnection(three_brokers.brokers[LEADER - 1]) as leader,
    ):
        producer = RawProducer.begin(asked, name)
        for number in range(3):
            told = producer.produce(leader, topic, {0: producer.batch()}, version=ADDS)
            while told[0].error_code == 51:  # The last transaction is being ended.
                told = producer.produce(leader, topic, {0: producer.batch()}, version=ADDS)
            assert told[0].error_code == 0
            producer = producer.end(commits=number != 1)
        deadline = time.monotonic() + WAIT_S
        while (found := leader.fetch(topic, 0, isolation_level=1)).last_stable_offset != 6:
            assert time.monotonic() < deadline, found
            time.sleep(0.05)
        assert found.high_watermark == 6
