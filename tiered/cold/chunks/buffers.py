"""Memory that loads read chunks into, lent again and again: fresh pages cost more than reading a chunk into them.

Owns the buffers that nobody has. Must never lend one that may still be written to or read.
"""

import mmap
from contextlib import suppress

BUFFER_BYTES = 10 << 20
"""A run of chunks that the usual limits of reading ahead allow. What a load does not touch takes no memory."""
KEPT = 8
"""As many as loads run at once by default. With four, a tenth of the CPU of reading from a folder went into clearing
others anew."""


class LoadBuffers:
    """Buffers for loads; `KEPT` of `BUFFER_BYTES` at the most stay when all are given back. Lives on one loop."""

    def __init__(self) -> None:
        self._free: list[mmap.mmap] = []

    def lend(self, length: int) -> memoryview:
        """`length` bytes, in which anything may be. One that is not given back goes when its last user has gone."""
        if length > BUFFER_BYTES:
            return memoryview(_mapped(length))
        # The last one that came back: more of it is in the processor's caches.
        return memoryview(self._free.pop() if self._free else _mapped(BUFFER_BYTES))[:length]

    def give_back(self, buffer: memoryview) -> None:
        """Nobody reads or writes `buffer` any more."""
        mapping = buffer.obj
        assert isinstance(mapping, mmap.mmap)
        if len(mapping) == BUFFER_BYTES and len(self._free) < KEPT:
            self._free.append(mapping)


def _mapped(length: int) -> mmap.mmap:
    made = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError, AttributeError):  # The system has no huge pages.
        made.madvise(mmap.MADV_HUGEPAGE)
    return made
