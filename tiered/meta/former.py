"""Reads an older database of the cluster for a restore: what only SQL has.

Owns the statements, which tables and columns they need, and their bounds. Must never change that database, nor make it:
a file of SQLite is copied first, because opening one may already write to it.
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Table, inspect, select
from sqlalchemy.engine import URL

from tiered.errors import InvalidConfig
from tiered.formats.acl_entries import AclEntry
from tiered.formats.group_checkpoint import GroupEntry, StoredOffset
from tiered.meta.connections import sqlite_file
from tiered.meta.engine import Database
from tiered.meta.group_offsets import metadata_of
from tiered.meta.security_tables import acl, client_quota, scram_credential
from tiered.meta.tables import cluster, consumer_group, group_offset, transactional_producer
from tiered.rules.security.quotas import QuotaEntity
from tiered.rules.security.sasl.mechanism import ScramMechanism
from tiered.rules.security.sasl.scram import ScramCredential
from tiered.rules.segments.former_database import DecidedCommit, FormerDatabase
from tiered.rules.transactions.transaction_state import TransactionState

MAX_ROWS = 5_000_000
"""Of one table; as many offsets as the bucket's checkpoints of 50 slots hold."""
ROWS_AT_ONCE = 500
DEADLINE_MS = 600_000
SUFFIXES = ("", "-wal", "-journal")
"""The files of a database of SQLite that hold its contents."""

_DECIDED = TransactionState.PREPARE_COMMIT.value
_COLUMNS: Mapping[Table, Sequence[str]] = {
    cluster: ("cluster_id",),
    scram_credential: scram_credential.c.keys(),
    client_quota: client_quota.c.keys(),
    acl: acl.primary_key.columns.keys(),
    consumer_group: ("group_id", "kind", "protocol_type", "generation"),
    group_offset: [
        *group_offset.primary_key.columns.keys(),
        "committed_offset",
        "leader_epoch",
        "metadata",
        "committed_at_ms",
    ],
    transactional_producer: ("producer_id", "producer_epoch", "protocol", "state"),
}


def read_former(url: str) -> FormerDatabase:
    """The older database at this URL, which may have an older revision of the tables, and which nobody may be writing.

    Raises InvalidConfig, MetadataUnavailable.
    """
    file = sqlite_file(url)
    if file is None:
        return _read(url)
    with TemporaryDirectory(prefix="tiered-former-") as folder:
        copy = Path(folder) / "meta.db"
        try:
            for suffix in SUFFIXES:
                source = file.with_name(file.name + suffix)
                if not suffix or source.exists():
                    shutil.copyfile(source, f"{copy}{suffix}")
        except OSError as error:
            raise InvalidConfig(f"the former database {file} cannot be copied: {error.strerror or error}") from error
        return _read(URL.create("sqlite", database=str(copy)).render_as_string())


def _read(url: str) -> FormerDatabase:
    database = Database.open(url)
    try:
        return database.run_sync(load, deadline_ms=DEADLINE_MS)
    finally:
        database.close_sync()


def load(conn: Connection) -> FormerDatabase:
    """All that a restore takes, as of one moment. The transaction can write nothing on PostgreSQL."""
    if conn.dialect.name == "postgresql":
        conn.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
    _require_columns(conn)
    described = next(_rows(conn, cluster), None)
    if described is None:
        raise InvalidConfig("the former database describes no cluster: no broker ever started on it")
    return FormerDatabase(
        cluster_id=described.cluster_id,
        credentials={
            (row.user_name, ScramMechanism(row.mechanism)): ScramCredential(
                salt=row.salt, stored_key=row.stored_key, server_key=row.server_key, iterations=row.iterations
            )
            for row in _rows(conn, scram_credential)
        },
        quotas={
            (
                QuotaEntity(
                    user=row.user_name if row.has_user else None,
                    client_id=row.client_id if row.has_client_id else None,
                    ip=row.ip if row.has_ip else None,
                ),
                row.quota,
            ): row.value
            for row in _rows(conn, client_quota)
        },
        acls=tuple(AclEntry(**row._asdict()) for row in _rows(conn, acl)),
        groups=_groups(conn),
        commits=tuple(
            DecidedCommit(producer_id=row.producer_id, marker_epoch=row.producer_epoch, protocol=row.protocol)
            for row in _rows(conn, transactional_producer, transactional_producer.c.state == _DECIDED)
        ),
    )


def _require_columns(conn: Connection) -> None:
    """Raises InvalidConfig."""
    tables = inspect(conn)
    existing = set(tables.get_table_names())
    for table, names in _COLUMNS.items():
        if table.name not in existing:
            raise InvalidConfig(f"the former database has no table {table.name}: no broker of this version used it")
        missing = {*names} - {column["name"] for column in tables.get_columns(table.name)}
        if missing:
            raise InvalidConfig(f"the former database has no column {min(missing)} in its table {table.name}")


def _groups(conn: Connection) -> tuple[GroupEntry, ...]:
    offsets: dict[str, list[StoredOffset]] = {}
    for row in _rows(conn, group_offset):
        offsets.setdefault(row.group_id, []).append(
            StoredOffset(
                topic_id=row.topic_id,
                partition=row.partition,
                offset=row.committed_offset,
                leader_epoch=row.leader_epoch,
                metadata=metadata_of(row.metadata),
                committed_at_ms=row.committed_at_ms,
            )
        )
    return tuple(
        GroupEntry(**row._asdict(), offsets=tuple(offsets.get(row.group_id, ()))) for row in _rows(conn, consumer_group)
    )


def _rows(conn: Connection, table: Table, *where: ColumnElement[bool]) -> Iterator[Row[Any]]:
    """The rows in the order of their keys."""
    statement = select(*(table.c[name] for name in _COLUMNS[table])).where(*where).order_by(*table.primary_key.columns)
    result = conn.execute(statement.limit(MAX_ROWS + 1), execution_options={"yield_per": ROWS_AT_ONCE})
    for number, row in enumerate(result):
        if number == MAX_ROWS:
            raise InvalidConfig(f"the former database has more than {MAX_ROWS:,} rows of {table.name}: too many")
        yield row
