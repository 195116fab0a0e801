"""The database's clock, which all brokers share: milliseconds since 1970 UTC, as SQL says them.

Owns the two texts. Must never decide anything: time is for liveness, and for people (R11).
"""

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from sqlalchemy import BigInteger, Connection, literal_column, select
from sqlalchemy.sql.elements import ColumnElement

NOW_MS: Mapping[str, str] = MappingProxyType(
    {
        "sqlite": "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)",
        # `now()` stands still within a transaction.
        "postgresql": "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)",
    }
)
"""By dialect: moves within a transaction. SQLite's clock is its broker's."""


def now_ms(conn: Connection) -> ColumnElement[int]:
    """The present moment, for use in a statement: what it compares or writes is one clock's."""
    return now_ms_in(conn.dialect.name)


@cache
def now_ms_in(dialect: str) -> ColumnElement[int]:
    """As `now_ms`, for a statement that is made once."""
    return literal_column(NOW_MS[dialect], BigInteger)


def database_now_ms(conn: Connection) -> int:
    """The present moment as the database has it."""
    return int(conn.execute(select(now_ms(conn))).scalar_one())
