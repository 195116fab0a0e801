"""Compaction of the cold tier: what a segment is called by the one after it, once its object was replaced.

Revision ID: 0006
"""

import sqlalchemy as sa
from alembic import op

from tiered.meta import views

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """A column that is empty for every object that was uploaded by a broker: none was replaced before."""
    op.add_column("segment", sa.Column("uploaded_root_sha256", sa.String(length=64), nullable=True))
    views.install(op.get_bind(), revision, after=down_revision)
