"""Binding the address of a door: the same for Kafka and for HTTP.

Owns nothing: the caller gets the socket. Must never listen or accept.
"""

import errno
import socket
from collections.abc import Callable

from tiered.config.addresses import host_and_port
from tiered.errors import InvalidConfig

HTTP_OPTION = "--http (or TIERED_HTTP, or http in the configuration file)"


def bound_socket(host: str, port: int) -> socket.socket:
    """A non-blocking stream socket bound to the address; port 0 takes a free one.

    Raises OSError when the address is taken or not ours.
    """
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setblocking(False)
        sock.bind((host, port))
    except OSError:
        sock.close()
        raise
    return sock


def address_of(sock: socket.socket) -> tuple[str, int]:
    """(host, port) that the socket is bound to."""
    host, port = sock.getsockname()[:2]
    return host, port


def bind_or_explain(bind: Callable[[], tuple[str, int]], wanted: tuple[str, int], option: str) -> tuple[str, int]:
    """The result of `bind`. Raises InvalidConfig, which names the option to change, when the address cannot be had."""
    try:
        return bind()
    except OSError as error:
        found = "something listens there already" if error.errno == errno.EADDRINUSE else error.strerror
        raise InvalidConfig(
            f"cannot listen on {host_and_port(*wanted)}: {found}; give another HOST:PORT with {option}"
        ) from error
