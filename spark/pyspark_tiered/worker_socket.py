"""How a Python worker of Spark acknowledges what Spark sends it.

Owns one option of this process's TCP sockets. Must never be used in a process that is not one of Spark's workers.
"""

import os
import socket
from contextlib import suppress
from pathlib import Path

_QUICKACK = getattr(socket, "TCP_QUICKACK", None)
"""Linux has it; other systems wait less, or not at all."""
_OPEN = Path("/proc/self/fd")


def acknowledge_at_once() -> int:
    """How many sockets of this process were told to acknowledge what comes next at once. To be called as a task ends.

    Spark sends a worker its next task in two small pieces on one socket, the second when the first is acknowledged
    (Nagle's algorithm), and a socket that has just sent megabytes lets an acknowledgement wait for 40 ms, so that it
    may go along with data: a third of the time of a task that reads 64 MiB. The option holds until the
    socket sends again soon after it received (tcp(7)).
    """
    if _QUICKACK is None or not _OPEN.is_dir():
        return 0
    found = 0
    for each in list(_OPEN.iterdir()):
        with suppress(OSError):  # Closed meanwhile.
            if str(each.readlink()).startswith("socket:"):
                found += _acknowledge(int(each.name), _QUICKACK)
    return found


def _acknowledge(descriptor: int, option: int) -> bool:
    with socket.socket(fileno=os.dup(descriptor)) as one:
        if one.type != socket.SOCK_STREAM or one.family not in (socket.AF_INET, socket.AF_INET6):
            return False
        one.setsockopt(socket.IPPROTO_TCP, option, 1)
        return True
