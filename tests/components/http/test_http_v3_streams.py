"""Records produced over HTTP as a stream: each is answered while it goes on, and a broken one is told and ended."""

import json
import threading
import zlib
from contextlib import closing
from typing import Any

import pytest

from tests.broker_process import BrokerProcess
from tests.components.http.v3 import MIB, ask, base, records_in, text, topic
from tests.components.http.v3_streams import Stream

__all__ = ["base", "topic"]


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
