"""Hostile clients: a process of its own in which many connections ask for one thing as fast as they are answered.

Owns the connections. Who they are is the address that they come from: `ALICE` has rights on what is hers, `MALLORY` has
none.
"""

import http.client
import json
import multiprocessing
import os
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tests.clients.raw import RawConnection

ALICE, MALLORY = "127.0.0.2", "127.0.0.3"
PATIENCE_S = 30.0


@dataclass(frozen=True, slots=True)
class Attack:
    """One request, sent again and again: of Kafka's protocol (`key`, `version`) or over HTTP (`method`, `path`)."""

    name: str
    key: int = 0
    version: int = 0
    body: bytes = b""
    method: str = ""
    path: str = ""


class Door(RawConnection):
    """A connection from an address of the client's choice."""

    def __init__(self, port: int, source: str) -> None:
        self._timeout_s = PATIENCE_S
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S, (source, 0))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.correlation_id = 100

    @property
    def socket(self) -> socket.socket:
        return self._socket


Opened = Callable[[socket.socket], None]


def _ask_kafka(attack: Attack, port: int, source: str, goes_on: Callable[[], bool], opened: Opened) -> int:
    count = 0
    with Door(port, source) as door:
        opened(door.socket)
        while goes_on():
            door.call(attack.key, attack.version, attack.body)
            count += 1
    return count


def _ask_http(attack: Attack, port: int, source: str, goes_on: Callable[[], bool], opened: Opened) -> int:
    count = 0
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S, source_address=(source, 0))
    connection.connect()
    opened(connection.sock)
    while goes_on():
        connection.request(attack.method, attack.path, attack.body or None, {"Content-Type": "application/json"})
        connection.getresponse().read()
        count += 1
    connection.close()
    return count


def _attacked(attack: Attack, port: int, source: str, connections: int, seconds: float) -> int:
    """How many were answered. A connection that the broker ends is made anew."""
    deadline = time.monotonic() + seconds
    ask = _ask_http if attack.method else _ask_kafka
    answered: list[int] = []
    sockets: list[socket.socket] = []

    def goes_on() -> bool:
        return time.monotonic() < deadline

    def run() -> None:
        while goes_on():
            try:
                answered.append(ask(attack, port, source, goes_on, sockets.append))
            except (OSError, http.client.HTTPException, AssertionError):
                time.sleep(0.01)

    threads = [threading.Thread(target=run, daemon=True) for _ in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline + 1.0 - time.monotonic()))
    for left in sockets:  # Nobody waits for an answer any more: the next attack begins.
        with suppress(OSError):
            left.shutdown(socket.SHUT_RDWR)
    return sum(answered)


class Attackers:
    """The process in which they are, of this niceness: on a network attackers have cores of their own, and here they
    would take those of the broker and of the clients that are measured."""

    def __init__(self, niceness: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(1, mp_context=context, initializer=os.nice, initargs=(niceness,))

    def attack(self, attack: Attack, port: int, source: str, *, connections: int, seconds: float) -> int:
        return self._pool.submit(_attacked, attack, port, source, connections, seconds).result()

    def close(self) -> None:
        self._pool.shutdown()


def as_json(value: Any) -> bytes:
    return b"" if value is None else json.dumps(value).encode()
