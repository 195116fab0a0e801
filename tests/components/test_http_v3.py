"""Confluent's REST v3: the shapes that kafka-rest's clients read, and producing through them."""

import base64
import http.client
import json
import socket
import threading
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import confluent_kafka
import pytest

from tests.broker_process import BrokerProcess

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back; `parts` are the JSON values of the body, one after the other."""

    status: int
    parts: Sequence[Any]

    @property
    def body(self) -> Any:
        (only,) = self.parts
        return only


def ask(broker: BrokerProcess, method: str, url: str, body: object = None) -> Answer:
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(url, method=method, data=data)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return Answer(answer.status, parts_of(answer.read()))
    except urllib.error.HTTPError as error:
        return Answer(error.code, parts_of(error.read()))


def parts_of(content: bytes) -> list[Any]:
    return [json.loads(line) for line in content.splitlines()]


@pytest.fixture(scope="module")
def base(broker: BrokerProcess) -> str:
    """The cluster's URL."""
    return str(broker.get("/v3/clusters")["data"][0]["metadata"]["self"])


@pytest.fixture
def topic(broker: BrokerProcess, base: str, request: pytest.FixtureRequest) -> str:
    """The URL of a new topic of four partitions."""
    name = request.node.name.replace("[", "-").rstrip("]")[:200].replace("_", "-")
    made = ask(broker, "POST", base + "/topics", {"topic_name": name, "partitions_count": 4})
    assert made.status == 201
    return str(made.body["metadata"]["self"])


def records_in(broker: BrokerProcess, topic_url: str) -> list[confluent_kafka.Message]:
    """Everything in the topic, as a Kafka client reads it."""
    name = topic_url.rpartition("/")[2]
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "unused", "enable.partition.eof": True}
    )
    partitions = consumer.list_topics(name, timeout=30).topics[name].partitions
    consumer.assign([confluent_kafka.TopicPartition(name, number, 0) for number in partitions])
    found: list[confluent_kafka.Message] = []
    at_end: set[int | None] = set()
    while len(at_end) < len(partitions):
        message = consumer.poll(20)
        assert message is not None
        if message.error() is None:
            found.append(message)
        else:
            at_end.add(message.partition())
    consumer.close()
    return found


