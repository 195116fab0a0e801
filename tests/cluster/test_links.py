"""What the proxy of the cluster tests does to bytes, one fault at a time."""

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.links import CLIENTS, LinkFault
from tests.cluster.network import HELD, HELD_ANSWERS, HELD_REQUESTS, Network


class Echo:
    """A server that answers every byte with itself, and keeps what it heard."""

    def __init__(self) -> None:
        self.heard = bytearray()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        try:
            while data := connection.recv(65536):
                self.heard += data
                connection.sendall(data)
        except OSError:
            pass
        connection.close()

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def echo() -> Iterator[Echo]:
    echo = Echo()
    yield echo
    echo.close()


@pytest.fixture
def network(tmp_path: Path, echo: Echo) -> Iterator[Network]:
    with Network(tmp_path) as network:
        network.aim("echo", ("127.0.0.1", echo.port))
        yield network


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), 10)


def exchange(connection: socket.socket, data: bytes) -> bytes:
    connection.sendall(data)
    return receive(connection, len(data))


def receive(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count and (piece := connection.recv(count - len(data))):
        data += piece
    return data


def is_silent(connection: socket.socket) -> bool:
    connection.settimeout(0.2)
    try:
        connection.recv(1, socket.MSG_PEEK)
    except TimeoutError:
        return True
    finally:
        connection.settimeout(10)
    return False


def frame(client_id: bytes) -> bytes:
    body = struct.pack(">hhih", 18, 0, 1, len(client_id)) + client_id
    return struct.pack(">i", len(body)) + body


def test_a_good_link_carries_every_byte(network: Network) -> None:
    port = network.listen("echo", source="me")
    with connect(port) as connection:
        data = bytes(range(256)) * 2000
        threading.Thread(target=connection.sendall, args=(data,)).start()
        assert receive(connection, len(data)) == data
    assert network.facts()["me>echo"]["carried_bytes"] == 2 * len(data)


def test_the_client_id_of_the_first_frame_tells_brokers_from_clients(network: Network) -> None:
    port = network.listen("echo")
    for client_id, source in ((b"broker-2-fetcher-0", "broker-2"), (b"rdkafka", CLIENTS), (b"", CLIENTS)):
        with connect(port) as connection:
            assert exchange(connection, frame(client_id)) == frame(client_id)
        assert f"{source}>echo" in network.facts()


def test_only_the_link_that_is_cut_is_silent(network: Network) -> None:
    port = network.listen("echo")
    network.fault("broker-2", "echo", HELD)
    with connect(port) as cut, connect(port) as whole:
        cut.sendall(frame(b"broker-2-fetcher-0"))
        assert exchange(whole, frame(b"broker-3-fetcher-0"))
        assert is_silent(cut)


def test_held_requests_do_not_arrive_and_are_delivered_when_the_fault_ends(network: Network, echo: Echo) -> None:
    port = network.listen("echo", source="me")
    with connect(port) as connection:
        assert exchange(connection, b"before") == b"before"
        network.fault("me", "echo", HELD_REQUESTS)
        connection.sendall(b"late")
        assert is_silent(connection)
        assert bytes(echo.heard) == b"before"
        network.heal()
        assert receive(connection, 4) == b"late"


def test_held_answers_leave_the_request_carried_out(network: Network, echo: Echo) -> None:
    port = network.listen("echo", source="me")
    with connect(port) as connection:
        network.fault("me", "echo", HELD_ANSWERS)
        connection.sendall(b"done")
        assert is_silent(connection)
        assert bytes(echo.heard) == b"done"
        network.heal()
        assert receive(connection, 4) == b"done"


def test_a_cut_that_delivers_nothing_late_resets_what_it_held(network: Network, echo: Echo) -> None:
    port = network.listen("echo", source="me")
    network.fault("me", "echo", LinkFault(hold_requests=True, deliver_late=False))
    with connect(port) as connection:
        connection.sendall(b"never")
        assert is_silent(connection)
        network.heal()
        with pytest.raises(ConnectionResetError):
            receive(connection, 1)
    assert bytes(echo.heard) == b""


def test_delay_and_throttle_take_their_time(network: Network) -> None:
    port = network.listen("echo", source="me")
    for fault in (LinkFault(delay_ms=150), LinkFault(bytes_per_second=100)):
        network.fault("me", "echo", fault)
        with connect(port) as connection:
            started = time.monotonic()
            assert exchange(connection, b"0123456789abcdef") == b"0123456789abcdef"
            assert time.monotonic() - started >= 0.29


def test_reset_and_truncation_end_the_connection(network: Network, echo: Echo) -> None:
    port = network.listen("echo", source="me")
    network.fault("me", "echo", LinkFault(reset_probability=1.0))
    # The reset may come at any moment, before the connection was even used.
    with pytest.raises(ConnectionError), connect(port) as connection:
        connection.sendall(b"never")
        receive(connection, 1)
    network.fault("me", "echo", LinkFault(cut_probability=1.0))
    with connect(port) as connection:
        connection.sendall(b"0123456789")
        assert receive(connection, 10) in (b"", b"01", b"01234")
    assert bytes(echo.heard) in (b"", b"01234")


def test_a_destination_that_is_not_there_ends_the_connection(network: Network) -> None:
    port = network.listen("nowhere", source="me")
    with contextlib.suppress(ConnectionError), connect(port) as connection:
        connection.sendall(b"x")
        assert receive(connection, 1) == b""
