"""The seam between a connection and what its frames mean.

Owns the shape alone; the listener implements it.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from tiered.server.kafka.transport.outbox import Parts

if TYPE_CHECKING:
    from tiered.rules.security.principal import Principal
    from tiered.server.kafka.transport.connection import Connection


class Waiting(ABC):
    """An answer that others bring about: no task waits for it, for a task costs more than most answers do."""

    __slots__ = ()

    @property
    @abstractmethod
    def patience_ms(self) -> float:
        """How long it may wait."""

    @abstractmethod
    def begin(self, wake: Callable[[], None]) -> None:
        """From now on `wake` is called, any number of times, when there may be an answer; it only sees to it that
        `answer` is asked for soon."""

    @abstractmethod
    def answer(self, *, is_last: bool) -> "Parts | Coroutine[Any, Any, Parts] | None":
        """The answer, or what still has to be done for it; None when there is none yet. `is_last` when its patience
        is over: then there is one. Raises TieredError when the connection must end."""

    @abstractmethod
    def cancel(self) -> None:
        """Nobody wants the answer any more; `wake` is not called again."""


class Overlapping(NamedTuple):
    """An answer that only waits for others: the connection's next requests may be handled meanwhile.

    Answers go out in the order of the requests all the same. For work whose effect on everybody else is over:
    Produce, once its batches are in the log, and OffsetCommit, once its offsets have their place among what is written.
    """

    work: Coroutine[Any, Any, Parts | None] | Waiting


Answer = Parts | Coroutine[Any, Any, Parts | Overlapping | None] | Waiting | Overlapping | None
"""An answer, a coroutine or a wait that gives it and holds up the connection's next requests, or None for no answer.

What the coroutine gives may be Overlapping: then it held them up for its first part alone.
"""


class Held(Enum):
    """No answer, and nothing was done: the frame is handed over once more."""

    BACK = "its client rests first; the connection is muted already"


Handled = Answer | Held


class FrameHandler(Protocol):
    """What a connection hands its frames to. Implemented by dispatch."""

    max_frame_bytes: int
    max_other_frame_bytes: int
    """The limit of every request but Produce, whose size alone follows from what is stored."""
    unfinished_bytes: int
    """What has arrived of unfinished requests in the smallest buffers; connections keep the count."""
    unsent_bytes: int
    """Bytes of answers in memory that clients have not taken; connections keep the count."""

    def handle(self, connection: "Connection", buffer: memoryview, position: int, end: int) -> Handled:
        """The answer, now or later; or Held.BACK.

        The coroutine must not touch `buffer`. Raises TieredError when the connection must end.
        """

    def run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Runs `work` as a task with an owner."""

    def closed(self, connection: "Connection") -> None:
        """`connection` is no more."""

    def identified(self, connection: "Connection", before: "Principal | None") -> None:
        """`connection` has said who it is, or has become somebody else."""

    def may_grow(self, size_bytes: int) -> bool:
        """Whether all connections together may hold `size_bytes` more in unfinished frames."""

    def make_room(self) -> None:
        """Ends connections that do not read, when all answers together take too much memory."""

    def complain(self, text: str, *arguments: object) -> None:
        """Logs why a connection ended, unless the log is full of such lines."""

    def complain_once(self, subject: tuple[object, ...], text: str, *arguments: object) -> None:
        """As `complain`, but of the same subject once a minute."""
