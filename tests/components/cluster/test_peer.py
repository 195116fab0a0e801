"""The client side against librdkafka's mock cluster, and against a server that misbehaves."""

import asyncio
import struct
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.support.scripted_peer import Raw, serving
from tiered import errors, peer
from tiered.formats.record_batch import Record, encode_batch, exact_batches, records
from tiered.wire import frames, messages, produce


def batch_of(*values: bytes) -> bytes:
    return encode_batch([Record(offset=i, timestamp_ms=1, key=None, value=v, headers=()) for i, v in enumerate(values)])


def values_in(fetched: peer.FetchedRecords) -> list[bytes | None]:
    found = exact_batches(fetched.records, 0, len(fetched.records))
    return [record.value for position, _ in found for record in records(fetched.records, position)]


@pytest.fixture
def rdkafka() -> Iterator[tuple[Producer, str]]:
    """A producer with a mock cluster of three brokers inside, and their addresses."""
    producer = Producer({"test.mock.num.brokers": 3, "bootstrap.servers": "", "log_level": 0})
    brokers = producer.list_topics(timeout=30).brokers.values()
    yield producer, ",".join(f"{each.host}:{each.port}" for each in brokers)
    producer.flush(30)


async def test_what_librdkafka_wrote_is_listed_and_fetched(rdkafka: tuple[Producer, str]) -> None:
    producer, servers = rdkafka
    written = [f"value {i}".encode() for i in range(40)]
    for number, value in enumerate(written):
        producer.produce("t", value, partition=number % 4)
    producer.flush(30)
    async with peer.Cluster(servers, timeout_ms=10_000) as cluster:
        metadata = await cluster.metadata(["t"])
        assert len(metadata.brokers) == 3
        assert [each.partition for each in metadata.topics["t"].partitions] == [0, 1, 2, 3]
        assert metadata.topics["t"].topic_id is not None
        latest = await cluster.list_offsets("t", dict.fromkeys(range(4), peer.LATEST))
        assert latest == dict.fromkeys(range(4), 10)
        earliest = await cluster.list_offsets("t", {2: peer.EARLIEST})
        assert earliest == {2: 0}
        found: list[bytes | None] = []
        while len(found) < 10:
            # The mock cluster answers with one batch at a time, and the client may have sent several.
            fetched = await cluster.fetch("t", 3, len(found))
            assert (fetched.high_watermark, fetched.log_start_offset) == (10, 0)
            found += values_in(fetched)
        assert found == written[3::4]
        assert len((await cluster.fetch("t", 3, 10, max_wait_ms=10)).records) == 0


async def test_what_was_produced_can_be_fetched(rdkafka: tuple[Producer, str]) -> None:
    async with peer.Cluster(rdkafka[1], timeout_ms=10_000) as cluster:
        await cluster.metadata(["new"], may_create=True)
        first = await cluster.produce("new", 0, batch_of(b"a", b"b"))
        second = await cluster.produce("new", 0, batch_of(b"c"), acks=1)
        assert (first.base_offset, second.base_offset) == (0, 2)
        # The mock cluster answers with one batch at a time.
        assert values_in(await cluster.fetch("new", 0, 0)) == [b"a", b"b"]
        assert values_in(await cluster.fetch("new", 0, 2)) == [b"c"]


async def test_error_codes_become_errors_of_their_kind(rdkafka: tuple[Producer, str]) -> None:
    producer, servers = rdkafka
    producer.produce("t", b"x", partition=0)
    producer.flush(30)
    async with peer.Cluster(servers, timeout_ms=10_000) as cluster:
        with pytest.raises(errors.OutOfRange) as out_of_range:
            await cluster.fetch("t", 0, 99)
        assert isinstance(out_of_range.value, peer.BrokerError)
        assert (out_of_range.value.code, out_of_range.value.name) == (1, "OFFSET_OUT_OF_RANGE")
        with pytest.raises(errors.Retriable, match="has no partition 77"):
            await cluster.fetch("t", 77, 0)
        with pytest.raises(errors.Retriable, match="create it"):
            await cluster.list_offsets("absent", {0: peer.LATEST})


