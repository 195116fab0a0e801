"""An S3 server that misbehaves on request: an HTTP proxy in front of a good one, with scripted or random faults.

Owns a listening socket on loopback and its threads. Must never alter what the good server stores: faults change
what a client sees, or keep a request from arriving, never the bytes at rest.
"""

import random
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.message import Message
from enum import Enum
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

from tiered.runtime import SystemClock


class S3FaultKind(Enum):
    SERVER_ERROR = "answers 500 InternalError; the request does not arrive"
    SLOW_DOWN = "answers 503 SlowDown; the request does not arrive"
    BAD_DIGEST = "answers 400 BadDigest, as if the body had been damaged on its way; the request does not arrive"
    ERROR_IN_200 = "answers 200 with an <Error> body, as completions of multipart uploads may; nothing arrives"
    ACCESS_DENIED = "answers 403 AccessDenied, as for a role that may not do this; the request does not arrive"
    SESSION_EXPIRED = "answers 400 ExpiredToken, as for a session whose time is over; the request does not arrive"
    RESET = "resets the connection; the request does not arrive"
    RESET_AFTER = "the request is carried out, then the connection is reset without an answer"
    TRUNCATE = "sends half of the body it announced, then closes"
    DELAY = "answers, but only after `seconds`"
    TRICKLE = "sends the body byte by byte, one each `seconds`"
    WHOLE = "answers a ranged GET with 200 and the whole object"
    WRONG_RANGE = "answers a ranged GET with the range that begins one byte later"
    NO_CONTENT_RANGE = "answers 206 without a Content-Range"
    FLIP = "flips one bit in the middle of the body"


_BY_STATUS = {500: S3FaultKind.SERVER_ERROR, 503: S3FaultKind.SLOW_DOWN, 403: S3FaultKind.ACCESS_DENIED}
_ERRORS = {
    S3FaultKind.SERVER_ERROR: (500, "InternalError"),
    S3FaultKind.SLOW_DOWN: (503, "SlowDown"),
    S3FaultKind.BAD_DIGEST: (400, "BadDigest"),
    S3FaultKind.ACCESS_DENIED: (403, "AccessDenied"),
    S3FaultKind.SESSION_EXPIRED: (400, "ExpiredToken"),
    S3FaultKind.ERROR_IN_200: (200, "InternalError"),
}