def links_of(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, each in value.items():
            if name in ("related", "self"):
                yield each
            else:
                yield from links_of(each)
    elif isinstance(value, list):
        for each in value:
            yield from links_of(each)


# Shapes


def test_a_cluster_has_the_kind_the_name_and_the_links_of_kafka_rest(broker: BrokerProcess, base: str) -> None:
    listed = ask(broker, "GET", broker.http + "/v3/clusters").body
    assert listed["kind"] == "KafkaClusterList"
    assert listed["metadata"] == {"self": broker.http + "/v3/clusters", "next": None}
    (cluster,) = listed["data"]
    cluster_id = cluster["cluster_id"]
    assert cluster == {
        "kind": "KafkaCluster",
        "metadata": {"self": base, "resource_name": f"crn:///kafka={cluster_id}"},
        "cluster_id": cluster_id,
        "controller": {"related": f"{base}/brokers/1"},
        "acls": {"related": f"{base}/acls"},
        "brokers": {"related": f"{base}/brokers"},
        "broker_configs": {"related": f"{base}/broker-configs"},
        "consumer_groups": {"related": f"{base}/consumer-groups"},
        "topics": {"related": f"{base}/topics"},
        "partition_reassignments": {"related": f"{base}/topics/-/partitions/-/reassignment"},
    }
    (brokers,) = ask(broker, "GET", f"{base}/brokers").body["data"]
    assert (brokers["kind"], brokers["broker_id"]) == ("KafkaBroker", 1)
    assert (brokers["host"], brokers["port"]) == ("127.0.0.1", broker.kafka_port)


def test_every_link_leads_to_what_it_names(broker: BrokerProcess, base: str, topic: str) -> None:
    """But for ACLs and reassignments, which are not served: their links are part of the shapes."""
    seen: set[str] = set()
    wanted = [broker.http + "/v3/clusters"]
    while wanted:
        url = wanted.pop()
        if url in seen or url.endswith(("/acls", "/reassignment")) or "/configs/" in url:
            continue
        seen.add(url)
        answer = ask(broker, "GET", url)
        assert answer.status == 200, url
        assert answer.body["metadata"]["self"] == url
        wanted += links_of(answer.body)
    assert f"{topic}/partitions/3/replicas/1" in seen
    assert f"{base}/consumer-groups" in seen


def test_a_topic_is_created_grown_and_deleted(broker: BrokerProcess, base: str) -> None:
    new = {
        "topic_name": "life",
        "partitions_count": 2,
        "replication_factor": 1,
        "configs": [{"name": "retention.ms", "value": "123456"}],
    }
    assert ask(broker, "POST", f"{base}/topics", {**new, "validate_only": True}).status == 200
    assert ask(broker, "GET", f"{base}/topics/life").status == 404
    made = ask(broker, "POST", f"{base}/topics", new)
    assert made.status == 201
    assert (made.body["kind"], made.body["topic_name"], made.body["partitions_count"]) == ("KafkaTopic", "life", 2)
    assert made.body["metadata"]["resource_name"].endswith("/topic=life")
    assert ask(broker, "GET", f"{base}/topics/life/configs/retention.ms").body["value"] == "123456"
    again = ask(broker, "POST", f"{base}/topics", new)
    assert (again.status, again.body["error_code"]) == (400, 40002)
    grown = ask(broker, "PATCH", f"{base}/topics/life", {"partitions_count": 3})
    assert grown.body["partitions_count"] == 3
    assert len(ask(broker, "GET", f"{base}/topics/life/partitions").body["data"]) == 3
    assert ask(broker, "PATCH", f"{base}/topics/life", {"partitions_count": 3}).body["error_code"] == 40002
    assert ask(broker, "DELETE", f"{base}/topics/life").status == 204
    gone = ask(broker, "GET", f"{base}/topics/life")
    assert (gone.status, gone.body["error_code"]) == (404, 40403)


def test_configs_are_set_altered_and_reset(broker: BrokerProcess, base: str, topic: str) -> None:
    one = f"{topic}/configs/retention.ms"
    assert ask(broker, "GET", one).body["source"] == "DEFAULT_CONFIG"
    assert ask(broker, "PUT", one, {"value": "5000"}).status == 204
    entry = ask(broker, "GET", one).body
    assert (entry["value"], entry["is_default"], entry["source"]) == ("5000", False, "DYNAMIC_TOPIC_CONFIG")
    assert entry["synonyms"][0]["source"] == "DYNAMIC_TOPIC_CONFIG"
    steps = [{"name": "retention.ms", "operation": "DELETE"}, {"name": "segment.ms", "value": "60000"}]
    assert (
        ask(broker, "POST", f"{topic}/configs:alter", {"data": [*steps, {"name": "no.such", "value": "1"}]}).status
        == 400
    )
    assert ask(broker, "GET", one).body["value"] == "5000", "all or nothing"
    assert ask(broker, "POST", f"{topic}/configs:alter", {"data": steps, "validate_only": True}).status == 204
    assert ask(broker, "GET", one).body["value"] == "5000"
    assert ask(broker, "POST", f"{topic}/configs:alter", {"data": steps}).status == 204
    assert ask(broker, "GET", one).body["is_default"]
    assert ask(broker, "DELETE", f"{topic}/configs/segment.ms").status == 204
    assert ask(broker, "PUT", f"{base}/brokers/1/configs/num.partitions", {"value": "3"}).status == 204
    entry = ask(broker, "GET", f"{base}/brokers/1/configs/num.partitions").body
    assert (entry["value"], entry["source"]) == ("3", "DYNAMIC_BROKER_CONFIG")
    assert ask(broker, "DELETE", f"{base}/brokers/1/configs/num.partitions").status == 204
    assert ask(broker, "PUT", f"{base}/broker-configs/num.partitions", {"value": "4"}).status == 204
    (entry,) = ask(broker, "GET", f"{base}/broker-configs").body["data"]
    assert (entry["kind"], entry["name"], entry["value"]) == ("KafkaClusterConfig", "num.partitions", "4")
    assert ask(broker, "DELETE", f"{base}/broker-configs/num.partitions").status == 204


def test_what_is_not_there_is_404_with_the_codes_of_kafka_rest(broker: BrokerProcess, base: str, topic: str) -> None:
    for url, code in (
        (broker.http + "/v3/clusters/another", 404),
        (f"{base}/brokers/77", 404),
        (f"{base}/topics/nothing", 40403),
        (f"{topic}/partitions/4", 40403),
        (f"{topic}/partitions/0/replicas/2", 404),
        (f"{topic}/configs/no.such.config", 404),
        (f"{base}/consumer-groups/nobody", 404),
    ):
        answer = ask(broker, "GET", url)
        assert (answer.status, answer.body["error_code"]) == (404, code), url
        assert answer.body["message"]


def test_groups_show_their_consumers_and_lags(broker: BrokerProcess, base: str, topic: str) -> None:
    name = topic.rpartition("/")[2]
    for number in range(10):
        assert (
            ask(broker, "POST", f"{topic}/records", {"partition_id": number % 2, "value": text(str(number))}).status
            == 200
        )
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "v3 readers/ä",
            "client.id": "reader",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([name])
    assert consumer.poll(30) is not None
    consumer.commit(
        offsets=[confluent_kafka.TopicPartition(name, 0, 2), confluent_kafka.TopicPartition(name, 1, 5)],
        asynchronous=False,
    )
    group = next(
        each["metadata"]["self"]
        for each in ask(broker, "GET", f"{base}/consumer-groups").body["data"]
        if each["consumer_group_id"] == "v3 readers/ä"
    )
    shown = ask(broker, "GET", group).body
    assert (shown["kind"], shown["state"], shown["is_simple"]) == ("KafkaConsumerGroup", "STABLE", False)
    assert shown["partition_assignor"] == "range"
    (member,) = ask(broker, "GET", f"{group}/consumers").body["data"]
    assert (member["kind"], member["client_id"]) == ("KafkaConsumer", "reader")
    assigned = ask(broker, "GET", member["assignments"]["related"]).body["data"]
    assert [each["partition_id"] for each in assigned] == [0, 1, 2, 3]
    lags = {each["partition_id"]: each for each in ask(broker, "GET", f"{group}/lags").body["data"]}
    assert (lags[0]["current_offset"], lags[0]["log_end_offset"], lags[0]["lag"]) == (2, 5, 3)
    assert lags[1]["lag"] == 0
    assert lags[0]["consumer_id"] == member["consumer_id"]
    assert ask(broker, "GET", lags[0]["metadata"]["self"]).body == lags[0]
    summary = ask(broker, "GET", f"{group}/lag-summary").body
    assert (summary["max_lag"], summary["total_lag"], summary["max_lag_partition_id"]) == (3, 3, 0)
    assert ask(broker, "DELETE", group).status == 409
    consumer.close()
    assert ask(broker, "GET", group).body["state"] == "EMPTY"
    assert ask(broker, "DELETE", group).status == 204
    assert ask(broker, "GET", group).status == 404


# Producing


def text(data: str | None) -> dict[str, Any]:
    return {"type": "STRING", "data": data}


def binary(data: bytes) -> dict[str, Any]:
    return {"type": "BINARY", "data": base64.b64encode(data).decode()}


def test_a_record_arrives_as_it_was_sent(broker: BrokerProcess, topic: str) -> None:
    sent = {
        "partition_id": 2,
        "headers": [
            {"name": "trace", "value": base64.b64encode(b"\x00\xff").decode()},
            {"name": "none", "value": None},
        ],
        "key": binary(b"\xff\xfe"),
        "value": {"type": "JSON", "data": {"b": [1, 2.5, None, "é"], "a": {}}},
        "timestamp": "2026-01-31T13:00:00.123+01:00",
    }
    answer = ask(broker, "POST", f"{topic}/records", sent)
    assert answer.status == 200
    report = answer.body
    assert (report["error_code"], report["partition_id"], report["offset"]) == (200, 2, 0)
    assert report["timestamp"] == "2026-01-31T12:00:00.123Z"
    assert report["key"] == {"type": "BINARY", "size": 2}
    (record,) = records_in(broker, topic)
    assert (record.partition(), record.offset(), record.timestamp()[1]) == (2, 0, 1769860800123)
    assert record.key() == b"\xff\xfe"
    assert record.value() == '{"b":[1,2.5,null,"é"],"a":{}}'.encode()
    assert record.headers() == [("trace", b"\x00\xff"), ("none", None)]


def test_keys_go_where_kafkas_clients_send_them(broker: BrokerProcess, topic: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "partitioner": "murmur2_random"})
    name, keys = topic.rpartition("/")[2], [f"key-{number}" for number in range(40)]
    for key in keys:
        producer.produce(name, key=key, value=b"from the client")
    assert producer.flush(20) == 0
    body = b"".join(json.dumps({"key": text(key), "value": text("over HTTP")}).encode() for key in keys)
    assert {each["error_code"] for each in ask(broker, "POST", f"{topic}/records", body).parts} == {200}
    where: dict[bytes | None, set[int | None]] = {}
    for record in records_in(broker, topic):
        where.setdefault(record.key(), set()).add(record.partition())
    assert len(where) == len(keys)
    assert all(len(partitions) == 1 for partitions in where.values())


