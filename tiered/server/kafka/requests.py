"""The requests of one connection that are in progress, and the order in which their answers go out.

Owns the tasks that make answers. At most one of them holds up the requests behind it; others only wait, beside it and
beside each other. Must never send an answer before those of earlier requests.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from tiered.errors import TieredError
from tiered.file_slice import FileSlice
from tiered.server.kafka.frame_handler import Answer, FrameHandler, Overlapping
from tiered.server.kafka.outbox import Parts

if TYPE_CHECKING:
    from tiered.server.kafka.connection import Connection

log = logging.getLogger(__name__)

# Answers of one connection that wait for others; with so many, or so large ones, no further request is begun.
MAX_OVERLAPPING = 128
MAX_WAITING_BYTES = 1 << 20
UNFORESEEN = "connection from %s closed: a request failed in an unforeseen way"


class _Turn:
    """The place of one answer among those that wait."""

    __slots__ = ("held_bytes", "is_known", "parts", "task")

    def __init__(self) -> None:
        self.is_known = False
        self.parts: Parts | None = None
        self.held_bytes = 0
        """Of the answer, in memory."""
        self.task: asyncio.Task[None] | None = None


class Requests:
    """In progress on one connection."""

    __slots__ = ("_connection", "_handler", "_task", "_waiting_bytes", "hold_up", "waiting")

    def __init__(self, connection: "Connection", handler: FrameHandler) -> None:
        self._connection = connection
        self._handler = handler
        self._task: asyncio.Task[None] | None = None
        """That of the one request which holds up those behind it."""
        self.hold_up = False
        """No further request may be begun."""
        self.waiting: deque[_Turn] = deque()
        """Answers in the order of their requests, from the first one that is not known yet."""
        self._waiting_bytes = 0

    @property
    def any(self) -> bool:
        return self.hold_up or bool(self.waiting)

    def cancel(self) -> None:
        """The connection has ended: nobody wants the answers any more."""
        for task in [self._task, *(turn.task for turn in self.waiting)]:
            if task is not None:
                task.cancel()

    def take(self, answer: Answer) -> None:
        """Sees to it that the answer is sent in its turn; None takes none."""
        if isinstance(answer, list):
            self._send(answer)
            self.hold_up = self._is_full()
        elif isinstance(answer, Overlapping):
            self._overlap(answer.work)
            self.hold_up = self._is_full()
        elif answer is not None:
            self.hold_up = True
            self._task = self._run(self._answer_next(answer), answer)

    def _is_full(self) -> bool:
        return len(self.waiting) >= MAX_OVERLAPPING or self._waiting_bytes >= MAX_WAITING_BYTES

    def _overlap(self, work: Coroutine[Any, Any, Parts | None]) -> None:
        turn = _Turn()
        self.waiting.append(turn)
        turn.task = self._run(self._answer_in_turn(turn, work), work)

    def _run(self, work: Coroutine[Any, Any, None], inner: Coroutine[Any, Any, object]) -> asyncio.Task[None]:
        task = self._handler.run(work)
        # The task may be cancelled before its first step: then nobody has awaited the work, which would complain.
        task.add_done_callback(lambda _: inner.close())
        return task

    def _send(self, parts: Parts) -> None:
        """Sends an answer after those of earlier requests."""
        if self.waiting:
            turn = _Turn()
            self.waiting.append(turn)
            self._learn(turn, parts)
        else:
            self._connection.send(parts)

    def _learn(self, turn: _Turn, parts: Parts | None) -> None:
        turn.is_known, turn.parts = True, parts
        turn.held_bytes = sum(len(part) for part in parts or () if not isinstance(part, FileSlice))
        self._waiting_bytes += turn.held_bytes

    async def _answer_next(self, work: Coroutine[Any, Any, Parts | Overlapping | None]) -> None:
        answer: Parts | Overlapping | None = None
        is_made = False
        try:
            answer = await work
            is_made = True
        except TieredError as error:
            self._handler.complain("connection from %s closed: %s", self._connection.host, error)
        except Exception:
            # A connection's boundary: whatever a request raises ends its own connection and no other.
            log.exception(UNFORESEEN, self._connection.host)
        finally:
            self._task = None  # From here on `cancel` has nobody to cancel here.
            if not is_made:
                self._connection.close()
        if self._connection.closed:
            if isinstance(answer, Overlapping):
                answer.work.close()
            return
        if isinstance(answer, Overlapping):
            self._overlap(answer.work)
        elif answer is not None:
            self._send(answer)
        self._go_on()

    async def _answer_in_turn(self, turn: _Turn, work: Coroutine[Any, Any, Parts | None]) -> None:
        try:
            self._learn(turn, await work)
        except TieredError as error:
            self._handler.complain("connection from %s closed: %s", self._connection.host, error)
        except Exception:
            # A connection's boundary: whatever a request raises ends its own connection and no other.
            log.exception(UNFORESEEN, self._connection.host)
        finally:
            turn.task = None
            if not turn.is_known:
                self._connection.close()
        if self._connection.closed:
            return
        while self.waiting and self.waiting[0].is_known:
            sent = self.waiting.popleft()
            self._waiting_bytes -= sent.held_bytes
            if sent.parts is not None:
                self._connection.send(sent.parts)
        if self.hold_up and self._task is None:
            self._go_on()

    def _go_on(self) -> None:
        self.hold_up = self._is_full()
        if not self.hold_up:
            self._connection.resume()
