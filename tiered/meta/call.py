"""One call to the database: where it stands, and what ends it when its time is over.

Owns the race between a call's thread and its deadline, so that an expired call either was not committed
or is known to have been on its way. Must never know SQL.
"""

import threading
from collections.abc import Callable
from enum import Enum, auto
from typing import Generic, TypeVar

from sqlalchemy import Connection

T = TypeVar("T")


class DeadlinePassed(Exception):
    """Raised on the call's own thread, instead of a COMMIT that nobody waits for any more."""


class _Phase(Enum):
    WAITING = auto()
    RUNNING = auto()
    COMMITTING = auto()


class Call(Generic[T]):
    """A function to run in one transaction, and its phase. Shared by the thread that runs it and the deadline."""

    def __init__(self, fn: Callable[[Connection], T], *, snapshot: bool = False, is_list: bool = False) -> None:
        self.fn = fn
        self.snapshot = snapshot
        self.is_list = is_list
        self.worked_ms = 0.0
        """So long the database, or what waits for it, was at work on it; its waits for a turn do not count."""
        self._lock = threading.Lock()
        self._phase = _Phase.WAITING
        self._expired = False
        self._cut: Callable[[], None] | None = None

    @property
    def expired(self) -> bool:
        return self._expired

    @property
    def committing(self) -> bool:
        """True from the moment at which COMMIT may have been sent."""
        return self._phase is _Phase.COMMITTING

    def begin(self) -> None:
        """A try starts. Raises `DeadlinePassed` when the deadline was first."""
        with self._lock:
            self._check()
            self._phase = _Phase.RUNNING

    def attach(self, cut: Callable[[], None]) -> None:
        """From now on the deadline ends the call's connection with `cut`."""
        with self._lock:
            self._check()
            self._cut = cut

    def detach(self) -> None:
        """The connection goes back to the pool: the deadline must leave it alone."""
        with self._lock:
            self._cut = None

    def begin_commit(self) -> None:
        """COMMIT comes next. Raises `DeadlinePassed` when the deadline was first, so that it is never sent."""
        with self._lock:
            self._check()
            self._phase = _Phase.COMMITTING

    def expire(self) -> bool:
        """Ends the call wherever it stands. True when it may have been committed nevertheless."""
        with self._lock:
            self._expired = True
            if self._cut is not None:
                self._cut()
            return self.committing

    def _check(self) -> None:
        if self._expired:
            raise DeadlinePassed