async def test_several_requests_share_one_connection_in_turn(rdkafka: tuple[Producer, str]) -> None:
    host, _, port = rdkafka[1].split(",")[0].partition(":")
    async with await peer.Peer.connect(host, int(port), timeout_ms=10_000) as connection:
        found = await asyncio.gather(
            *(connection.request(3, lambda request: request.MetadataRequest(topics=None), at_most=1) for _ in range(5))
        )
        assert [len(each.brokers) for each in found] == [3] * 5
        with pytest.raises(errors.UnsupportedVersion):
            connection.version_of(75)


async def test_a_question_that_a_broker_is_too_old_for_is_not_asked(rdkafka: tuple[Producer, str]) -> None:
    async with peer.Cluster(rdkafka[1], timeout_ms=10_000) as cluster:
        last = messages.APIS[METADATA][2]
        with pytest.raises(errors.UnsupportedVersion, match="too old"):
            await cluster.request(METADATA, lambda request: request.MetadataRequest(topics=None), at_least=last + 1)


def test_cluster_can_be_used_from_code_that_is_not_asynchronous(rdkafka: tuple[Producer, str]) -> None:
    async def names() -> set[str]:
        async with peer.Cluster(rdkafka[1], timeout_ms=10_000) as cluster:
            await cluster.metadata(["here"], may_create=True)
            return set((await cluster.metadata()).topics)

    assert asyncio.run(names()) == {"here"}


# A server that misbehaves

API_VERSIONS, METADATA, LIST_OFFSETS, PRODUCE = 18, 3, 2, 0
OFFERED = {PRODUCE: 9, 1: 12, LIST_OFFSETS: 6, METADATA: 9, API_VERSIONS: 3}


def offers(version: int) -> bytes:
    reply = messages.reply(API_VERSIONS, version)
    keys = [reply.ApiVersion(api_key=key, min_version=3, max_version=last) for key, last in OFFERED.items()]
    return messages.encode(reply.ApiVersionsResponse(error_code=0, api_keys=keys))


def leads(port: int, version: int) -> bytes:
    reply = messages.reply(METADATA, version)
    partition = reply.MetadataResponsePartition(
        error_code=0, partition_index=0, leader_id=1, replica_nodes=[1], isr_nodes=[1], offline_replicas=[]
    )
    return messages.encode(
        reply.MetadataResponse(
            brokers=[reply.MetadataResponseBroker(node_id=1, host="127.0.0.1", port=port)],
            controller_id=1,
            topics=[reply.MetadataResponseTopic(error_code=0, name="t", is_internal=False, partitions=[partition])],
        )
    )


def appended(code: int, version: int) -> bytes:
    result = produce.PartitionResult(0, code, 5 if not code else -1)
    return bytes(produce.encode_produce_response([produce.TopicResult("t", None, [result])], version))


@asynccontextmanager
async def leader(answer_produce: Callable[[int], bytes | None]) -> Any:
    """A broker that leads t-0; `answer_produce(version)` answers Produce."""
    port = 0

    def answer(key: int, version: int, body: bytes) -> bytes | None:
        if key == API_VERSIONS:
            return offers(version)
        if key == METADATA:
            return leads(port, version)
        return answer_produce(version)

    async with serving(answer) as (found, requests):
        port = found
        yield port, requests


async def test_lost_leadership_is_looked_up_again() -> None:
    codes = [6, 5, 74, 0]
    async with leader(lambda version: appended(codes.pop(0), version)) as (port, requests):
        async with peer.Cluster([("127.0.0.1", port)], timeout_ms=20_000) as cluster:
            assert (await cluster.produce("t", 0, batch_of(b"x"))).base_offset == 5
        assert requests.count(PRODUCE) == 4
        assert requests.count(METADATA) == 4


async def test_produce_of_unknown_outcome_is_not_repeated() -> None:
    async with leader(lambda version: None) as (port, requests):
        async with peer.Cluster([("127.0.0.1", port)], timeout_ms=20_000) as cluster:
            with pytest.raises(peer.OutcomeUnknown):
                await cluster.produce("t", 0, batch_of(b"x"))
        assert requests.count(PRODUCE) == 1


