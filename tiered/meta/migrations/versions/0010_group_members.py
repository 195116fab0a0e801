"""The members of stable groups, with which the next coordinator goes on.

Revision ID: 0010
"""

import sqlalchemy as sa
from alembic import op

from tiered.meta import views

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

_KEPT = "members IS NOT NULL"


def upgrade() -> None:
    """A new column. Groups of before have nothing in it: their members join anew once more."""
    op.add_column("consumer_group", sa.Column("members", sa.LargeBinary(), nullable=True))
    op.create_index(
        "ix_consumer_group_members",
        "consumer_group",
        ["slot"],
        unique=False,
        sqlite_where=sa.text(_KEPT),
        postgresql_where=sa.text(_KEPT),
    )
    views.install(op.get_bind(), revision, after=down_revision)
