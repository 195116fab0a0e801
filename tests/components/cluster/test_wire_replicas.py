"""What clients are told by brokers that lead a partition, and by those that only hold a replica of it."""

import time
from uuid import UUID

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import NewTopic

from tests.broker_process import BrokerProcess
from tests.clients import clients
from tests.clients.raw import RawConnection
from tests.clients.three_brokers import ThreeBrokers
from tests.components.batches import batch
from tiered.wire import fetch, messages, produce

pytest_plugins = ["tests.clients.three_brokers"]

NOT_LEADER = 6
CLUSTER_AUTHORIZATION_FAILED, STALE_BROKER_EPOCH = 31, 77
LEADER, FOLLOWER = 2, 3
"""Of every topic here: the first and the second of its replicas."""


@pytest.fixture
def topic(three_brokers: ThreeBrokers, request: pytest.FixtureRequest) -> str:
    """A topic led by broker 2 and followed by 3 and 1."""
    name = str(request.node.name).removeprefix("test_")[:60]
    wanted = NewTopic(name, 1, replica_assignment=[[LEADER, FOLLOWER, 1]], config={"min.insync.replicas": "2"})
    clients.admin(three_brokers.bootstrap).create_topics([wanted])[name].result(20)
    for broker in three_brokers.brokers:
        wait_for(broker, name)
    return name


def wait_for(broker: BrokerProcess, topic: str) -> None:
    deadline = time.monotonic() + 20
    with RawConnection(broker) as connection:
        while connection.fetch(topic, 0).error_code not in (0, NOT_LEADER):
            assert time.monotonic() < deadline
            time.sleep(0.05)


def send(broker: BrokerProcess, topic: str, *, version: int = 12) -> produce.ProduceResponse:
    with RawConnection(broker) as connection:
        topics = [produce.TopicBatches(topic, None, [(0, batch((b"a", b"b")))])]
        body = produce.encode_produce_request(topics, version, acks=-1, timeout_ms=10_000)
        answer = connection.call(0, version, body)
        return produce.decode_produce_response(answer, 0, len(answer), version)


def read(broker: BrokerProcess, topic: str, offset: int, *, rack: str) -> fetch.FetchPartitionResult:
    asked = fetch.FetchTopic(topic, None, [fetch.FetchPartition(0, -1, offset, -1, -1, 1 << 20)])
    request = fetch.FetchRequest(-1, -1, 0, 1, 1 << 20, 0, 0, -1, [asked], rack_id=rack)
    with RawConnection(broker) as connection:
        answer = connection.call(1, 12, fetch.encode_fetch_request(request, 12))
    return fetch.decode_fetch_response(answer, 0, len(answer), 12).topics[0].partitions[0]


def test_a_broker_that_does_not_lead_says_who_does(three_brokers: ThreeBrokers, topic: str) -> None:
    refused = send(three_brokers.broker(FOLLOWER), topic)
    (result,) = refused.topics[0].partitions
    assert (result.error_code, result.current_leader) == (NOT_LEADER, (LEADER, 0))
    (endpoint,) = refused.node_endpoints
    assert (endpoint.node_id, endpoint.port) == (LEADER, three_brokers.broker(LEADER).kafka_port)
    assert send(three_brokers.broker(LEADER), topic).topics[0].partitions[0].error_code == 0
    found = read(three_brokers.broker(FOLLOWER), topic, 0, rack="")
    assert (found.error_code, found.current_leader) == (NOT_LEADER, (LEADER, 0))


def test_only_the_leader_says_where_the_log_ends(three_brokers: ThreeBrokers, topic: str) -> None:
    namespace = messages.request(2, 6)
    wanted = namespace.ListOffsetsTopic(
        name=topic, partitions=[namespace.ListOffsetsPartition(partition_index=0, timestamp=-1)]
    )
    request = namespace.ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=[wanted])
    codes = []
    for broker in three_brokers.brokers:
        with RawConnection(broker) as connection:
            codes.append(int(connection.ask(2, 6, request).topics[0].partitions[0].error_code))
    assert codes == [NOT_LEADER, 0, NOT_LEADER]


