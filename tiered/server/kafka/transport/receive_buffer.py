"""What a connection has received and not handled yet: borrowed memory that grows with the bytes that came.

Owns the buffer and where in it the next frame begins, ends and is awaited to end. A buffer is borrowed only while
bytes of an unfinished frame are in it, so that an idle connection costs none. Must never allocate for a length that was
announced.
"""

import struct

from tiered.errors import MalformedRequest, Throttled
from tiered.server.kafka.transport.buffers import SMALLEST_BYTES, BufferPool
from tiered.server.kafka.transport.foreign import foreign_protocol
from tiered.server.kafka.transport.frame_handler import FrameHandler

RECEIVE_BYTES = 256 << 10
# A frame's buffer grows as its bytes arrive: the length alone, which anyone can claim, allocates nothing.
EARNEST_BYTES = 64 << 10
LOW_WATER_BYTES = 512 << 10
EAGER_FRAME_BYTES = 1 << 20
# A buffer above this size is not kept for the beginning of the next frame.
LARGEST_KEPT_BYTES = 8 << 20
# What has arrived of a request up to here is held whatever others hold: it costs a page.
HARMLESS_BYTES = 4 << 10
NO_ROOM = "unfinished requests hold all the memory they may (queued.max.request.bytes)"

length_at = struct.Struct(">i").unpack_from
_api_key_at = struct.Struct(">h").unpack_from
PRODUCE_KEY = 0


class ReceiveBuffer:
    """The part of a connection that holds what has arrived."""

    __slots__ = ("_awaited_end", "_buffer", "_counted_unfinished", "_end", "_handler", "_pool", "_start", "frame_limit")

    def __init__(self, handler: FrameHandler, pool: BufferPool) -> None:
        self._handler = handler
        self._pool = pool
        self._buffer: memoryview | None = None
        self._start = 0
        self._end = 0
        self._awaited_end = 0
        self._counted_unfinished = 0
        self.frame_limit = handler.max_other_frame_bytes
        """What a request may have, but for Produce; less until the client has authenticated."""

    @property
    def partial_bytes(self) -> int:
        """What has arrived and was not handled."""
        return self._end - self._start

    @property
    def held_bytes(self) -> int:
        """What the unfinished frame costs: its buffer, or of one of the smallest what has arrived in it."""
        if self._buffer is None:
            return 0
        return len(self._buffer) if len(self._buffer) > SMALLEST_BYTES else self._end - self._start

    def _count_unfinished(self) -> bool:
        """Keeps the listener's sum of what the smallest buffers hold, the pool counts the others; whether this one may
        hold what it has. Making room may have ended this very connection."""
        held = self.held_bytes
        if held > SMALLEST_BYTES:
            held = 0
        if held != self._counted_unfinished:
            self._handler.unfinished_bytes += held - self._counted_unfinished
            self._counted_unfinished = held
        return held <= HARMLESS_BYTES or (self._handler.may_grow(0) and self._buffer is not None)

    def _require_room(self) -> None:
        """Raises Throttled where this connection may not hold what it has received."""
        if not self._count_unfinished():
            raise Throttled(NO_ROOM)

    def _check_length(self, buffer: memoryview, length: int, available: int) -> None:
        """MalformedRequest for a frame that is too long for its API, before more of it is read."""
        limit = self._handler.max_frame_bytes
        if self.frame_limit < self._handler.max_other_frame_bytes:
            limit = self.frame_limit  # Whoever has not logged in has nothing to produce.
        elif available >= 6 and _api_key_at(buffer, self._start + 4)[0] != PRODUCE_KEY:
            limit = self._handler.max_other_frame_bytes
        if not 0 < length <= limit:
            if (foreign := foreign_protocol(bytes(buffer[self._start : self._start + 4]))) is not None:
                raise MalformedRequest(foreign)
            raise MalformedRequest(f"a frame of {length} bytes; 1 to {limit} are accepted; split the request")

    def _keep_unfinished(self, buffer: memoryview, rest: int, *, is_awaited: bool) -> memoryview:
        """The buffer that has the unfinished frame from now on, with room for more; `is_awaited` when it is next."""
        if len(buffer) > LARGEST_KEPT_BYTES and rest < EARNEST_BYTES:
            smaller = self._pool.borrow(RECEIVE_BYTES)
            self._move_to_front(buffer, smaller, rest)
            self._buffer = smaller
            self._pool.give_back(buffer)
            buffer = smaller
        if rest >= 4 and is_awaited:
            length = 4 + length_at(buffer, self._start)[0]
            if rest < length <= 4 + self._handler.max_frame_bytes:
                buffer = self._make_room(buffer, rest, length)
                self._awaited_end = min(self._start + length, len(buffer))
        elif len(buffer) - self._end < 4096 and self._start > 0:
            self._move_to_front(buffer, buffer, rest)
        return buffer

    def _make_room(self, buffer: memoryview, rest: int, length: int) -> memoryview:
        """A buffer with the unfinished frame in it, larger once enough of the frame has come to believe in it."""
        wanted = min(length, max(EAGER_FRAME_BYTES, 4 * rest)) if rest >= EARNEST_BYTES else 0
        if wanted > len(buffer):
            if not self._handler.may_grow(wanted) or self._buffer is None:
                raise Throttled(NO_ROOM)
            larger = self._pool.borrow(wanted)
            self._move_to_front(buffer, larger, rest)
            self._buffer = larger
            self._pool.give_back(buffer)
            return larger
        if self._start > 0 and self._start + length > len(buffer):
            self._move_to_front(buffer, buffer, rest)
        return buffer

    def _move_to_front(self, buffer: memoryview, target: memoryview, rest: int) -> None:
        target[:rest] = buffer[self._start : self._end]
        self._start, self._end = 0, rest

    def _release_buffer(self) -> None:
        if self._counted_unfinished:
            self._handler.unfinished_bytes -= self._counted_unfinished
            self._counted_unfinished = 0
        if self._buffer is not None:
            self._pool.give_back(self._buffer)
            self._buffer = None
        self._start = self._end = self._awaited_end = 0
