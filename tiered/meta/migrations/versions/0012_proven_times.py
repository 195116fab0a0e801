"""Which segments' greatest timestamps are proven.

Revision ID: 0012
"""

import sqlalchemy as sa
from alembic import op

from tiered.meta import views

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Of the rows that are here nobody has proven anything; brokers of the version before write none that are."""
    op.add_column(
        "segment", sa.Column("max_timestamp_is_proven", sa.Boolean(), server_default=sa.false(), nullable=False)
    )
    views.install(op.get_bind(), revision, after=down_revision)
