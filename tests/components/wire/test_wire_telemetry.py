"""KIP-714: what clients push of their metrics is in /metrics, and nothing else that they send does any harm."""

import re
import time
import urllib.request
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import Producer

from tests import otlp
from tests.broker_process import BrokerProcess
from tests.clients.raw import RawConnection
from tests.components.wire.config_resources import DELETE, INVALID_CONFIG, INVALID_REQUEST, SET, alter, listed, values
from tiered.formats.compression import compress
from tiered.runtime import new_uuid
from tiered.wire import messages

ASK, PUSH, CLIENT_METRICS, OF_CLIENT_METRICS = 71, 72, 16, 7
TOO_SOON, UNKNOWN_SUBSCRIPTION, UNKNOWN_COMPRESSION, TOO_LARGE, UNREADABLE = 89, 117, 76, 118, 87
MAX_SERIES = 500


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    most = {"tiered.metrics.max.series": MAX_SERIES}
    process = BrokerProcess(tmp_path_factory.mktemp("broker") / "data", settings=most).start()
    yield process
    process.ensure_stopped()


@pytest.fixture
def subscription(broker: BrokerProcess) -> Iterator[None]:
    """To all metrics that begin with `test.`, every 100 ms, of every client."""
    steps = (("metrics", SET, "test."), ("interval.ms", SET, "100"))
    assert alter(broker, CLIENT_METRICS, "tests", *steps) == (0, "")
    yield
    assert alter(broker, CLIENT_METRICS, "tests", *((name, DELETE, None) for name, _, _ in steps)) == (0, "")


def ask(broker: BrokerProcess, instance_id: UUID | None = None) -> Any:
    with RawConnection(broker) as connection:
        make = messages.request(ASK, 0)
        return connection.ask(ASK, 0, make.GetTelemetrySubscriptionsRequest(client_instance_id=instance_id))


def push(broker: BrokerProcess, data: bytes, *, to: Any = None, **changes: Any) -> int:
    """The error code. `to`: the answer to an `ask`; without it one is made."""
    asked = ask(broker) if to is None else to
    fields = {
        "client_instance_id": asked.client_instance_id,
        "subscription_id": asked.subscription_id,
        "terminating": False,
        "compression_type": 0,
        "metrics": data,
    }
    with RawConnection(broker) as connection:
        request = messages.request(PUSH, 0).PushTelemetryRequest(**(fields | changes))
        return int(connection.ask(PUSH, 0, request).error_code)


def exposed(broker: BrokerProcess) -> str:
    with urllib.request.urlopen(f"{broker.http}/metrics") as answer:
        text: str = answer.read().decode()
    return text


def shown(broker: BrokerProcess, name: str, instance_id: UUID) -> dict[str, str]:
    """The client's numbers of one name, by their other labels."""
    found = {}
    for labels, value in re.findall(rf"^{name}{{(.*)}} (.*)$", exposed(broker), re.MULTILINE):
        if str(instance_id) in labels:
            found[",".join(each for each in labels.split(",") if not each.startswith("client_"))] = value
    return found


def test_a_subscription_is_set_described_listed_and_taken_back(broker: BrokerProcess) -> None:
    steps = (("metrics", SET, "a.,b."), ("interval.ms", SET, "5000"), ("match", SET, "client_software_name=lib.*"))
    assert alter(broker, CLIENT_METRICS, "some", *steps) == (0, "")
    assert values(broker, CLIENT_METRICS, "some") == {name: (value, OF_CLIENT_METRICS) for name, _, value in steps}
    assert (CLIENT_METRICS, "some") in listed(broker)[1]
    with RawConnection(broker) as connection:
        older = connection.ask(74, 0, messages.request(74, 0).ListConfigResourcesRequest())
    assert [each.resource_name for each in older.config_resources] == ["some"]
    assert ask(broker).requested_metrics == (), "this client is called otherwise"
    assert alter(broker, CLIENT_METRICS, "some", *((name, DELETE, None) for name, _, _ in steps)) == (0, "")
    assert listed(broker, CLIENT_METRICS) == (0, set())


@pytest.mark.parametrize(
    ("name", "config", "value", "code"),
    [
        ("", "metrics", "*", INVALID_REQUEST),
        ("n", "interval.ms", "99", INVALID_CONFIG),
        ("n", "interval.ms", "3600001", INVALID_CONFIG),
        ("n", "match", "client_id", INVALID_CONFIG),
        ("n", "match", "client_shoe_size=4.", INVALID_CONFIG),
        ("n", "match", "client_id=((", INVALID_CONFIG),
        ("n", "colour", "blue", INVALID_CONFIG),
    ],
)
def test_what_cannot_be_a_subscription_is_refused(
    broker: BrokerProcess, name: str, config: str, value: str, code: int
) -> None:
    assert alter(broker, CLIENT_METRICS, name, (config, SET, value))[0] == code
    assert listed(broker, CLIENT_METRICS) == (0, set())


def test_clients_are_told_of_it_while_there_is_a_subscription(broker: BrokerProcess) -> None:
    def told() -> set[int]:
        make = messages.request(18, 3)
        request = make.ApiVersionsRequest(client_software_name="t", client_software_version="1")
        with RawConnection(broker) as connection:
            return {each.api_key for each in connection.ask(18, 3, request).api_keys} & {ASK, PUSH}

    assert told() == set()
    assert alter(broker, CLIENT_METRICS, "any", ("interval.ms", SET, "60000")) == (0, "")
    assert told() == {ASK, PUSH}
    assert alter(broker, CLIENT_METRICS, "any", ("interval.ms", DELETE, None)) == (0, "")
    assert told() == set()


