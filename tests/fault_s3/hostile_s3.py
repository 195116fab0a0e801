"""A server in the place of S3 that answers with whatever bytes a test says, and a client that asks it."""

import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

from tiered.cold.object_store import Checksum, S3Address
from tiered.cold.s3.store import S3Store

Answer = Callable[[socket.socket, bytes], bool | None]
"""Takes the connection and the head of a request; True keeps the connection for the next one."""


class HostileS3:
    """Answers each request as `answer` does."""

    def __init__(self, listener: socket.socket, answer: Answer) -> None:
        self.answer = answer
        self.asked: list[str] = []
        self.connections = 0
        self.sent_bytes = 0
        self._listener = listener
        self._talking: list[tuple[threading.Thread, socket.socket]] = []

    def serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.connections += 1
                thread = threading.Thread(target=self._talk, args=(connection,), daemon=True)
                self._talking.append((thread, connection))
                thread.start()

    def end(self) -> None:
        """Returns when nobody is talked to any more: a thread that stays would slow every later test down."""
        for thread, connection in self._talking:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            thread.join(5)
            assert not thread.is_alive()

    def _talk(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            file = connection.makefile("rb")
            goes_on: bool | None = True
            while goes_on and (request := head_of(file)):
                found = re.search(rb"content-length: (\d+)", request, re.IGNORECASE)
                file.read(int(found[1]) if found else 0)
                self.asked.append(request.split(b"\r\n")[0].decode())
                goes_on = self.answer(connection, request)

    def pour(self, connection: socket.socket, data: bytes, most_bytes: int) -> None:
        """Sends the same again and again, until nobody takes any more or it is enough."""
        while self.sent_bytes < most_bytes:
            connection.sendall(data)
            self.sent_bytes += len(data)


@contextmanager
def hostile_s3(answer: Answer, *, read_timeout_ms: float = 2_000) -> Iterator[tuple[S3Store, HostileS3]]:
    """A store below the prefix `mine`, whose client asks twice, and its server."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = HostileS3(listener, answer)
        thread = threading.Thread(target=server.serve, daemon=True)
        thread.start()
        address = S3Address(
            bucket="bucket",
            prefix="mine",
            region="us-east-1",
            endpoint_url=f"http://127.0.0.1:{listener.getsockname()[1]}",
            path_style=True,
            checksum=Checksum.AUTO,
        )
        store = S3Store(address, max_attempts=2, probe_first=False, read_timeout_ms=read_timeout_ms, first_backoff_ms=1)
        try:
            yield store, server
        finally:
            store.close()
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(5)
            server.end()


def head_of(file: BinaryIO) -> bytes:
    """The lines of a request before its body; nothing once the client has gone."""
    lines: list[bytes] = []
    while (line := file.readline()) not in (b"\r\n", b""):
        lines.append(line)
    return b"".join(lines)


def whole(body: bytes, *, status: str = "200 OK", headers: str = "") -> bytes:
    """An answer as it should be."""
    return f'HTTP/1.1 {status}\r\nETag: "x"\r\n{headers}Content-Length: {len(body)}\r\n\r\n'.encode() + body


def listing(*keys: str, is_truncated: bool = False) -> bytes:
    """A page of objects of three bytes each."""
    entries = "".join(f"<Contents><Key>{key}</Key><Size>3</Size></Contents>" for key in keys)
    more = "true" if is_truncated else "false"
    return f"<ListBucketResult><IsTruncated>{more}</IsTruncated>{entries}</ListBucketResult>".encode()


def uploads(*keys: str) -> bytes:
    """Uploads that began long ago."""
    began = "<Initiated>2020-01-01T00:00:00.000Z</Initiated>"
    entries = "".join(f"<Upload><Key>{key}</Key><UploadId>u</UploadId>{began}</Upload>" for key in keys)
    name = "ListMultipartUploadsResult"
    return f"<{name}><IsTruncated>false</IsTruncated>{entries}</{name}>".encode()
