"""A connection to the catalogue's SQLite that does for a statement only what differs from its last time.

Owns the way from a statement of `tiered.meta` to SQLite and back. SQLAlchemy compiles each kind of statement once, says
where its parameters go and how columns become values; from then on the text is run on the driver. What is out of the
ordinary goes all the way through SQLAlchemy. Must never change what is asked.
"""

import sqlite3
from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, Uuid
from sqlalchemy.sql.compiler import SQLCompiler

_MANY = 65_536


class Result:
    """Of `sqlalchemy.CursorResult` what the product uses, with all rows read."""

    __slots__ = ("_names", "_row", "_rows", "rowcount")

    def __init__(self, rows: list[tuple[Any, ...]], row: Any, names: Sequence[str], rowcount: int) -> None:
        self._rows, self._row, self._names, self.rowcount = rows, row, names, rowcount

    def __iter__(self) -> Iterator[Any]:
        return iter(self.all())

    def all(self) -> list[Any]:
        make = self._row._make
        return [make(row) for row in self._rows]

    def first(self) -> Any:
        return self._row._make(self._rows[0]) if self._rows else None

    def one(self) -> Any:
        (row,) = self._rows
        return self._row._make(row)

    def one_or_none(self) -> Any:
        return self.one() if self._rows else None

    def scalar(self) -> Any:
        return self._rows[0][0] if self._rows else None

    def scalar_one(self) -> Any:
        return self.one()[0]

    def scalar_one_or_none(self) -> Any:
        return self.one()[0] if self._rows else None

    def scalars(self) -> "Values":
        return Values([row[0] for row in self._rows])

    def mappings(self) -> "Values":
        names = self._names
        return Values([dict(zip(names, row, strict=True)) for row in self._rows])


class Values:
    """Of `ScalarResult` and `MappingResult` the same."""

    __slots__ = ("_values",)

    def __init__(self, values: list[Any]) -> None:
        self._values = values

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def all(self) -> list[Any]:
        return self._values

    def first(self) -> Any:
        return self._values[0] if self._values else None

    def one(self) -> Any:
        (value,) = self._values
        return value

    def one_or_none(self) -> Any:
        return self.one() if self._values else None


Take = tuple[str, int | None, Any, Callable[[Any], Any] | None]
"""A parameter: its name, its place among those that the statement brings along, its value if it is not one of them, and
how SQLite wants it."""


def _processor_of(compiled: SQLCompiler, name: str) -> Callable[[Any], Any] | None:
    found = compiled._bind_processors.get(name)
    assert not isinstance(found, Sequence), "such a statement is not ordinary"
    return found


