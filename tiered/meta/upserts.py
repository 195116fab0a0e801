"""An INSERT that knows ON CONFLICT, in the dialect of the database at hand.

Owns the choice between the two. Must never hold a statement.
"""

from typing import Any

from sqlalchemy import Connection, Table


def insert_for(conn: Connection, table: Table) -> Any:
    """The statement, with `on_conflict_do_update`, `on_conflict_do_nothing` and `excluded`."""
    return insert_in(conn.dialect.name, table)


def insert_in(dialect: str, table: Table) -> Any:
    """As `insert_for`, for a statement that is made once."""
    # Each package imports all drivers that it knows: a start pays for the one that it uses.
    if dialect == "postgresql":
        from sqlalchemy.dialects.postgresql import insert as postgresql_insert

        return postgresql_insert(table)
    from sqlalchemy.dialects.sqlite import insert as sqlite_insert

    return sqlite_insert(table)
