"""Since when the oldest record of a partition is on disks alone, as its leader reports it.

Revision ID: 0017
"""

import sqlalchemy as sa
from alembic import op

from tiered.meta import views

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """None until the leader reports."""
    op.add_column("partition_position", sa.Column("disk_only_since_ms", sa.BigInteger()))
    views.install(op.get_bind(), revision, after=down_revision)
