"""The kernel takes less for a client that is near."""

import socket

from tiered.server.kafka.transport.listener import NEAR_SEND_BUFFER_BYTES, bound_send_buffer


def kernel_takes_bytes(sock: socket.socket) -> int:
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)


def test_what_waits_in_the_kernel_for_a_near_client_is_bounded() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.create_connection(listening.getsockname()):
        accepted, _ = listening.accept()
        with accepted:
            bound_send_buffer(accepted)
            # Linux doubles what it is asked for, and counts its own memory in it.
            assert kernel_takes_bytes(accepted) <= 2 * NEAR_SEND_BUFFER_BYTES


def test_a_client_whose_distance_is_not_known_keeps_the_kernels_own_bound() -> None:
    with socket.socket() as sock:
        before = kernel_takes_bytes(sock)
        bound_send_buffer(sock)
        assert kernel_takes_bytes(sock) == before
