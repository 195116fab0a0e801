"""An INSERT that knows ON CONFLICT, in the dialect of the database at hand, and one of many rows for SQLite.

Owns the choice between the two. Must never know what a table is for.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Table


def insert_for(conn: Connection, table: Table) -> Any:
    """The statement, with `on_conflict_do_update` and `on_conflict_do_nothing`."""
    return insert_in(conn.dialect.name, table)


def insert_in(dialect: str, table: Table) -> Any:
    """As `insert_for`, for a statement that is made once. One that uses `excluded` must be: it is a cycle, which only
    the garbage collector frees."""
    # Each package imports all drivers that it knows: a start pays for the one that it uses.
    if dialect == "postgresql":
        from sqlalchemy.dialects.postgresql import insert as postgresql_insert

        return postgresql_insert(table)
    from sqlalchemy.dialects.sqlite import insert as sqlite_insert

    return sqlite_insert(table)


MOST_TOGETHER = 128


def put_on_sqlite(conn: Connection, table: Table, rows: Sequence[Mapping[str, Any]], *, on_conflict: str = "") -> int:
    """How many of the rows, with all their columns, were stored.

    Many rows are one step of SQLite. In each step, which an executemany has for each row, the thread gives the
    interpreter's lock away, and the event loop of a busy broker is slow to give it back.
    """
    names = [column.name for column in table.c]
    stored = first = 0
    while first < len(rows):
        # Powers of two: so few statements are prepared that the driver keeps them all.
        count = min(MOST_TOGETHER, 1 << ((len(rows) - first).bit_length() - 1))
        values = tuple(_bound(row[name]) for row in rows[first : first + count] for name in names)
        stored += conn.exec_driver_sql(_insert(table, count, on_conflict), values).rowcount
        first += count
    return stored


def _bound(value: Any) -> Any:
    return value.hex if isinstance(value, UUID) else value


@cache
def _insert(table: Table, count: int, on_conflict: str) -> str:
    names = [column.name for column in table.c]
    row = f"({', '.join('?' * len(names))})"
    # Of names from `tables` alone. The alias is for `on_conflict`.
    return f"INSERT INTO {table.name} AS old ({', '.join(names)}) VALUES {', '.join([row] * count)} {on_conflict}"  # noqa: S608
