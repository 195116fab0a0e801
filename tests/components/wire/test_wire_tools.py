"""What tools and consoles ask for besides: producers, features, pages of topics, the quorum, log directories."""

from typing import Any

import pytest

from tests.broker_process import BrokerProcess
from tests.clients.raw import RawConnection
from tests.components.batches import batch
from tests.support.topics import create
from tiered.wire import messages

INVALID_REQUEST, LOG_DIR_NOT_FOUND, INVALID_UPDATE_VERSION, UNKNOWN_TOPIC = 42, 57, 95, 3
ALTER_DIRS, DESCRIBE_DIRS, API_VERSIONS, QUORUM, FEATURES, PRODUCERS, TOPIC_PARTITIONS = 34, 35, 18, 55, 57, 61, 75


def page(
    connection: RawConnection, names: list[str], limit: int, cursor: tuple[str, int] | None = None
) -> tuple[list[tuple[str, int, list[int]]], tuple[str, int] | None]:
    """([topic, error, its partitions], where the next page begins)"""
    r = messages.request(TOPIC_PARTITIONS, 0)
    request = r.DescribeTopicPartitionsRequest(
        topics=[r.TopicRequest(name=each) for each in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else r.Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    answer = connection.ask(TOPIC_PARTITIONS, 0, request)
    found = [(each.name, each.error_code, [p.partition_index for p in each.partitions]) for each in answer.topics]
    following = answer.next_cursor
    return found, following and (following.topic_name, following.partition_index)


def test_topics_are_described_a_page_at_a_time(broker: BrokerProcess) -> None:
    first, second = create(broker, "paged-a", partitions=3), create(broker, "paged-b", partitions=2)
    both = [second, first, "paged-none"]
    with RawConnection(broker) as connection:
        assert page(connection, both, 2) == ([(first, 0, [0, 1])], (first, 2))
        assert page(connection, both, 2, (first, 2)) == ([(first, 0, [2]), (second, 0, [0])], (second, 1))
        assert page(connection, both, 2, (second, 1)) == ([(second, 0, [1]), ("paged-none", UNKNOWN_TOPIC, [])], None)
        assert page(connection, both, 3) == ([(first, 0, [0, 1, 2])], (second, 0))
        assert page(connection, [first], 2, (second, 0)) == ([(first, INVALID_REQUEST, [])], None)


def test_all_topics_are_described_page_after_page_whatever_the_limit(broker: BrokerProcess) -> None:
    create(broker, "paged-c", partitions=3)
    whole: dict[str, list[int]] = {}
    with RawConnection(broker) as connection:
        cursor: tuple[str, int] | None = ("", 0)
        while cursor is not None:
            found, cursor = page(connection, [], 0, None if cursor == ("", 0) else cursor)
            for name, code, indexes in found:
                assert code == 0
                whole.setdefault(name, []).extend(indexes)
        everything, _ = page(connection, [], 2_000)
    assert whole == {name: indexes for name, _, indexes in everything}
    assert whole["paged-c"] == [0, 1, 2]


def test_a_described_partition_has_its_leader_and_replicas_and_no_eligible_ones_beside_the_isr(
    broker: BrokerProcess,
) -> None:
    topic = create(broker, "paged-d")
    r = messages.request(TOPIC_PARTITIONS, 0)
    with RawConnection(broker) as connection:
        request = r.DescribeTopicPartitionsRequest(topics=[r.TopicRequest(name=topic)], response_partition_limit=1)
        described = connection.ask(TOPIC_PARTITIONS, 0, request).topics[0]
    partition = described.partitions[0]
    assert (partition.leader_id, partition.replica_nodes, partition.isr_nodes) == (1, (1,), (1,))
    # Java's admin client breaks at a null, which the protocol allows.
    assert (partition.eligible_leader_replicas, partition.last_known_elr) == ((), ())
    assert described.topic_id is not None
    assert described.topic_authorized_operations > 0


def test_the_producers_of_a_partition_are_told_with_their_last_sequence(broker: BrokerProcess) -> None:
    topic = create(broker, "produced")
    r = messages.request(PRODUCERS, 0)
    with RawConnection(broker) as connection:
        for sequence in (0, 2):
            sent = batch([b"a", b"b"], producer_id=77, producer_epoch=3, base_sequence=sequence, first_ms=1000)
            assert connection.produce(topic, sent).error_code == 0
        asked = [r.TopicRequest(name=topic, partition_indexes=(0, 0, 9))]
        answer = connection.ask(PRODUCERS, 0, r.DescribeProducersRequest(topics=asked)).topics[0]
    known, unknown = answer.partitions
    (producer,) = known.active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (77, 3, 3)
    assert (producer.last_timestamp, producer.current_txn_start_offset) == (2000, -1)
    assert (unknown.partition_index, unknown.error_code, unknown.active_producers) == (9, UNKNOWN_TOPIC, ())


def test_nobody_produces_to_the_offsets_topic(broker: BrokerProcess) -> None:
    """Java's admin client asks again for a minute where a partition that Metadata lists is said to be unknown."""
    r = messages.request(PRODUCERS, 0)
    with RawConnection(broker) as connection:
        asked = [r.TopicRequest(name="__consumer_offsets", partition_indexes=(0, 49, 50))]
        answer = connection.ask(PRODUCERS, 0, r.DescribeProducersRequest(topics=asked)).topics[0]
    assert [(each.error_code, each.active_producers) for each in answer.partitions] == [
        (0, ()),
        (0, ()),
        (UNKNOWN_TOPIC, ()),
    ]


def finalized(connection: RawConnection) -> dict[str, int]:
    r = messages.request(API_VERSIONS, 4)
    request = r.ApiVersionsRequest(client_software_name="t", client_software_version="1")
    answer = connection.ask(API_VERSIONS, 4, request)
    assert answer.finalized_features_epoch >= 0
    assert {each.name for each in answer.supported_features} == {each.name for each in answer.finalized_features}
    return {each.name: each.max_version_level for each in answer.finalized_features}


def test_the_features_that_are_served_are_finalized(broker: BrokerProcess) -> None:
    with RawConnection(broker) as connection:
        assert finalized(connection) == {"group.version": 1, "metadata.version": 29, "transaction.version": 2}


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize(
    ("feature", "level", "code"),
    [
        ("group.version", 1, 0),
        ("group.version", 0, INVALID_UPDATE_VERSION),
        ("transaction.version", 2, 0),
        ("transaction.version", 1, INVALID_UPDATE_VERSION),
        ("transaction.version", 0, INVALID_UPDATE_VERSION),
        ("share.version", 1, INVALID_UPDATE_VERSION),
    ],
)
def test_a_feature_stays_at_its_level(broker: BrokerProcess, version: int, feature: str, level: int, code: int) -> None:
    r = messages.request(FEATURES, version)
    update = r.FeatureUpdateKey(feature=feature, max_version_level=level, upgrade_type=2, allow_downgrade=True)
    with RawConnection(broker) as connection:
        before = finalized(connection)
        request = r.UpdateFeaturesRequest(timeout=5000, feature_updates=[update], validate_only=False)
        answer = connection.ask(FEATURES, version, request)
        assert answer.error_code == code
        assert (feature in (answer.error_message or "")) == bool(code)
        assert finalized(connection) == before


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_quorum_is_the_broker_that_holds_the_lease(broker: BrokerProcess, version: int) -> None:
    r = messages.request(QUORUM, version)

    def asked(name: str) -> Any:
        return r.TopicData(topic_name=name, partitions=[r.PartitionData(partition_index=0)])

    with RawConnection(broker) as connection:
        request = r.DescribeQuorumRequest(topics=[asked("__cluster_metadata"), asked("other")])
        answer = connection.ask(QUORUM, version, request)
    metadata, other = (each.partitions[0] for each in answer.topics)
    assert (metadata.error_code, metadata.leader_id) == (0, 1)
    assert [each.replica_id for each in metadata.current_voters] == [1]
    assert metadata.current_voters[0].log_end_offset == metadata.high_watermark > 0
    assert metadata.observers == ()
    assert (other.error_code, other.current_voters) == (UNKNOWN_TOPIC, ())
    if version >= 2:
        assert [(each.node_id, each.listeners[0].port) for each in answer.nodes] == [(1, broker.kafka_port)]


def test_a_quorum_that_is_asked_for_thousands_of_times_is_told_once(broker: BrokerProcess) -> None:
    r = messages.request(QUORUM, 2)
    asked = r.TopicData(topic_name="__cluster_metadata", partitions=[r.PartitionData(partition_index=0)] * 1000)
    with RawConnection(broker) as connection:
        answer = connection.ask(QUORUM, 2, r.DescribeQuorumRequest(topics=[asked] * 10))
    assert [len(each.partitions) for each in answer.topics] == [1]


@pytest.mark.parametrize("version", [1, 2])
def test_a_replica_is_moved_to_no_other_log_directory(broker: BrokerProcess, version: int) -> None:
    topic = create(broker, f"unmoved-{version}")
    r = messages.request(ALTER_DIRS, version)
    with RawConnection(broker) as connection:
        dirs = messages.request(DESCRIBE_DIRS, 4).DescribeLogDirsRequest(topics=None)
        here = connection.ask(DESCRIBE_DIRS, 4, dirs).results[0].log_dir
        for path, codes in ((here, [0, UNKNOWN_TOPIC]), ("/elsewhere", [LOG_DIR_NOT_FOUND] * 2)):
            moved = r.AlterReplicaLogDir(path=path, topics=[r.AlterReplicaLogDirTopic(name=topic, partitions=(0, 9))])
            answer = connection.ask(ALTER_DIRS, version, r.AlterReplicaLogDirsRequest(dirs=[moved]))
            assert [each.error_code for each in answer.results[0].partitions] == codes
