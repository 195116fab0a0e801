"""wire.md 1 to 8: frames, versions, order, hostile bytes."""

import os
import random
import struct
import time

import pytest

from tests.broker_process import BrokerProcess
from tests.clients.raw import RawConnection
from tests.components.batches import batch
from tests.support.some_requests import codes_in, some_request
from tests.support.topics import create
from tiered.server.kafka.api.api_versions import TELEMETRY
from tiered.server.kafka.apis import served_apis
from tiered.wire import messages, produce

API_VERSIONS, METADATA, SHARE_GROUP_HEARTBEAT = 18, 3, 76
UNSUPPORTED_VERSION = 35
SERVED = {api.key: api.versions[1] for api in served_apis()}
UNSERVED = [(key, last) for key, (_, _, last) in messages.APIS.items() if last > SERVED.get(key, -1)]
"""APIs, and versions of them, whose messages are known."""
TOLD = {api.key for api in served_apis()} - TELEMETRY
"""Of telemetry a broker tells where somebody has subscribed to it: see `test_wire_telemetry`."""


def test_pipelined_requests_are_answered_in_their_order(broker: BrokerProcess) -> None:
    create(broker, "ordered")
    with RawConnection(broker) as connection:
        sent = []
        for _ in range(20):
            sent.append((API_VERSIONS, 0, connection.send(API_VERSIONS, 0, b"")))
            sent.append((METADATA, 1, connection.send(METADATA, 1, struct.pack(">i", -1))))
            body = produce.encode_produce_request(
                [produce.TopicBatches("ordered", None, [(0, batch())])], 9, acks=-1, timeout_ms=1000
            )
            sent.append((0, 9, connection.send(0, 9, body)))
        for api_key, version, correlation_id in sent:
            assert connection.receive(api_key, version)[0] == correlation_id


def test_a_request_behind_a_long_poll_waits_its_turn(broker: BrokerProcess) -> None:
    from tiered.wire import fetch

    create(broker, "turn")
    with RawConnection(broker) as connection:
        connection.produce("turn", batch())
        topics = [fetch.FetchTopic("turn", None, [fetch.FetchPartition(0, -1, 1, -1, -1, 1 << 20)])]
        request = fetch.FetchRequest(-1, -1, 400, 1, 1 << 20, 0, 0, -1, topics)
        started = time.monotonic()
        first = connection.send(1, 11, fetch.encode_fetch_request(request, 11))
        second = connection.send(API_VERSIONS, 0, b"")
        assert connection.receive(1, 11)[0] == first
        assert time.monotonic() - started >= 0.39
        assert connection.receive(API_VERSIONS, 0)[0] == second


def test_unknown_version_of_api_versions_is_answered_in_version_0_with_the_whole_list(broker: BrokerProcess) -> None:
    with RawConnection(broker) as connection:
        sent = connection.send(API_VERSIONS, 120, b"\x00" * 12)
        correlation_id, body = connection.receive(API_VERSIONS, 0)
        assert correlation_id == sent
        answer = messages.response_decoder(API_VERSIONS, 0)(body, 0)
        assert int(answer.error_code) == 35
        assert {each.api_key for each in answer.api_keys} == TOLD
        # The connection lives on, and the client asks again with what it learnt.
        assert len(connection.call(API_VERSIONS, 0, b"")) > 10


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_api_versions_has_a_version_0_header_in_every_version(broker: BrokerProcess, version: int) -> None:
    with RawConnection(broker) as connection:
        body = b"" if version < 3 else b"\x05test\x041.0\x00"
        connection.send(API_VERSIONS, version, body)
        frame = connection.receive_frame()
        # The error code follows the correlation id at once: no byte of tagged fields in between.
        assert frame[4:6] == b"\x00\x00"
        answer = messages.response_decoder(API_VERSIONS, version)(frame[4:], 0)
        assert len(answer.api_keys) == len(TOLD)