def test_several_records_are_each_answered_in_their_order(broker: BrokerProcess, topic: str) -> None:
    body = (
        b'{"value": {"type": "STRING", "data": "} first {"}}\r\n {"value": {"type": "BINARY", "data": "!"}}'
        b'{"partition_id": 9}{"value": {"type": "AVRO", "data": 1}}{"timestamp": "2026-01-31T12:00:00"}{"value": null}'
    )
    answer = ask(broker, "POST", f"{topic}/records", body)
    assert answer.status == 200
    assert [each["error_code"] for each in answer.parts] == [200, 40002, 40403, 40002, 40002, 200]
    assert [record.value() for record in records_in(broker, topic)] == [b"} first {", None]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"partition_id": 9}', 404),
        (b'{"value": {"type": "AVRO", "data": "x"}}', 400),
        (b'{"value": {"type": "STRING", "data": 1}}', 400),
        (b'{"unknown": 1}', 400),
        (b"[]", 400),
        (b"", 400),
        (b'{"value": null} garbage', 400),
        (b'{"value": {"type": "STRING", "data": "cut', 400),
        (b'{"timestamp": "9999-01-01T00:00:00Z"}', 400),
        (b'{"timestamp": "1969-01-01T00:00:00Z"}', 400),
        (b'{"value": {"type": "JSON", "data": "\\udc00"}}', 400),
        (b'{"value": {"type": "JSON", "data": [1e400]}}', 400),
        (b'{"value": {"type": "JSON", "data": ' + b"[" * 500 + b"]" * 500 + b"}}", 400),
        (b'{"value": {"type": "JSON", "data": ' + b'{"a":' * 500 + b"1" + b"}" * 500 + b"}}", 400),
        (b"{}" * 10_001, 400),
        (b'{"value": {"type": "STRING", "data": "' + b"x" * 2 * MIB + b'"}}', 413),
        (b'{"value": {"type": "STRING", "data": "' + b"x" * 5 * MIB + b'"}}', 413),
    ],
    ids=lambda value: repr(value[:30]) if isinstance(value, bytes) else str(value),
)
def test_one_record_alone_is_answered_with_the_status_of_its_outcome(
    broker: BrokerProcess, base: str, body: bytes, status: int
) -> None:
    ask(broker, "POST", f"{base}/topics", {"topic_name": "refusals", "partitions_count": 1})
    before = broker.get("/api/v1/topics/refusals")["record_count"]
    answer = ask(broker, "POST", f"{base}/topics/refusals/records", body)
    assert answer.status == status
    assert answer.body["message"]
    assert broker.get("/api/v1/topics/refusals")["record_count"] == before


