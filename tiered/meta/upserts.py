"""An INSERT that knows ON CONFLICT, in the dialect of the database at hand.

Owns the choice between the two. Must never hold a statement.
"""

from typing import Any

from sqlalchemy import Connection, Table
from sqlalchemy.dialects import postgresql, sqlite


def insert_for(conn: Connection, table: Table) -> Any:
    """The statement, with `on_conflict_do_update`, `on_conflict_do_nothing` and `excluded`."""
    dialect = postgresql if conn.dialect.name == "postgresql" else sqlite
    return dialect.insert(table)
