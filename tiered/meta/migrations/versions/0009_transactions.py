"""Transactions: their state, their partitions, and the offsets that wait for their end.

Revision ID: 0009
"""

import sqlalchemy as sa
from alembic import op

from tiered.meta import views

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_STATES = "'Empty', 'Ongoing', 'PrepareCommit', 'PrepareAbort', 'CompleteCommit', 'CompleteAbort'"
_OPEN = "state IN ('Ongoing', 'PrepareCommit', 'PrepareAbort')"


def upgrade() -> None:
    """Three new tables and two new views; there was no transaction before."""
    op.create_table(
        "transactional_producer",
        sa.Column("transactional_id", sa.Text(), nullable=False),
        sa.Column("slot", sa.Integer(), nullable=False),
        sa.Column("producer_id", sa.BigInteger(), nullable=False),
        sa.Column("producer_epoch", sa.Integer(), nullable=False),
        sa.Column("last_producer_epoch", sa.Integer(), nullable=False),
        sa.Column("previous_producer_id", sa.BigInteger(), nullable=False),
        sa.Column("next_producer_id", sa.BigInteger(), nullable=False),
        sa.Column("timeout_ms", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("protocol", sa.Integer(), nullable=False),
        sa.Column("started_at_ms", sa.BigInteger(), nullable=True),
        sa.Column("changed_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("coordinator_epoch", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(f"state IN ({_STATES})", name=op.f("ck_transactional_producer_state")),
        sa.PrimaryKeyConstraint("transactional_id", name=op.f("pk_transactional_producer")),
    )
    op.create_index(
        "ix_transactional_producer_open",
        "transactional_producer",
        ["slot"],
        unique=False,
        sqlite_where=sa.text(_OPEN),
        postgresql_where=sa.text(_OPEN),
    )
    op.create_index("ix_transactional_producer_changed", "transactional_producer", ["changed_at_ms"], unique=False)
    op.create_table(
        "transaction_partition",
        sa.Column("transactional_id", sa.Text(), nullable=False),
        sa.Column("topic_id", sa.Uuid(), nullable=False),
        sa.Column("partition", sa.Integer(), autoincrement=False, nullable=False),
        sa.ForeignKeyConstraint(
            ["transactional_id"],
            ["transactional_producer.transactional_id"],
            name=op.f("fk_transaction_partition_transactional_producer"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("transactional_id", "topic_id", "partition", name=op.f("pk_transaction_partition")),
    )
    op.create_table(
        "transaction_offset",
        sa.Column("group_id", sa.Text(), nullable=False),
        sa.Column("topic_id", sa.Uuid(), nullable=False),
        sa.Column("partition", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("producer_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("committed_offset", sa.BigInteger(), nullable=False),
        sa.Column("leader_epoch", sa.Integer(), nullable=False),
        sa.Column("metadata", sa.Text(), nullable=False),
        sa.Column("committed_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("slot_epoch", sa.BigInteger(), nullable=False),
        sa.Column("commit_number", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("group_id", "topic_id", "partition", "producer_id", name=op.f("pk_transaction_offset")),
    )
    op.create_index("ix_transaction_offset_by_producer", "transaction_offset", ["producer_id"], unique=False)
    views.install(op.get_bind(), revision, after=down_revision)
