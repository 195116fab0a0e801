"""An outbox over TLS: whatever the socket takes at a time, the other side gets every byte once and in order."""

import random
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from io import FileIO
from pathlib import Path

import pytest

from tests.certificates import Authority
from tiered.config.tls import ListenerTls, TlsMaterial
from tiered.file_slice import FileSlice
from tiered.server.kafka.transport.outbox import Outbox, Parts
from tiered.server.kafka.transport.tls_stream import PIECE_BYTES, TlsStream
from tiered.tls import server_context


class Side:
    """The client, and the stream that the broker has: both ends of one pair of sockets."""

    def __init__(self, folder: Path, *, send_buffer_bytes: int) -> None:
        authority = Authority(folder)
        material = TlsMaterial(certificate_chain=str(authority.sign("server").both))
        near, far = socket.socketpair()
        near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
        for each in (near, far):
            each.setblocking(False)
        self.socket = far
        self.incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = ssl.create_default_context(cafile=str(authority.pem))
        self.client = client.wrap_bio(self.incoming, outgoing, server_hostname="localhost")
        arriving, leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
        server = server_context(ListenerTls(material=material)).wrap_bio(arriving, leaving, server_side=True)
        for _ in range(4):
            for tls in (self.client, server):
                with suppress(ssl.SSLWantReadError):
                    tls.do_handshake()
                arriving.write(outgoing.read())
                self.incoming.write(leaving.read())
        self.outgoing = outgoing
        self.stream = TlsStream(near, server, arriving, leaving, memoryview(bytearray(64 << 10)))

    def close(self) -> None:
        self.stream.close()
        self.socket.close()

    def read(self, most: int) -> bytes:
        """What can be read now, from `most` bytes of what has arrived."""
        with suppress(BlockingIOError):
            self.incoming.write(self.socket.recv(most))
        found = bytearray()
        with suppress(ssl.SSLWantReadError):
            while True:
                found += self.client.read(1 << 16)
        return bytes(found)

    def write(self, data: bytes) -> None:
        self.client.write(data)
        left = self.outgoing.read()
        while left:
            left = left[self.socket.send(left) :]


@pytest.fixture
def side(tmp_path: Path) -> Iterator[Side]:
    made = Side(tmp_path, send_buffer_bytes=16 << 10)
    yield made
    made.close()


def test_a_slow_reader_gets_bytes_and_files_once_and_in_order(side: Side, tmp_path: Path) -> None:
    chance = random.Random(7)
    path = tmp_path / "records"
    content = chance.randbytes(1_000_000)
    path.write_bytes(content)
    outbox = Outbox(side.stream)
    expected, found = bytearray(), bytearray()
    with FileIO(path) as file:
        for number in range(30):
            parts: Parts = [chance.randbytes(chance.randrange(1, 40)), chance.randbytes(chance.randrange(1, 9_000))]
            if number % 3 == 0:
                position = chance.randrange(500_000)
                length = chance.randrange(1, 3 * PIECE_BYTES)
                parts.append(FileSlice(file=file, position=position, length=length))
            expected += b"".join(
                content[each.position : each.position + each.length] if isinstance(each, FileSlice) else each
                for each in parts
            )
            outbox.put(parts)
            outbox.send(chance.randrange(1, 200_000))
            found += side.read(chance.randrange(1, 50_000))
        while outbox:
            outbox.send(1 << 20)
            found += side.read(1 << 16)
    found += side.read(1 << 20)
    assert found == expected
    assert (outbox.total_bytes, outbox.held_bytes) == (0, 0)


def test_what_arrived_and_does_not_fit_is_pending_and_comes_with_the_next_read(side: Side) -> None:
    side.write(b"a" * 20_000)
    view = memoryview(bytearray(100))
    received = 0
    while received < 20_000:
        received += side.stream.recv_into(view)
        assert side.stream.pending == (received < 20_000)
    with pytest.raises(BlockingIOError):
        side.stream.recv_into(view)


def test_a_goodbye_is_the_end_and_garbage_is_an_error(side: Side) -> None:
    side.socket.send(b"\x17\x03\x03\x00\x20" + b"x" * 32)
    with pytest.raises(ssl.SSLError):
        side.stream.recv_into(memoryview(bytearray(100)))
