"""The tables of security: where brokers listen, who may log in, who may do what, and how much.

Owns names, types, keys and constraints, as `tables` does for the rest. Must never hold a statement.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    Integer,
    LargeBinary,
    String,
    Table,
)

from tiered.meta.tables import metadata

NAME_CHARACTERS = 255
HOST_CHARACTERS = 64
"""Of users, client ids and names of resources: every part of a key of PostgreSQL must have a bound."""

# Where each broker is reached, by the name of the listener. Replaced as a whole with each registration.
broker_listener = Table(
    "broker_listener",
    metadata,
    Column("broker_id", Integer, ForeignKey("broker.broker_id", ondelete="CASCADE"), primary_key=True),
    Column("name", String(NAME_CHARACTERS), primary_key=True),
    Column("protocol", String(16), nullable=False),
    Column("host", String(255), nullable=False),
    Column("port", Integer, nullable=False),
)

# SCRAM's credential of a password (RFC 5802): only trying finds the password from it.
scram_credential = Table(
    "scram_credential",
    metadata,
    Column("user_name", String(NAME_CHARACTERS), primary_key=True),
    Column("mechanism", String(16), primary_key=True),
    Column("salt", LargeBinary, nullable=False),
    Column("stored_key", LargeBinary, nullable=False),
    Column("server_key", LargeBinary, nullable=False),
    Column("iterations", Integer, nullable=False),
    CheckConstraint("mechanism IN ('SCRAM-SHA-256', 'SCRAM-SHA-512')", name="mechanism"),
    CheckConstraint("iterations > 0", name="iterations"),
)

# The words of the columns are Kafka's own, in capitals: TOPIC, LITERAL, READ, ALLOW.
acl = Table(
    "acl",
    metadata,
    Column("resource_type", String(20), primary_key=True),
    Column("resource_name", String(NAME_CHARACTERS), primary_key=True),
    Column("pattern_type", String(16), primary_key=True),
    Column("principal", String(NAME_CHARACTERS), primary_key=True),
    Column("host", String(HOST_CHARACTERS), primary_key=True),
    Column("operation", String(20), primary_key=True),
    Column("permission", String(8), primary_key=True),
    Column("created_at_ms", BigInteger, nullable=False),
    CheckConstraint("pattern_type IN ('LITERAL', 'PREFIXED')", name="pattern_type"),
    CheckConstraint("permission IN ('ALLOW', 'DENY')", name="permission"),
)

# One entity is a user, a client id, both, or an address; each with a name, or the default of its kind.
client_quota = Table(
    "client_quota",
    metadata,
    Column("has_user", Boolean, primary_key=True),
    Column("user_name", String(NAME_CHARACTERS), primary_key=True),
    Column("has_client_id", Boolean, primary_key=True),
    Column("client_id", String(NAME_CHARACTERS), primary_key=True),
    Column("has_ip", Boolean, primary_key=True),
    Column("ip", String(64), primary_key=True),
    Column("quota", String(64), primary_key=True),
    Column("value", Float, nullable=False),
    CheckConstraint("value > 0", name="value"),
    CheckConstraint("has_user OR has_client_id OR has_ip", name="entity"),
)
"""`''` as a name is the default of its kind where `has_…` is true, and nothing where it is false."""
