"""A listener of a tail or a search over HTTP: server-sent events from a plain socket, which can be left in the middle.

Parses by the rules of the HTML standard as far as a tail uses them: id, event, data, comments, retry.
"""

import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol, Self
from urllib.parse import urlencode


class HasHttpPort(Protocol):
    """A broker in a process of its own, or in this one."""

    http_port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event as a browser would dispatch it."""

    name: str
    id: str
    data: Any


class Listener:
    """A connection to a tail. `last_id` is what a browser would resume with."""

    def __init__(
        self,
        broker: HasHttpPort,
        topic: str,
        *,
        last_id: str = "",
        timeout_s: float = 60.0,
        receive_buffer_bytes: int | None = None,
        route: str = "tail",
        **query: object,
    ) -> None:
        self.last_id = last_id
        self._buffer = b""
        self._socket = socket.socket()
        if receive_buffer_bytes is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self._socket.settimeout(timeout_s)
        self._socket.connect(("127.0.0.1", broker.http_port))
        path = f"/api/v1/topics/{topic}/{route}"
        asked = {name.rstrip("_"): value for name, value in query.items()}
        lines = [f"GET {path}?{urlencode(asked)} HTTP/1.0", f"Host: 127.0.0.1:{broker.http_port}"]
        if last_id:
            lines.append(f"Last-Event-ID: {last_id}")
        self._socket.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        head = self._until(b"\r\n\r\n")
        self.status = int(head.split()[1])
        self.headers = head.decode()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def body(self) -> bytes:
        """What follows until the server closes."""
        while self._receive():
            pass
        return self._buffer

    def events(self) -> Iterator[Event]:
        """Every event until the server closes the connection; comments are left out."""
        while True:
            try:
                block = self._until(b"\n\n")
            except ConnectionError:
                return
            event = self._dispatched(block.decode())
            if event is not None:
                yield event

    def records(self, count: int) -> list[Event]:
        """The next so many records; every other event but the first raises AssertionError."""
        found: list[Event] = []
        for event in self.events():
            assert event.name in ("record", "start"), event
            if event.name == "record":
                found.append(event)
            if len(found) == count:
                return found
        raise AssertionError(f"the tail ended after {len(found)} records of {count}")

    def receive(self, size_bytes: int) -> int:
        """Reads at most so much from the connection; how much it was, 0 when the server has closed it."""
        return self._receive(size_bytes)

    def received(self) -> list[Event]:
        """The events that are whole in what was read so far, in order; what is cut off is forgotten."""
        *blocks, self._buffer = self._buffer.split(b"\n\n")
        return [event for block in blocks if (event := self._dispatched(block.decode())) is not None]

    def _dispatched(self, block: str) -> Event | None:
        name, data = "message", []
        for line in block.split("\n"):
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if field == "id":
                self.last_id = value
            elif field == "event":
                name = value
            elif field == "data":
                data.append(value)
        return Event(name=name, id=self.last_id, data=json.loads("\n".join(data))) if data else None

    def _until(self, mark: bytes) -> bytes:
        while mark not in self._buffer:
            if not self._receive():
                raise ConnectionError("the server closed the connection")
        found, _, self._buffer = self._buffer.partition(mark)
        return found

    def _receive(self, size_bytes: int = 65536) -> int:
        piece = self._socket.recv(size_bytes)
        self._buffer += piece
        return len(piece)