def test_what_is_advertised_is_what_is_registered_and_produce_begins_at_0(broker: BrokerProcess) -> None:
    with RawConnection(broker) as connection:
        answer = messages.response_decoder(API_VERSIONS, 0)(connection.call(API_VERSIONS, 0, b""), 0)
    advertised = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
    assert advertised == {api.key: api.versions for api in served_apis() if api.key in TOLD}
    assert advertised[0] == (0, 13)
    # The single versions that old librdkafka looks for.
    for api_key, version in ((0, 3), (0, 7), (1, 4), (1, 10), (2, 1)):
        low, high = advertised[api_key]
        assert low <= version <= high


@pytest.mark.parametrize(("api_key", "version"), [(0, 2), (0, 14), (3, 99), (77, 1), (12345, 0), (1, 3)])
def test_other_unknown_apis_and_versions_close_the_connection(
    broker: BrokerProcess, api_key: int, version: int
) -> None:
    with RawConnection(broker) as connection:
        connection.send(api_key, version, b"\x00" * 20)
        assert connection.is_closed_by_broker()


@pytest.mark.parametrize(("api_key", "version"), UNSERVED)
def test_what_is_not_served_is_answered_where_the_client_can_read_it(
    broker: BrokerProcess, api_key: int, version: int
) -> None:
    with RawConnection(broker) as connection:
        codes = set()
        for seed in range(5):  # An answer about nothing has no code.
            body = some_request(api_key, version, random.Random(seed))
            answer = messages.response_decoder(api_key, version)(connection.call(api_key, version, body), 0)
            codes.update(codes_in(answer))
        assert codes == {UNSUPPORTED_VERSION}
        assert connection.call(API_VERSIONS, 0, b"")


def test_what_is_not_served_is_in_the_log_once_for_each_client_and_key(broker: BrokerProcess) -> None:
    before = broker.log().count("asks for API key")
    for name in (b"once", b"twice"):
        for _ in range(3):
            with RawConnection(broker) as connection:
                connection.call(API_VERSIONS, 3, bytes([len(name) + 1]) + name + b"\x041.0\x00")
                connection.send(79, 0, b"")
                assert connection.is_closed_by_broker()
    log = broker.log()
    assert log.count("asks for API key") - before == 2
    assert "once 1.0 from 127.0.0.1 asks for API key 79 in version 0, which is not served" in log


def test_a_share_consumer_is_refused_in_words_and_the_log_names_it_once(broker: BrokerProcess) -> None:
    make = messages.request(SHARE_GROUP_HEARTBEAT, 1)
    beat = make.ShareGroupHeartbeatRequest(
        group_id="shares", member_id="m", member_epoch=0, rack_id=None, subscribed_topic_names=("t",)
    )
    with RawConnection(broker) as connection:
        for _ in range(3):
            answer = connection.ask(SHARE_GROUP_HEARTBEAT, 1, beat)
            assert (int(answer.error_code), answer.member_id) == (UNSUPPORTED_VERSION, "m")
            assert "use a consumer group" in answer.error_message
    assert broker.log().count("is a share consumer of group shares, and share groups (KIP-932) are not served") == 1


def test_unknown_tagged_fields_are_skipped(broker: BrokerProcess) -> None:
    with RawConnection(broker) as connection:
        connection.correlation_id = 7
        # Header with tag 99, body (software name and version) with tag 77.
        head = struct.pack(">hhih", API_VERSIONS, 3, 7, 3) + b"raw" + b"\x01\x63\x02hi"
        body = b"\x05test\x041.0" + b"\x01\x4d\x03abc"
        connection.send_bytes(struct.pack(">i", len(head) + len(body)) + head + body)
        correlation_id, answer = connection.receive(API_VERSIONS, 3)
        assert correlation_id == 7
        assert int(messages.response_decoder(API_VERSIONS, 3)(answer, 0).error_code) == 0


