"""Requests over HTTP that are made to keep the event loop busy: each is answered in short steps."""

from tests.broker_process import BrokerProcess
from tests.components.http.exchanges import exchange
from tests.components.http.v3 import base, topic

__all__ = ["base", "topic"]

ASKED = 10
MIB = 1 << 20


def head(method: str, path: str, *headers: bytes) -> bytes:
    lines = [f"{method} {path} HTTP/1.1".encode(), b"Host: 127.0.0.1", b"Connection: close", *headers]
    return b"".join(line + b"\r\n" for line in lines) + b"\r\n"


def cpu_s_of(broker: BrokerProcess, *requests: bytes) -> float:
    """What one of them takes of the broker, in the mean."""
    before_s = broker.metric("process_cpu_seconds_total")
    for request in requests:
        assert exchange(broker, request).startswith((b"HTTP/1.1 4", b"HTTP/1.1 200"))
    return (broker.metric("process_cpu_seconds_total") - before_s) / len(requests)


def test_the_marks_of_an_origin_are_not_brought_into_order(broker: BrokerProcess) -> None:
    """8,000 marks that Unicode orders were 130 ms of the event loop, before any login."""
    marks = ("\u0300" * 3900 + "\u0316" * 3900).encode()
    asked = [head("POST", "/", b"Origin: http://%d" % number + marks) for number in range(ASKED)]
    assert cpu_s_of(broker, *asked) < 0.04


def test_thousands_of_tags_are_not_parsed(broker: BrokerProcess) -> None:
    """They were 10 to 27 ms."""
    assert cpu_s_of(broker, *[head("GET", "/", b"If-None-Match: " + b'"a",' * 3900)] * 20) < 0.005


def test_json_of_more_pieces_than_there_may_be_is_refused_before_it_is_parsed(broker: BrokerProcess) -> None:
    """A MiB of it was up to 360 ms of the event loop in one step."""
    body = b'{"name": [%s1]}' % (b"{}," * (MIB // 3 - 10))
    request = head("POST", "/api/v1/topics", b"Content-Length: %d" % len(body)) + body
    assert b"pieces" in exchange(broker, request)
    assert cpu_s_of(broker, *[request] * ASKED) < 0.06


def test_a_record_of_very_many_values_is_refused_before_it_is_parsed(broker: BrokerProcess, topic: str) -> None:
    """Four MiB of them were five seconds of the event loop in one step."""
    body = b'{"value": {"type": "JSON", "data": [%s1]}}' % (b"1," * (2 * MIB - 100))
    request = head("POST", topic[len(broker.http) :] + "/records", b"Content-Length: %d" % len(body)) + body
    assert b"pieces" in exchange(broker, request)
    assert cpu_s_of(broker, request, request) < 0.6
