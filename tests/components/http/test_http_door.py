"""The HTTP door itself: whom it lets in, what it bounds, and what hostile bytes get."""

import gzip
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing

import pytest

from tests.broker_process import BrokerProcess
from tests.components.http.exchanges import MIB, TOPICS, ask, exchange


def own_origin(broker: BrokerProcess) -> dict[str, str]:
    return {"Origin": broker.http, "Sec-Fetch-Site": "same-origin"}


def token(broker: BrokerProcess) -> str:
    return str(ask(broker, "/api/v1/session").body["csrf_token"])


# Who may come in


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "localhost.evil.example", "x" * 300, "[::1", ""],
)
def test_a_name_that_is_not_ours_is_refused_so_that_no_page_can_rebind_its_own_to_us(
    broker: BrokerProcess, host: str
) -> None:
    answer = ask(broker, "/api/v1/cluster", headers={"Host": host})
    assert answer.status == 403
    assert "tiered.http.allowed.hosts" in answer.body["message"]


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost:1", "LOCALHOST", "console.localhost", "[::1]:8080", "10.1.2.3"]
)
def test_addresses_and_localhost_are_let_in_whatever_the_port(broker: BrokerProcess, host: str) -> None:
    assert ask(broker, "/healthz", headers={"Host": host}).status == 200


def test_advertised_and_allowed_names_are_let_in(make_broker: Callable[..., BrokerProcess]) -> None:
    process = make_broker(
        "--advertise", "kafka.internal:9092", settings={"tiered.http.allowed.hosts": "Console.Example,other.example"}
    ).start()
    expected = {"kafka.internal": 200, "console.example:80": 200, "other.example": 200, "third.example": 403}
    for host, status in expected.items():
        assert ask(process, "/healthz", headers={"Host": host}).status == status, host


def test_a_request_without_a_host_is_a_programs_and_is_served(broker: BrokerProcess) -> None:
    answer = exchange(broker, b"GET /v3/clusters HTTP/1.0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.0 200")
    assert f"http://127.0.0.1:{broker.http_port}/v3/clusters".encode() in answer


def test_a_page_of_ours_changes_something_only_with_the_token(broker: BrokerProcess) -> None:
    new = {"name": "by-page", "partitions": 1}
    refused = ask(broker, TOPICS, method="POST", headers=own_origin(broker), body=new)
    assert refused.status == 403
    assert "/api/v1/session" in refused.body["message"]
    wrong = {**own_origin(broker), "X-Tiered-CSRF": "0" * 32}
    assert ask(broker, TOPICS, method="POST", headers=wrong, body=new).status == 403
    right = {**own_origin(broker), "X-Tiered-CSRF": token(broker)}
    assert ask(broker, TOPICS, method="POST", headers=right, body=new).status == 201


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},
    ],
    ids=str,
)
def test_another_origins_page_changes_nothing_even_with_the_token(
    broker: BrokerProcess, headers: Mapping[str, str]
) -> None:
    answer = ask(
        broker, TOPICS, method="POST", headers={**headers, "X-Tiered-CSRF": token(broker)}, body={"name": "foreign"}
    )
    assert answer.status == 403
    assert "foreign" not in [each["topic"] for each in ask(broker, TOPICS).body["topics"]]


def test_another_origins_page_reads_nothing_but_may_link_to_us(broker: BrokerProcess) -> None:
    fetched = ask(broker, TOPICS, headers={"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"})
    assert fetched.status == 403
    followed = ask(broker, TOPICS, headers={"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"})
    assert followed.status == 200


def test_a_program_needs_no_token(broker: BrokerProcess) -> None:
    assert ask(broker, TOPICS, method="POST", body={"name": "by-program"}).status == 201


def test_the_token_is_another_one_after_a_restart(make_broker: Callable[..., BrokerProcess]) -> None:
    process = make_broker().start()
    first = token(process)
    assert process.stop() == 0
    process.start()
    assert token(process) != first


@pytest.mark.parametrize("path", ["/healthz", "/metrics", "/nothing", "/v3/clusters", "/"])
def test_every_answer_carries_the_security_headers(broker: BrokerProcess, path: str) -> None:
    headers = ask(broker, path).headers
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["X-Frame-Options"] == "DENY"
    assert "Strict-Transport-Security" not in headers
    assert "Access-Control-Allow-Origin" not in headers
    assert headers["Server"] == "tiered"
    if path != "/":
        assert headers["Cache-Control"] == "no-store"


# Errors