@pytest.mark.parametrize(("name", "code"), [(b"librdkafka", 0), (b"a.b-C9", 0), (b"-bad", 42), (b"", 42), (b"a b", 42)])
def test_software_names_are_checked_as_kafka_does(broker: BrokerProcess, name: bytes, code: int) -> None:
    with RawConnection(broker) as connection:
        body = bytes([len(name) + 1]) + name + b"\x041.0\x00"
        answer = messages.response_decoder(API_VERSIONS, 3)(connection.call(API_VERSIONS, 3, body), 0)
        assert int(answer.error_code) == code


@pytest.mark.parametrize("version", [1, 4, 9, 12])
def test_throttle_time_is_there_and_zero(broker: BrokerProcess, version: int) -> None:
    with RawConnection(broker) as connection:
        namespace = messages.request(METADATA, version)
        answer = connection.ask(
            METADATA,
            version,
            namespace.MetadataRequest(
                topics=None,
                include_cluster_authorized_operations=False,
                include_topic_authorized_operations=False,
            ),
        )
        if version >= 3:
            assert answer.throttle_time == 0


@pytest.mark.parametrize(
    "frame",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 0),
        struct.pack(">i", 2_000_000_000),
        struct.pack(">i", 5) + b"\x00\x12\x00\x03\x00",
        struct.pack(">i", 10) + struct.pack(">hhih", 3, 9, 1, 32000),
        # A thousand million topics in forty bytes.
        struct.pack(">i", 15) + struct.pack(">hhih", 3, 1, 1, -1) + struct.pack(">i", 1_000_000_000) + b"\x00",
        struct.pack(">i", 24)
        + struct.pack(">hhih", 0, 9, 1, -1)
        + b"\x00\x00\x00\x01\x00\x00\x10\x00\xff\xff\xff\xff\x0f\x00",
    ],
)
def test_hostile_frames_end_their_connection_and_nothing_else(broker: BrokerProcess, frame: bytes) -> None:
    with RawConnection(broker) as bystander, RawConnection(broker) as hostile:
        hostile.send_bytes(frame)
        assert hostile.is_closed_by_broker()
        assert len(bystander.call(API_VERSIONS, 0, b"")) > 10


def test_random_bytes_in_every_api_never_hurt_a_bystander(broker: BrokerProcess) -> None:
    chance = random.Random(11)
    with RawConnection(broker) as bystander:
        for api in served_apis():
            for version in range(api.versions[0], api.versions[1] + 1):
                with RawConnection(broker, timeout_s=2) as hostile:
                    hostile.send(api.key, version, chance.randbytes(chance.randrange(0, 80)))
        assert len(bystander.call(API_VERSIONS, 0, b"")) > 10
        answer = bystander.produce("after-noise", batch())
        assert answer.error_code in (0, 3)
    assert "unforeseen" not in broker.log(), "random bytes reached an exception that nobody foresaw"


def test_a_frame_that_announces_much_and_sends_little_costs_little_memory(broker: BrokerProcess) -> None:
    def resident_kib() -> int:
        with open(f"/proc/{broker.pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE") // 1024

    before = resident_kib()
    connections = [RawConnection(broker) for _ in range(50)]
    for connection in connections:
        connection.send_bytes(struct.pack(">i", 90_000_000) + b"\x00" * 1000)
    with RawConnection(broker) as bystander:
        assert len(bystander.call(API_VERSIONS, 0, b"")) > 10
    grown_mib = (resident_kib() - before) / 1024
    for connection in connections:
        connection.close()
    assert grown_mib < 100, f"50 promises of 90 MB cost {grown_mib:.0f} MiB"


def test_connections_above_the_limit_are_refused_and_others_live(make_broker) -> None:  # type: ignore[no-untyped-def]
    process = make_broker(settings={"max.connections": 5}).start()
    held = [RawConnection(process) for _ in range(5)]
    for connection in held:
        assert len(connection.call(API_VERSIONS, 0, b"")) > 10
    with RawConnection(process) as refused:
        assert refused.is_closed_by_broker()
    assert len(held[0].call(API_VERSIONS, 0, b"")) > 10
    for connection in held:
        connection.close()
