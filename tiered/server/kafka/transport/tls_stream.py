"""The bytes of one TLS connection, in place of a socket, with the calls that a connection makes.

Owns the TLS state, the bytes not decrypted yet, and the encrypted bytes not sent yet; both are bounded. A call that
cannot go on raises BlockingIOError, as a socket does. What was encrypted counts as sent only when the socket has taken
all of it: until then the caller comes with the same bytes again, which it has queued anyway. Must never wait.
"""

import os
import socket
import ssl
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

PIECE_BYTES = 128 << 10
"""So much is encrypted at once, and held until the socket has taken it."""
RECORD_BYTES = 16 << 10
"""Of plaintext in one record of TLS."""
LONGEST_RECORD_BYTES = RECORD_BYTES + 512
RECEIVES_A_CALL = 16
"""Of a scratch each. More is decrypted in the next turn, for others wait meanwhile: records may have one byte."""
MAX_OUTGOING_BYTES = 256 << 10
"""Answers of TLS itself (a peer may ask for new keys): more than this is an attack."""


class _Ended:
    """In the place of a TLS state that is given back."""

    def pending(self) -> int:
        return 0

    def read(self, *_: object) -> int:
        raise BrokenPipeError("the connection is closed")

    write = unwrap = read


_ENDED: Any = _Ended()


class TlsStream:
    """A socket whose handshake is done. `scratch` is lent for the length of one call."""

    __slots__ = ("_committed", "_incoming", "_outgoing", "_scratch", "_socket", "_tls", "_unsent", "cipher")

    def __init__(
        self,
        sock: socket.socket,
        tls: ssl.SSLObject,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        scratch: memoryview,
    ) -> None:
        self._socket = sock
        self._tls = tls
        self._incoming = incoming
        self._outgoing = outgoing
        self._scratch = scratch
        self._unsent: deque[memoryview] = deque()
        self._committed = 0
        """Bytes of the caller that are in `_unsent`."""
        self.cipher = tls.cipher()

    # What a socket has too

    def fileno(self) -> int:
        return self._socket.fileno()

    def setblocking(self, flag: bool) -> None:
        self._socket.setblocking(flag)

    def setsockopt(self, level: int, option: int, value: Any) -> None:
        self._socket.setsockopt(level, option, value)

    def getsockname(self) -> Any:
        return self._socket.getsockname()

    def close(self) -> None:
        """Says goodbye, as far as the socket takes it at once."""
        with suppress(OSError, ValueError):
            try:
                self._tls.unwrap()
            except ssl.SSLWantReadError:
                pass  # The other side need not answer.
            self._flush(0)
        self._socket.close()
        # A request that is being cancelled may hold its connection for a while: not all of this too.
        self._tls = _ENDED
        self._incoming = self._outgoing = ssl.MemoryBIO()
        self._unsent.clear()

    # Bytes in

    @property
    def pending(self) -> bool:
        """Something has arrived that no readiness of the socket will tell of."""
        return self._incoming.pending > 0 or self._tls.pending() > 0

    def still_to_come(self, wanted: int) -> int:
        """At least so many bytes must still arrive before `wanted` more are decrypted; 0 when that is not known."""
        return max(0, wanted - self._incoming.pending - LONGEST_RECORD_BYTES)

    def recv_into(self, view: memoryview) -> int:
        """As a socket's; 0 also after the other side's goodbye. Raises ssl.SSLError, an OSError, for bytes that are no
        TLS."""
        try:
            return self._decrypt_into(view)
        finally:
            if self._outgoing.pending:
                self._answer_of_tls()

    def _decrypt_into(self, view: memoryview) -> int:
        # With a buffer it gives a count; typeshed knows the other form alone.
        read: Any = self._tls.read
        room = left = len(view)
        receives_left = RECEIVES_A_CALL
        while left:
            try:
                # librdkafka sends a record for every 2.8 KB, many of 10 bytes: what is done for each counts.
                while left:
                    count = read(left, view)
                    if count == 0:
                        return room - left
                    left -= count
                    view = view[count:]
            except ssl.SSLWantReadError:
                if receives_left == 0:
                    break
                receives_left -= 1
                try:
                    received = self._socket.recv_into(self._scratch)
                except OSError:
                    if left == room:
                        raise
                    break  # What is decrypted counts. The next call sees that the connection has ended.
                if received == 0:
                    return room - left
                self._incoming.write(self._scratch[:received])
        if left == room:
            raise BlockingIOError
        return room - left

    def _answer_of_tls(self) -> None:
        if self._outgoing.pending > MAX_OUTGOING_BYTES:
            raise ConnectionAbortedError("TLS was asked for more answers than it can send")
        if not self._committed:  # Else it goes out behind those bytes.
            with suppress(BlockingIOError, InterruptedError):
                self._flush(0)

    # Bytes out

    def send(self, view: memoryview) -> int:
        """As a socket's."""
        if not self._committed:
            self._encrypt(view[:PIECE_BYTES])
        return self._sent(0)

    def sendmsg(self, views: Sequence[bytes | bytearray | memoryview], ancillary: tuple[()], flags: int) -> int:
        """As a socket's."""
        del ancillary
        if not self._committed:
            pieces: list[memoryview] = []
            left = PIECE_BYTES
            for view in views:
                pieces.append(memoryview(view)[:left])
                left -= len(pieces[-1])
                if left == 0:
                    break
            # One record for many small parts.
            self._encrypt(pieces[0] if len(pieces) == 1 else memoryview(b"".join(pieces)))
        return self._sent(flags)

    def sendfile(self, file: int, position: int, count: int) -> int:
        """As os.sendfile to a socket: the bytes are read, for they must be encrypted."""
        if not self._committed:
            piece = os.pread(file, min(count, PIECE_BYTES), position)
            if not piece:
                return 0
            self._encrypt(memoryview(piece))
        return self._sent(0)

    def _encrypt(self, piece: memoryview) -> None:
        for start in range(0, len(piece), RECORD_BYTES):
            self._tls.write(piece[start : start + RECORD_BYTES])
            self._unsent.append(memoryview(self._outgoing.read()))
        self._committed = len(piece)

    def _sent(self, flags: int) -> int:
        self._flush(flags)
        sent, self._committed = self._committed, 0
        return sent

    def _flush(self, flags: int) -> None:
        """Sends all that is encrypted. Raises BlockingIOError when the socket does not take all of it."""
        if self._outgoing.pending:
            self._unsent.append(memoryview(self._outgoing.read()))
        while self._unsent:
            sent = self._socket.sendmsg(self._unsent, (), flags)
            while sent:
                first = self._unsent[0]
                if sent < len(first):
                    self._unsent[0] = first[sent:]
                    break
                sent -= len(first)
                self._unsent.popleft()
