"""Bodies of requests that were folded by their sender (Content-Encoding), over the HTTP door."""

import gzip
import json
import socket
import time
import zlib

import pytest

from tests.broker_process import BrokerProcess
from tests.components.http.exchanges import MIB, TOPICS, ask, exchange

BOMB_MIB = 1024
MOST_CPU_S = 0.3


@pytest.mark.parametrize("coding", ["gzip", "x-gzip", "deflate", "Deflate", "identity"])
def test_a_folded_body_is_read(broker: BrokerProcess, coding: str) -> None:
    name = f"folded-{coding}"
    body = json.dumps({"name": name}).encode()
    fold = gzip.compress if coding.endswith("gzip") else zlib.compress if coding != "identity" else bytes
    assert ask(broker, TOPICS, method="POST", headers={"Content-Encoding": coding}, body=fold(body)).status == 201
    assert ask(broker, f"{TOPICS}/{name}").status == 200


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, gzip", "x" * 1000, "\xff"])
def test_a_coding_that_is_not_read_here_is_named_with_those_that_are(broker: BrokerProcess, coding: str) -> None:
    answer = ask(broker, TOPICS, method="POST", headers={"Content-Encoding": coding}, body=b'{"name": "other"}')
    assert answer.status == 415
    assert "send gzip, deflate or none" in answer.body["message"]
    assert len(answer.content) < 300


def test_codings_on_lines_of_their_own_are_one_list(broker: BrokerProcess) -> None:
    lines = f"POST {TOPICS} HTTP/1.1", "Host: 127.0.0.1", "Content-Encoding: gzip", "Content-Encoding: br"
    said = exchange(broker, "\r\n".join((*lines, "Connection: close", "Content-Length: 2", "", "{}")).encode())
    assert said.startswith(b"HTTP/1.1 415 ")


@pytest.mark.parametrize("cut_at", [5, -4])
def test_a_body_that_ends_within_its_folding_is_refused(broker: BrokerProcess, cut_at: int) -> None:
    body = gzip.compress(b'{"name": "cut-short"}')[:cut_at]
    answer = ask(broker, TOPICS, method="POST", headers={"Content-Encoding": "gzip"}, body=body)
    assert answer.status == 400
    assert "ends within its gzip" in answer.body["message"]


def cpu_s(broker: BrokerProcess) -> float:
    return broker.metric("process_cpu_seconds_total")


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", "/healthz", 200), ("POST", "/nowhere", 404), ("POST", TOPICS, 413)]
)
def test_a_body_costs_no_more_than_what_of_it_is_read(
    broker: BrokerProcess, bomb: bytes, method: str, path: str, status: int
) -> None:
    """What the answer does not need was unfolded after it, up to two seconds of the event loop for a request."""
    before_s = cpu_s(broker)
    with socket.create_connection(("127.0.0.1", broker.http_port), timeout=30) as sock:
        head = "Host: 127.0.0.1\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n"
        sock.sendall(f"{method} {path} HTTP/1.1\r\n{head}".encode())
        ended_s = time.monotonic() + 10
        try:
            sock.sendall(f"{len(bomb):x}\r\n".encode() + bomb + b"\r\n0\r\n\r\n")
            answer = sock.recv(1 << 16)
            sock.shutdown(socket.SHUT_WR)
            while time.monotonic() < ended_s and sock.recv(1 << 16):
                pass
        except (BrokenPipeError, ConnectionResetError):
            pytest.fail("the connection ended before its answer was read")
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    assert cpu_s(broker) - before_s < MOST_CPU_S


@pytest.fixture(scope="module")
def bomb() -> bytes:
    packer = zlib.compressobj(1, wbits=31)
    return b"".join(packer.compress(bytes(MIB)) for _ in range(BOMB_MIB)) + packer.flush()


@pytest.mark.parametrize("path", ["/api/v1/topics", "/healthz", "/missing"])
def test_a_trailer_is_no_header_of_the_next_request(broker: BrokerProcess, path: str) -> None:
    """It was, and a proxy may send somebody else's request over the same connection."""
    first = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{{}}\r\n0\r\n".encode()
    trailer = b"Sec-Fetch-Site: cross-site\r\n\r\n"
    second = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    found = exchange(broker, first + trailer + second)
    assert found.count(b"HTTP/1.1 ") == 1
