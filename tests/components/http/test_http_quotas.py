"""Quotas over HTTP: the same ones as over Kafka's protocol, refused with 429 and the time to wait, and streams rest."""

import base64
import http.client
import json
import time
from collections.abc import Callable
from contextlib import closing

import pytest

from tests.broker_process import BrokerProcess
from tests.clients.listener import Listener
from tests.clients.raw import RawConnection
from tests.components.batches import batch
from tests.components.http.exchanges import TOPICS, Answer, ask
from tests.components.http.v3_streams import Stream
from tests.components.tiers import eventually
from tests.support.client_quotas import alter
from tests.support.topics import create

KIB = 1 << 10
RATE = 100 * KIB
MEASURE = 11 * RATE
"""What may come at once: eleven windows of a second."""
EVENTS = 20
EVENT_BYTES = 300
"""Of a small record, about."""
ANONYMOUS = (("user", "ANONYMOUS"),)


@pytest.fixture
def broker(make_broker: Callable[..., BrokerProcess]) -> BrokerProcess:
    """One a test: what a user owes outlives its quota."""
    return make_broker().start()


def limit(broker: BrokerProcess, quota: str, value: float) -> None:
    assert alter(broker, [(ANONYMOUS, {quota: value})]) == [0]


def record_of(size: int) -> bytes:
    data = base64.b64encode(bytes(size * 3 // 4)).decode()
    return json.dumps({"partition_id": 0, "value": {"type": "BINARY", "data": data}}).encode()


def url_of(broker: BrokerProcess, topic: str) -> str:
    return f"/v3/clusters/{broker.get('/v3/clusters')['data'][0]['cluster_id']}/topics/{topic}"


def produced(broker: BrokerProcess, topic: str, size: int) -> Answer:
    return ask(broker, url_of(broker, topic) + "/records", method="POST", body=record_of(size))


def page(broker: BrokerProcess, topic: str) -> Answer:
    return ask(broker, f"{TOPICS}/{topic}/records?field_bytes=1048576")


def end_of(broker: BrokerProcess, topic: str) -> int:
    return int(broker.get(f"{TOPICS}/{topic}")["partitions"][0]["high_watermark"])


def throttles(broker: BrokerProcess, quota: str) -> float:
    return broker.metric(f'tiered_throttled_total{{quota="{quota}"}}')


def assert_refused(answer: Answer, quota: str) -> None:
    assert answer.status == 429
    assert answer.body["message"].startswith(f"{quota} is used up; try again in ")
    assert 1 <= int(answer.headers["Retry-After"]) <= 11


def test_who_has_produced_too_much_is_refused_and_nothing_is_written(broker: BrokerProcess) -> None:
    topic = create(broker, "produced-too-much")
    limit(broker, "producer_byte_rate", RATE)
    assert produced(broker, topic, MEASURE // 2).status == 200
    assert produced(broker, topic, MEASURE).status == 200, "what is too much is written, and owed"
    refused = produced(broker, topic, 10)
    assert_refused(refused, "producer_byte_rate")
    assert refused.body["error_code"] == 42901
    assert end_of(broker, topic) == 2
    time.sleep(float(refused.headers["Retry-After"]))
    assert produced(broker, topic, 10).status == 200


def test_what_was_produced_over_kafka_is_owed_over_http_too(broker: BrokerProcess) -> None:
    topic = create(broker, "produced-elsewhere")
    limit(broker, "producer_byte_rate", RATE)
    with RawConnection(broker) as connection:
        for _ in range(3):
            connection.produce(topic, batch([b"x" * (MEASURE // 2)]))
    assert_refused(produced(broker, topic, 10), "producer_byte_rate")


def test_a_stream_of_records_rests_until_nothing_is_owed(broker: BrokerProcess) -> None:
    topic = create(broker, "streamed-too-much")
    limit(broker, "producer_byte_rate", RATE)
    with closing(Stream(broker, broker.http + url_of(broker, topic))) as stream:
        # What is owed is waited for as it comes: by the rest of the first record, or by the next one.
        sent_at = time.monotonic()
        stream.send(record_of(MEASURE + 2 * RATE))
        assert stream.next()["offset"] == 0
        stream.send(record_of(10))
        assert stream.next()["offset"] == 1
        assert time.monotonic() - sent_at > 1.0, "two seconds were owed"


def test_who_has_read_too_much_gets_no_page(broker: BrokerProcess) -> None:
    topic = create(broker, "read-too-much")
    for _ in range(2):
        assert produced(broker, topic, MEASURE // 2).status == 200
    limit(broker, "consumer_byte_rate", RATE)
    assert page(broker, topic).status == 200
    before = throttles(broker, "consumer_byte_rate")
    assert_refused(page(broker, topic), "consumer_byte_rate")
    assert throttles(broker, "consumer_byte_rate") == before + 1


def test_a_tail_rests_until_nothing_is_owed(broker: BrokerProcess) -> None:
    topic = create(broker, "followed-too-much")
    for _ in range(EVENTS):
        assert produced(broker, topic, 10).status == 200
    limit(broker, "consumer_byte_rate", EVENTS * EVENT_BYTES / 12)
    with closing(http.client.HTTPConnection("127.0.0.1", broker.http_port, timeout=30)) as connection:
        connection.request("GET", f"{TOPICS}/{topic}/tail?from=earliest")
        began_at, answer = time.monotonic(), connection.getresponse()
        assert sum(line.startswith(b"id: ") for line in lines_to(answer, EVENTS)) == EVENTS + 1, "and its start"
        assert produced(broker, topic, 10).status == 200
        rest_s = broker.metric('tiered_throttle_seconds_total{quota="consumer_byte_rate"}')
        assert any(line.startswith(b"id: ") for line in lines_to(answer, EVENTS + 1))
        took_s = time.monotonic() - began_at
    assert took_s > rest_s > 0.5


def lines_to(answer: http.client.HTTPResponse, next_offset: int) -> list[bytes]:
    """What a tail says, up to the event after which this offset is the next."""
    found = [answer.readline()]
    while found[-1] != b"id: 0:%d\n" % next_offset:
        found.append(answer.readline())
    return found


def test_who_has_made_too_many_partitions_is_refused(broker: BrokerProcess) -> None:
    limit(broker, "controller_mutation_rate", 0.5)
    assert ask(broker, TOPICS, method="POST", body={"name": "changed", "partitions": 20}).status == 201
    assert_refused(ask(broker, TOPICS, method="POST", body={"name": "one-more"}), "controller_mutation_rate")
    assert ask(broker, TOPICS, method="POST", body={"name": "only-asked", "validate_only": True}).status == 200
    changed = url_of(broker, "changed")
    for method, path, body in (
        ("POST", changed.rpartition("/")[0], {"topic_name": "one-more"}),
        ("DELETE", changed, None),
        ("DELETE", f"{TOPICS}/changed", None),
        ("PATCH", changed, {"partitions_count": 21}),
    ):
        assert_refused(ask(broker, path, method=method, body=body), "controller_mutation_rate")
    assert ask(broker, f"{TOPICS}/one-more").status == 404
    assert ask(broker, f"{TOPICS}/changed").body["partition_count"] == 20


def test_who_has_used_too_much_of_the_event_loop_and_of_sql_is_refused(broker: BrokerProcess) -> None:
    limit(broker, "request_percentage", 0.001)
    ask(broker, "/api/v1/groups")
    refused = ask(broker, "/api/v1/groups")
    assert_refused(refused, "request_percentage")
    assert throttles(broker, "request_percentage") >= 1
    assert ask(broker, "/healthz").status == 200, "whether it lives can be seen all the same"


@pytest.mark.parametrize(("quota", "value"), [("consumer_byte_rate", RATE), ("request_percentage", 0.001)])
def test_a_search_rests_for_what_it_has_read_and_for_the_time_of_its_threads(
    broker: BrokerProcess, quota: str, value: float
) -> None:
    topic = create(broker, "searched")
    for _ in range(3):
        assert produced(broker, topic, MEASURE // 2).status == 200
    limit(broker, quota, value)
    with Listener(broker, topic, route="search", text="absent") as listener:
        *_, last = listener.events() if quota == "consumer_byte_rate" else [next(listener.events())]
        eventually(lambda: throttles(broker, quota) > 0, "the search rests", broker)
    assert last.data["matches"] == 0