class _Known:
    """One kind of statement."""

    __slots__ = ("_compiled", "_expanded", "_lists", "names", "processors", "row", "takes", "text")

    def __init__(self, conn: Connection, compiled: SQLCompiler) -> None:
        dialect = conn.dialect
        self.text = compiled.string
        self.names = tuple(column.keyname for column in compiled._result_columns)
        self.row = _row_type(self.names)
        found = [column.type._cached_result_processor(dialect, None) for column in compiled._result_columns]
        self.processors = [
            (place, lru_cache(_MANY)(each) if isinstance(column.type, Uuid) else each)
            for place, (column, each) in enumerate(zip(compiled._result_columns, found, strict=True))
            if each is not None
        ]
        brought: dict[Any, int] = {}
        if compiled.cache_key is not None and compiled._cache_key_bind_match is not None:
            same = compiled._cache_key_bind_match[0]
            brought = {each: place for place, bind in enumerate(compiled.cache_key[1]) for each in same[bind]}
        binds = {name: bind for bind, name in compiled.bind_names.items()}
        self._compiled = compiled
        self._lists = {compiled.bind_names[bind] for bind in compiled.post_compile_params}
        self._expanded: dict[tuple[int, ...], tuple[str, list[tuple[str, int | None]]]] = {}
        self.takes: dict[str, Take] = {
            name: (
                binds[name].key,
                brought.get(binds[name]),
                binds[name].value,
                _processor_of(compiled, name),
            )
            for name in compiled.positiontup or ()
        }

    @staticmethod
    def is_ordinary(compiled: Any) -> bool:
        return (
            isinstance(compiled, SQLCompiler)
            and not compiled.isplaintext
            and not compiled._ad_hoc_textual
            and not compiled.literal_execute_params
            and not any(isinstance(compiled._bind_processors.get(name), tuple) for name in compiled.bind_names.values())
            and not compiled.insert_prefetch
            and not compiled.update_prefetch
            and not any(bind.callable for bind in compiled.bind_names)
        )

    def asked(self, brought: Sequence[Any], given: Mapping[str, Any]) -> tuple[str, list[Any]]:
        """The text, and its parameters in their order."""
        if self._lists:
            return self._asked_with_lists(brought, given)
        values = []
        for key, place, usual, process in self.takes.values():
            if key in given:
                value = given[key]
            else:
                value = usual if place is None else brought[place].value
            values.append(value if process is None else process(value))
        return self.text, values

    def _asked_with_lists(self, brought: Sequence[Any], given: Mapping[str, Any]) -> tuple[str, list[Any]]:
        values = {}
        for name, (key, place, usual, process) in self.takes.items():
            if key in given:
                value = given[key]
            else:
                value = usual if place is None else brought[place].value
            if process is None:
                values[name] = value
            else:
                values[name] = [process(each) for each in value] if name in self._lists else process(value)
        lengths = tuple(len(values[name]) for name in self.takes if name in self._lists)
        if lengths not in self._expanded:
            self._expanded[lengths] = self._expand(values)
        text, order = self._expanded[lengths]
        return text, [values[name] if at is None else values[name][at] for name, at in order]

    def _expand(self, values: Mapping[str, Any]) -> tuple[str, list[tuple[str, int | None]]]:
        state = self._compiled._process_parameters_for_postcompile(dict(values))
        parts = {part: (name, at) for name, each in state.parameter_expansion.items() for at, part in enumerate(each)}
        order: list[tuple[str, int | None]] = [parts.get(name, (name, None)) for name in state.positiontup or ()]
        return state.statement, order

    def rows(self, found: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        if not self.processors or not found:
            return found
        read = []
        for row in found:
            values = list(row)
            for place, process in self.processors:
                values[place] = process(values[place])
            read.append(tuple(values))
        return read


class PlainConnection:
    """What `tiered.meta` sees of a `sqlalchemy.Connection`. Transactions are begun and ended here."""

    def __init__(self, conn: Connection, driver: sqlite3.Connection, begin: str, known: dict[Any, Any]) -> None:
        self.driver = driver
        self.dialect = conn.dialect
        self.info: dict[str, Any] = {}
        self._conn = conn
        self._begin = begin
        self._known: dict[Any, _Known | None] = known

    def begin(self) -> None:
        self.info.clear()
        self.driver.execute(self._begin)

    def commit(self) -> None:
        self.driver.execute("COMMIT")

    def rollback(self) -> None:
        self.driver.execute("ROLLBACK")

    def exec_driver_sql(self, text: str, parameters: Any = ()) -> Result:
        cursor = self.driver.execute(text, parameters)
        names = tuple(column[0] for column in cursor.description or ())
        return Result(cursor.fetchall(), _row_type(names), names, cursor.rowcount)

    def execute(self, statement: Any, parameters: Any = None) -> Any:
        if isinstance(parameters, (list, tuple)):
            return Result([], None, (), sum(self.execute(statement, each).rowcount for each in parameters))
        given: Mapping[str, Any] = parameters or {}
        names, known = statement.__dict__.get("_simulated", (None, None))
        key = statement._generate_cache_key()
        if known is None or names != given.keys():
            if key is None:
                return self._conn.execute(statement, parameters)
            kind = key.key, *sorted(given)
            if kind not in self._known:
                self._known[kind] = self._learn(statement, sorted(given))
            known = self._known[kind]
            statement.__dict__["_simulated"] = given.keys(), known
        if known is None:
            return self._conn.execute(statement, parameters)
        try:
            cursor = self.driver.execute(*known.asked(key.bindparams, given))
        except sqlite3.Error:
            return self._conn.execute(statement, parameters)  # It fails again, as SQLAlchemy says it
        found = cursor.fetchall()
        return Result(known.rows(found), known.row, known.names, cursor.rowcount)

    def _learn(self, statement: Any, names: list[str]) -> _Known | None:
        compiled, *_ = statement._compile_w_cache(self.dialect, compiled_cache={}, column_keys=names)
        return _Known(self._conn, compiled) if _Known.is_ordinary(compiled) else None


@lru_cache(_MANY)
def _row_type(names: tuple[str, ...]) -> Any:
    return namedtuple("Row", names, rename=True)  # noqa: PYI024
