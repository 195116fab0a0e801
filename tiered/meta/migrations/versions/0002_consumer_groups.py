"""Consumer groups: who coordinates them, their generation, and what orders the writes of a committed offset.

Revision ID: 0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Two new tables; `group_offset` gets the two numbers that order its writes, 0 for rows from before.

    The views stay as they are: none of them shows the new columns.
    """
    op.create_table(
        "coordinator_slot",
        sa.Column("slot", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("broker_id", sa.Integer(), nullable=False),
        sa.Column("broker_epoch", sa.BigInteger(), nullable=False),
        sa.Column("slot_epoch", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("slot", name=op.f("pk_coordinator_slot")),
    )
    op.create_table(
        "consumer_group",
        sa.Column("group_id", sa.Text(), nullable=False),
        sa.Column("slot", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("protocol_type", sa.Text(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("empty_since_ms", sa.BigInteger(), nullable=True),
        sa.Column("slot_epoch", sa.BigInteger(), nullable=False),
        sa.Column("commit_number", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("kind IN ('classic', 'consumer')", name=op.f("ck_consumer_group_kind")),
        sa.PrimaryKeyConstraint("group_id", name=op.f("pk_consumer_group")),
    )
    op.create_index(
        "ix_consumer_group_empty",
        "consumer_group",
        ["empty_since_ms"],
        unique=False,
        sqlite_where=sa.text("empty_since_ms IS NOT NULL"),
        postgresql_where=sa.text("empty_since_ms IS NOT NULL"),
    )
    for name in ("slot_epoch", "commit_number"):
        op.add_column("group_offset", sa.Column(name, sa.BigInteger(), server_default=sa.text("0"), nullable=False))
