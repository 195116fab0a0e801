"""Real admin clients against three real brokers: who is there, where topics go, moves and elections."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import ElectionType, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from kafka import TopicPartition
from kafka.admin import KafkaAdminClient

from tests.broker_process import BrokerProcess
from tests.clients.raw import RawConnection
from tiered.wire import messages

if TYPE_CHECKING:
    from tests.clients.three_brokers import ThreeBrokers

pytest_plugins = ["tests.clients.three_brokers"]

WAIT_S = 60.0
ALTER_REPLICA_LOG_DIRS, DESCRIBE_LOG_DIRS, DESCRIBE_QUORUM = 34, 35, 55
REPLICA_NOT_AVAILABLE = 9


@pytest.fixture(scope="module")
def confluent(three_brokers: "ThreeBrokers") -> AdminClient:
    return AdminClient({"bootstrap.servers": three_brokers.bootstrap})


@pytest.fixture(scope="module")
def pure(three_brokers: "ThreeBrokers") -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=three_brokers.bootstrap.split(","))
    yield client
    client.close()


def create(confluent: AdminClient, name: str, assignment: list[list[int]], **config: str) -> None:
    new = NewTopic(name, num_partitions=len(assignment), replica_assignment=assignment, config=config)
    confluent.create_topics([new])[name].result(WAIT_S)


def replicas_of(confluent: AdminClient, name: str) -> list[list[int]]:
    found = confluent.list_topics(name, timeout=WAIT_S).topics[name].partitions
    return [list(found[each].replicas) for each in sorted(found)]


def leaders_of(confluent: AdminClient, name: str) -> list[int]:
    found = confluent.list_topics(name, timeout=WAIT_S).topics[name].partitions
    return [found[each].leader for each in sorted(found)]


def eventually(what: Callable[[], bool], why: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not what():
        assert time.monotonic() < deadline, why()
        time.sleep(0.05)


def test_every_client_sees_the_same_three_brokers_and_one_controller(
    three_brokers: "ThreeBrokers", confluent: AdminClient, pure: KafkaAdminClient
) -> None:
    ports = {each: three_brokers.broker(each).kafka_port for each in (1, 2, 3)}
    described = confluent.describe_cluster().result(WAIT_S)
    assert {each.id: each.port for each in described.nodes} == ports
    assert {each.rack for each in described.nodes} == {"rack-1", "rack-2", "rack-3"}
    assert described.controller.id in ports
    seen: Any = pure.describe_cluster()
    assert {each["broker_id"]: each["port"] for each in seen["brokers"]} == ports
    assert seen["controller_id"] == described.controller.id
    assert seen["cluster_id"] == described.cluster_id


def test_every_broker_tells_who_leads_the_quorum_and_that_the_others_observe(
    three_brokers: "ThreeBrokers", pure: KafkaAdminClient
) -> None:
    r = messages.request(DESCRIBE_QUORUM, 2)
    partition = r.PartitionData(partition_index=0)
    asked = r.DescribeQuorumRequest(topics=[r.TopicData(topic_name="__cluster_metadata", partitions=[partition])])
    leader = pure.describe_cluster()["controller_id"]
    for broker in three_brokers.brokers:
        with RawConnection(broker) as connection:
            told = connection.ask(DESCRIBE_QUORUM, 2, asked).topics[0].partitions[0]
        assert told.leader_id == leader
        assert [each.replica_id for each in told.current_voters] == [leader]
        assert {each.replica_id for each in told.observers} == {1, 2, 3} - {leader}


def test_only_a_broker_that_holds_a_replica_says_that_it_need_not_be_moved(
    three_brokers: "ThreeBrokers", confluent: AdminClient
) -> None:
    create(confluent, "keeps-its-folder", [[2]])
    r = messages.request(ALTER_REPLICA_LOG_DIRS, 2)

    def code_of(broker: BrokerProcess) -> int:
        with RawConnection(broker) as connection:
            dirs = messages.request(DESCRIBE_LOG_DIRS, 4).DescribeLogDirsRequest(topics=None)
            here = connection.ask(DESCRIBE_LOG_DIRS, 4, dirs).results[0].log_dir
            moved = r.AlterReplicaLogDir(
                path=here, topics=[r.AlterReplicaLogDirTopic(name="keeps-its-folder", partitions=(0,))]
            )
            answer = connection.ask(ALTER_REPLICA_LOG_DIRS, 2, r.AlterReplicaLogDirsRequest(dirs=[moved]))
            return int(answer.results[0].partitions[0].error_code)

    def codes() -> list[int]:
        return [code_of(each) for each in three_brokers.brokers]

    # Brokers learn of the new topic one after the other.
    eventually(lambda: codes() == [REPLICA_NOT_AVAILABLE, 0, REPLICA_NOT_AVAILABLE], codes)


def test_every_broker_tells_kcat_the_same(three_brokers: "ThreeBrokers", confluent: AdminClient) -> None:
    create(confluent, "told-alike", [[1, 2, 3], [2, 3, 1], [3, 1, 2]])

    def told(broker_id: int) -> Any:
        bootstrap = three_brokers.broker(broker_id).bootstrap
        found = subprocess.run(
            ["kcat", "-b", bootstrap, "-L", "-J", "-t", "told-alike"], capture_output=True, check=True, timeout=WAIT_S
        )
        answer = json.loads(found.stdout)
        brokers = sorted((each["id"], each["name"]) for each in answer["brokers"])
        return brokers, answer["controllerid"], answer["topics"]

    def agree() -> bool:
        return bool(told(1) == told(2) == told(3))

    eventually(agree, lambda: [told(1), told(2), told(3)])
    _, _, (topic,) = told(1)
    assert [each["leader"] for each in topic["partitions"]] == [1, 2, 3]
    assert [[each["id"] for each in partition["replicas"]] for partition in topic["partitions"]] == [
        [1, 2, 3],
        [2, 3, 1],
        [3, 1, 2],
    ]
    assert all(len(partition["isrs"]) == 3 for partition in topic["partitions"])


def test_new_topics_are_spread_over_all_brokers(confluent: AdminClient) -> None:
    confluent.create_topics([NewTopic("spread", num_partitions=6, replication_factor=2)])["spread"].result(WAIT_S)
    leaders = leaders_of(confluent, "spread")
    assert sorted(leaders) == [1, 1, 2, 2, 3, 3]
    assert all(len(set(each)) == 2 for each in replicas_of(confluent, "spread"))


@pytest.mark.parametrize(
    ("new", "said"),
    [
        (NewTopic("refused", num_partitions=1, replication_factor=4), "there are 3 brokers; use 1 to 3"),
        (NewTopic("refused", num_partitions=1, replica_assignment=[[1, 9]]), "only registered ones"),
        (NewTopic("refused", num_partitions=2, replica_assignment=[[1, 2], [3]]), "every partition of it has 2"),
    ],
)
def test_impossible_places_are_refused(confluent: AdminClient, new: NewTopic, said: str) -> None:
    with pytest.raises(KafkaException) as raised:
        confluent.create_topics([new])["refused"].result(WAIT_S)
    assert said in raised.value.args[0].str()


def test_new_partitions_go_where_they_are_assigned(confluent: AdminClient) -> None:
    create(confluent, "grows", [[1, 2]])
    grown = NewPartitions("grows", 3, replica_assignment=[[2, 3], [3, 1]])
    confluent.create_partitions([grown])["grows"].result(WAIT_S)
    assert replicas_of(confluent, "grows") == [[1, 2], [2, 3], [3, 1]]


def test_a_partition_moves_and_its_leadership_with_it(confluent: AdminClient, pure: KafkaAdminClient) -> None:
    create(confluent, "moves", [[1, 2], [2, 1]])
    pure.alter_partition_reassignments({TopicPartition("moves", 0): [3, 2]})
    eventually(lambda: replicas_of(confluent, "moves")[0] == [3, 2], lambda: replicas_of(confluent, "moves"))
    assert pure.list_partition_reassignments() == {}
    eventually(lambda: leaders_of(confluent, "moves")[0] in (2, 3), lambda: leaders_of(confluent, "moves"))
    found = confluent.describe_topics(TopicCollection(["moves"]))["moves"].result(WAIT_S)
    assert sorted(each.id for each in found.partitions[0].isr) == [2, 3]
    assert replicas_of(confluent, "moves")[1] == [2, 1]


def test_a_move_to_a_broker_that_does_not_exist_is_refused(confluent: AdminClient, pure: KafkaAdminClient) -> None:
    create(confluent, "stays", [[1, 2]])
    answer: Any = pure.alter_partition_reassignments({TopicPartition("stays", 0): [1, 9]})
    assert "InvalidReplica" in str(answer)
    assert replicas_of(confluent, "stays") == [[1, 2]]


def test_leadership_goes_back_to_the_preferred_replica(confluent: AdminClient, pure: KafkaAdminClient) -> None:
    create(confluent, "prefers", [[1, 2]])
    pure.alter_partition_reassignments({TopicPartition("prefers", 0): [2, 1]})
    eventually(lambda: replicas_of(confluent, "prefers") == [[2, 1]], lambda: replicas_of(confluent, "prefers"))
    assert leaders_of(confluent, "prefers") == [1]
    partition = ConfluentPartition("prefers", 0)
    elected = confluent.elect_leaders(ElectionType.PREFERRED, [partition]).result(WAIT_S)
    assert elected[partition] is None
    eventually(lambda: leaders_of(confluent, "prefers") == [2], lambda: leaders_of(confluent, "prefers"))
    again = confluent.elect_leaders(ElectionType.PREFERRED, [partition]).result(WAIT_S)
    assert again[partition].name() == "ELECTION_NOT_NEEDED"


def test_an_unclean_election_is_not_held_while_somebody_is_in_sync(confluent: AdminClient) -> None:
    create(confluent, "clean", [[1, 2]])
    partition = ConfluentPartition("clean", 0)
    elected = confluent.elect_leaders(ElectionType.UNCLEAN, [partition]).result(WAIT_S)
    assert elected[partition].name() == "ELECTION_NOT_NEEDED"