def test_internal_and_unknown_topics_take_nothing(broker: BrokerProcess, base: str) -> None:
    assert ask(broker, "POST", f"{base}/topics/__consumer_offsets/records", {}).status == 400
    missing = ask(broker, "POST", f"{base}/topics/missing/records", {})
    assert (missing.status, missing.body["error_code"]) == (404, 40403)
    assert ask(broker, "GET", f"{base}/topics/missing").status == 404, "producing over HTTP creates no topic"


def test_one_bad_record_of_a_batch_spares_the_others(broker: BrokerProcess, topic: str) -> None:
    """They go to one partition together; the batch is refused for one timestamp and then tried one by one."""
    stamps = [None, "2150-01-01T00:00:00Z", None]
    body = b"".join(json.dumps({"partition_id": 0, "timestamp": each}).encode() for each in stamps)
    answer = ask(broker, "POST", f"{topic}/records", body)
    assert [each["error_code"] for each in answer.parts] == [200, 40002, 200]
    assert [each.get("offset") for each in answer.parts] == [0, None, 1]


def test_log_append_time_is_the_time_that_is_answered(broker: BrokerProcess, topic: str) -> None:
    assert ask(broker, "PUT", f"{topic}/configs/message.timestamp.type", {"value": "LogAppendTime"}).status == 204
    report = ask(broker, "POST", f"{topic}/records", {"timestamp": "2001-01-01T00:00:00Z"}).body
    assert not report["timestamp"].startswith("2001")


