"""Pins and snapshots: ranges of offsets that retention must leave.

Revision ID: 0004
"""

import sqlalchemy as sa
from alembic import op

from tiered.meta import views

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Two new tables and a new view; nothing was pinned before."""
    op.create_table(
        "pin",
        sa.Column("pin_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.String(length=249), nullable=True),
        sa.Column("topic_id", sa.Uuid(), nullable=False),
        sa.Column("owner", sa.String(length=249), nullable=False),
        sa.Column("created_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("expires_at_ms", sa.BigInteger(), nullable=True),
        sa.CheckConstraint("name IS NOT NULL OR expires_at_ms IS NOT NULL", name=op.f("ck_pin_without_a_name_it_ends")),
        sa.ForeignKeyConstraint(["topic_id"], ["topic.topic_id"], name=op.f("fk_pin_topic"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("pin_id", name=op.f("pk_pin")),
    )
    op.create_index(op.f("ix_pin_topic_id"), "pin", ["topic_id"], unique=False)
    op.create_index(
        "uq_pin_name",
        "pin",
        ["name"],
        unique=True,
        sqlite_where=sa.text("name IS NOT NULL"),
        postgresql_where=sa.text("name IS NOT NULL"),
    )
    op.create_table(
        "pinned_range",
        sa.Column("pin_id", sa.Uuid(), nullable=False),
        sa.Column("partition", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("topic_id", sa.Uuid(), nullable=False),
        sa.Column("start_offset", sa.BigInteger(), nullable=False),
        sa.Column("end_offset", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("0 <= start_offset AND start_offset <= end_offset", name=op.f("ck_pinned_range_offsets")),
        sa.ForeignKeyConstraint(["pin_id"], ["pin.pin_id"], name=op.f("fk_pinned_range_pin"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("pin_id", "partition", name=op.f("pk_pinned_range")),
    )
    op.create_index("ix_pinned_range_by_partition", "pinned_range", ["topic_id", "partition"], unique=False)
    views.install(op.get_bind(), revision, after=down_revision)
