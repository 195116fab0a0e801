"""Receive buffers, borrowed while a frame is unfinished and pooled by size.

Owns the free lists and the count of bytes lent. Must never hand out one buffer twice.
"""

MIN_BITS = 18
MAX_POOLED_BITS = 23
POOLED_EACH = 8


class BufferPool:
    """Lends writable buffers of at least the size asked for; a power of two, 256 KiB or more."""

    def __init__(self) -> None:
        self._free: dict[int, list[memoryview]] = {}
        self.lent_bytes = 0

    def borrow(self, size_bytes: int) -> memoryview:
        bits = max(MIN_BITS, (size_bytes - 1).bit_length())
        free = self._free.get(bits)
        buffer = free.pop() if free else memoryview(bytearray(1 << bits))
        self.lent_bytes += len(buffer)
        return buffer

    def give_back(self, buffer: memoryview) -> None:
        """The caller and everyone it gave slices to must be done with `buffer`."""
        self.lent_bytes -= len(buffer)
        bits = (len(buffer) - 1).bit_length()
        if bits <= MAX_POOLED_BITS:
            free = self._free.setdefault(bits, [])
            if len(free) < POOLED_EACH:
                free.append(buffer)