@pytest.mark.usefixtures("subscription")
@pytest.mark.parametrize("compression", range(5))
def test_what_is_pushed_is_shown_and_what_was_not_asked_for_is_not(broker: BrokerProcess, compression: int) -> None:
    asked = ask(broker)
    assert (asked.error_code, asked.requested_metrics, asked.push_interval) == (0, ("test.",), 100)
    data = otlp.metrics_data(
        otlp.gauge("test.queue-size", otlp.point(1.5, node="1"), otlp.point(3, node="2")),
        otlp.total("test.sent", otlp.point(7)),
        otlp.gauge("other.secret", otlp.point(1)),
    )
    assert push(broker, compress(compression, data), to=asked, compression_type=compression) == 0
    client = asked.client_instance_id
    assert shown(broker, "kafka_client_test_queue_size", client) == {'node="1"': "1.5", 'node="2"': "3"}
    assert shown(broker, "kafka_client_test_sent", client) == {"": "7"}
    text = exposed(broker)
    assert "# TYPE kafka_client_test_sent counter" in text
    assert "secret" not in text


@pytest.mark.usefixtures("subscription")
def test_differences_are_added_up_and_totals_are_not(broker: BrokerProcess) -> None:
    asked = ask(broker)
    data = otlp.metrics_data(
        otlp.total("test.grows", otlp.point(2), is_delta=True), otlp.total("test.is", otlp.point(5))
    )
    for _ in range(2):
        while (code := push(broker, data, to=asked)) == TOO_SOON:
            time.sleep(0.02)
        assert code == 0
    assert shown(broker, "kafka_client_test_grows", asked.client_instance_id) == {"": "4"}
    assert shown(broker, "kafka_client_test_is", asked.client_instance_id) == {"": "5"}


@pytest.mark.usefixtures("subscription")
def test_each_wrong_push_has_its_code(broker: BrokerProcess) -> None:
    good = otlp.metrics_data(otlp.gauge("test.a", otlp.point(1)))
    assert push(broker, good, client_instance_id=None) == INVALID_REQUEST
    asked = ask(broker)
    assert push(broker, good, to=asked, subscription_id=asked.subscription_id ^ 1) == UNKNOWN_SUBSCRIPTION
    again = ask(broker, asked.client_instance_id)
    assert (again.error_code, again.subscription_id) == (0, asked.subscription_id), "it may ask at once"
    assert push(broker, good, to=asked) == 0
    assert push(broker, good, to=asked) == TOO_SOON
    assert ask(broker, asked.client_instance_id).error_code == TOO_SOON
    assert push(broker, good, to=asked, terminating=True) == 0
    assert push(broker, good, to=asked) == INVALID_REQUEST, "it has said that it leaves"
    assert push(broker, good, compression_type=9) == UNKNOWN_COMPRESSION
    assert push(broker, b"\x0a\xff\xff\xff\x7f") == UNREADABLE
    assert push(broker, b"no zstd", compression_type=4) == UNREADABLE
    assert push(broker, compress(4, bytes(64 << 20)), compression_type=4) == UNREADABLE, "64 MiB of it"
    assert push(broker, bytes((1 << 20) + 1)) == TOO_LARGE


@pytest.mark.usefixtures("subscription")
def test_numbers_of_clients_are_bounded_and_their_names_break_no_line(broker: BrokerProcess) -> None:
    odd = otlp.gauge('test.x"}\n# bad', otlp.point(1, **{'k"ey\n': 'v"\n', "client_id": "somebody else"}))
    assert push(broker, otlp.metrics_data(odd, *(otlp.gauge(f"test.n{n}", otlp.point(n)) for n in range(2000)))) == 0
    text = exposed(broker)
    lines = [line for line in text.splitlines() if line.startswith("kafka_client_")]
    assert 1 < len(lines) <= MAX_SERIES
    assert all(re.fullmatch(r'kafka_client_\w+\{(\w+="([^"\\]|\\.)*",?)*\} [-+.\de]+', line) for line in lines)
    assert "somebody else" not in text
    assert "# bad" not in text
    assert float(re.findall(r"^tiered_telemetry_omitted_total (.*)$", text, re.MULTILINE)[0]) >= 1501


def test_an_id_that_the_client_brings_is_kept_and_one_without_gets_one(broker: BrokerProcess) -> None:
    known = new_uuid()
    assert ask(broker, known).client_instance_id == known
    assert ask(broker).client_instance_id not in (None, known)


def test_librdkafka_pushes_what_a_subscription_asks_for(tmp_path_factory: pytest.TempPathFactory) -> None:
    broker = BrokerProcess(tmp_path_factory.mktemp("librdkafka") / "data").start()
    steps = (("metrics", SET, "*"), ("interval.ms", SET, "200"), ("match", SET, "client_id=pushes-.*"))
    try:
        assert alter(broker, CLIENT_METRICS, "librdkafka", *steps) == (0, "")
        producer = Producer({"bootstrap.servers": broker.bootstrap, "client.id": "pushes-1"})
        sent = re.compile(r'^kafka_client_producer_connection_creation_total\{.*"pushes-1".*\} [1-9]', re.MULTILINE)
        deadline = time.monotonic() + 60
        while not sent.search(exposed(broker)):
            assert time.monotonic() < deadline, exposed(broker)[-3000:]
            producer.produce("telemetry", b"x")
            producer.poll(0.1)
        assert producer.flush(30) == 0
    finally:
        broker.ensure_stopped()
