"""Which brokers' disks a restore took along.

Revision ID: 0014
"""

import sqlalchemy as sa
from alembic import op

from tiered.meta import views
from tiered.meta.tables import JsonList

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """None: the cluster was not restored with disks."""
    op.add_column("cluster", sa.Column("kept_disks", JsonList(), server_default=sa.text("'[]'"), nullable=False))
    views.install(op.get_bind(), revision, after=down_revision)
