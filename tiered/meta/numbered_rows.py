"""Rows that carry the slot epoch and the commit number of their last write: many are written at once.

Owns that statement, on both databases. A row takes no write that is not above its last one, so a statement that hung
and comes late moves nothing back. Must never decide who may write.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from sqlalchemy import BigInteger, Connection, Integer, Table, Text, TextClause, Uuid, text, tuple_

from tiered.meta.upserts import insert_in

_ARRAY_TYPES = {Text: "text[]", Uuid: "uuid[]", Integer: "int[]", BigInteger: "bigint[]"}


def keep_newer(conn: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> int:
    """How many of the rows, each with a key of its own, were stored: those that are newer than what was there."""
    if not rows:
        return 0
    if conn.dialect.name != "postgresql":
        return conn.execute(_sqlite_upsert(table), rows).rowcount
    # In the key's order, so that two writers never wait for each other.
    key = _key(table)
    ordered = sorted(rows, key=lambda row: [row[name] for name in key])
    arrays = {column.name: [row[column.name] for row in ordered] for column in table.c}
    return conn.execute(_postgres_upsert(table), arrays).rowcount


def _key(table: Table) -> list[str]:
    return [column.name for column in table.primary_key.columns]


@cache
def _postgres_upsert(table: Table) -> TextClause:
    """One statement with an array for each column: a fraction of the time of as many statements."""
    names, key = [column.name for column in table.c], _key(table)
    arrays = ", ".join(f"CAST(:{column.name} AS {_ARRAY_TYPES[type(column.type)]})" for column in table.c)
    updated = ", ".join(f"{name} = excluded.{name}" for name in names if name not in key)
    # Of names from `tables` alone.
    statement = (
        f"INSERT INTO {table.name} AS old ({', '.join(names)}) SELECT * FROM unnest({arrays}) "  # noqa: S608
        f"ON CONFLICT ({', '.join(key)}) DO UPDATE SET {updated} "
        "WHERE (old.slot_epoch, old.commit_number) < (excluded.slot_epoch, excluded.commit_number)"
    )
    return text(statement)


@cache
def _sqlite_upsert(table: Table) -> Any:
    statement, key = insert_in("sqlite", table), _key(table)
    new = statement.excluded
    return statement.on_conflict_do_update(
        index_elements=key,
        set_={column.name: new[column.name] for column in table.c if column.name not in key},
        where=tuple_(table.c.slot_epoch, table.c.commit_number) < tuple_(new.slot_epoch, new.commit_number),
    )