async def test_repeatable_produce_is_repeated_after_a_lost_connection() -> None:
    answers: list[int | None] = [None, None, 0]

    def answer(version: int) -> bytes | None:
        code = answers.pop(0)
        return None if code is None else appended(code, version)

    async with leader(answer) as (port, requests):
        async with peer.Cluster([("127.0.0.1", port)], timeout_ms=20_000) as cluster:
            assert (await cluster.produce("t", 0, batch_of(b"x"), repeatable=True)).base_offset == 5
        assert requests.count(PRODUCE) == 3


@pytest.mark.parametrize(
    ("code", "kind"),
    [(10, errors.Invalid), (90, errors.Fenced), (2, errors.Corrupt), (7, errors.Retriable), (999, errors.Invalid)],
)
async def test_refused_produce_is_not_repeated(code: int, kind: type[Exception]) -> None:
    async with leader(lambda version: appended(code, version)) as (port, requests):
        async with peer.Cluster([("127.0.0.1", port)], timeout_ms=20_000) as cluster:
            with pytest.raises(kind) as refused:
                await cluster.produce("t", 0, batch_of(b"x"))
        assert isinstance(refused.value, peer.BrokerError)
        assert refused.value.code == code
        assert requests.count(PRODUCE) == 1


@pytest.mark.parametrize(
    "sent",
    [
        Raw(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
        Raw(struct.pack(">i", -1)),
        Raw(struct.pack(">i", 0x7FFFFFFF)),
        Raw(struct.pack(">ii", 6, 12345) + b"\x00\x00"),
        b"\x00",
        b"\x00\x00\xff\xff\xff\xff\x07",
        b"\x00\x00\x7f\xff\xff\xff",
    ],
)
async def test_answers_that_are_no_answers_end_the_connection(sent: bytes) -> None:
    async with serving(lambda key, version, body: sent) as (port, _):
        with pytest.raises(peer.CorruptAnswer):
            await peer.Peer.connect("127.0.0.1", port, timeout_ms=10_000)


async def test_frame_that_nobody_asked_for_ends_the_connection() -> None:
    def answer(key: int, version: int, body: bytes) -> bytes:
        head = frames.response_header(1, key, version) + offers(version)
        return Raw((frames.frame_length(len(head)) + head) * 2)

    async with serving(answer) as (port, _):
        connection = await peer.Peer.connect("127.0.0.1", port, timeout_ms=10_000)
        while connection.is_open:
            await asyncio.sleep(0.01)
        with pytest.raises(peer.CorruptAnswer):
            await connection.exchange(METADATA, 9, [b""])


async def test_silence_times_out_and_ends_the_connection() -> None:
    def answer(key: int, version: int, body: bytes) -> bytes:
        return offers(version) if key == API_VERSIONS else Raw(b"")

    async with serving(answer) as (port, _):
        connection = await peer.Peer.connect("127.0.0.1", port, timeout_ms=10_000)
        with pytest.raises(errors.RequestTimedOut):
            await connection.exchange(METADATA, 9, [b""], timeout_ms=50)
        assert not connection.is_open
        with pytest.raises(peer.ConnectionLost):
            await connection.exchange(METADATA, 9, [b""])


async def test_cancelled_request_ends_its_connection() -> None:
    def answer(key: int, version: int, body: bytes) -> bytes:
        return offers(version) if key == API_VERSIONS else Raw(b"")

    async with serving(answer) as (port, _):
        connection = await peer.Peer.connect("127.0.0.1", port, timeout_ms=10_000)
        waiting = asyncio.ensure_future(connection.exchange(METADATA, 9, [b""]))
        await asyncio.sleep(0.05)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not connection.is_open


async def test_unreachable_bootstrap_is_connection_lost() -> None:
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    with pytest.raises(peer.ConnectionLost, match="cannot be reached"):
        await peer.Peer.connect("127.0.0.1", port)
    async with peer.Cluster([("127.0.0.1", port)], timeout_ms=300) as cluster:
        with pytest.raises(peer.ConnectionLost):
            await cluster.metadata()


def test_bootstrap_servers_are_read_as_kafka_writes_them() -> None:
    assert peer.parse_bootstrap("a:1, b ,[::1]:3,[::1]") == [("a", 1), ("b", 9092), ("::1", 3), ("::1", 9092)]
    for wrong in ("", ",", "a:b", ":1", "a:0", "a:65536"):
        with pytest.raises(errors.InvalidConfig):
            peer.parse_bootstrap(wrong)
