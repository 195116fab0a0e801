"""Records that are produced over HTTP with the routes of Kafka REST: how they arrive, and how each is answered."""

import base64
import json
import threading

import confluent_kafka
import pytest

from tests.broker_process import BrokerProcess
from tests.components.http.v3 import MIB, ask, base, binary, records_in, text, topic

__all__ = ["base", "topic"]


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


def test_numbers_in_json_keep_every_digit(broker: BrokerProcess, topic: str) -> None:
    data = '{"n":[1.10,1234567890.123456789012345,1E5,1e-400,-1e400,-0,12345678901234567890]}'
    body = f'{{"value": {{"type": "JSON", "data": {data}}}}}'.encode()
    assert ask(broker, "POST", f"{topic}/records", body).body["value"]["size"] == len(data)
    assert [record.value() for record in records_in(broker, topic)] == [data.encode()]


@pytest.mark.parametrize("name", ["partition_id", "headers", "key", "value", "timestamp"])
def test_what_may_be_absent_may_be_null(broker: BrokerProcess, topic: str, name: str) -> None:
    assert ask(broker, "POST", f"{topic}/records", {name: None}).status == 200


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
        (b'{"value": {"type": "JSON", "data": [NaN]}}', 400),
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
