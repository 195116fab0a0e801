"""Bytes to the HTTP port, and the answers."""

import http.client
import json
import socket
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from tests.broker_process import BrokerProcess

MIB = 1 << 20
TOPICS = "/api/v1/topics"


class Answer:
    """What came back."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = response.headers
        self.content = response.read()

    @property
    def body(self) -> Any:
        return json.loads(self.content)


def ask(
    broker: BrokerProcess,
    path: str,
    *,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    body: object = None,
) -> Answer:
    """One request with exactly these headers; a body that is no bytes is sent as JSON."""
    with closing(http.client.HTTPConnection("127.0.0.1", broker.http_port, timeout=30)) as connection:
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection.putrequest(method, path, skip_host="Host" in (headers or {}))
        for name, value in (headers or {}).items():
            connection.putheader(name, value)
        if data is not None:
            connection.putheader("Content-Length", str(len(data)))
        connection.endheaders(data)
        return Answer(connection.getresponse())


def exchange(broker: BrokerProcess, data: bytes, *, timeout_s: float = 30.0) -> bytes:
    """Everything that the broker says to these bytes until it hangs up."""
    with socket.create_connection(("127.0.0.1", broker.http_port), timeout=timeout_s) as sock:
        sock.sendall(data)
        found = bytearray()
        while chunk := sock.recv(1 << 16):
            found += chunk
        return bytes(found)