def test_who_names_a_rack_is_sent_to_the_replica_there(three_brokers: ThreeBrokers, topic: str) -> None:
    assert send(three_brokers.broker(LEADER), topic).topics[0].partitions[0].error_code == 0
    leader, follower = three_brokers.broker(LEADER), three_brokers.broker(FOLLOWER)
    deadline = time.monotonic() + 20
    while (sent := read(leader, topic, 0, rack=f"rack-{FOLLOWER}")).preferred_read_replica != FOLLOWER:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert not sent.records
    here = read(leader, topic, 0, rack=f"rack-{LEADER}")
    assert here.preferred_read_replica == -1
    while not (there := read(follower, topic, 0, rack=f"rack-{FOLLOWER}")).records:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert bytes(there.records) == bytes(here.records or b"")  # type: ignore[arg-type]


def test_a_consumer_with_a_rack_reads_everything(three_brokers: ThreeBrokers, topic: str) -> None:
    count = 200
    clients.confluent_produce(
        three_brokers.bootstrap, topic, "none", [clients.Sent(None, b"%d" % each, (), 0) for each in range(count)]
    )
    consumer = Consumer(
        {
            "bootstrap.servers": three_brokers.bootstrap,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "client.rack": f"rack-{FOLLOWER}",
        }
    )
    consumer.subscribe([topic])
    values: list[bytes] = []
    deadline = time.monotonic() + 60
    while len(values) < count:
        assert time.monotonic() < deadline
        values += [each.value() or b"" for each in consumer.consume(100, timeout=1.0) if each.error() is None]
    consumer.close()
    assert values == [b"%d" % each for each in range(count)]


def test_nobody_follows_with_an_old_version(three_brokers: ThreeBrokers, topic: str) -> None:
    asked = fetch.FetchTopic(topic, None, [fetch.FetchPartition(0, 0, 0, -1, -1, 1 << 20)])
    request = fetch.FetchRequest(3, -1, 0, 1, 1 << 20, 0, 0, -1, [asked])
    with RawConnection(three_brokers.broker(LEADER)) as connection:
        connection.send(1, 12, fetch.encode_fetch_request(request, 12))
        assert connection.is_closed_by_broker()


def id_of(connection: RawConnection, topic: str) -> UUID:
    namespace = messages.request(3, 12)
    wanted = namespace.MetadataRequest(
        topics=[namespace.MetadataRequestTopic(topic_id=None, name=topic)], include_topic_authorized_operations=False
    )
    return UUID(str(connection.ask(3, 12, wanted).topics[0].topic_id))


def test_a_client_that_asks_as_a_broker_keeps_none_from_counting(three_brokers: ThreeBrokers, topic: str) -> None:
    """Nobody is asked who they are here: who knew a broker's number could stop, or make up, its acknowledgements."""
    leader = three_brokers.broker(LEADER)
    assert send(leader, topic).topics[0].partitions[0].error_code == 0
    codes = set()
    with RawConnection(leader) as connection:
        topic_id = id_of(connection, topic)
        for follower in (1, FOLLOWER, 99):
            for epoch in (*range(1, 60), 1 << 62):
                asked = fetch.FetchTopic(None, topic_id, [fetch.FetchPartition(0, 0, 2, -1, -1, 1 << 20)])
                request = fetch.FetchRequest(follower, epoch, 0, 1, 1 << 20, 0, 0, -1, [asked])
                answer = connection.call(1, 18, fetch.encode_fetch_request(request, 18))
                found = fetch.decode_fetch_response(answer, 0, len(answer), 18)
                codes.add(found.error_code)
                assert not found.topics
    assert codes == {CLUSTER_AUTHORIZATION_FAILED, STALE_BROKER_EPOCH}
    assert send(leader, topic).topics[0].partitions[0].error_code == 0
