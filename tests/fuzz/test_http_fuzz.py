"""Hostile bytes for the HTTP door: requests to every route, mutated where it hurts, and bytes that are no request.

Each is answered with an error or ends its own connection; nothing that nobody foresaw reaches the log. A failure names
its seed.
"""

import os
import random
import socket
import time
import urllib.request
from collections.abc import Callable, Iterator

import pytest

from tests.broker_process import BrokerProcess
from tests.fuzz.probe import probing
from tests.support.hostile_frames import resident_mib
from tests.support.topics import create
from tiered.server.http.routes import ROUTES

MEMORY_LIMIT_MIB = 500
VALUES = ["fuzzed", "missing", "", "..", "%00", "%ff", "é", "a" * 5000, "-1", "0", "99999999999999999999", "null", "{}"]
VALUES += ["/" * 5000, "a/" * 2500, "%2f" * 1500]
HOSTS = ["", "", "", "", "", "", "", "http://127.0.0.1", "http://xn--a", "//xn--a.com"]
BODIES = [b"", b"{}", b"[]", b"null", b'{"records":[{"value":"x"}]}', b"[" * 50_000, b'{"a":' * 2_000, b"\xff\xfe"]
BODIES += [b'"\\ud800"']
BODIES += [
    b'{"topic":"fuzzed","partitions":1e400}',
    b'{"name":{"name":[]}}',
    b"0" * 5_000,
    b'{"records":' + b"[{}," * 500,
]
HEADERS = ["Content-Type: application/json", "Content-Type: application/vnd.kafka.json.v2+json"]
HEADERS += ["Content-Encoding: gzip"]
HEADERS += ["Transfer-Encoding: chunked", "Expect: 100-continue", "Accept: text/event-stream", "Origin: http://evil"]
HEADERS += ["X: " + "y" * 9000, "Content-Length: -1", "Content-Length: 99999999999", "Range: bytes=5-1", "Cookie: \x01"]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {"tiered.http.request.timeout.ms": 1000, "tiered.max.partitions": 100}
    process = BrokerProcess(tmp_path_factory.mktemp("http") / "data", settings=settings).start()
    create(process, "fuzzed", partitions=2)
    yield process
    process.ensure_stopped()


def request(chance: random.Random) -> bytes:
    route = chance.choice(ROUTES)
    parts = [chance.choice(VALUES) if part.startswith("{") else part for part in route.path.split("/")]
    path = "/".join(parts)
    if chance.random() < 0.5:
        path += "?" + "&".join(
            f"{chance.choice(['limit', 'offset', 'from', 'partition', 'format', 'x'])}={chance.choice(VALUES)}"
            for _ in range(chance.randint(1, 3))
        )
    method = route.method if chance.random() < 0.8 else chance.choice(["GET", "POST", "PUT", "PATCH", "DELETE", "BREW"])
    body = chance.choice(BODIES)
    lines = [
        f"{method} {chance.choice(HOSTS)}{path} HTTP/1.1",
        "Host: 127.0.0.1",
        *chance.sample(HEADERS, chance.randint(0, 2)),
    ]
    if chance.random() < 0.8:
        lines.append(f"Content-Length: {len(body)}")
    data = bytearray("\r\n".join(lines).encode("utf-8", "replace") + b"\r\n\r\n" + body)
    for _ in range(chance.choice([0, 0, 0, 1, 3])):
        at = chance.randrange(len(data))
        data[at : at + chance.randrange(3)] = chance.randbytes(chance.randrange(4))
    return bytes(data)


def run(broker: BrokerProcess, *, seconds: float, seed: int, rest: Callable[[], float] = lambda: 0.0) -> int:
    """How many were sent, with pauses of `rest()` seconds."""
    chance = random.Random(seed)
    deadline = time.monotonic() + seconds
    sent = 0
    while time.monotonic() < deadline:
        time.sleep(rest())
        with socket.create_connection(("127.0.0.1", broker.http_port), 10) as connection:
            connection.settimeout(0.3)
            try:
                connection.sendall(request(chance))
                connection.recv(1 << 16)
            except OSError:
                pass
        sent += 1
        if sent % 20 == 0:
            with urllib.request.urlopen(f"{broker.http}/readyz", timeout=20) as answer:
                assert answer.status == 200, f"seed {seed}"
    log = broker.log()
    assert "Traceback" not in log, f"seed {seed}:\n{log[-4000:]}"
    assert resident_mib(broker) < MEMORY_LIMIT_MIB, f"seed {seed}"
    return sent


def test_hostile_http_requests_hurt_nobody(broker: BrokerProcess) -> None:
    assert run(broker, seconds=3, seed=1) > 20


@pytest.mark.fuzz
def test_hostile_http_requests_for_long(broker: BrokerProcess) -> None:
    seconds = 60 * float(os.environ.get("TIERED_FUZZ_MINUTES", "10"))
    seed = int.from_bytes(os.urandom(4), "big")
    create(broker, "probed", retention_ms="-1")
    with probing(broker, "probed") as probe:
        sent = run(broker, seconds=seconds, seed=seed, rest=probe.seconds_of_rest)
    probe.check(f"seed {seed}: {sent} requests")
