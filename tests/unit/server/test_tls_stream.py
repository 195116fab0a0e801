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
from tiered.server.kafka.transport.tls_stream import PIECE_BYTES, RECEIVES_A_CALL, TlsStream
from tiered.tls import server_context


class Side:
    """The client, and the stream that the broker has: both ends of one pair of sockets."""

    def __init__(self, folder: Path, *, send_buffer_bytes: int, scratch_bytes: int = 64 << 10) -> None:
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
        self.stream = TlsStream(near, server, arriving, leaving, memoryview(bytearray(scratch_bytes)))

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


def test_small_records_come_together_and_in_order_whatever_of_them_arrives_at_a_time(side: Side) -> None:
    chance = random.Random(7)
    content = chance.randbytes(300_000)
    for start in range(0, len(content), 1_000):
        side.client.write(content[start : start + 1_000])
    encrypted = side.outgoing.read()
    found, calls = bytearray(), 0
    view = memoryview(bytearray(len(content)))
    while encrypted:
        sent = side.socket.send(encrypted[: chance.randrange(1, 90_000)])
        encrypted = encrypted[sent:]
        with suppress(BlockingIOError):
            while True:
                found += view[: side.stream.recv_into(view)]
                calls += 1
    assert found == content
    assert calls < 50  # Of 300 records.


def test_one_call_takes_a_bounded_part_of_what_has_arrived(tmp_path: Path) -> None:
    side = Side(tmp_path, send_buffer_bytes=16 << 10, scratch_bytes=2 << 10)
    most = RECEIVES_A_CALL * (2 << 10)
    side.write(b"a" * (most + 1_000))
    view = memoryview(bytearray(2 * most))
    first = side.stream.recv_into(view)
    assert 0 < first <= most
    assert first + side.stream.recv_into(view) == most + 1_000
    side.close()


def test_a_call_that_ends_within_a_record_is_no_end_of_the_connection(tmp_path: Path) -> None:
    side = Side(tmp_path, send_buffer_bytes=16 << 10, scratch_bytes=512)
    side.write(b"a" * 12_000)
    view = memoryview(bytearray(12_000))
    with pytest.raises(BlockingIOError):
        side.stream.recv_into(view)
    assert side.stream.recv_into(view) == 12_000
    side.close()


def test_what_was_decrypted_before_the_socket_broke_counts(side: Side) -> None:
    side.write(b"a" * 100)
    side.write(b"b" * 100)
    side.stream.send(memoryview(b"this is not read, so that the end is a reset"))
    side.socket.close()
    view = memoryview(bytearray(1_000))
    assert side.stream.recv_into(view) == 200
    assert side.stream.recv_into(view) == 0


def test_a_goodbye_is_the_end_and_garbage_is_an_error(side: Side) -> None:
    side.socket.send(b"\x17\x03\x03\x00\x20" + b"x" * 32)
    with pytest.raises(ssl.SSLError):
        side.stream.recv_into(memoryview(bytearray(100)))
