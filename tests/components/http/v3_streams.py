"""A producer of the REST API that goes on in one request."""

import http.client
import json
import socket
from typing import Any

from tests.broker_process import BrokerProcess


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
