"""The listening sockets and the connections that came through them.

Owns the set of connections, their number and their deadlines, and the tasks that answer requests: all listeners of a
broker share them. Log lines about clients are within a budget. Must never know what a request means.
"""

import asyncio
import logging
import os
import socket
import struct
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tiered import open_files
from tiered.broker.security.authentication import Login
from tiered.config import BrokerSettings
from tiered.config.listeners import ListenerOptions
from tiered.metrics import CountersState
from tiered.rules.security.principal import Principal
from tiered.rules.security.quotas import QuotaKey
from tiered.runtime import Clock, every
from tiered.server.addresses import address_of, bound_socket
from tiered.server.kafka.transport.admission import Admission, RateOf
from tiered.server.kafka.transport.buffers import BufferPool, LargeReads
from tiered.server.kafka.transport.connection import HARMLESS_BYTES, Connection
from tiered.server.kafka.transport.requests import Answer, CarriedOut
from tiered.server.kafka.transport.sasl_session import SaslSession
from tiered.server.kafka.transport.tls_door import TlsDoor, watched
from tiered.server.kafka.transport.tls_stream import TlsStream
from tiered.server.kafka.transport.turns import Turns

log = logging.getLogger(__name__)

BACKLOG = 4096
ACCEPTS_A_TURN = 16
"""About a millisecond. More would be accepted no sooner, and all others would wait for them."""
# What the kernel takes of answers to a client that is so near at its handshake, or less where `net.core.wmem_max` says
# so: enough for 1 GB/s over 0.2 ms. By itself it takes 4 MiB, and BBR paces what is beyond this with a timer for each
# packet, which is half of the CPU of sending. With 100 KiB followers cost more turns of the loop than that saves.
NEAR_US = 200
NEAR_SEND_BUFFER_BYTES = 200 << 10
# Large requests over slow lines get this much more time: 16 bytes a millisecond.
SLOWEST_REQUEST_BYTES_A_MS = 16
SWEEP_INTERVAL_MS = 5_000
ACCEPT_PAUSE_S = 0.2
# Sockets that are held, of addresses over their quota; more are closed at once.
MAX_RESTING = 1_000
# Answers in memory that nobody reads, of all connections together; beyond it the slowest readers go.
MAX_UNSENT_BYTES = 256 << 20
# A reader that has taken nothing for this long is the first to go when memory is short.
STALLED_MS = 2_000
# Connections are looked through for slow requests so often at the most.
LOOK_PAUSE_MS = 50.0
# Lines about clients in the log: as many as a person can read.
LINES_A_PERIOD = 20
PERIOD_MS = 10_000
ONCE_MS = 60_000
MAX_SUBJECTS = 1_000

_round_trip_us_at = struct.Struct("=68xI").unpack
"""Where it is in Linux's `struct tcp_info`; at first that of the handshake."""


class _Complaints:
    """Warnings about clients, at most `LINES_A_PERIOD` in `PERIOD_MS`: a client that sends rubbish all day must not
    fill the disk with warnings."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since_ms = clock.monotonic_ms()
        self._written = 0
        self._left_out = 0
        self._told: dict[tuple[object, ...], tuple[float, int]] = {}
        """When a subject was logged last, and how often it came since."""

    def once(self, subject: tuple[object, ...], text: str, *arguments: object) -> None:
        """As `add`, unless it was logged about the same subject in the last minute; then it is counted for the next
        line."""
        now_ms = self._clock.monotonic_ms()
        told_ms, since = self._told.pop(subject, (None, 0))
        if told_ms is None or now_ms - told_ms >= ONCE_MS:
            self.add(text + (f" ({since} times more since the last such line)" if since else ""), *arguments)
            told_ms, since = now_ms, -1
        self._told[subject] = (told_ms, since + 1)
        if len(self._told) > MAX_SUBJECTS:
            del self._told[next(iter(self._told))]

    def add(self, text: str, *arguments: object) -> None:
        """Logs a warning, or counts it when there were many."""
        self.sum_up()
        if self._written < LINES_A_PERIOD:
            self._written += 1
            log.warning(text, *arguments)
        else:
            self._left_out += 1

    def sum_up(self) -> None:
        """Begins a new period when the last is over, and says how many lines it left out."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._since_ms < PERIOD_MS:
            return
        if self._left_out:
            log.warning("%d more connections were closed or refused; their lines were left out", self._left_out)
        self._since_ms, self._written, self._left_out = now_ms, 0, 0


@dataclass(frozen=True, slots=True, eq=False)
class _Bound:
    """One listener's socket; with TLS also what every connection passes through first."""

    options: ListenerOptions
    socket: socket.socket
    tls: TlsDoor | None


