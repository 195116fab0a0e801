"""Whatever ends is freed when it ends: cycles would wait for a full collection, which stops everybody."""

import ssl
import struct
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from socket import create_connection

import pytest
from aiohttp import web
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.certificates import Authority
from tests.clients.raw import RawConnection
from tests.support.garbage import alive, noted_garbage
from tests.support.reassignments import alter, listed
from tiered.broker.groups.classic_group import ClassicGroup
from tiered.broker.groups.classic_member import ClassicMember
from tiered.broker.groups.consumer_group import ConsumerGroup
from tiered.broker.partitions.partition import Partition
from tiered.hot.log import Log
from tiered.server.http.door.connection import HttpConnection
from tiered.server.kafka.transport.connection import Connection
from tiered.server.kafka.transport.requests import Requests
from tiered.server.kafka.transport.sasl_session import SaslSession
from tiered.server.kafka.transport.tls_stream import TlsStream
from tiered.testing import LocalCluster, cluster
from tiered.wire import fetch, messages

TIMES = 5
WAIT_S = 30.0
API_VERSIONS, OFFSET_FETCH = 18, 9
names = (f"name-{number}" for number in count())


@dataclass(slots=True)
class Door:
    kafka_port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tour:
    """Two brokers, and clients that stay connected."""

    c: LocalCluster
    authority: Authority
    admin: AdminClient
    producer: Producer
    cold: str

    def door(self, listener: str = "") -> Door:
        addresses = self.c.bootstrap_at(listener) if listener else self.c.bootstrap
        return Door(int(addresses.split(",")[0].rpartition(":")[2]))

    def consumer(self, **options: object) -> Consumer:
        return Consumer({"bootstrap.servers": self.c.bootstrap, "log_level": 0, "group.id": "reads", **options})


@pytest.fixture(scope="module")
def tour(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tour]:
    authority = Authority(tmp_path_factory.mktemp("authority"))
    with cluster(
        brokers=2,
        topics={"stays": 2},
        listeners={"SECURE": "SSL", "LOGIN": "SASL_PLAINTEXT"},
        settings={
            "ssl.keystore.location": authority.sign("broker").both,
            "sasl.enabled.mechanisms": "SCRAM-SHA-256",
            "broker.session.timeout.ms": 9000,
        },
    ) as c:
        c.create_topic("moves", replicas=1)
        cold = c.create_topic("cold", configs={"segment.bytes": 10_000})
        producer = Producer({"bootstrap.servers": c.bootstrap, "log_level": 0, "transactional.id": "tour"})
        producer.init_transactions()
        producer.begin_transaction()
        for _ in range(10):
            producer.produce(cold, bytes(5000))
        producer.commit_transaction()
        c.tier(cold, keep_local=False)
        admin = AdminClient({"bootstrap.servers": c.bootstrap, "log_level": 0})
        yield Tour(c=c, authority=authority, admin=admin, producer=producer, cold=cold)


def topic(tour: Tour) -> None:
    name = next(names)
    tour.admin.create_topics([NewTopic(name, 2, 2)])[name].result(WAIT_S)
    tour.producer.begin_transaction()
    tour.producer.produce(name, b"value")
    tour.producer.commit_transaction()
    tour.admin.delete_topics([name])[name].result(WAIT_S)


def connection(tour: Tour) -> None:
    with RawConnection(tour.door()) as client:
        client.call(API_VERSIONS, 0, b"")
        client.send_bytes(b"\0\0")


def connection_with_a_wait(tour: Tour) -> None:
    """A long poll is under way, and a request behind it."""
    metadata = tour.admin.list_topics("stays", timeout=WAIT_S)
    leader = metadata.brokers[metadata.topics["stays"].partitions[0].leader]
    with RawConnection(Door(leader.port)) as client:
        end_offset = client.fetch("stays", 0).high_watermark
        waits = fetch.FetchPartition(0, -1, end_offset, -1, -1, 1 << 20)
        request = fetch.FetchRequest(-1, -1, 60_000, 1, 1 << 20, 0, 0, -1, [fetch.FetchTopic("stays", None, [waits])])
        client.send(fetch.API_KEY, 11, fetch.encode_fetch_request(request, 11))
        client.send(API_VERSIONS, 0, b"")
        assert client.answers_nothing(0.05)


def connection_that_ends_while_sql_is_asked(tour: Tour) -> None:
    """Some of its groups have been looked up, and the others are although nobody waits."""
    request = messages.request(OFFSET_FETCH, 8)
    groups = [request.OffsetFetchRequestGroup(group_id=f"group-{number}", topics=[]) for number in range(4_000)]
    with RawConnection(tour.door()) as client:
        client.send(OFFSET_FETCH, 8, bytes(messages.encode(request.OffsetFetchRequest(groups=groups))))
        assert client.answers_nothing(0.02)


