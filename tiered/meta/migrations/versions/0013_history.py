"""The starts of the database, and whether it has lost what was seen in it.

Revision ID: 0013
"""

import sqlalchemy as sa
from alembic import op

from tiered.meta import views

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Which start this one is, the first broker writes down."""
    op.add_column("cluster", sa.Column("went_back", sa.Text()))
    op.create_table(
        "database_start",
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("server", sa.String(128), nullable=False),
        sa.Column("change_number", sa.BigInteger(), nullable=False),
        sa.Column("began_at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_database_start")),
    )
    views.install(op.get_bind(), revision, after=down_revision)
