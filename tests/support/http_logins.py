"""Requests over HTTP in somebody's name."""

import http.client
import json
import time
import urllib.request
from typing import Any

from tests.components.guarded_broker import GuardedBroker


def ask(
    guarded: GuardedBroker, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
) -> tuple[int, Any]:
    data = None if body is None else json.dumps(body).encode()
    sent = {"Content-Type": "application/json", **(headers or {})}
    url = f"http://127.0.0.1:{guarded.http_port}{path}"
    request = urllib.request.Request(url, data=data, headers=sent, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            text = answer.read()
            return answer.status, json.loads(text) if text.startswith((b"{", b"[")) else text
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def late_request(
    guarded: GuardedBroker, method: str, path: str, body: bytes, headers: dict[str, str] | None = None
) -> http.client.HTTPConnection:
    """A request that the broker has begun to serve, without the last byte of its body."""
    connection = http.client.HTTPConnection("127.0.0.1", guarded.http_port, timeout=30)
    connection.putrequest(method, path)
    for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
        connection.putheader(name, value)
    before = requests_in_progress(guarded, headers)
    connection.endheaders(body[:-1])
    ended_s = time.monotonic() + 10.0
    while requests_in_progress(guarded, headers) == before:
        assert time.monotonic() < ended_s, "the request was refused, or was not served within 10 s"
        time.sleep(0.01)
    return connection


def requests_in_progress(guarded: GuardedBroker, headers: dict[str, str] | None) -> float:
    """Requests that have passed the checks of login and rights and have no answer yet, this one included."""
    lines = ask(guarded, "GET", "/metrics", headers=headers)[1].decode().splitlines()
    return float(next(line for line in lines if line.startswith("tiered_http_requests_in_progress ")).split()[1])
