"""Which object store is the cluster's, so that no broker uploads to another one.

Revision ID: 0007
"""

import sqlalchemy as sa
from alembic import op

from tiered.meta import views

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Empty for a cluster that is there already: the first broker that starts says which store it is."""
    op.add_column("cluster", sa.Column("store", sa.Text(), nullable=True))
    views.install(op.get_bind(), revision, after=down_revision)