def connection_with_an_error(tour: Tour) -> None:
    with RawConnection(tour.door()) as client:
        client.send_bytes(struct.pack(">i", 8) + b"\x7f" * 8)
        assert client.is_closed_by_broker()


def login(tour: Tour) -> None:
    with RawConnection(tour.door("LOGIN")) as client:
        client.call(API_VERSIONS, 0, b"")


def tls(tour: Tour) -> None:
    context = ssl.create_default_context(cafile=str(tour.authority.pem))
    address = ("127.0.0.1", tour.door("SECURE").kafka_port)
    with create_connection(address) as plain, context.wrap_socket(plain, server_hostname="127.0.0.1") as client:
        client.sendall(struct.pack(">i", 1000))
    with create_connection(address) as plain:
        plain.sendall(b"no TLS\n")


def group(tour: Tour, protocol: str) -> None:
    name = next(names)
    consumer = tour.consumer(**{"group.id": name, "group.protocol": protocol})
    consumer.subscribe(["stays"])
    deadline = time.monotonic() + WAIT_S
    while not consumer.assignment():
        assert time.monotonic() < deadline, "nothing was assigned"
        consumer.poll(0.02)
    consumer.commit(offsets=[TopicPartition("stays", 0, 0)], asynchronous=False)
    consumer.close()
    tour.admin.delete_consumer_groups([name])[name].result(WAIT_S)


def classic_group(tour: Tour) -> None:
    group(tour, "classic")


def consumer_group(tour: Tour) -> None:
    group(tour, "consumer")


def transactions(tour: Tour) -> None:
    for commits in (True, False):
        tour.producer.begin_transaction()
        tour.producer.produce("stays", b"value", partition=int(commits))
        tour.producer.flush()
        (tour.producer.commit_transaction if commits else tour.producer.abort_transaction)()


def reassignment(tour: Tour) -> None:
    with RawConnection(tour.door()) as client:
        for broker_id in (1, 2):
            alter(client, [("moves", 0, [broker_id])])
            deadline = time.monotonic() + WAIT_S
            while listed(client, None):
                assert time.monotonic() < deadline, "it does not come to an end"
                time.sleep(0.02)


def cold_read(tour: Tour) -> None:
    consumer = tour.consumer()
    consumer.assign([TopicPartition(tour.cold, 0, 0)])
    deadline, read = time.monotonic() + WAIT_S, 0
    while read < 10:
        assert time.monotonic() < deadline, f"{read} of 10 records were read"
        read += len(consumer.consume(10, 0.2))
    consumer.close()


def http(tour: Tour) -> None:
    for path in ("/healthz", "/metrics", "/v3/clusters", "/v3/clusters/none/topics/none"):
        ask(tour, path)


def ask(tour: Tour, path: str) -> None:
    with suppress(urllib.error.HTTPError), urllib.request.urlopen(tour.c.http_url + path, timeout=WAIT_S) as answer:
        answer.read()


KINDS: dict[Callable[[Tour], None], tuple[type, ...]] = {
    topic: (Partition, Log),
    connection: (Connection, Requests),
    connection_with_a_wait: (Connection, Requests),
    connection_that_ends_while_sql_is_asked: (Connection, Requests),
    connection_with_an_error: (Connection, Requests),
    login: (Connection, SaslSession),
    tls: (Connection, TlsStream, ssl.SSLObject),
    classic_group: (ClassicGroup, ClassicMember),
    consumer_group: (ConsumerGroup,),
    transactions: (),
    reassignment: (),
    cold_read: (),
    http: (HttpConnection,),
}
"""What makes and ends a thing, with the classes of which nothing is left then."""


def wait_for_none(*kinds: type) -> None:
    deadline = time.monotonic() + WAIT_S
    while left := {kind.__name__: alive(kind) for kind in kinds if alive(kind)}:
        assert time.monotonic() < deadline, f"still there without the collector: {left}"
        time.sleep(0.05)


def test_a_path_that_is_not_there_leaves_no_request(tour: Tour) -> None:
    """aiohttp makes a route for it that holds itself and the error."""
    with noted_garbage():
        ask(tour, "/nothing")
        wait_for_none(web.Request)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_what_has_ended_leaves_nothing_for_the_collector(tour: Tour, kind: Callable[[Tour], None]) -> None:
    kind(tour)  # What is made once is made.
    with noted_garbage() as garbage:
        for _ in range(TIMES):
            kind(tour)
        wait_for_none(*KINDS[kind])
    assert not {name: times for name, times in garbage.items() if times >= TIMES}, garbage.most_common(20)
