"""Of how many uploads an object is made, where several were joined (decision 0032).

Revision ID: 0016
"""

import sqlalchemy as sa
from alembic import op

from tiered.meta import views

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """None: until now nothing was joined, and what took the place of an upload was compacted."""
    op.add_column("segment", sa.Column("joined_count", sa.Integer()))
    views.install(op.get_bind(), revision, after=down_revision)
