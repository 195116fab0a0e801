"""A cluster of several brokers: reassignments, leases, slots in the feed, and whose a registration is.

Revision ID: 0003
"""

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from tiered.meta import views

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """A new table, a new view, and columns whose defaults say what was true before: no reassignment, no change."""
    for name in ("adding_replicas", "removing_replicas"):
        op.add_column("partition", sa.Column(name, json_list(), server_default=sa.text("'[]'"), nullable=False))
    op.add_column("broker", sa.Column("incarnation_id", sa.Uuid(), nullable=True))
    op.add_column(
        "coordinator_slot", sa.Column("change_number", sa.BigInteger(), server_default=sa.text("0"), nullable=False)
    )
    op.create_index(op.f("ix_coordinator_slot_change_number"), "coordinator_slot", ["change_number"], unique=False)
    op.create_table(
        "lease",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("broker_id", sa.Integer(), nullable=False),
        sa.Column("broker_epoch", sa.BigInteger(), nullable=False),
        sa.Column("expires_at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_lease")),
    )
    views.install(op.get_bind(), revision, after=down_revision)


def json_list() -> sa.types.TypeEngine[Any]:
    return sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")