class KafkaListener:
    """Accepts and serves connections between `start` and `stop`, on every address that was bound before."""

    def __init__(
        self,
        handle: Callable[[Connection, memoryview, int, int], Answer | CarriedOut],
        turns: Turns,
        *,
        clock: Clock,
        counters: CountersState,
        settings: Callable[[], BrokerSettings],
        rate_of: RateOf = lambda _: None,
        log_count: Callable[[], int] = lambda: 0,
    ) -> None:
        """`handle` knows what frames mean, `turns` whose come next: see `FrameHandler`. Raises this process's limit of
        open files; each of `log_count` logs has one of them."""
        self.max_frame_bytes = settings().limits.socket_request_max_bytes
        self.max_other_frame_bytes = min(settings().limits.tiered_request_max_bytes, self.max_frame_bytes)
        self.unsent_bytes = 0
        self.unfinished_bytes = 0
        self.large_reads = LargeReads()
        self.turns = turns
        most = open_files.raise_limit()
        self._admission = Admission(
            clock=clock,
            settings=settings,
            most_descriptors=lambda: open_files.for_connections(most, log_count()),
            rate_of=rate_of,
        )
        self._spare: int | None = None
        """A descriptor that is given up for a client that has to be refused because there is no other."""
        self._handle = handle
        self._clock = clock
        self._counters = counters
        self._settings = settings
        self._complaints = _Complaints(clock)
        self._pool = BufferPool()
        self._connections: set[Connection] = set()
        self._bound: list[_Bound] = []
        self._handshakes = 0
        """Sockets that were accepted and are no connections yet; they count as such."""
        self._next_look_ms = 0.0
        self._resting: set[socket.socket] = set()
        """Those of addresses that open too many too fast: held for a while, unserved, then closed."""
        self._tasks: asyncio.TaskGroup | None = None
        self._outliving: set[asyncio.Task[None]] = set()
        """The tasks of requests that are carried out also when their clients have gone."""
        self._watcher: asyncio.Task[None] | None = None

    def bind(self, options: ListenerOptions) -> tuple[str, int]:
        """Binds and returns the address. Raises OSError when it is taken or not ours, and InvalidConfig."""
        tls = TlsDoor(options) if options.protocol.uses_tls else None
        sock = bound_socket(options.host, options.port)
        self._bound.append(_Bound(options, sock, tls))
        return address_of(sock)

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Begins to accept. Requests that must wait run as tasks of `tasks`."""
        self._tasks = tasks
        self._take_spare()
        for bound in self._bound:
            bound.socket.listen(BACKLOG)
            asyncio.get_running_loop().add_reader(bound.socket.fileno(), self._accept, bound)
        settings = self._settings()
        shortest_ms = min(
            settings.limits.tiered_request_receive_timeout_ms,
            settings.limits.connections_max_idle_ms,
            settings.authentication.tiered_authentication_timeout_ms,
        )
        interval_ms = min(SWEEP_INTERVAL_MS, max(50, shortest_ms // 4))
        self._sweeper = tasks.create_task(every(interval_ms, self._sweep, name="connection deadlines"))
        doors = [bound.tls for bound in self._bound if bound.tls is not None]
        self._watcher = tasks.create_task(watched(doors)) if doors else None

    async def stop(self, *, grace_ms: float) -> None:
        """Accepts no more; connections that are answering have `grace_ms` to finish, then all end."""
        loop = asyncio.get_running_loop()
        self._close_doors()
        deadline = loop.time() + grace_ms / 1000.0
        while self._connections and loop.time() < deadline:
            for connection in list(self._connections):
                if not connection.busy:
                    connection.close()  # At once: an answered client would only ask again.
            await asyncio.sleep(0.01)
        for connection in list(self._connections):
            connection.close()
        self._end_outliving()
        self._sweeper.cancel()

    def abandon(self) -> None:
        """Accepts no more and resets every connection: what clients see when the process dies."""
        self._close_doors()
        for connection in list(self._connections):
            connection.reset()
        self._end_outliving()

    def _end_outliving(self) -> None:
        for task in list(self._outliving):
            task.cancel()

    def _close_doors(self) -> None:
        loop = asyncio.get_running_loop()
        for sock in list(self._resting):
            self._end_rest(sock)
        for bound in self._bound:
            if bound.socket.fileno() >= 0:
                loop.remove_reader(bound.socket.fileno())
                bound.socket.close()
            if bound.tls is not None:
                bound.tls.stop()
        if self._watcher is not None:
            self._watcher.cancel()
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None

    def let_go(self) -> None:
        """Keeps no buffers for the next requests."""
        self._pool.clear()

    # connection.FrameHandler

    def handle(self, connection: Connection, buffer: memoryview, position: int, end: int) -> Answer | CarriedOut:
        if connection.sasl is not None:
            # Here, so that no table of APIs can forget it.
            connection.sasl.check(int.from_bytes(buffer[position : min(end, position + 2)], "big", signed=True))
        return self._handle(connection, buffer, position, end)

    def run(self, work: Coroutine[Any, Any, None], *, outlives_client: bool = False) -> asyncio.Task[None]:
        assert self._tasks is not None
        task = self._tasks.create_task(work)
        if outlives_client:
            self._outliving.add(task)
            task.add_done_callback(self._outliving.discard)
        return task

    def closed(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._admission.identify(connection.principal, None)
        self._left(connection.host)

    def identified(self, connection: Connection, before: Principal | None) -> None:
        if not self._admission.identify(before, connection.principal):
            self._counters.connections_refused += 1
            self.complain(
                "connection of %s from %s closed: tiered.max.connections.per.user allows no more",
                connection.principal,
                connection.host,
            )
            connection.close()

    def _left(self, host: str) -> None:
        self._admission.leave(host)
        self._counters.connections_open = self._open

    @property
    def _open(self) -> int:
        return len(self._connections) + self._handshakes + len(self._resting)

    def may_grow(self, size_bytes: int) -> bool:
        limit = self._settings().limits.queued_max_request_bytes
        if limit < 0 or self._pool.lent_bytes + self.unfinished_bytes + size_bytes <= limit:
            return True
        self._end_unfinished(self._pool.lent_bytes + self.unfinished_bytes + size_bytes - limit + limit // 10)
        return self._pool.lent_bytes + self.unfinished_bytes + size_bytes <= limit

    def _end_unfinished(self, wanted_bytes: int) -> None:
        """Ends those whose requests have been on their way for longest, until so much is free: an honest one of any
        size that just begins must not wait for hostile ones."""
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._next_look_ms:
            return
        self._next_look_ms = now_ms + LOOK_PAUSE_MS
        late = [
            (each.partial_since_ms, number, each)
            for number, each in enumerate(self._connections)
            if each.partial_since_ms is not None
            and now_ms - each.partial_since_ms > STALLED_MS
            and not each.handling
            and each.held_bytes > HARMLESS_BYTES
        ]
        for _, _, connection in sorted(late):
            if wanted_bytes <= 0:
                return
            wanted_bytes -= connection.held_bytes
            self.complain("connection from %s closed: its request is slow, and others need the memory", connection.host)
            connection.close()

    def make_room(self) -> None:
        if self.unsent_bytes <= MAX_UNSENT_BYTES:
            return
        now_ms = self._clock.monotonic_ms()
        for connection in sorted(self._connections, key=lambda each: each.progress_ms):
            if self.unsent_bytes <= MAX_UNSENT_BYTES or now_ms - connection.progress_ms < STALLED_MS:
                return
            if connection.unsent_bytes:
                self.complain("connection from %s closed: it does not read its answers", connection.host)
                connection.close()

    def end_logins(self, is_revoked: Callable[[Login], bool]) -> None:
        """Ends the connections whose login was proved by what does not hold any more."""
        for connection in list(self._connections):
            session = connection.sasl
            if session is not None and session.login is not None and is_revoked(session.login):
                session.revoke()

    def complain(self, text: str, *arguments: object) -> None:
        self._complaints.add(text, *arguments)

    def complain_once(self, subject: tuple[object, ...], text: str, *arguments: object) -> None:
        self._complaints.once(subject, text, *arguments)

    # Accepting

    def _accept(self, bound: _Bound) -> None:
        for _ in range(ACCEPTS_A_TURN):
            rest_ms = self._admission.rest_ms()
            if rest_ms > 0.0:
                self._pause_accepting(bound, rest_ms / 1000.0)
                return
            try:
                sock, address = bound.socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno in open_files.OUT_OF_FILES and self._refuse_next(bound):
                    return
                self.complain_once(("accept",), "cannot accept connections: %s; trying again", error.strerror)
                self._pause_accepting(bound)
                return
            self._admit(bound, sock, address[0], address[1])

    def _refuse_next(self, bound: _Bound) -> bool:
        """Refuses the client that comes next, in the place of the spare descriptor: a client that waits to be accepted
        would not look for another broker. False where not even that can be done."""
        if self._spare is None:
            self._take_spare()
        if self._spare is None:
            return False
        os.close(self._spare)
        self._spare = None
        try:
            sock, address = bound.socket.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            self._take_spare()  # Nobody waits: the kernel looks for a descriptor first.
            return True
        except OSError:
            return False
        sock.close()
        self._take_spare()
        self._counters.connections_refused += 1
        self.complain_once(("files",), "%s", open_files.out_of_files(f"connection from {address[0]} refused"))
        return True

    def _take_spare(self) -> None:
        with suppress(OSError):
            self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def _pause_accepting(self, bound: _Bound, pause_s: float = ACCEPT_PAUSE_S) -> None:
        """The socket stays readable while nobody can be accepted: without a pause the loop would spin."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(bound.socket.fileno())
        loop.call_later(pause_s, self._resume_accepting, bound)

    def _resume_accepting(self, bound: _Bound) -> None:
        if bound.socket.fileno() >= 0:
            asyncio.get_running_loop().add_reader(bound.socket.fileno(), self._accept, bound)

    def _admit(self, bound: _Bound, sock: socket.socket, host: str, port: int) -> None:
        is_open = self._open
        why = self._admission.refusal(host, is_open)
        if why is not None:
            self._counters.connections_refused += 1
            self.complain("connection from %s refused: %d are open, and %s", host, is_open, why)
            sock.close()
            return
        rest_ms = self._admission.accepted(host)
        if rest_ms > 0.0:
            self._rest(sock, host, rest_ms)
            return
        bound_send_buffer(sock)
        self._admission.enter(host)
        self._counters.connections_opened += 1
        self._counters.connections_open = is_open + 1
        if bound.tls is None:
            self._connect(bound, sock, host)
            return
        self._handshakes += 1
        sock.setblocking(False)
        bound.tls.begin(
            sock,
            self.run,
            lambda stream, principal: self._secured(bound, stream, host, principal),
            lambda why: self._not_secured(bound, host, port, why),
        )

    def _rest(self, sock: socket.socket, host: str, rest_ms: float) -> None:
        """Holds the socket for so long, or the client would come again at once; then closes it."""
        quota = str(QuotaKey.CONNECTION_CREATION_RATE)
        self._counters.throttles[quota] += 1
        self._counters.throttled_ms[quota] += rest_ms
        self._counters.connections_refused += 1
        self.complain("connection from %s refused: its address opens more than connection_creation_rate", host)
        if len(self._resting) >= MAX_RESTING:
            sock.close()
            return
        self._resting.add(sock)
        asyncio.get_running_loop().call_later(rest_ms / 1000.0, self._end_rest, sock)

    def _end_rest(self, sock: socket.socket) -> None:
        self._resting.discard(sock)
        sock.close()

    def _secured(self, bound: _Bound, stream: TlsStream, host: str, principal: Principal) -> None:
        self._handshakes -= 1
        connection = self._connect(bound, stream, host)
        if connection is not None and not bound.options.protocol.uses_sasl:
            connection.principal = principal

    def _not_secured(self, bound: _Bound, host: str, port: int, why: str | None) -> None:
        self._handshakes -= 1
        self._left(host)
        if why is not None:
            # A client that does not trust the broker tries again each second, for as long as it runs.
            name = bound.options.name
            text = "connection from %s (port %d) to listener %s closed: %s"
            self.complain_once(("TLS", host, name, why), text, host, port, name, why)

    def _connect(self, bound: _Bound, sock: socket.socket | TlsStream, host: str) -> Connection | None:
        """The connection, which counts already; None for a client that has gone again."""
        try:
            connection = Connection(sock, self, self._pool, host, self._clock.monotonic_ms(), bound.options)
        except OSError:
            sock.close()
            self._left(host)
            return None
        self._connections.add(connection)
        if connection.listener.protocol.uses_sasl:
            connection.sasl = SaslSession(connection, self._settings())
        return connection

    async def _sweep(self) -> None:
        """Ends connections that idle too long, or whose unfinished request or unread answer stands still."""
        now_ms = self._clock.monotonic_ms()
        idle_ms = self._settings().limits.connections_max_idle_ms
        receive_ms = self._settings().limits.tiered_request_receive_timeout_ms
        for connection in list(self._connections):
            if connection.sasl is not None and now_ms > connection.sasl.deadline_s * 1000.0:
                self.complain("connection from %s closed: it did not log in in time", connection.host)
                connection.close()
                continue
            if connection.is_muted:
                continue
            since_ms = connection.partial_since_ms
            if since_ms is not None and not connection.busy:
                allowed_ms = receive_ms + connection.partial_bytes / SLOWEST_REQUEST_BYTES_A_MS
                if now_ms - since_ms > allowed_ms:
                    self.complain("connection from %s closed: its request did not arrive in full", connection.host)
                    connection.close()
                    continue
            if connection.unsent_bytes:
                # Bytes that come in do not excuse answers that nobody takes.
                if now_ms - connection.progress_ms > idle_ms:
                    self.complain("connection from %s closed: it does not read its answers", connection.host)
                    connection.close()
            elif not connection.handling and now_ms - max(connection.last_active_ms, connection.progress_ms) > idle_ms:
                connection.close()
        self._complaints.sum_up()


def bound_send_buffer(sock: socket.socket) -> None:
    """Bounds what waits in the kernel for a client that is near; one that is far needs more on its way."""
    (round_trip_us,) = _round_trip_us_at(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 72))
    if 0 < round_trip_us < NEAR_US:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, NEAR_SEND_BUFFER_BYTES)
