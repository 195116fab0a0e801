"""Groups of three real brokers: each is coordinated by one, and everybody can find it, list it and delete it."""

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.broker_process import BrokerProcess
from tests.clients.raw import RawConnection
from tests.components.group_members import delete, describe, groups
from tiered.wire import messages

if TYPE_CHECKING:
    from tests.clients.three_brokers import ThreeBrokers

pytest_plugins = ["tests.clients.three_brokers"]

FIND_COORDINATOR, INIT_PRODUCER_ID = 10, 22
NOT_COORDINATOR = 16
WAIT_S = 60.0
GROUPS = [f"group-{number}" for number in range(12)]


@pytest.fixture(scope="module")
def admin(three_brokers: "ThreeBrokers") -> AdminClient:
    """With a topic, and groups that have committed offsets of it, once the slots are shared out."""
    made = AdminClient({"bootstrap.servers": three_brokers.bootstrap, "log_level": 0})
    deadline = time.monotonic() + WAIT_S
    while (
        Counter(holders(made).values()) != {1: 17, 2: 17, 3: 16}
        and max(Counter(holders(made).values()).values()) > len(holders(made)) // 3 + 1
    ):
        assert time.monotonic() < deadline, Counter(holders(made).values())
        time.sleep(0.1)
    made.create_topics([NewTopic("read", 3, 3)])["read"].result(WAIT_S)
    for group_id in GROUPS:
        commit(three_brokers.bootstrap, group_id, 7)
    return made


def holders(admin: AdminClient) -> dict[int, int]:
    """Who leads each partition of the topic that has none of its records."""
    partitions = admin.list_topics("__consumer_offsets", timeout=WAIT_S).topics["__consumer_offsets"].partitions
    return {number: each.leader for number, each in partitions.items()}


def commit(bootstrap: str, group_id: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group_id})
    consumer.commit(offsets=[TopicPartition("read", 0, offset)], asynchronous=False)
    consumer.close()


def coordinator(broker: BrokerProcess, group_id: str) -> tuple[int, str, int]:
    """(id, host, port) as this broker says"""
    with RawConnection(broker) as connection:
        request = messages.request(FIND_COORDINATOR, 4).FindCoordinatorRequest(key_type=0, coordinator_keys=(group_id,))
        (found,) = connection.ask(FIND_COORDINATOR, 4, request).coordinators
    assert found.error_code == 0, found
    return int(found.node_id), str(found.host), int(found.port)


def each_listed(three_brokers: "ThreeBrokers") -> Iterator[tuple[BrokerProcess, set[str]]]:
    for broker in three_brokers.brokers:
        yield broker, set(groups(broker))


def test_slots_are_shared_and_every_broker_names_the_same_coordinators(
    three_brokers: "ThreeBrokers", admin: AdminClient
) -> None:
    assert sorted(Counter(holders(admin).values()).values()) == [16, 17, 17]
    for group_id in GROUPS:
        told = {coordinator(broker, group_id) for broker in three_brokers.brokers}
        assert len(told) == 1
        ((broker_id, _, port),) = told
        assert port == three_brokers.broker(broker_id).kafka_port


def test_each_broker_lists_its_own_groups_and_clients_list_all(
    three_brokers: "ThreeBrokers", admin: AdminClient
) -> None:
    listed = [each for _, each in each_listed(three_brokers)]
    assert sum(map(len, listed)) == len(set().union(*listed)), "no group is listed twice"
    assert set(GROUPS) <= set().union(*listed)
    assert all(each & set(GROUPS) for each in listed), "twelve groups are in many slots"
    found = admin.list_consumer_groups().result(WAIT_S)
    assert set(GROUPS) <= {each.group_id for each in found.valid}
    for broker in three_brokers.brokers:
        deadline = time.monotonic() + WAIT_S
        # On a busy machine a broker may not answer another one in time; then it is named.
        while (answer := broker.get("/api/v1/groups"))["silent_brokers"]:
            assert time.monotonic() < deadline, answer["silent_brokers"]
        assert set(GROUPS) <= {each["group_id"] for each in answer["groups"]}
    shown = subprocess.run(
        [sys.executable, "-m", "tiered.cli", "groups", "list", "--json", "--bootstrap", three_brokers.bootstrap],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert set(GROUPS) <= {each["group"] for each in json.loads(shown)}


def test_who_does_not_coordinate_a_group_neither_tells_of_it_nor_deletes_it(
    three_brokers: "ThreeBrokers", admin: AdminClient
) -> None:
    group_id = "to-be-deleted"
    commit(three_brokers.bootstrap, group_id, 3)
    owner, _, _ = coordinator(three_brokers.broker(1), group_id)
    others = [broker for number, broker in enumerate(three_brokers.brokers, 1) if number != owner]
    for broker in others:
        assert describe(broker, group_id).error_code == NOT_COORDINATOR
        assert delete(broker, group_id) == [NOT_COORDINATOR]
    offsets = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group_id)])[group_id].result(WAIT_S)
    assert [(each.topic, each.partition, each.offset) for each in offsets.topic_partitions] == [("read", 0, 3)]
    assert describe(three_brokers.broker(owner), group_id).error_code == 0
    assert delete(three_brokers.broker(owner), group_id) == [0]


def test_members_on_all_brokers_share_one_group(three_brokers: "ThreeBrokers", admin: AdminClient) -> None:
    consumers = [
        Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "together", "auto.offset.reset": "earliest"})
        for broker in three_brokers.brokers
    ]
    for consumer in consumers:
        consumer.subscribe(["read"])
    deadline = time.monotonic() + WAIT_S
    while sorted(each.partition for consumer in consumers for each in consumer.assignment()) != [0, 1, 2] or not all(
        consumer.assignment() for consumer in consumers
    ):
        assert time.monotonic() < deadline, [consumer.assignment() for consumer in consumers]
        for consumer in consumers:
            consumer.poll(0.1)
    for consumer in consumers:
        consumer.close()


def test_producers_of_different_brokers_never_get_the_same_id(three_brokers: "ThreeBrokers") -> None:
    request = messages.request(INIT_PRODUCER_ID, 4).InitProducerIdRequest(
        transactional_id=None, transaction_timeout=60_000, producer_id=-1, producer_epoch=-1
    )
    given = []
    for broker in three_brokers.brokers:
        with RawConnection(broker) as connection:
            given += [connection.ask(INIT_PRODUCER_ID, 4, request).producer_id for _ in range(50)]
    assert len(set(given)) == 150