def test_errors_are_json_that_says_what_to_do(broker: BrokerProcess) -> None:
    missing = ask(broker, "/api/v1/nothing")
    assert (missing.status, missing.body["error_code"]) == (404, 404)
    assert "/openapi.json" in missing.body["message"]
    wrong = ask(broker, "/healthz", method="POST", body={})
    assert wrong.status == 405
    assert "GET" in wrong.headers["Allow"]
    assert ask(broker, "/healthz", method="HEAD").status == 200


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x00\x00\x1a\x00\x12\x00\x00\x00\x00\x00\x01\xff\xff\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a TLS hello\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /api/v1/topics HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nA: " + b"x" * (32 << 10) + b"\r\n\r\n",
        b"GET /" + b"x" * (32 << 10) + b" HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n" + b"".join(b"A%d: b\r\n" % number for number in range(300)) + b"\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n",
    ],
    ids=lambda data: repr(data[:24]),
)
def test_bytes_that_are_no_request_get_400_in_json_and_the_connection_ends(broker: BrokerProcess, data: bytes) -> None:
    answer = exchange(broker, data)
    head, _, content = answer.partition(b"\r\n\r\n")
    assert b" 400 " in head.splitlines()[0], answer[:300]
    assert b"nosniff" in head
    assert b"aiohttp" not in head
    assert json.loads(content)["error_code"] == 400
    assert ask(broker, "/healthz").status == 200


def test_hostile_requests_leave_nothing_in_the_log(broker: BrokerProcess) -> None:
    before = broker.log()
    exchange(broker, b"\x00\x01\x02\r\n\r\n")
    exchange(broker, b"GET / HTTP/1.1\r\nHost: \x00\r\n\r\n")
    exchange(broker, b"P\xb2ST /api/v1/topics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    exchange(broker, b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nExpect: \xb2\r\n\r\n")
    exchange(
        broker,
        b"PUT /api/v1/topics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
        b"Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\nno gz",
    )
    assert ask(broker, "/api/v1/topics/%00%ff%0a").status in (400, 404)
    assert ask(broker, "/api/v1/topics/" + "x" * 5000).status == 400
    assert ask(broker, "/healthz", headers={"Host": "127.0.0.1:99999"}).status == 403
    assert broker.log() == before


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"name": "a", "name": "b"}',
        b'{"name": NaN}',
        b'{"name": "\\ud800"}',
        b"[" * 100_000,
        b'{"name": ' + b"9" * 10_000 + b"}",
        b"\xff\xfe",
        b'{"name": "x", "unknown": 1}',
        b'{"name": true}',
        b"[]",
    ],
    ids=lambda body: repr(body[:24]),
)
def test_a_body_that_is_not_what_the_route_takes_is_400(broker: BrokerProcess, body: bytes) -> None:
    answer = ask(broker, TOPICS, method="POST", body=body)
    assert answer.status == 400, answer.content
    assert answer.body["message"]


# Limits


def test_a_body_that_is_too_large_is_413_before_it_is_read(broker: BrokerProcess) -> None:
    answer = exchange(
        broker, b"POST /api/v1/topics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n{"
    )
    assert answer.startswith(b"HTTP/1.1 413")


def test_a_body_that_grows_too_large_while_it_comes_is_413(broker: BrokerProcess) -> None:
    with closing(http.client.HTTPConnection("127.0.0.1", broker.http_port, timeout=30)) as connection:
        connection.putrequest("POST", TOPICS)
        connection.putheader("Transfer-Encoding", "chunked")
        connection.endheaders()
        try:
            for _ in range(64):
                connection.send(b"40000\r\n" + b" " * 0x40000 + b"\r\n")
        except (BrokenPipeError, ConnectionResetError):
            pass  # It hung up, as it may.
        try:
            assert connection.getresponse().status == 413
        except (ConnectionResetError, BrokenPipeError, http.client.BadStatusLine):
            pass


def test_a_small_body_cannot_unfold_into_a_large_one(broker: BrokerProcess) -> None:
    bomb = gzip.compress(b" " * (64 * MIB))
    answer = ask(broker, TOPICS, method="POST", headers={"Content-Encoding": "gzip"}, body=bomb)
    assert answer.status in (400, 413)
    assert resident_mib(broker) < 400
    folded = gzip.compress(json.dumps({"name": "folded"}).encode())
    assert ask(broker, TOPICS, method="POST", headers={"Content-Encoding": "gzip"}, body=folded).status == 201


def resident_mib(broker: BrokerProcess) -> float:
    return broker.metric("process_resident_memory_bytes") / MIB


