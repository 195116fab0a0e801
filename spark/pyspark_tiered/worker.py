"""A Spark worker's memory between the pieces of a task, and its sockets between tasks.

Owns settings of this process: three of the C library's allocator, what the garbage collector looks through, and one
option of its TCP sockets. Must never be used in a process that is not one of Spark's workers.
"""

import ctypes
import gc
import os
import socket
from contextlib import suppress
from functools import cache
from pathlib import Path

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
"""Of glibc's mallopt(3)."""

KEPT_BYTES = 256 << 20
"""Free memory at the end of the heap that is not given back."""
LARGEST_KEPT_BYTES = 16 << 20
"""A piece that is not larger comes from the heap."""

_QUICKACK = getattr(socket, "TCP_QUICKACK", None)
"""Linux has it; other systems wait less, or not at all."""
_OPEN = Path("/proc/self/fd")


@cache  # Once for each process.
def keep_freed_memory() -> bool:
    """Whether the C library could be told to keep what is freed.

    A task reads 8 MiB after 8 MiB, and fills Arrow batches of 4 MiB. Given back to the system after each and asked for
    again, every page is cleared and mapped anew: an eighth of a long replay's CPU at 1 KiB a record.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):  # Another C library than glibc.
        return False
    settings = ((_TRIM_THRESHOLD, KEPT_BYTES), (_MMAP_THRESHOLD, LARGEST_KEPT_BYTES), (_ARENA_MAX, 2))
    return all(mallopt(setting, value) == 1 for setting, value in settings)


@cache
def settle() -> None:
    """Objects that this process has loaded by the end of its first task are not looked through any more.

    PySpark collects garbage after each task, which takes as long as many objects are alive: modules above all, a tenth
    of a long replay's CPU. Objects of later tasks are looked through as before.
    """
    gc.collect()
    gc.freeze()


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
