"""Python imports this at its start where its folder is on PYTHONPATH: the wall clock is off by what a file says.

Owns `time.time` and `time.time_ns`, and whatever asks them; the monotonic clock is left alone, as a real one would
be. libfaketime was tried instead: a broker's first thousand records took eight seconds under it, instead of one.
"""

import mmap
import os
import struct
import time

# Of a clock that is right, until `begin`.
_offset: mmap.mmap | bytes = bytes(8)
_unpack = struct.Struct("=d").unpack_from
_time, _time_ns = time.time, time.time_ns


def begin() -> None:
    """Follows the file that the environment names; also called in a process that was forked for a broker."""
    global _offset
    if path := os.environ.get("TIERED_TEST_CLOCK"):
        with open(path, "rb") as file:
            _offset = mmap.mmap(file.fileno(), 8, access=mmap.ACCESS_READ)


def _jumping_time() -> float:
    return _time() + float(_unpack(_offset)[0])


def _jumping_time_ns() -> int:
    return _time_ns() + int(_unpack(_offset)[0] * 1e9)


time.time, time.time_ns = _jumping_time, _jumping_time_ns
begin()
