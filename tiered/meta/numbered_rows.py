"""Rows that carry the slot epoch and the commit number of their last write: many are written at once.

Owns that statement, on both databases. A row takes no write that is not above its last one, so a statement that hung
and comes late moves nothing back. Must never decide who may write.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from sqlalchemy import BigInteger, Connection, Integer, Table, Text, TextClause, Uuid, text

from tiered.meta.upserts import put_on_sqlite

_ARRAY_TYPES = {Text: "text[]", Uuid: "uuid[]", Integer: "int[]", BigInteger: "bigint[]"}


def keep_newer(conn: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> int:
    """How many of the rows, each with a key of its own, were stored: those that are newer than what was there."""
    if not rows:
        return 0
    if conn.dialect.name != "postgresql":
        return put_on_sqlite(conn, table, rows, on_conflict=_if_newer(table))
    # In the key's order, so that two writers never wait for each other.
    key = _key(table)
    ordered = sorted(rows, key=lambda row: [row[name] for name in key])
    arrays = {column.name: [row[column.name] for row in ordered] for column in table.c}
    return conn.execute(_postgres_upsert(table), arrays).rowcount


def _key(table: Table) -> list[str]:
    return [column.name for column in table.primary_key.columns]


@cache
def _if_newer(table: Table) -> str:
    names, key = [column.name for column in table.c], _key(table)
    updated = ", ".join(f"{name} = excluded.{name}" for name in names if name not in key)
    return (
        f"ON CONFLICT ({', '.join(key)}) DO UPDATE SET {updated} "
        "WHERE (old.slot_epoch, old.commit_number) < (excluded.slot_epoch, excluded.commit_number)"
    )


@cache
def _postgres_upsert(table: Table) -> TextClause:
    """One statement with an array for each column: a fraction of the time of as many statements."""
    names = [column.name for column in table.c]
    arrays = ", ".join(f"CAST(:{column.name} AS {_ARRAY_TYPES[type(column.type)]})" for column in table.c)
    # Of names from `tables` alone.
    statement = (
        f"INSERT INTO {table.name} AS old ({', '.join(names)}) SELECT * FROM unnest({arrays}) {_if_newer(table)}"  # noqa: S608
    )
    return text(statement)
