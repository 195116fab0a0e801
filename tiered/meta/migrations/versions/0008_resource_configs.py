"""Configs of consumer groups and of subscriptions to clients' metrics.

Revision ID: 0008
"""

import sqlalchemy as sa
from alembic import op

from tiered.meta import views

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """A new table; none of them had a config before. `v_lag` leaves out what lags behind nothing."""
    op.create_table(
        "resource_config",
        sa.Column("kind", sa.String(length=20), nullable=False),
        sa.Column("resource", sa.Text(), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("kind", "resource", "name", name=op.f("pk_resource_config")),
    )
    views.install(op.get_bind(), revision, after=down_revision)
