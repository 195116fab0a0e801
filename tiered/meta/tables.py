"""The tables of the metadata store, in SQLAlchemy Core: one text for SQLite and PostgreSQL.

Owns names, types, keys and the constraints that keep rows sane even against a bug in this code. Must never hold a
statement. A change here needs a revision in `migrations/versions`; a test compares the two. Tables of security are in
`security_tables`.

Why each change of topics, partitions, brokers, settings or segments carries a `change_number`: see
`tiered.meta.changes`. Times are milliseconds since 1970 UTC.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Connection,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    Uuid,
    event,
    false,
    text,
)
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator, TypeEngine

from tiered.rules.segments.segment_states import SegmentState
from tiered.rules.transactions.transaction_state import TransactionState

# Named constraints, so that a migration can drop what it did not name itself.
metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(referred_table_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)


class JsonList(TypeDecorator[Any]):
    """A JSON array, JSONB on PostgreSQL, whose types are imported there alone: they bring all its drivers along."""

    impl = JSON(none_as_null=True)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if dialect.name != "postgresql":
            return dialect.type_descriptor(JSON(none_as_null=True))
        from sqlalchemy.dialects.postgresql import JSONB

        return dialect.type_descriptor(JSONB(none_as_null=True))


WHERE = "where"
"""In `info` of an index: the rows that it holds."""


@event.listens_for(metadata, "before_create")
def _restrict_indexes(_metadata: MetaData, connection: Connection, tables: Sequence[Table], **_: Any) -> None:
    """Said to SQLAlchemy when the tables are made: told before, it would import both dialects at every start."""
    for index in (index for table in tables for index in table.indexes if WHERE in index.info):
        index.dialect_options[connection.dialect.name]["where"] = text(index.info[WHERE])


ONLY_ROW = 1
"""The key of tables that hold exactly one row."""

NO_LEADER = -1
"""`partition.leader` while nobody leads."""

CLUSTER_WIDE = ""
"""`broker_config.scope` of a default for all brokers; else the scope is a broker id in decimal."""

_states = ", ".join(f"'{state}'" for state in SegmentState)

cluster = Table(
    "cluster",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("cluster_id", String(64), nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
    Column("change_number", BigInteger, nullable=False),
    Column("settings_change_number", BigInteger, nullable=False),
    Column("security_change_number", BigInteger, nullable=False, server_default=text("0")),
    # The object store of the rows of `segment`; empty until the first broker starts.
    Column("store", Text),
    # Why no broker may use this database, where one has seen more in it than it has.
    Column("went_back", Text),
    # Brokers whose disks a restore took along, each with its former cluster and the epoch of its last registration,
    # until they register with them.
    Column("kept_disks", JsonList, nullable=False, server_default=text("'[]'")),
    CheckConstraint("id = 1", name="only_row"),
)

# Each start of the database server, as the first broker met it (docs/adr/0029).
database_start = Table(
    "database_start",
    metadata,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("server", String(128), nullable=False),
    # That of `cluster` before anything was changed under this start.
    Column("change_number", BigInteger, nullable=False),
    Column("began_at_ms", BigInteger, nullable=False),
)

broker = Table(
    "broker",
    metadata,
    Column("broker_id", Integer, primary_key=True, autoincrement=False),
    Column("broker_epoch", BigInteger, nullable=False),
    Column("boot_id", String(64), nullable=False),
    Column("fenced", Boolean, nullable=False),
    Column("heartbeat_at_ms", BigInteger, nullable=False),
    Column("host", String(255), nullable=False),
    Column("port", Integer, nullable=False),
    Column("http_host", String(255)),
    Column("http_port", Integer),
    Column("rack", String(255)),
    # Of the process that registered: a registration whose answer was lost is repeated by the same one.
    Column("incarnation_id", Uuid),
    # Why it does not reach the object store, in the word that /readyz has for it; NULL where it does.
    Column("store_trouble", String(16)),
    Column("change_number", BigInteger, nullable=False, index=True),
)

# The controller, and how long its lease lasts by the database's clock. Never decides safety (R11).
lease = Table(
    "lease",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("broker_id", Integer, nullable=False),
    Column("broker_epoch", BigInteger, nullable=False),
    Column("expires_at_ms", BigInteger, nullable=False),
)

topic = Table(
    "topic",
    metadata,
    Column("topic_id", Uuid, primary_key=True),
    Column("name", String(249), nullable=False),
    Column("partition_count", Integer, nullable=False),
    Column("replication_factor", Integer, nullable=False),
    Column("internal", Boolean, nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
    Column("deleted_at_ms", BigInteger),
    Column("change_number", BigInteger, nullable=False, index=True),
    # A deleted topic's row stays until its objects are gone, so the name is unique among the living only.
    Index("uq_topic_name_of_living", "name", unique=True, info={WHERE: "deleted_at_ms IS NULL"}),
)

topic_config = Table(
    "topic_config",
    metadata,
    Column("topic_id", Uuid, ForeignKey("topic.topic_id", ondelete="CASCADE"), primary_key=True),
    Column("name", String(255), primary_key=True),
    Column("value", Text, nullable=False),
)

broker_config = Table(
    "broker_config",
    metadata,
    Column("scope", String(20), primary_key=True),
    Column("name", String(255), primary_key=True),
    Column("value", Text, nullable=False),
)

# Of resources that have no row of their own: consumer groups and subscriptions to clients' metrics.
resource_config = Table(
    "resource_config",
    metadata,
    Column("kind", String(20), primary_key=True),
    Column("resource", Text, primary_key=True),
    Column("name", String(255), primary_key=True),
    Column("value", Text, nullable=False),
)

partition = Table(
    "partition",
    metadata,
    Column("topic_id", Uuid, ForeignKey("topic.topic_id", ondelete="CASCADE"), primary_key=True),
    Column("partition", Integer, primary_key=True, autoincrement=False),
    Column("leader", Integer, nullable=False, index=True),
    Column("leader_epoch", Integer, nullable=False),
    Column("partition_epoch", Integer, nullable=False),
    Column("isr", JsonList, nullable=False),
    Column("replicas", JsonList, nullable=False),
    # A reassignment under way (KIP-455): both are among `replicas` until it ends.
    Column("adding_replicas", JsonList, nullable=False, server_default=text("'[]'")),
    Column("removing_replicas", JsonList, nullable=False, server_default=text("'[]'")),
    Column("log_start_offset", BigInteger, nullable=False),
    Column("cold_end_offset", BigInteger, nullable=False),
    Column("change_number", BigInteger, nullable=False, index=True),
    CheckConstraint("0 <= log_start_offset AND log_start_offset <= cold_end_offset", name="offsets"),  # T5
)

segment = Table(
    "segment",
    metadata,
    Column("object_id", Uuid, primary_key=True),
    Column("topic_id", Uuid, nullable=False),
    Column("partition", Integer, nullable=False),
    Column("base_offset", BigInteger, nullable=False),
    Column("end_offset", BigInteger, nullable=False),
    Column("leader_epoch", Integer, nullable=False),
    Column("state", String(16), nullable=False),
    Column("owner", Integer, nullable=False),
    Column("object_key", Text, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("log_bytes", BigInteger, nullable=False),
    Column("min_timestamp_ms", BigInteger, nullable=False),
    Column("max_timestamp_ms", BigInteger, nullable=False),
    Column("record_count", BigInteger, nullable=False),
    Column("root_sha256", String(64), nullable=False),
    Column("previous_root_sha256", String(64), nullable=False),
    Column("planned_at_ms", BigInteger, nullable=False),
    Column("deadline_ms", BigInteger, nullable=False),
    Column("abandoned_at_ms", BigInteger),
    Column("committed_at_ms", BigInteger),
    Column("retired_at_ms", BigInteger),
    Column("purge_after_ms", BigInteger),
    Column("purged_at_ms", BigInteger),
    Column("change_number", BigInteger, nullable=False, index=True),
    # The root of the object that was uploaded for these offsets, where another is in its place: a compacted one, or one
    # that many were joined to (then of the last of them).
    Column("uploaded_root_sha256", String(64)),
    # Of how many uploads a joined object is made. Null for all others, compacted ones included.
    Column("joined_count", Integer),
    # False for objects from before brokers looked at every record (decision 0028).
    Column("max_timestamp_is_proven", Boolean, nullable=False, server_default=false()),
    ForeignKeyConstraint(["topic_id", "partition"], ["partition.topic_id", "partition.partition"]),
    CheckConstraint(f"state IN ({_states})", name="state"),
    CheckConstraint("0 <= base_offset AND base_offset < end_offset", name="offsets"),
    CheckConstraint("state <> 'committed' OR abandoned_at_ms IS NULL", name="abandoned_is_never_committed"),
    Index("ix_segment_by_partition", "topic_id", "partition", "base_offset"),
    # T3 makes committed rows tile the log; this makes the worst bug an error instead of an overlap.
    Index(
        "uq_segment_committed_base",
        "topic_id",
        "partition",
        "base_offset",
        unique=True,
        info={WHERE: "state = 'committed'"},
    ),
    # The sweepers ask for these every few seconds: few rows of many.
    Index("ix_segment_planned", "deadline_ms", info={WHERE: "state = 'planned'"}),
    Index("ix_segment_retired", "purge_after_ms", info={WHERE: "state = 'retired'"}),
    Index("ix_segment_purged", "purged_at_ms", info={WHERE: "state = 'purged'"}),
)

# Offsets that retention must leave. A snapshot is a pin with a name, and may never end. Not in the feed: deleters ask.

pin = Table(
    "pin",
    metadata,
    Column("pin_id", Uuid, primary_key=True),
    Column("name", String(249)),
    Column("topic_id", Uuid, ForeignKey("topic.topic_id", ondelete="CASCADE"), nullable=False, index=True),
    Column("owner", String(249), nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
    Column("expires_at_ms", BigInteger),
    CheckConstraint("name IS NOT NULL OR expires_at_ms IS NOT NULL", name="without_a_name_it_ends"),
    Index("uq_pin_name", "name", unique=True, info={WHERE: "name IS NOT NULL"}),
)

pinned_range = Table(
    "pinned_range",
    metadata,
    Column("pin_id", Uuid, ForeignKey("pin.pin_id", ondelete="CASCADE"), primary_key=True),
    Column("partition", Integer, primary_key=True, autoincrement=False),
    Column("topic_id", Uuid, nullable=False),
    Column("start_offset", BigInteger, nullable=False),
    Column("end_offset", BigInteger, nullable=False),
    CheckConstraint("0 <= start_offset AND start_offset <= end_offset", name="offsets"),
    Index("ix_pinned_range_by_partition", "topic_id", "partition"),
)

producer_id_block = Table(
    "producer_id_block",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("next_producer_id", BigInteger, nullable=False),
    CheckConstraint("id = 1", name="only_row"),
)

# Consumer groups. Only the slots are in the feed: a group's coordinator alone reads and writes its rows.

coordinator_slot = Table(
    "coordinator_slot",
    metadata,
    Column("slot", Integer, primary_key=True, autoincrement=False),
    Column("broker_id", Integer, nullable=False),
    Column("broker_epoch", BigInteger, nullable=False),
    Column("slot_epoch", BigInteger, nullable=False),
    Column("change_number", BigInteger, nullable=False, index=True, server_default=text("0")),
)

consumer_group = Table(
    "consumer_group",
    metadata,
    Column("group_id", Text, primary_key=True),
    Column("slot", Integer, nullable=False),
    Column("kind", String(16), nullable=False),
    Column("protocol_type", Text, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("empty_since_ms", BigInteger),
    Column("slot_epoch", BigInteger, nullable=False),
    Column("commit_number", BigInteger, nullable=False),
    # Of a stable group (formats/group_members): the next coordinator goes on with them. Others are in its memory alone.
    Column("members", LargeBinary),
    CheckConstraint("kind IN ('classic', 'consumer')", name="kind"),
    Index("ix_consumer_group_by_slot", "slot", "group_id"),
    Index("ix_consumer_group_empty", "empty_since_ms", info={WHERE: "empty_since_ms IS NOT NULL"}),
    Index("ix_consumer_group_members", "slot", info={WHERE: "members IS NOT NULL"}),
)

group_offset = Table(
    "group_offset",
    metadata,
    Column("group_id", Text, primary_key=True),
    Column("topic_id", Uuid, primary_key=True),
    Column("partition", Integer, primary_key=True, autoincrement=False),
    Column("committed_offset", BigInteger, nullable=False),
    Column("leader_epoch", Integer, nullable=False),
    Column("metadata", Text, nullable=False),
    Column("committed_at_ms", BigInteger, nullable=False),
    # A write counts only above these two: a statement that hung can never move an offset back.
    Column("slot_epoch", BigInteger, nullable=False, server_default=text("0")),
    Column("commit_number", BigInteger, nullable=False, server_default=text("0")),
    Index("ix_group_offset_by_partition", "topic_id", "partition"),
)

# Transactions. As groups: the holder of a transactional id's slot alone writes its rows. What a transaction's end makes
# of the offsets that wait for it, the same SQL transaction does (docs/adr/0023).

_transaction_states = ", ".join(f"'{each.value}'" for each in TransactionState)
IS_OPEN = "state IN ('Ongoing', 'PrepareCommit', 'PrepareAbort')"

transactional_producer = Table(
    "transactional_producer",
    metadata,
    Column("transactional_id", Text, primary_key=True),
    Column("slot", Integer, nullable=False),
    Column("producer_id", BigInteger, nullable=False),
    Column("producer_epoch", Integer, nullable=False),
    Column("last_producer_epoch", Integer, nullable=False),
    Column("previous_producer_id", BigInteger, nullable=False),
    Column("next_producer_id", BigInteger, nullable=False),
    Column("timeout_ms", Integer, nullable=False),
    Column("state", String(16), nullable=False),
    Column("protocol", Integer, nullable=False),
    Column("started_at_ms", BigInteger),
    Column("changed_at_ms", BigInteger, nullable=False),
    # Of the slot, when the row was written last: markers of an earlier coordinator are refused by it.
    Column("coordinator_epoch", BigInteger, nullable=False),
    CheckConstraint(f"state IN ({_transaction_states})", name="state"),
    Index("ix_transactional_producer_open", "slot", info={WHERE: IS_OPEN}),
    Index("ix_transactional_producer_changed", "changed_at_ms"),
)

transaction_partition = Table(
    "transaction_partition",
    metadata,
    Column(
        "transactional_id",
        Text,
        ForeignKey("transactional_producer.transactional_id", ondelete="CASCADE"),
        primary_key=True,
    ),
    Column("topic_id", Uuid, primary_key=True),
    Column("partition", Integer, primary_key=True, autoincrement=False),
)

# Offsets that wait for their transaction's end. Two transactions may have some for the same partition of a group.
transaction_offset = Table(
    "transaction_offset",
    metadata,
    Column("group_id", Text, primary_key=True),
    Column("topic_id", Uuid, primary_key=True),
    Column("partition", Integer, primary_key=True, autoincrement=False),
    Column("producer_id", BigInteger, primary_key=True, autoincrement=False),
    Column("committed_offset", BigInteger, nullable=False),
    Column("leader_epoch", Integer, nullable=False),
    Column("metadata", Text, nullable=False),
    Column("committed_at_ms", BigInteger, nullable=False),
    Column("slot_epoch", BigInteger, nullable=False),
    Column("commit_number", BigInteger, nullable=False),
    Index("ix_transaction_offset_by_producer", "producer_id"),
)

# Transactions that were committed together, by the key that their application gave. So it happens once.
transaction_commit = Table(
    "transaction_commit",
    metadata,
    Column("commit_key", Text, primary_key=True),
    Column("committed_at_ms", BigInteger, nullable=False, index=True),
)

# Below: what brokers report from time to time so that people can SELECT it. Never read to decide anything.

local_segment = Table(
    "local_segment",
    metadata,
    Column("broker_id", Integer, primary_key=True, autoincrement=False),
    Column("topic_id", Uuid, primary_key=True),
    Column("partition", Integer, primary_key=True, autoincrement=False),
    Column("base_offset", BigInteger, primary_key=True, autoincrement=False),
    Column("end_offset", BigInteger, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("min_timestamp_ms", BigInteger),
    Column("max_timestamp_ms", BigInteger),
    Column("closed", Boolean, nullable=False),
    Column("updated_at_ms", BigInteger, nullable=False),
)

partition_position = Table(
    "partition_position",
    metadata,
    Column("topic_id", Uuid, primary_key=True),
    Column("partition", Integer, primary_key=True, autoincrement=False),
    Column("high_watermark", BigInteger, nullable=False),
    Column("log_end_offset", BigInteger, nullable=False),
    Column("updated_at_ms", BigInteger, nullable=False),
    # None: nothing is on disks alone, or a version that did not report it wrote the row.
    Column("disk_only_since_ms", BigInteger),
)