def test_producing_over_http_waits_for_the_disk_where_the_topic_demands_it(broker: BrokerProcess, topic: str) -> None:
    assert ask(broker, "PUT", f"{topic}/configs/flush.messages", {"value": "1"}).status == 204
    assert ask(broker, "POST", f"{topic}/records", {"partition_id": 1, "value": text("durable")}).status == 200
    name = topic.rpartition("/")[2]
    assert broker.get(f"/api/v1/topics/{name}")["partitions"][1]["high_watermark"] == 1


def test_very_many_records_in_one_body_do_not_keep_others_waiting(broker: BrokerProcess, topic: str) -> None:
    begun, answers = threading.Event(), []

    def produce() -> None:
        begun.set()
        answers.append(ask(broker, "POST", f"{topic}/records", b'{"partition_id":0}' * 10_000))

    thread = threading.Thread(target=produce)
    thread.start()
    begun.wait()
    served_meanwhile = 0
    while thread.is_alive():
        broker.get("/healthz")
        served_meanwhile += 1
    thread.join()
    assert [each["offset"] for each in answers[0].parts] == list(range(10_000))
    assert served_meanwhile > 10


def test_a_stream_that_unfolds_into_nothing_does_not_keep_others_waiting(broker: BrokerProcess, topic: str) -> None:
    bomb = zlib.compressobj(9, wbits=31)
    data = b"".join(bomb.compress(b" " * MIB) for _ in range(40)) + bomb.compress(b"{}") + bomb.flush()
    with closing(Stream(broker, topic, encoding="gzip")) as stream:
        stream.send(data)
        stream.end()
        served_meanwhile, answered = 0, threading.Event()

        def wait() -> None:
            stream.next()
            answered.set()

        thread = threading.Thread(target=wait)
        thread.start()
        while not answered.is_set():
            broker.get("/healthz")
            served_meanwhile += 1
        thread.join()
    assert served_meanwhile > 10


