"""One client connection: bytes in, frames in order, bytes out. No asyncio transport stands in between.

Owns the socket, its outbox, and what has arrived: a buffer, borrowed only while bytes of an unfinished frame are in it,
so that an idle connection costs none. Frames are handled one at a time and answered in request order; only those whose
answer merely waits for others let the next ones be handled. Files go out with sendfile; over TLS a `TlsStream` has the
socket's place. Must never allocate for a length that was announced, nor interpret a request: that is dispatch's work.
Whatever a client sends, only its own connection ends.
"""

import asyncio
import logging
import math
import socket
import struct
import sys
from collections.abc import Coroutine, Hashable
from typing import Any, Protocol

from tiered.config.listeners import ListenerOptions
from tiered.errors import MalformedRequest, Throttled
from tiered.file_slice import FileSlice
from tiered.rules.security.principal import ANONYMOUS, Principal
from tiered.server.kafka.transport.buffers import OTHERS_WEIGHT, SMALLEST_BYTES, BufferPool, LargeReads
from tiered.server.kafka.transport.other_protocols import foreign_protocol
from tiered.server.kafka.transport.outbox import Outbox, Parts
from tiered.server.kafka.transport.requests import Answer, CarriedOut, EndedConnection, Requests
from tiered.server.kafka.transport.sasl_session import SaslSession
from tiered.server.kafka.transport.tls_stream import TlsStream
from tiered.server.kafka.transport.turns import Turns

log = logging.getLogger(__name__)

# More than this many unsent bytes, and no further request of this connection is begun.
OUTBOX_HIGH_BYTES = 32 << 20
# The same for answers that are in memory, not in files: a reader that does not read costs one answer and this.
HELD_HIGH_BYTES = 1 << 20
# A turn of one connection handles at most so many requests that it had sent ahead.
REQUESTS_A_TURN = 256
# Answers to requests that had come together go out together: so many, or so many bytes, do not wait for the rest.
GATHERED_ANSWERS = 32
GATHERED_BYTES = 64 << 10
# A turn of one connection sends at most this much, so that a fast reader does not hold up the others.
SEND_TURN_BYTES = 1 << 20
RECEIVE_BYTES = 256 << 10
# A frame's buffer grows as its bytes arrive: the length alone, which anyone can claim, allocates nothing.
EARNEST_BYTES = 64 << 10
LOW_WATER_BYTES = 512 << 10
EAGER_FRAME_BYTES = 1 << 20
# A buffer above this size is not kept for the beginning of the next frame.
LARGEST_KEPT_BYTES = 8 << 20
# A request of up to this size may always arrive, whatever other requests hold: it costs a page.
HARMLESS_BYTES = 4 << 10
NO_ROOM = "unfinished requests hold all the memory they may (queued.max.request.bytes)"

length_at = struct.Struct(">i").unpack_from
_api_key_at = struct.Struct(">h").unpack_from
PRODUCE_KEY = 0


class FrameHandler(Protocol):
    """The handler of a connection's frames. The listener implements it."""

    max_frame_bytes: int
    max_other_frame_bytes: int
    """The limit of every request but Produce, whose size alone follows from what is stored."""
    unfinished_bytes: int
    """What has arrived of unfinished requests in the smallest buffers; connections keep the count."""
    large_reads: LargeReads
    turns: Turns
    unsent_bytes: int
    """Bytes of answers in memory that clients have not taken; connections keep the count."""

    def handle(self, connection: "Connection", buffer: memoryview, position: int, end: int) -> Answer | CarriedOut:
        """The answer, now or later; None also for a frame that was put back.

        The coroutine must not touch `buffer`. Raises TieredError when the connection must end.
        """

    def run(self, work: Coroutine[Any, Any, None], *, outlives_client: bool = False) -> asyncio.Task[None]:
        """Runs `work` as a task with an owner, who ends it where it outlives its client."""

    def closed(self, connection: "Connection") -> None:
        """`connection` has ended."""

    def identified(self, connection: "Connection", before: Principal | None) -> None:
        """`connection` has said who it is, or has become somebody else."""

    def may_grow(self, size_bytes: int) -> bool:
        """Whether all connections together may hold `size_bytes` more in unfinished frames."""

    def make_room(self) -> None:
        """Ends connections that do not read, when all answers together take too much memory."""

    def complain(self, text: str, *arguments: object) -> None:
        """Logs why a connection ended, unless the log is full of such lines."""

    def complain_once(self, subject: tuple[object, ...], text: str, *arguments: object) -> None:
        """As `complain`, but of the same subject once a minute."""


