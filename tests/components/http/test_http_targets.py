"""Targets of HTTP requests that nobody foresaw: each is answered, and none costs the others their turn."""

import pytest

from tests.broker_process import BrokerProcess
from tests.components.http.exchanges import exchange

ASKED = 50
MOST_CPU_S = 0.4
"""For all of them: eight milliseconds each, of which the longest head's parsing is one."""


def said_to(broker: BrokerProcess, target: str, *, method: str = "GET") -> bytes:
    head = f"{method} {target} HTTP/1.1\r\nHost: 127.0.0.1:{broker.http_port}\r\nConnection: close\r\n\r\n"
    return exchange(broker, head.encode())


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("http://xn--a.com/healthz", 200),
        ("http://" + "xn--a." * 1000 + "/healthz", 200),
        ("http://other:1/healthz?x=1", 200),
        ("http://xn--a.com", 200),
        ("http://xn--a.com/missing", 404),
        ("//xn--a.com/healthz", 404),
        ("/" + "/healthz" * 17, 404),
        ("/healthz" + "/" * 17, 404),
    ],
)
def test_every_target_is_answered(broker: BrokerProcess, target: str, status: int) -> None:
    """A name that is no name once held its connection for ever, without an answer."""
    assert said_to(broker, target).startswith(b"HTTP/1.1 %d " % status)


@pytest.mark.parametrize(("method", "target"), [("CONNECT", "xn--a.com:80"), ("OPTIONS", "*"), ("CONNECT", "/healthz")])
def test_targets_of_other_forms_are_answered(broker: BrokerProcess, method: str, target: str) -> None:
    assert said_to(broker, target, method=method)[:10] in (b"HTTP/1.1 4", b"HTTP/1.0 4")


@pytest.mark.parametrize(
    "target",
    ["/" * 16_000, "/a" * 8_000, "/.." * 5_000, "/v3/clusters/" + "a" * 16_000, "/v3/clusters/x" + "/a" * 7_900],
    ids=["slashes", "pieces", "dots", "cluster", "pieces below a cluster"],
)
def test_no_target_costs_the_event_loop_more_than_its_reading(broker: BrokerProcess, target: str) -> None:
    """16,000 slashes were 50 ms of the loop, before anybody logged in."""
    said_to(broker, target)
    before_s = broker.metric("process_cpu_seconds_total")
    for _ in range(ASKED):
        assert said_to(broker, target).startswith(b"HTTP/1.1 404 ")
    assert broker.metric("process_cpu_seconds_total") - before_s < MOST_CPU_S


def test_a_deep_path_is_named_in_its_refusal(broker: BrokerProcess) -> None:
    assert b"nothing is served at /a/a/a/a" in said_to(broker, "/a" * 30)
