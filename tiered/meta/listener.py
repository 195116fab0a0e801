"""Word of changes as they are committed: PostgreSQL's NOTIFY, heard on a connection and a thread of its own.

Owns that connection: it is made again for ever, with a back-off, and a silent one is tried from time to time. Only
wakes: changes are read from the feed, and polling is the floor (rule 10), so that nothing depends on a notification
that was lost. SQLite has none; its listener never speaks.
"""

import logging
import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from tiered.errors import TieredError
from tiered.meta.cluster import CHANNEL
from tiered.meta.postgres_session import shut
from tiered.runtime import QuietFailures, jittered_backoff_ms

if TYPE_CHECKING:
    import psycopg

log = logging.getLogger(__name__)

QUIET_SECONDS = 5.0
"""After so long without a word the connection is tried: a dead one is as silent as one without changes."""
ANSWER_SECONDS = 5.0
FIRST_BACKOFF_MS = 20.0
MAX_BACKOFF_MS = 2_000.0


class Listener(Protocol):
    """Calls `on_change` after changes, from another thread, until it is closed."""

    def close(self) -> None:
        """Returns when `on_change` is not called any more."""


class SilentListener:
    """For a database that does not tell of changes: its users poll."""

    def close(self) -> None:
        pass


class PostgresListener:
    """Listens from its making on. `on_change` must be short, and raise nothing; several changes may be one call.

    It is also called whenever a connection was made: what came before it was not heard.
    """

    def __init__(self, connect: "Callable[[], psycopg.Connection[Any]]", on_change: Callable[[], None], *, name: str):
        self._connect = connect
        self._on_change = on_change
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._name = name
        self._failures = QuietFailures(
            log,
            "%(name)s does not tell of changes any more, so they are found by polling: %(error)s",
            "%(name)s tells of changes again",
        )
        self._thread = threading.Thread(target=self._work, name="meta-listen", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._cut()
        # A connection that is being made cannot be cut; its thread ends by itself, and says nothing any more.
        self._thread.join(ANSWER_SECONDS)

    def _work(self) -> None:
        import psycopg

        attempt = 0
        while not self._closing.is_set():
            try:
                with self._connect() as conn, self._cuttable(conn):
                    with self._soon():
                        conn.execute(f"LISTEN {CHANNEL}")
                    attempt = 0
                    self._failures.worked(self._name)
                    self._hear(conn)
            except (psycopg.Error, OSError, TieredError) as error:
                if not self._closing.is_set():
                    self._failures.failed(" ".join(str(error).split()), self._name)
            self._closing.wait(jittered_backoff_ms(attempt, first_ms=FIRST_BACKOFF_MS, max_ms=MAX_BACKOFF_MS) / 1000.0)
            attempt += 1

    def _hear(self, conn: "psycopg.Connection[Any]") -> None:
        self._on_change()
        # By the system: the driver's own wait wakes ten times a second, and takes the interpreter each time.
        word = select.poll()
        word.register(conn.fileno(), select.POLLIN)
        while not self._closing.is_set():
            if list(conn.notifies(timeout=0, stop_after=1)):
                if not self._closing.is_set():
                    self._on_change()
            elif not word.poll(1000.0 * QUIET_SECONDS):
                with self._soon():
                    conn.execute("SELECT 1")

    @contextmanager
    def _cuttable(self, conn: "psycopg.Connection[Any]") -> Iterator[None]:
        """Within, `_cut` ends whatever the connection waits for."""
        # A copy of the descriptor: the connection closes its own whenever it likes.
        with socket.fromfd(conn.fileno(), socket.AF_UNIX, socket.SOCK_STREAM) as copy:
            with self._lock:
                self._socket = copy
            try:
                yield
            finally:
                with self._lock:
                    self._socket = None

    @contextmanager
    def _soon(self) -> Iterator[None]:
        """Within, an answer must come soon: a server that hangs keeps its connections open."""
        timer = threading.Timer(ANSWER_SECONDS, self._cut)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _cut(self) -> None:
        with self._lock:
            if self._socket is not None:
                shut(self._socket)
