"""Receive buffers, borrowed while a frame is unfinished and pooled by size, and how much is received at once.

Owns the free lists, the count of what large buffers may cost, and what large frames take of a turn of the event loop.
Must never hand out one buffer twice.
"""

import asyncio
import mmap
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable

SMALLEST_BYTES = 256 << 10
LARGEST_POOLED_BYTES = 8 << 20
POOLED_EACH = 8
MOST_POOLED_BYTES = 16 << 20
"""The bound on the buffers that the pool keeps, of all sizes together. Their pages stay in memory once bytes have
arrived in them: eight buffers of every size were 168 MiB."""


RECEIVED_A_TURN_BYTES = 1 << 20
CROWD = 8
CROWDED_TURN_BYTES = 1 << 18
"""A turn takes this much where `CROWD` connections wait to send, so that everybody else waits for less. With fewer it
takes more, because every turn of the loop costs a producer of large batches CPU."""
OTHERS_WEIGHT = 8
"""A byte of a large request that is not Produce counts for so many: nobody sends megabytes of those in earnest often,
and a commit passes through eight turns of the loop."""


class LargeReads:
    """Whose turn it is to read more of a large frame: in one turn of the event loop all connections together take no
    more than `most_bytes`, and the last read, which takes no more than that either.

    Those that must wait go first in the next turn. Owners take turns; of one owner the frame that has begun is read to
    its end before the next one, so that few are in memory half read. Without all this everybody waits until all of
    fifty clients that send megabytes have been read from.
    """

    __slots__ = ("_loop", "_taken_bytes", "_waiting", "_waiting_count", "most_bytes")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._taken_bytes = 0
        self._waiting: OrderedDict[Hashable, deque[Callable[[], None]]] = OrderedDict()
        """What reads, by owner, in the order of their turns."""
        self._waiting_count = 0
        self.most_bytes = RECEIVED_A_TURN_BYTES

    @property
    def may_read(self) -> bool:
        """Whether a connection may take more now. Else it waits."""
        return self._taken_bytes < self.most_bytes

    def wait(self, owner: Hashable, read: Callable[[], None], *, has_begun: bool) -> None:
        """Calls `read` once, when it is its turn: before the owner's others where it has begun."""
        waiting = self._waiting.setdefault(owner, deque())
        (waiting.appendleft if has_begun else waiting.append)(read)
        self._waiting_count += 1

    def took(self, size_bytes: int) -> None:
        if not self._taken_bytes:
            self._loop.call_soon(self._begin_turn)
        self._taken_bytes += size_bytes

    def _begin_turn(self) -> None:
        self._taken_bytes = 0
        self.most_bytes = CROWDED_TURN_BYTES if self._waiting_count >= CROWD else RECEIVED_A_TURN_BYTES
        while self._waiting and self.may_read:
            owner, waiting = self._waiting.popitem(last=False)
            read = waiting.popleft()
            self._waiting_count -= 1
            if waiting:
                self._waiting[owner] = waiting
            read()


class BufferPool:
    """Lends writable buffers of at least the size asked for, in multiples of 256 KiB.

    They are anonymous mappings: a page costs memory only once bytes have arrived in it, and a large buffer
    goes back to the system when it is dropped.

    Buffers of the smallest size are not counted: a connection has one at most, and those who send a few bytes
    on each of many connections must not take the room that larger requests of others need.
    """

    def __init__(self) -> None:
        self._free: dict[int, list[memoryview]] = {}
        self.free_bytes = 0
        """The sizes of the buffers that wait to be lent again, together."""
        self.lent_bytes = 0
        """Sizes of the lent buffers above the smallest one, together."""

    def borrow(self, size_bytes: int) -> memoryview:
        """The buffer. Raises OSError when the system has no memory for it."""
        size = _size_class(size_bytes)
        free = self._free.get(size)
        if free:
            buffer = free.pop()
            self.free_bytes -= size
        else:
            buffer = memoryview(mmap.mmap(-1, size))
        if size > SMALLEST_BYTES:
            self.lent_bytes += size
        return buffer

    def give_back(self, buffer: memoryview) -> None:
        """The caller and everyone it gave slices to must be done with `buffer`."""
        self.drop(buffer)
        size = len(buffer)
        if size <= LARGEST_POOLED_BYTES and self.free_bytes + size <= MOST_POOLED_BYTES:
            free = self._free.setdefault(size, [])
            if len(free) < POOLED_EACH:
                free.append(buffer)
                self.free_bytes += size

    def clear(self) -> None:
        """Gives the buffers that wait back to the system."""
        self._free.clear()
        self.free_bytes = 0

    def drop(self, buffer: memoryview) -> None:
        """Ends the loan of a buffer that may still be read: unlike `give_back`, the buffer is never lent again."""
        if len(buffer) > SMALLEST_BYTES:
            self.lent_bytes -= len(buffer)


def _size_class(size_bytes: int) -> int:
    """Multiples of 256 KiB up to 2 MiB, then powers of two: few classes, little waste."""
    if size_bytes <= 2 << 20:
        return max(1, -(-size_bytes // SMALLEST_BYTES)) * SMALLEST_BYTES
    return int(1 << (size_bytes - 1).bit_length())