@dataclass(frozen=True, kw_only=True)
class SeenRequest:
    """A client's requests, in the order of arrival; `fault` is what was done to one."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body_bytes: int
    fault: S3FaultKind | None


@dataclass(kw_only=True)
class _Rule:
    kind: S3FaultKind
    method: str | None
    path_contains: str
    query_contains: str
    skip: int
    times: int | None
    seconds: float
    until_ms: float | None


@dataclass(kw_only=True)
class FaultyS3:
    """The proxy's script and its record. `url` is what clients use as their endpoint."""

    upstream: str
    url: str = ""
    seen: list[SeenRequest] = field(default_factory=list)
    _rules: list[_Rule] = field(default_factory=list)
    _by_chance: Callable[[], S3FaultKind | None] = lambda: None
    _chance_seconds: float = 0.0
    ignored_headers: set[str] = field(default_factory=set)
    refused_headers: set[str] = field(default_factory=set)
    expired_keys: set[str] = field(default_factory=set)
    """Access keys of sessions whose time is over: what is signed with one meets SESSION_EXPIRED."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    healed: threading.Event = field(default_factory=threading.Event)
    _clock: SystemClock = field(default_factory=SystemClock)

    def fail(
        self,
        *,
        status: int = 503,
        count: int | None = None,
        for_s: float | None = None,
        method: str | None = None,
        path_contains: str = "",
    ) -> None:
        """Requests are answered with this status (403, 500 or 503) and do not arrive.

        The next `count` of them, those of the next `for_s` seconds, or all until `heal`. `method` and
        `path_contains` spare the others.
        """
        kind = _BY_STATUS.get(status)
        if kind is None:
            raise ValueError(f"status={status} is not offered: choose one of {', '.join(map(str, _BY_STATUS))}")
        self.inject(kind, method=method, path_contains=path_contains, times=count, for_s=for_s)

    def delay(
        self,
        ms: float,
        *,
        count: int | None = None,
        for_s: float | None = None,
        method: str | None = None,
        path_contains: str = "",
    ) -> None:
        """Requests are carried out only after `ms` milliseconds; the other arguments are those of `fail`."""
        self.inject(
            S3FaultKind.DELAY, method=method, path_contains=path_contains, times=count, for_s=for_s, seconds=ms / 1000.0
        )

    def inject(
        self,
        kind: S3FaultKind,
        *,
        method: str | None = None,
        path_contains: str = "",
        query_contains: str = "",
        skip: int = 0,
        times: int | None = 1,
        seconds: float = 0.0,
        for_s: float | None = None,
    ) -> None:
        """The next `times` matching requests, after `skip` of them, meet this fault; None is all of them.

        With `for_s` it is over after so many seconds in any case.
        """
        with self._lock:
            self.healed.clear()
            self._rules.append(
                _Rule(
                    kind=kind,
                    method=method,
                    path_contains=path_contains,
                    query_contains=query_contains,
                    skip=skip,
                    times=times,
                    seconds=seconds,
                    until_ms=None if for_s is None else self._clock.monotonic_ms() + for_s * 1000.0,
                )
            )

    def misbehave(self, *, seed: int, probability: float, kinds: tuple[S3FaultKind, ...], seconds: float = 0.0) -> None:
        """From now on every request meets one of `kinds` with this probability, by a seeded generator."""
        chance = random.Random(seed)
        with self._lock:
            self.healed.clear()
            self._by_chance = lambda: chance.choice(kinds) if chance.random() < probability else None
            self._chance_seconds = seconds

    def ignore_header(self, name: str) -> None:
        """The store behaves as if it had never heard of this request header."""
        self.ignored_headers.add(name.lower())

    def refuse_header(self, name: str) -> None:
        """The store answers 501 to requests that carry this header, as some S3-compatible ones do."""
        self.refused_headers.add(name.lower())

    def heal(self) -> None:
        """No more faults; delays that have begun are over."""
        self.ignored_headers.clear()
        self.refused_headers.clear()
        self.expired_keys.clear()
        with self._lock:
            self._rules.clear()
            self._by_chance = lambda: None
            self.healed.set()

    def count(self, method: str, *, path_contains: str = "", query_contains: str = "") -> int:
        """How many such requests came."""
        with self._lock:
            return sum(
                seen.method == method and path_contains in seen.path and query_contains in seen.query
                for seen in self.seen
            )

    def _choose(self, method: str, path: str, query: str, ranged: bool) -> tuple[S3FaultKind | None, float]:
        for rule in self._rules:
            matches = rule.method in (None, method) and rule.path_contains in path and rule.query_contains in query
            if not matches or rule.times == 0:
                continue
            if rule.until_ms is not None and self._clock.monotonic_ms() >= rule.until_ms:
                continue
            if rule.skip > 0:
                rule.skip -= 1
                continue
            if rule.times is not None:
                rule.times -= 1
            return rule.kind, rule.seconds
        kind = self._by_chance()
        if not ranged and kind in (S3FaultKind.WHOLE, S3FaultKind.WRONG_RANGE, S3FaultKind.NO_CONTENT_RANGE):
            kind = None
        return kind, self._chance_seconds

    def arrived(self, method: str, target: str, headers: Message, body_bytes: int) -> tuple[S3FaultKind | None, float]:
        split = urlsplit(target)
        path = unquote(split.path)
        with self._lock:
            fault, seconds = self._choose(method, path, split.query, "Range" in headers)
            if any(f"Credential={key}/" in headers.get("Authorization", "") for key in self.expired_keys):
                fault = S3FaultKind.SESSION_EXPIRED
            self.seen.append(
                SeenRequest(
                    method=method,
                    path=path,
                    query=split.query,
                    headers={name.lower(): value for name, value in headers.items()},
                    body_bytes=body_bytes,
                    fault=fault,
                )
            )
        return fault, seconds


@contextmanager
def faulty_s3(upstream: str) -> Iterator[FaultyS3]:
    """A running proxy in front of `upstream` (`http://host:port`), stopped on leaving."""
    script = FaultyS3(upstream=upstream)
    address = urlsplit(upstream)

    class Handler(_Handler):
        faults = script
        upstream_address = (address.hostname or "127.0.0.1", address.port or 80)

    server = _Server(("127.0.0.1", 0), Handler)
    script.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.02}, name="tiered-faulty-s3", daemon=True
    )
    thread.start()
    try:
        yield script
    finally:
        script.heal()
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(ThreadingHTTPServer):
    """Ends its connections when it is closed, and with them their threads."""

    daemon_threads = False
    block_on_close = True

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def server_close(self) -> None:
        with self._lock:
            for request in self._open:
                with suppress(OSError):  # The client was faster.
                    request.shutdown(socket.SHUT_RDWR)
        super().server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # Clients that go away in the middle are what this server is for.


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # Head and body are two writes: without this each answer waits 40 ms.
    faults: FaultyS3
    upstream_address: tuple[str, int]

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        fault, seconds = self.faults.arrived(self.command, self.path, self.headers, len(body))
        if fault in _ERRORS:
            self._error(*_ERRORS[fault])
            return
        if any(name.lower() in self.faults.refused_headers for name in self.headers):
            self._error(501, "NotImplemented")
            return
        if fault is S3FaultKind.RESET:
            self._reset()
            return
        if fault is S3FaultKind.DELAY:
            self.faults.healed.wait(seconds)
        status, headers, data = self._forward(body, without_range=fault is S3FaultKind.WHOLE, fault=fault)
        if fault is S3FaultKind.RESET_AFTER:
            self._reset()
            return
        if fault is S3FaultKind.NO_CONTENT_RANGE:
            headers = [(name, value) for name, value in headers if name.lower() != "content-range"]
        if fault is S3FaultKind.FLIP and data:
            middle = len(data) // 2
            data = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
        if fault is S3FaultKind.TRUNCATE:
            self._answer(status, headers, data[: len(data) // 2])
            self.wfile.flush()
            self.close_connection = True
            return
        if fault is S3FaultKind.TRICKLE:
            self._trickle(status, headers, data, seconds)
            return
        self._answer(status, headers, data)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _serve  # noqa: N815

    def _forward(
        self, body: bytes, *, without_range: bool, fault: S3FaultKind | None
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = HTTPConnection(*self.upstream_address, timeout=60)
        dropped = self.faults.ignored_headers | ({"range"} if without_range else set())
        headers = {name: value for name, value in self.headers.items() if name.lower() not in dropped}
        if fault is S3FaultKind.WRONG_RANGE and "Range" in headers:
            first, last = headers["Range"].removeprefix("bytes=").split("-")
            headers["Range"] = f"bytes={int(first) + 1}-{last}"
        headers.pop("Expect", None)
        headers["Connection"] = "close"
        try:
            connection.request(self.command, self.path, body=body or None, headers=headers)
            response = connection.getresponse()
            data = response.read()
            kept = [
                (name, value)
                for name, value in response.getheaders()
                if name.lower() not in ("connection", "transfer-encoding", "server", "date", "content-length")
            ]
            length = response.getheader("Content-Length") if self.command == "HEAD" else str(len(data))
            return response.status, [*kept, ("Content-Length", length or "0")], data
        finally:
            connection.close()

    def _error(self, status: int, code: str) -> None:
        xml = f"<?xml version='1.0'?>\n<Error><Code>{code}</Code><Message>injected</Message></Error>".encode()
        self._answer(status, [("Content-Type", "application/xml"), ("Content-Length", str(len(xml)))], xml)

    def _answer(self, status: int, headers: list[tuple[str, str]], data: bytes) -> None:
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _trickle(self, status: int, headers: list[tuple[str, str]], data: bytes, seconds: float) -> None:
        self._answer(status, headers, b"")
        for position in range(len(data)):
            try:
                self.wfile.write(data[position : position + 1])
            except OSError:  # The client has had enough.
                break
            if self.faults.healed.wait(seconds):
                self.wfile.write(data[position + 1 :])
                return
        self.close_connection = True

    def _reset(self) -> None:
        """RST instead of FIN: what a client sees when a load balancer drops it."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()
