"""Which brokers do not reach the object store, and why.

Revision ID: 0015
"""

import sqlalchemy as sa
from alembic import op

from tiered.meta import views

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """None: as far as anybody knows all brokers do."""
    op.add_column("broker", sa.Column("store_trouble", sa.String(16)))
    views.install(op.get_bind(), revision, after=down_revision)
