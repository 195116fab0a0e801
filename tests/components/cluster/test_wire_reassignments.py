"""wire.md 52 to 55: moves of partitions, elections and brokers as clients ask for them."""

from typing import Any

import pytest

from tests.broker_process import BrokerProcess
from tests.clients.raw import RawConnection
from tests.support.reassignments import TIMEOUT_MS, alter, listed
from tests.support.topics import create
from tiered.wire import messages

ELECT_LEADERS, DESCRIBE_CLUSTER, UNREGISTER = 43, 60, 64
NONE, UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC = 0, 3, 17
INVALID_REPLICA_ASSIGNMENT, INVALID_REQUEST, POLICY_VIOLATION = 39, 42, 44
ELECTION_NOT_NEEDED, NO_REASSIGNMENT, BROKER_ID_NOT_REGISTERED = 84, 85, 102


def codes(answer: Any) -> list[tuple[str, int, int]]:
    return [
        (topic.name, each.partition_index, int(each.error_code))
        for topic in answer.responses
        for each in topic.partitions
    ]


def elect(connection: RawConnection, topics: dict[str, list[int]] | None, *, version: int = 2, kind: int = 0) -> Any:
    make = messages.request(ELECT_LEADERS, version)
    asked = None
    if topics is not None:
        asked = [make.TopicPartitions(topic=name, partitions=indexes) for name, indexes in topics.items()]
    return connection.ask(
        ELECT_LEADERS,
        version,
        make.ElectLeadersRequest(election_type=kind, topic_partitions=asked, timeout=TIMEOUT_MS),
    )


def elected(answer: Any) -> list[tuple[str, int, int]]:
    return [
        (result.topic, each.partition_id, int(each.error_code))
        for result in answer.replica_election_results
        for each in result.partition_result
    ]


@pytest.mark.parametrize("version", [0, 1])
def test_each_partition_of_a_reassignment_has_its_own_error(broker: BrokerProcess, version: int) -> None:
    topic = create(broker, f"reassigned-{version}", partitions=3)
    with RawConnection(broker) as connection:
        answer = alter(
            connection,
            [
                (topic, 0, [1]),
                (topic, 1, [1, 9]),
                (topic, 2, None),
                (topic, 7, [1]),
                ("nowhere", 0, [1]),
                ("__consumer_offsets", 0, [1]),
            ],
            version=version,
        )
        assert int(answer.error_code) == NONE
        assert codes(answer) == [
            (topic, 0, NONE),
            (topic, 1, INVALID_REPLICA_ASSIGNMENT),
            (topic, 2, NO_REASSIGNMENT),
            (topic, 7, UNKNOWN_TOPIC_OR_PARTITION),
            ("nowhere", 0, UNKNOWN_TOPIC_OR_PARTITION),
            ("__consumer_offsets", 0, INVALID_TOPIC),
        ]
        assert alter(connection, []).responses == ()


@pytest.mark.parametrize("replicas", [[], [1, 1], [-1]])
def test_replicas_that_cannot_be_are_refused(broker: BrokerProcess, replicas: list[int]) -> None:
    topic = create(broker, f"impossible-{len(replicas)}-{'-'.join(map(str, replicas))}")
    with RawConnection(broker) as connection:
        assert codes(alter(connection, [(topic, 0, replicas)])) == [(topic, 0, INVALID_REPLICA_ASSIGNMENT)]


def test_a_partition_that_stands_twice_is_refused(broker: BrokerProcess) -> None:
    topic = create(broker, "stands-twice")
    with RawConnection(broker) as connection:
        answer = alter(connection, [(topic, 0, [1]), (topic, 0, [1])])
        assert codes(answer) == [(topic, 0, INVALID_REQUEST)] * 2


def test_nothing_is_listed_where_nothing_moves(broker: BrokerProcess) -> None:
    topic = create(broker, "at-rest")
    with RawConnection(broker) as connection:
        assert listed(connection, None) == ()
        assert listed(connection, {topic: [0, 5], "nowhere": [0]}) == ()


@pytest.mark.parametrize("version", [0, 1, 2])
def test_an_election_says_for_each_partition_that_none_is_needed(broker: BrokerProcess, version: int) -> None:
    topic = create(broker, f"elected-{version}", partitions=2)
    with RawConnection(broker) as connection:
        answer = elect(connection, {topic: [0, 1, 9]}, version=version)
        assert elected(answer) == [
            (topic, 9, UNKNOWN_TOPIC_OR_PARTITION),
            (topic, 0, ELECTION_NOT_NEEDED),
            (topic, 1, ELECTION_NOT_NEEDED),
        ]


def test_an_election_for_all_names_only_what_it_tried(broker: BrokerProcess) -> None:
    create(broker, "among-all")
    with RawConnection(broker) as connection:
        answer = elect(connection, None)
        assert (int(answer.error_code), elected(answer)) == (NONE, [])


def test_an_unclean_election_is_not_held_under_a_leader(broker: BrokerProcess) -> None:
    topic = create(broker, "has-a-leader")
    with RawConnection(broker) as connection:
        assert elected(elect(connection, {topic: [0]}, kind=1)) == [(topic, 0, ELECTION_NOT_NEEDED)]
        answer = elect(connection, {topic: [0]}, kind=7)
        assert int(answer.error_code) == INVALID_REQUEST


def test_a_broker_in_service_is_not_forgotten(broker: BrokerProcess) -> None:
    make = messages.request(UNREGISTER, 0)
    with RawConnection(broker) as connection:
        for broker_id, code in ((1, POLICY_VIOLATION), (9, BROKER_ID_NOT_REGISTERED)):
            answer = connection.ask(UNREGISTER, 0, make.UnregisterBrokerRequest(broker_id=broker_id))
            assert int(answer.error_code) == code
            assert answer.error_message


@pytest.mark.parametrize("fenced", [False, True])
def test_brokers_out_of_service_are_described_on_request(broker: BrokerProcess, fenced: bool) -> None:
    make = messages.request(DESCRIBE_CLUSTER, 2)
    request = make.DescribeClusterRequest(
        include_cluster_authorized_operations=False, endpoint_type=1, include_fenced_brokers=fenced
    )
    with RawConnection(broker) as connection:
        (found,) = connection.ask(DESCRIBE_CLUSTER, 2, request).brokers
        assert (found.broker_id, found.is_fenced) == (1, False)
