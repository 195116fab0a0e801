"""Statements as SQL text, shared by all engines of this process.

Owns one cache in place of SQLAlchemy's one for each engine: to compile what a start asks takes longer than the rest of
the start, and programs that begin many brokers, as tests do, compile it once. Must never hold what differs between
databases of one kind: dialects that say the same of themselves compile the same.
"""

from collections.abc import Iterator, MutableMapping
from typing import Any

from sqlalchemy.engine import Dialect
from sqlalchemy.util import LRUCache

MAX_STATEMENTS = 1_000


class CompiledStatements(MutableMapping[tuple[Any, ...], Any]):
    """By SQLAlchemy's key of a statement, what it compiled. For many threads."""

    def __init__(self) -> None:
        self._found: LRUCache[tuple[Any, ...], Any] = LRUCache(MAX_STATEMENTS)

    def __getitem__(self, key: tuple[Any, ...]) -> Any:
        return self._found[_for_all(key)]

    def __setitem__(self, key: tuple[Any, ...], compiled: Any) -> None:
        self._found[_for_all(key)] = compiled

    def __delitem__(self, key: tuple[Any, ...]) -> None:
        del self._found[_for_all(key)]

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


def _for_all(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """The key without the one dialect that it begins with."""
    dialect: Dialect = key[0]
    return (dialect.name, dialect.driver, dialect.server_version_info, *key[1:])


SHARED = CompiledStatements()
