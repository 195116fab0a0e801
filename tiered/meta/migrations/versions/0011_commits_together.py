"""Transactions that were committed together.

Revision ID: 0011
"""

import sqlalchemy as sa
from alembic import op

from tiered.meta import views

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """A new table; nothing was committed so before."""
    op.create_table(
        "transaction_commit",
        sa.Column("commit_key", sa.Text(), nullable=False),
        sa.Column("committed_at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("commit_key", name=op.f("pk_transaction_commit")),
    )
    op.create_index(
        op.f("ix_transaction_commit_committed_at_ms"), "transaction_commit", ["committed_at_ms"], unique=False
    )
    views.install(op.get_bind(), revision, after=down_revision)
