"""Alembic runs this for every command: it uses the connection, and the transaction, that `upgrade` gives it."""

from alembic import context
from sqlalchemy import Connection

from tiered.meta.tables import metadata

connection = context.config.attributes["connection"]
assert isinstance(connection, Connection)
context.configure(connection=connection, target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()
