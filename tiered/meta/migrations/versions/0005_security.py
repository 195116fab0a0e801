"""Security: where brokers listen, credentials, access control lists and quotas.

Revision ID: 0005
"""

import sqlalchemy as sa
from alembic import op

from tiered.meta import views

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Four new tables, and the number of their last change; nobody had a credential or a quota before."""
    op.add_column(
        "cluster", sa.Column("security_change_number", sa.BigInteger(), server_default=sa.text("0"), nullable=False)
    )
    op.create_table(
        "broker_listener",
        sa.Column("broker_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("protocol", sa.String(length=16), nullable=False),
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("port", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["broker_id"], ["broker.broker_id"], name=op.f("fk_broker_listener_broker"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("broker_id", "name", name=op.f("pk_broker_listener")),
    )
    op.create_table(
        "scram_credential",
        sa.Column("user_name", sa.String(length=255), nullable=False),
        sa.Column("mechanism", sa.String(length=16), nullable=False),
        sa.Column("salt", sa.LargeBinary(), nullable=False),
        sa.Column("stored_key", sa.LargeBinary(), nullable=False),
        sa.Column("server_key", sa.LargeBinary(), nullable=False),
        sa.Column("iterations", sa.Integer(), nullable=False),
        sa.CheckConstraint(
            "mechanism IN ('SCRAM-SHA-256', 'SCRAM-SHA-512')", name=op.f("ck_scram_credential_mechanism")
        ),
        sa.CheckConstraint("iterations > 0", name=op.f("ck_scram_credential_iterations")),
        sa.PrimaryKeyConstraint("user_name", "mechanism", name=op.f("pk_scram_credential")),
    )
    op.create_table(
        "acl",
        sa.Column("resource_type", sa.String(length=20), nullable=False),
        sa.Column("resource_name", sa.String(length=255), nullable=False),
        sa.Column("pattern_type", sa.String(length=16), nullable=False),
        sa.Column("principal", sa.String(length=255), nullable=False),
        sa.Column("host", sa.String(length=64), nullable=False),
        sa.Column("operation", sa.String(length=20), nullable=False),
        sa.Column("permission", sa.String(length=8), nullable=False),
        sa.Column("created_at_ms", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("pattern_type IN ('LITERAL', 'PREFIXED')", name=op.f("ck_acl_pattern_type")),
        sa.CheckConstraint("permission IN ('ALLOW', 'DENY')", name=op.f("ck_acl_permission")),
        sa.PrimaryKeyConstraint(
            "resource_type",
            "resource_name",
            "pattern_type",
            "principal",
            "host",
            "operation",
            "permission",
            name=op.f("pk_acl"),
        ),
    )
    op.create_table(
        "client_quota",
        sa.Column("has_user", sa.Boolean(), nullable=False),
        sa.Column("user_name", sa.String(length=255), nullable=False),
        sa.Column("has_client_id", sa.Boolean(), nullable=False),
        sa.Column("client_id", sa.String(length=255), nullable=False),
        sa.Column("has_ip", sa.Boolean(), nullable=False),
        sa.Column("ip", sa.String(length=64), nullable=False),
        sa.Column("quota", sa.String(length=64), nullable=False),
        sa.Column("value", sa.Float(), nullable=False),
        sa.CheckConstraint("value > 0", name=op.f("ck_client_quota_value")),
        sa.CheckConstraint("has_user OR has_client_id OR has_ip", name=op.f("ck_client_quota_entity")),
        sa.PrimaryKeyConstraint(
            "has_user",
            "user_name",
            "has_client_id",
            "client_id",
            "has_ip",
            "ip",
            "quota",
            name=op.f("pk_client_quota"),
        ),
    )
    views.install(op.get_bind(), revision, after=down_revision)