def started(tmp_path_factory: pytest.TempPathFactory, settings: Mapping[str, int]) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("bounded") / "data", settings=settings).start()
    yield process
    process.ensure_stopped()


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker without patience."""
    yield from started(tmp_path_factory, {"tiered.http.request.timeout.ms": 600})


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker for few requests at once."""
    settings = {"tiered.http.request.timeout.ms": 4000, "tiered.http.max.requests": 3}
    yield from started(tmp_path_factory, settings)


def test_a_body_that_does_not_arrive_ends_with_408(hasty: BrokerProcess) -> None:
    answer = exchange(hasty, b"POST /api/v1/topics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"did not arrive in time" in answer


def test_a_head_that_does_not_arrive_ends_the_connection(hasty: BrokerProcess) -> None:
    assert exchange(hasty, b"GET /healthz HTTP/1.1\r\nHost: loc") == b""
    assert exchange(hasty, b"") == b""


def test_a_trickled_head_gets_no_more_time_than_a_stuck_one(hasty: BrokerProcess) -> None:
    with socket.create_connection(("127.0.0.1", hasty.http_port), timeout=30) as sock:
        sock.sendall(b"GET /healthz HTTP/1.1\r\n")
        over = threading.Event()

        def trickle() -> None:
            try:
                while not over.wait(0.05):
                    sock.sendall(b"A: b\r\n")
            except OSError:
                pass

        thread = threading.Thread(target=trickle)
        thread.start()
        try:
            assert sock.recv(100) == b""
        except ConnectionResetError:
            pass
        finally:
            over.set()
            thread.join()


def test_more_requests_than_allowed_are_429_and_the_door_recovers(narrow: BrokerProcess) -> None:
    connections = [unfinished_request(narrow, source) for source in ("127.0.0.1", "127.0.0.1", "127.0.0.2")]
    try:
        deadline = time.monotonic() + 3.5
        while (answer := ask(narrow, TOPICS)).status != 429:
            assert time.monotonic() < deadline, "three unfinished requests never counted"
        assert answer.headers["Retry-After"] == "1"
        assert ask(narrow, "/healthz").status == ask(narrow, "/readyz").status == 200
        for sock in connections:
            assert sock.recv(12) == b"HTTP/1.1 408"
    finally:
        for sock in connections:
            sock.close()
    assert ask(narrow, TOPICS).status == 200


def test_one_address_leaves_room_for_the_requests_of_others(narrow: BrokerProcess) -> None:
    connections = [unfinished_request(narrow, "127.0.0.2") for _ in range(4)]
    try:
        answers = [sock.recv(12) for sock in connections[2:]]
        assert answers == [b"HTTP/1.1 429", b"HTTP/1.1 429"]
        assert ask(narrow, TOPICS).status == 200
    finally:
        for sock in connections:
            sock.close()


def unfinished_request(broker: BrokerProcess, source: str) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", broker.http_port), 30, (source, 0))
    sock.sendall(b"POST /api/v1/topics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
    time.sleep(0.1)
    return sock


def test_520_silent_connections_of_one_address_shut_nobody_out(broker: BrokerProcess) -> None:
    silent = [socket.create_connection(("127.0.0.1", broker.http_port), 30, ("127.0.0.2", 0)) for _ in range(520)]
    try:
        assert ask(broker, TOPICS).status == 200
        own = http.client.HTTPConnection("127.0.0.1", broker.http_port, 30, ("127.0.0.2", 0))
        own.request("GET", TOPICS)
        assert own.getresponse().status == 200, "nor those behind the same proxy"
        own.close()
        assert [silent[number].recv(1) for number in (0, 200)] == [b"", b""], "the oldest gave way"
    finally:
        for sock in silent:
            sock.close()


def test_a_client_that_does_not_read_its_answer_loses_its_connection(hasty: BrokerProcess) -> None:
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        # Were the connection kept, the requests would no longer be read, and sending would time out.
        sock.settimeout(30)
        sock.connect(("127.0.0.1", hasty.http_port))
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            for _ in range(2000):
                sock.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n")
                time.sleep(0.02)


def test_a_broker_that_stops_does_not_wait_for_slow_clients(make_broker: Callable[..., BrokerProcess]) -> None:
    process = make_broker().start()
    with socket.create_connection(("127.0.0.1", process.http_port)) as sock:
        sock.sendall(b"POST /api/v1/topics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        assert ask(process, "/healthz").status == 200
        assert process.stop() == 0