class Stream:
    """A producer that keeps one chunked request open and reads the answers as they come."""

    def __init__(self, broker: BrokerProcess, url: str, *, encoding: str | None = None) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", broker.http_port, timeout=30)
        self._connection.putrequest("POST", url.removeprefix(broker.http) + "/records")
        if encoding is not None:
            self._connection.putheader("Content-Encoding", encoding)
        self._connection.putheader("Transfer-Encoding", "chunked")
        self._connection.endheaders()
        self._answer: http.client.HTTPResponse | None = None

    @property
    def socket(self) -> socket.socket:
        assert self._connection.sock is not None
        return self._connection.sock

    def send(self, data: bytes) -> None:
        self._connection.send(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def end(self) -> None:
        self._connection.send(b"0\r\n\r\n")

    def next(self) -> Any:
        """The next answer, while the request goes on; None after the last one."""
        if self._answer is None:
            self._answer = self._connection.getresponse()
            assert self._answer.status == 200
        line = self._answer.readline()
        return json.loads(line) if line else None

    def close(self) -> None:
        self._connection.close()


def test_a_stream_is_answered_record_by_record_while_it_goes_on(broker: BrokerProcess, topic: str) -> None:
    with closing(Stream(broker, topic)) as stream:
        stream.send(b'{"partition_id": 1, "value": {"type": "STRING", "data": "one"}}')
        assert stream.next()["offset"] == 0
        stream.send(b'{"partition_id": 1, "value": {"type": "STRI')
        stream.send(b'NG", "data": "two"}}{"partition_id": 7}')
        assert stream.next()["offset"] == 1
        assert stream.next()["error_code"] == 40403
        stream.end()
        assert stream.next() is None
    assert [record.value() for record in records_in(broker, topic)] == [b"one", b"two"]


def test_a_stream_that_turns_into_something_else_is_told_and_ended(broker: BrokerProcess, topic: str) -> None:
    with closing(Stream(broker, topic)) as stream:
        stream.send(b'{"value": null}')
        assert stream.next()["error_code"] == 200
        stream.send(b"nonsense")
        assert stream.next()["error_code"] == 40002
        assert stream.next() is None


def test_a_stream_whose_bytes_break_is_told_in_the_one_answer_that_it_gets(broker: BrokerProcess, topic: str) -> None:
    """A second answer behind the first would be read as a part of it, or as that of another request."""
    packer = zlib.compressobj(wbits=31)
    with closing(Stream(broker, topic, encoding="gzip")) as stream:
        stream.send(packer.compress(b'{"value": null}') + packer.flush(zlib.Z_SYNC_FLUSH))
        received = bytearray(stream.socket.recv(1 << 16))
        while b'"error_code": 200' not in received:
            received += stream.socket.recv(1 << 16)
        stream.send(b"this is no gzip")
        while piece := stream.socket.recv(1 << 16):
            received += piece
    assert received.count(b"HTTP/1.1 ") == 1
    assert b'"error_code": 40002' in received
    assert received.endswith(b"\r\n0\r\n\r\n")


def test_a_stream_to_an_internal_topic_is_refused_before_its_answer_begins(broker: BrokerProcess, base: str) -> None:
    with closing(Stream(broker, f"{base}/topics/__consumer_offsets")) as stream:
        stream.send(b"{}")
        answer = stream.socket.recv(1 << 16)
    assert answer.startswith(b"HTTP/1.1 400 ")


def test_a_stream_follows_what_becomes_of_its_topic(broker: BrokerProcess, topic: str) -> None:
    with closing(Stream(broker, topic)) as stream:
        stream.send(b'{"partition_id": 4}')
        assert stream.next()["error_code"] == 40403
        assert ask(broker, "PATCH", topic, {"partitions_count": 5}).status == 200
        stream.send(b'{"partition_id": 4}')
        assert stream.next()["offset"] == 0
        name = topic.rpartition("/")[2]
        assert ask(broker, "DELETE", topic).status == 204
        assert ask(broker, "POST", topic.rpartition("/")[0], {"topic_name": name}).status == 201
        stream.send(b'{"partition_id": 0}')
        assert stream.next()["error_code"] == 40403
        assert stream.next() is None
    assert broker.get(f"/api/v1/topics/{name}")["record_count"] == 0, "the new topic is another one"


def test_a_stream_that_falls_silent_is_told_and_ended(make_broker: Any) -> None:
    process = make_broker(settings={"tiered.http.request.timeout.ms": 500}).start()
    base = process.get("/v3/clusters")["data"][0]["metadata"]["self"]
    topic = ask(process, "POST", f"{base}/topics", {"topic_name": "silent"}).body["metadata"]["self"]
    with closing(Stream(process, topic)) as stream:
        for _ in range(4):
            stream.send(b'{"value": null}')
            assert stream.next()["error_code"] == 200
        assert "in time" in stream.next()["message"]
        assert stream.next() is None
    assert len(records_in(process, topic)) == 4


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
def test_records_get_the_codec_that_their_topic_demands(broker: BrokerProcess, topic: str, codec: str) -> None:
    assert ask(broker, "PUT", f"{topic}/configs/compression.type", {"value": codec}).status == 204
    sent = [{"partition_id": 0, "value": text("again and again " * 1000)} for _ in range(5)]
    answer = ask(broker, "POST", f"{topic}/records", b"".join(json.dumps(each).encode() for each in sent))
    assert [each["offset"] for each in answer.parts] == [0, 1, 2, 3, 4]
    assert [record.value() for record in records_in(broker, topic)] == [b"again and again " * 1000] * 5
    name = topic.rpartition("/")[2]
    stored = broker.get(f"/api/v1/topics/{name}")["partitions"][0]["local_bytes"]
    assert (stored < 20_000) == (codec != "uncompressed")
