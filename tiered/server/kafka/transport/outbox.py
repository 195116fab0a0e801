"""Everything that a connection still has to send: bytes and ranges of files, in the order of its answers.

Owns the queue and its two counts, and the calls that send. Files go out with sendfile, from the page cache to the
socket; over TLS they are read in pieces and encrypted. Must never wait: what the socket does not take now stays queued.
"""

import os
import socket
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from tiered.file_slice import FileSlice
from tiered.server.kafka.transport.tls_stream import TlsStream

Parts = list[bytes | bytearray | FileSlice]
"""An answer, in the order in which it goes out; the first part begins with the frame length."""

MAX_PARTS_A_CALL = 64


@dataclass(slots=True)
class _FileRest:
    """The part of a range that is left to send."""

    part: FileSlice
    position: int
    length: int


class Outbox:
    """The unsent rest of one socket's answers. `total_bytes` counts all of it, `held_bytes` what is in memory."""

    __slots__ = ("_queue", "_socket", "_tls", "held_bytes", "total_bytes")

    def __init__(self, sock: socket.socket | TlsStream) -> None:
        self._socket = sock
        self._tls = sock if isinstance(sock, TlsStream) else None
        self._queue: deque[bytes | bytearray | memoryview | _FileRest] = deque()
        self.total_bytes = 0
        self.held_bytes = 0

    def __bool__(self) -> bool:
        return bool(self._queue)

    def put(self, parts: Sequence[bytes | bytearray | memoryview | FileSlice]) -> None:
        """Queues `parts` behind everything before them; empty ones are left out."""
        for part in parts:
            if isinstance(part, FileSlice):
                if part.length:
                    self._queue.append(_FileRest(part, part.position, part.length))
                    self.total_bytes += part.length
            elif part:
                self._queue.append(part)
                size_bytes = len(part)
                self.total_bytes += size_bytes
                self.held_bytes += size_bytes

    def clear(self) -> None:
        self._queue.clear()
        self.total_bytes = self.held_bytes = 0

    def send_at_once(self, part: bytes | bytearray) -> bool:
        """Sends past the empty queue, the common small answer's way; False when a rest of it had to be queued.

        Raises OSError when the connection is broken.
        """
        view = memoryview(part)
        try:
            sent = self._socket.send(view)
        except (BlockingIOError, InterruptedError):
            sent = 0
        if sent == len(view):
            return True
        self.put((view[sent:],))
        return False

    def send(self, budget: int) -> int:
        """How many bytes went out: until nothing is left, the socket is full, or `budget` is used up.

        Raises OSError when the connection is broken, EOFError when a file is shorter than its range.
        """
        left = budget
        try:
            while self._queue and left > 0:
                first = self._queue[0]
                left -= self._send_file(first, left) if isinstance(first, _FileRest) else self._send_views()
        except (BlockingIOError, InterruptedError):
            pass
        return budget - left

    def _send_file(self, rest: _FileRest, budget: int) -> int:
        if self._tls is None:
            sent = os.sendfile(self._socket.fileno(), rest.part.fileno(), rest.position, min(rest.length, budget))
        else:
            sent = self._tls.sendfile(rest.part.fileno(), rest.position, min(rest.length, budget))
        if sent == 0:
            raise EOFError(f"a file ended {rest.length} bytes before the records to send did")
        self.total_bytes -= sent
        if sent == rest.length:
            self._queue.popleft()
        else:
            rest.position += sent
            rest.length -= sent
        return sent

    def _send_views(self) -> int:
        views: list[bytes | bytearray | memoryview] = []
        flags = 0
        for item in self._queue:
            if isinstance(item, _FileRest):
                flags = socket.MSG_MORE  # The header shares its packet with the file's first bytes.
                break
            views.append(item)
            if len(views) == MAX_PARTS_A_CALL:
                break
        sent = self._socket.sendmsg(views, (), flags)
        if sent == self.total_bytes:
            self.clear()
            return sent
        self.total_bytes -= sent
        self.held_bytes -= sent
        left = sent
        for view in views:
            if left < len(view):
                if left:
                    self._queue[0] = memoryview(view)[left:]
                break
            self._queue.popleft()
            left -= len(view)
        return sent