class Connection:
    """A connected client. `close` may be called at any time, any number of times."""

    __slots__ = (
        "__weakref__",
        "_awaited_end",
        "_buffer",
        "_counted_bytes",
        "_counted_unfinished",
        "_end",
        "_fd",
        "_gathers",
        "_handler",
        "_is_kept",
        "_is_put_back",
        "_loop",
        "_low_water",
        "_muted",
        "_outbox",
        "_pool",
        "_principal",
        "_reading",
        "_requests",
        "_socket",
        "_start",
        "_tls",
        "_waits_to_read",
        "_writing",
        "client_id",
        "client_software",
        "closed",
        "frame_limit",
        "gathers_until_ms",
        "has_produced",
        "host",
        "is_broker",
        "last_active_ms",
        "listener",
        "local_host",
        "local_port",
        "partial_since_ms",
        "progress_ms",
        "sasl",
    )

    def __init__(
        self,
        sock: socket.socket | TlsStream,
        handler: FrameHandler,
        pool: BufferPool,
        host: str,
        now_ms: float,
        listener: ListenerOptions,
    ) -> None:
        self._handler = handler
        self._pool = pool
        self._buffer: memoryview | None = None
        self._start = 0
        self._end = 0
        self._awaited_end = 0
        self._counted_unfinished = 0
        self.frame_limit = handler.max_other_frame_bytes
        """What a request may have, but for Produce; less until the client has authenticated."""
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = sock
        self._tls = sock if isinstance(sock, TlsStream) else None
        self._fd = sock.fileno()
        self._loop = asyncio.get_running_loop()
        self._low_water = 1
        self._outbox = Outbox(sock)
        self._counted_bytes = 0
        self._reading = False
        self._waits_to_read = False
        """For its turn to read more of a large frame: the loop looks at its socket no more until then."""
        self._writing = False
        self._gathers = False
        """Frames are being handled; what is sent meanwhile may wait for their end."""
        self._muted: asyncio.TimerHandle | None = None
        self._is_put_back = False
        self._is_kept = False
        """A request in progress still reads its frame from the buffer, so the buffer must not be moved or returned."""
        self._requests = Requests(self, handler.run)
        self.closed = False
        self.client_id: str | None = None
        self.client_software = ""
        self.gathers_until_ms = 0.0
        """A follower that asks before is answered a little later: see `follower_fetch`."""
        self.has_produced = False
        """Its first Produce was looked at: whether its client has to rest before that."""
        self.host = host
        self.is_broker = False
        """A follower fetches here: it has no quota."""
        self.listener = listener
        self._principal: Principal | None = None if listener.protocol.uses_sasl else ANONYMOUS
        self.sasl: SaslSession | None = None
        """How far the client is with that, where it must."""
        self.local_host: str = sock.getsockname()[0]
        self.local_port: int = sock.getsockname()[1]
        self.last_active_ms = now_ms
        self.progress_ms = now_ms
        self.partial_since_ms: float | None = None
        self._set_reading(True)
        self._read_pending()  # A client may have sent its first request along with the end of its handshake.

    @property
    def busy(self) -> bool:
        """A request is being handled, or an answer waits to be sent."""
        return self._requests.any or bool(self._outbox)

    @property
    def handling(self) -> bool:
        """A request is being handled now; a long poll counts."""
        return self._requests.any

    @property
    def principal(self) -> Principal | None:
        """The connection's principal; None until the client has authenticated."""
        return self._principal

    @principal.setter
    def principal(self, principal: Principal | None) -> None:
        before, self._principal = self._principal, principal
        self._handler.identified(self, before)

    @property
    def owner(self) -> Hashable:
        """Who takes turns with others. Where nobody is asked who they are, an address."""
        return self.host if self._principal is None or self._principal == ANONYMOUS else self._principal

    @property
    def is_muted(self) -> bool:
        """Nothing is read for a while: the client has used up a quota."""
        return self._muted is not None

    def mute(self, rest_ms: float) -> None:
        """Reads and begins nothing more for so long; answers still go out."""
        ends_s = self._loop.time() + rest_ms / 1000.0
        if self.closed or (self._muted is not None and self._muted.when() >= ends_s):
            return
        if self._muted is not None:
            self._muted.cancel()
        self._muted = self._loop.call_at(ends_s, self._unmute)
        self._set_reading(False)

    def put_back(self) -> None:
        """Nothing was done for the frame that is handled now: it is handed over once more when its client has rested;
        the connection is muted already."""
        assert self._muted is not None
        self._is_put_back = True

    def keep_frame(self, end: int) -> memoryview:
        """The current frame's bytes, at the same positions, for a request that blocks the connection's next one. The
        bytes stay valid until the connection resumes. A small frame in a large buffer is copied."""
        assert self._buffer is not None
        if 2 * end < len(self._buffer):  # A small request must not keep a large buffer.
            return memoryview(bytearray(self._buffer[:end]))
        self._is_kept = True
        return self._buffer

    def _unmute(self) -> None:
        self._muted = None
        self.last_active_ms = self._loop.time() * 1000.0
        self._set_reading(self._buffer is None or self._end < len(self._buffer))
        if not self._requests.hold_up:
            self.resume()

    @property
    def unsent_bytes(self) -> int:
        return self._outbox.total_bytes

    def close(self) -> None:
        """Ends the connection now. A wait in progress is cancelled, a write that has begun is not undone."""
        if self._gathers:
            self._send_gathered()  # What was done is told, whatever a later request of the same bundle comes to.
        if self.closed:
            return
        self.closed = True
        if self._muted is not None:
            self._muted.cancel()
        self._set_reading(False)
        self._set_writing(False)
        self._release_buffer()
        self._handler.unsent_bytes -= self._counted_bytes
        self._counted_bytes = 0
        self._outbox.clear()
        self._socket.close()
        self._requests.cancel(EndedConnection(self._handler.complain, self.host))
        self._handler.closed(self)

    def reset(self) -> None:
        """As `close`, and the client is told with RST: what was not sent yet is lost."""
        if not self.closed:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close()

    # Bytes in

    def _on_readable(self) -> None:
        if not self._reading:  # The pending bytes have been read meanwhile.
            return
        is_large = self._end < self._awaited_end
        if self._waits_to_read or not (self._handler.large_reads.may_read if is_large else self._time_left_ms() > 0.0):
            self._loop.remove_reader(self._fd)  # Fifty calls in a turn, to hear that all must wait, cost everybody.
            self._wait_to_read(has_begun=False)
        elif is_large:
            self._read_of_large()
        else:
            self._read()

    def _time_left_ms(self) -> float:
        """What is left of this turn of the loop for requests of the connection's owner; followers have no bound."""
        return math.inf if self.is_broker else self._handler.turns.left_ms(self.owner)

    def _wait_to_read(self, *, has_begun: bool) -> None:
        if self._waits_to_read:
            return
        self._waits_to_read = True
        if self._end < self._awaited_end:
            self._handler.large_reads.wait(self.owner, self._read_in_turn, has_begun=has_begun)
        else:
            self._handler.turns.wait_to_read(self.owner, self._read_in_turn)

    def _read_in_turn(self) -> None:
        self._waits_to_read = False
        if not self._reading:
            return
        if self._end < self._awaited_end:
            if self._read_of_large() and self._end < self._awaited_end and self._reading:
                self._wait_to_read(has_begun=True)
                return
        else:
            self._read()
        if self._reading:
            self._loop.add_reader(self._fd, self._on_readable)

    def _read_of_large(self) -> bool:
        """Reads more of a large frame; whether there may be more of it."""
        large_reads = self._handler.large_reads
        assert self._buffer is not None
        is_produce = self._end >= self._start + 6 and _api_key_at(self._buffer, self._start + 4)[0] == PRODUCE_KEY
        weight = 1 if is_produce else OTHERS_WEIGHT
        most_bytes = large_reads.most_bytes // weight
        received = self._read(most_bytes)
        if received > 0:
            large_reads.took(received * weight)
        return received == most_bytes or (received > 0 and self._tls is not None)

    def _read(self, most_bytes: int = sys.maxsize) -> int:
        """Receives and handles no more than `most_bytes`; how many these were, below 1 where there were none."""
        try:
            if self._buffer is None:
                self._buffer = self._pool.borrow(RECEIVE_BYTES)
                self._start = self._end = 0
            received = self._socket.recv_into(self._buffer[self._end : self._end + most_bytes])
        except (BlockingIOError, InterruptedError):
            received = -1
        except OSError:
            received = 0
        if received == 0:
            self.close()
            return 0
        if received > 0:
            self._end += received
            self.last_active_ms = self._loop.time() * 1000.0
            if self._end < self._awaited_end and self._count_unfinished():
                # The kernel also wakes us for less when its window is full: what is left may be below the mark.
                left = self._awaited_end - self._end
                if left < self._low_water or self._tls is not None:
                    self._set_low_water(min(left, LOW_WATER_BYTES))
                self._read_pending()
                return received
        self._handle_frames()
        self._read_pending()
        return received

    def _read_pending(self) -> None:
        """Over TLS the rest of what has arrived may be here already: the socket will not say so."""
        if self._tls is not None and self._reading and self._tls.pending:
            self._loop.call_soon(self._on_readable)

    def _may_answer(self) -> bool:
        """False while the client has yet to read what it was answered, or has used up a quota."""
        if self._muted is not None:
            return False
        return self._outbox.total_bytes < OUTBOX_HIGH_BYTES and self._outbox.held_bytes < HELD_HIGH_BYTES

    def _handle_frames(self) -> None:
        """Handles every whole frame in the buffer, until one has to wait or their time is over; then sees to room for
        the rest."""
        buffer = self._buffer
        if buffer is None:
            return
        handled = 0
        left_ms, started_s = self._time_left_ms(), self._loop.time()
        self._gathers = True
        try:
            while not self._requests.hold_up and self._may_answer():
                available = self._end - self._start
                if available < 4:
                    break
                length = length_at(buffer, self._start)[0]
                if not 0 < length <= self.frame_limit:
                    self._check_length(buffer, length, available)
                if available < 4 + length:
                    break
                if handled and (handled == REQUESTS_A_TURN or (self._loop.time() - started_s) * 1000.0 > left_ms):
                    self._handler.turns.wait_to_read(self.owner, self._handle_frames)
                    break
                handled += 1
                position = self._start + 4
                self._start = position + length
                self._handle_one(buffer, position, position + length)
                if handled % GATHERED_ANSWERS == 0:
                    self._send_gathered()
                    self._gathers = True
                if self.closed:
                    return
            self._send_gathered()
            if not self.closed:
                self._keep_rest(buffer)
        except Exception as error:
            self._send_gathered()
            self.explain(error)
            self.close()
        finally:
            if left_ms < math.inf:
                self._handler.turns.took(self.owner, left_ms, (self._loop.time() - started_s) * 1000.0)

    def explain(self, error: Exception) -> None:
        """Says in the log why the connection ends."""
        EndedConnection(self._handler.complain, self.host).explain(error)

    def _handle_one(self, buffer: memoryview, position: int, end: int) -> None:
        self.partial_since_ms = None
        answer = self._handler.handle(self, buffer, position, end)
        if answer is None:
            if self._is_put_back:
                self._is_put_back = False
                self._start = position - 4
        elif isinstance(answer, list) and not self._requests.waiting:
            self.send(answer)
        else:
            self._requests.take(answer)

    def complain(self, text: str, *arguments: object) -> None:
        """Logs a line about this client, unless the log is full of such lines."""
        self._handler.complain(text, *arguments)

    def complain_once(self, subject: object, text: str, *arguments: object) -> None:
        """Logs what this client asked for, once a minute for the subject, however often it connects; `text` begins
        with the client."""
        who = (self.host, self.client_software)
        named = f"{self.client_software or 'a client'} from {self.host}"
        self._handler.complain_once((*who, subject), text, named, *arguments)

    def resume(self) -> None:
        """Handles what has waited behind requests in progress; it had no chance to go on."""
        self.partial_since_ms = None
        self._is_kept = False
        self._handle_frames()

    def _keep_rest(self, buffer: memoryview) -> None:
        """Keeps what is left of an unfinished frame, with room for more of it; gives an empty buffer back."""
        rest = self._end - self._start
        self._awaited_end = 0
        if self._is_kept:
            if rest and self.partial_since_ms is None:
                self.partial_since_ms = self._loop.time() * 1000.0
            self._set_low_water(1)
            self._set_reading(self._end < len(buffer))
            return
        if rest == 0:
            self._release_buffer()
            self.partial_since_ms = None
            self._set_low_water(1)
            self._set_reading(True)
            return
        if self.partial_since_ms is None:
            self.partial_since_ms = self._loop.time() * 1000.0
        buffer = self._keep_unfinished(buffer, rest, is_awaited=not self._requests.hold_up)
        self._require_room()
        self._set_low_water(min(self._awaited_end - self._end, LOW_WATER_BYTES))
        # While a request is handled, later ones pile up only as far as the buffer reaches.
        self._set_reading(self._end < len(buffer))

    def _set_low_water(self, wanted: int) -> None:
        """Asks the kernel to wake us for so many bytes at once, while a large frame is on its way: turns cost."""
        if self._tls is not None:
            wanted = self._tls.still_to_come(wanted)
        if wanted < EARNEST_BYTES:
            wanted = 1
        if wanted != self._low_water:
            self._low_water = wanted
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, wanted)

    # Bytes out

    def send(self, parts: Parts) -> None:
        """Sends `parts` after everything sent before; what the socket does not take now goes out later."""
        if self.closed:
            return
        if self._writing:
            self._outbox.put(parts)
        elif self._gathers and self._end > self._start and self._gather(parts):
            return
        else:
            self.progress_ms = self._loop.time() * 1000.0
            if not self._outbox and len(parts) == 1 and not isinstance(parts[0], FileSlice):
                self._send_at_once(parts[0])
            else:
                self._outbox.put(parts)
                self._send_queued()
        self._make_others_room()
        if self.sasl is not None and self.sasl.is_over and not self._outbox:
            self.close()

    def _gather(self, parts: Parts) -> bool:
        """Whether `parts` may wait for the answers to the requests behind theirs, which are here already."""
        if self.sasl is not None and self.sasl.is_over:
            return False
        left = GATHERED_BYTES - self._outbox.total_bytes
        for part in parts:
            if isinstance(part, FileSlice) or (left := left - len(part)) < 0:
                return False
        self._outbox.put(parts)
        return True

    def _send_gathered(self) -> None:
        self._gathers = False
        if self._outbox and not self._writing and not self.closed:
            self.progress_ms = self._loop.time() * 1000.0
            self._send_queued()
            self._make_others_room()

    def _send_at_once(self, part: bytes | bytearray) -> None:
        try:
            if not self._outbox.send_at_once(part):
                self._set_writing(True)
        except OSError:
            self.close()

    def _count_held(self) -> None:
        """Keeps the listener's sum of unsent answers in memory."""
        if not self.closed and self._outbox.held_bytes != self._counted_bytes:
            self._handler.unsent_bytes += self._outbox.held_bytes - self._counted_bytes
            self._counted_bytes = self._outbox.held_bytes

    def _make_others_room(self) -> None:
        self._count_held()
        if self._counted_bytes:
            self._handler.make_room()

    def _on_writable(self) -> None:
        self._send_queued()
        if not self.closed and not self._requests.hold_up and self._buffer is not None:
            self._handle_frames()

    def _send_queued(self) -> None:
        try:
            sent = self._outbox.send(SEND_TURN_BYTES)
        except EOFError as error:
            log.error("connection from %s closed: %s", self.host, error)
            self.close()
            return
        except OSError:
            self.close()
            return
        self._count_held()
        if sent:
            self.progress_ms = self._loop.time() * 1000.0
        self._set_writing(bool(self._outbox))

    # The event loop

    def _set_reading(self, wanted: bool) -> None:
        wanted = wanted and self._muted is None
        if wanted == self._reading:
            return
        self._reading = wanted
        if wanted:
            self._loop.add_reader(self._fd, self._on_readable)
            self._read_pending()
        else:
            self._loop.remove_reader(self._fd)

    def _set_writing(self, wanted: bool) -> None:
        if wanted == self._writing:
            return
        self._writing = wanted
        if wanted:
            self._loop.add_writer(self._fd, self._on_writable)
        else:
            self._loop.remove_writer(self._fd)

    # What has arrived

    @property
    def partial_bytes(self) -> int:
        """Bytes that have arrived and were not handled."""
        return self._end - self._start

    @property
    def held_bytes(self) -> int:
        """The memory that the unfinished frame takes: its buffer, or the bytes that have arrived of a small one."""
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
            limit = self.frame_limit  # A client that has not logged in has nothing to produce.
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
            # A validating thread may still read a kept frame, so its buffer must not be lent again.
            (self._pool.drop if self._is_kept else self._pool.give_back)(self._buffer)
            self._buffer = None
        self._start = self._end = self._awaited_end = 0
