"""One SQLite metadata store for several brokers of one process, which elsewhere need PostgreSQL.

Owns the one connection that they take turns at, and the word of each other's changes that PostgreSQL's NOTIFY is
elsewhere. Must never be used by brokers of several processes: SQLite would lose what two writers do at once.
"""

import threading
from collections.abc import Callable
from typing import Self, TypeVar

from sqlalchemy import Connection, Engine

from tiered.meta.engine import DEFAULT_DEADLINE_MS, Database, OneTurn
from tiered.meta.listener import Listener

T = TypeVar("T")


class _Company:
    """The sharers of a metadata store: their one turn, and the listeners for changes."""

    def __init__(self) -> None:
        self.turns = OneTurn()
        self.telling = threading.Lock()
        self.told: dict[_Listening, Callable[[], None]] = {}

    def tell(self) -> None:
        with self.telling:
            for on_change in self.told.values():
                on_change()


class _Listening:
    def __init__(self, company: _Company, on_change: Callable[[], None]) -> None:
        self._company = company
        with company.telling:
            company.told[self] = on_change

    def close(self) -> None:
        with self._company.telling:
            self._company.told.pop(self, None)


class SharedDatabase(Database):
    """A `Database` on one SQLite file; `beside()` makes another one for another broker's event loop."""

    def __init__(
        self, engine: Engine, *, deadline_ms: int = DEFAULT_DEADLINE_MS, company: _Company | None = None
    ) -> None:
        super().__init__(engine, deadline_ms=deadline_ms)
        self._company = company or _Company()
        self._turns = self._company.turns
        self._listening: list[_Listening] = []

    @classmethod
    def of(cls, url: str) -> "SharedDatabase":
        """The first of them. Raises InvalidConfig."""
        opened = cls.open(url)
        assert isinstance(opened, cls)
        return opened

    def beside(self) -> Self:
        """The same metadata store, with threads of its own. Each is closed by itself."""
        return type(self)(self._engine, deadline_ms=self._deadline_ms, company=self._company)

    async def run(self, fn: Callable[[Connection], T], *, deadline_ms: int | None = None, ahead: bool = False) -> T:
        value = await super().run(fn, deadline_ms=deadline_ms, ahead=ahead)
        if not ahead:  # Heartbeats come all the time, and say themselves what they saw of changes.
            self._company.tell()
        return value

    def listen(self, on_change: Callable[[], None]) -> Listener:
        listening = _Listening(self._company, on_change)
        self._listening.append(listening)
        return listening

    def close_sync(self) -> None:
        for each in self._listening:
            each.close()
        super().close_sync()
