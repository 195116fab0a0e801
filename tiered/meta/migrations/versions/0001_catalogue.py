"""The first metadata store: cluster, brokers, topics, partitions, segments, producer ids, reports and views.

Revision ID: 0001
"""

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from tiered.meta import views

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Creates everything. The one row of `producer_id_block` comes along; that of `cluster` needs an id."""
    _create_cluster()
    _create_topics()
    _create_segments()
    _create_reports()
    op.execute("INSERT INTO producer_id_block (id, next_producer_id) VALUES (1, 0)")
    views.install(op.get_bind(), revision)


def json_list() -> sa.types.TypeEngine[Any]:
    return sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


def _create_cluster() -> None:
    op.create_table(
        "broker",
        sa.Column("broker_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("broker_epoch", sa.BigInteger(), nullable=False),
        sa.Column("boot_id", sa.String(length=64), nullable=False),
        sa.Column("fenced", sa.Boolean(), nullable=False),
        sa.Column("heartbeat_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("port", sa.Integer(), nullable=False),
        sa.Column("http_host", sa.String(length=255), nullable=True),
        sa.Column("http_port", sa.Integer(), nullable=True),
        sa.Column("rack", sa.String(length=255), nullable=True),
        sa.Column("change_number", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("broker_id", name=op.f("pk_broker")),
    )
    op.create_index(op.f("ix_broker_change_number"), "broker", ["change_number"], unique=False)
    op.create_table(
        "broker_config",
        sa.Column("scope", sa.String(length=20), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("scope", "name", name=op.f("pk_broker_config")),
    )
    op.create_table(
        "cluster",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("cluster_id", sa.String(length=64), nullable=False),
        sa.Column("created_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("change_number", sa.BigInteger(), nullable=False),
        sa.Column("settings_change_number", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("id = 1", name=op.f("ck_cluster_only_row")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_cluster")),
    )
    op.create_table(
        "producer_id_block",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("next_producer_id", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("id = 1", name=op.f("ck_producer_id_block_only_row")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_producer_id_block")),
    )


def _create_topics() -> None:
    op.create_table(
        "topic",
        sa.Column("topic_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.String(length=249), nullable=False),
        sa.Column("partition_count", sa.Integer(), nullable=False),
        sa.Column("replication_factor", sa.Integer(), nullable=False),
        sa.Column("internal", sa.Boolean(), nullable=False),
        sa.Column("created_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("deleted_at_ms", sa.BigInteger(), nullable=True),
        sa.Column("change_number", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("topic_id", name=op.f("pk_topic")),
    )
    op.create_index(op.f("ix_topic_change_number"), "topic", ["change_number"], unique=False)
    op.create_index(
        "uq_topic_name_of_living",
        "topic",
        ["name"],
        unique=True,
        sqlite_where=sa.text("deleted_at_ms IS NULL"),
        postgresql_where=sa.text("deleted_at_ms IS NULL"),
    )
    op.create_table(
        "topic_config",
        sa.Column("topic_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["topic_id"], ["topic.topic_id"], name=op.f("fk_topic_config_topic"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("topic_id", "name", name=op.f("pk_topic_config")),
    )
    op.create_table(
        "partition",
        sa.Column("topic_id", sa.Uuid(), nullable=False),
        sa.Column("partition", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("leader", sa.Integer(), nullable=False),
        sa.Column("leader_epoch", sa.Integer(), nullable=False),
        sa.Column("partition_epoch", sa.Integer(), nullable=False),
        sa.Column("isr", json_list(), nullable=False),
        sa.Column("replicas", json_list(), nullable=False),
        sa.Column("log_start_offset", sa.BigInteger(), nullable=False),
        sa.Column("cold_end_offset", sa.BigInteger(), nullable=False),
        sa.Column("change_number", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(
            "0 <= log_start_offset AND log_start_offset <= cold_end_offset", name=op.f("ck_partition_offsets")
        ),
        sa.ForeignKeyConstraint(["topic_id"], ["topic.topic_id"], name=op.f("fk_partition_topic"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("topic_id", "partition", name=op.f("pk_partition")),
    )
    op.create_index(op.f("ix_partition_change_number"), "partition", ["change_number"], unique=False)
    op.create_index(op.f("ix_partition_leader"), "partition", ["leader"], unique=False)


def _create_segments() -> None:
    op.create_table(
        "segment",
        sa.Column("object_id", sa.Uuid(), nullable=False),
        sa.Column("topic_id", sa.Uuid(), nullable=False),
        sa.Column("partition", sa.Integer(), nullable=False),
        sa.Column("base_offset", sa.BigInteger(), nullable=False),
        sa.Column("end_offset", sa.BigInteger(), nullable=False),
        sa.Column("leader_epoch", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("owner", sa.Integer(), nullable=False),
        sa.Column("object_key", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("log_bytes", sa.BigInteger(), nullable=False),
        sa.Column("min_timestamp_ms", sa.BigInteger(), nullable=False),
        sa.Column("max_timestamp_ms", sa.BigInteger(), nullable=False),
        sa.Column("record_count", sa.BigInteger(), nullable=False),
        sa.Column("root_sha256", sa.String(length=64), nullable=False),
        sa.Column("previous_root_sha256", sa.String(length=64), nullable=False),
        sa.Column("planned_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("deadline_ms", sa.BigInteger(), nullable=False),
        sa.Column("abandoned_at_ms", sa.BigInteger(), nullable=True),
        sa.Column("committed_at_ms", sa.BigInteger(), nullable=True),
        sa.Column("retired_at_ms", sa.BigInteger(), nullable=True),
        sa.Column("purge_after_ms", sa.BigInteger(), nullable=True),
        sa.Column("purged_at_ms", sa.BigInteger(), nullable=True),
        sa.Column("change_number", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(
            "state <> 'committed' OR abandoned_at_ms IS NULL", name=op.f("ck_segment_abandoned_is_never_committed")
        ),
        sa.CheckConstraint("state IN ('planned', 'committed', 'retired', 'purged')", name=op.f("ck_segment_state")),
        sa.CheckConstraint("0 <= base_offset AND base_offset < end_offset", name=op.f("ck_segment_offsets")),
        sa.ForeignKeyConstraint(
            ["topic_id", "partition"], ["partition.topic_id", "partition.partition"], name=op.f("fk_segment_partition")
        ),
        sa.PrimaryKeyConstraint("object_id", name=op.f("pk_segment")),
    )
    op.create_index("ix_segment_by_partition", "segment", ["topic_id", "partition", "base_offset"], unique=False)
    op.create_index(op.f("ix_segment_change_number"), "segment", ["change_number"], unique=False)
    op.create_index(
        "ix_segment_planned",
        "segment",
        ["deadline_ms"],
        unique=False,
        sqlite_where=sa.text("state = 'planned'"),
        postgresql_where=sa.text("state = 'planned'"),
    )
    op.create_index(
        "ix_segment_purged",
        "segment",
        ["purged_at_ms"],
        unique=False,
        sqlite_where=sa.text("state = 'purged'"),
        postgresql_where=sa.text("state = 'purged'"),
    )
    op.create_index(
        "ix_segment_retired",
        "segment",
        ["purge_after_ms"],
        unique=False,
        sqlite_where=sa.text("state = 'retired'"),
        postgresql_where=sa.text("state = 'retired'"),
    )
    op.create_index(
        "uq_segment_committed_base",
        "segment",
        ["topic_id", "partition", "base_offset"],
        unique=True,
        sqlite_where=sa.text("state = 'committed'"),
        postgresql_where=sa.text("state = 'committed'"),
    )


def _create_reports() -> None:
    op.create_table(
        "local_segment",
        sa.Column("broker_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("topic_id", sa.Uuid(), nullable=False),
        sa.Column("partition", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("base_offset", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("end_offset", sa.BigInteger(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("min_timestamp_ms", sa.BigInteger(), nullable=True),
        sa.Column("max_timestamp_ms", sa.BigInteger(), nullable=True),
        sa.Column("closed", sa.Boolean(), nullable=False),
        sa.Column("updated_at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("broker_id", "topic_id", "partition", "base_offset", name=op.f("pk_local_segment")),
    )
    op.create_table(
        "partition_position",
        sa.Column("topic_id", sa.Uuid(), nullable=False),
        sa.Column("partition", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("high_watermark", sa.BigInteger(), nullable=False),
        sa.Column("log_end_offset", sa.BigInteger(), nullable=False),
        sa.Column("updated_at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("topic_id", "partition", name=op.f("pk_partition_position")),
    )
    op.create_table(
        "group_offset",
        sa.Column("group_id", sa.Text(), nullable=False),
        sa.Column("topic_id", sa.Uuid(), nullable=False),
        sa.Column("partition", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("committed_offset", sa.BigInteger(), nullable=False),
        sa.Column("leader_epoch", sa.Integer(), nullable=False),
        sa.Column("metadata", sa.Text(), nullable=False),
        sa.Column("committed_at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("group_id", "topic_id", "partition", name=op.f("pk_group_offset")),
    )
    op.create_index("ix_group_offset_by_partition", "group_offset", ["topic_id", "partition"], unique=False)
