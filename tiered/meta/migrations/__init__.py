"""The metadata store's revisions, and whether a database is at the last one.

Owns the question "is there anything to do?" without alembic, whose import would cost every start a
tenth of a second; alembic comes only when there is. An empty SQLite file is made without it, too: from the tables
that the code describes, which a contract test lays beside what the revisions make. A released revision is never
edited.
"""

from pathlib import Path

from sqlalchemy import Connection, insert, inspect, text

from tiered.errors import InvalidConfig

REVISIONS = (
    "0001",
    "0002",
    "0003",
    "0004",
    "0005",
    "0006",
    "0007",
    "0008",
    "0009",
    "0010",
    "0011",
    "0012",
    "0013",
    "0014",
    "0015",
    "0016",
    "0017",
    "0018",
)
"""All revisions that this code knows, oldest first: the files in `versions`."""

DEADLINE_MS = 120_000
"""A migration may wait for another process's, and rewrite tables."""

_LOCK_KEY = 0x7469_6572_6564  # "tiered": PostgreSQL's advisory locks are numbers


def stored_revision(conn: Connection) -> str | None:
    """The revision of the database; None where no migration was ever run."""
    if not inspect(conn).has_table("alembic_version"):
        return None
    return conn.execute(text("SELECT version_num FROM alembic_version")).scalar_one_or_none()


def is_behind(conn: Connection) -> bool:
    """True when `upgrade` has something to do. Raises `InvalidConfig` when the database is newer than this code."""
    stored = stored_revision(conn)
    if stored is not None and stored not in REVISIONS:
        raise InvalidConfig(
            f"the metadata database is at revision {stored}, which this version does not know (its newest is "
            f"{REVISIONS[-1]}): a newer version has migrated it. Run that version, or restore an older backup"
        )
    return stored != REVISIONS[-1]


def upgrade(conn: Connection) -> None:
    """Runs the missing revisions in the caller's transaction: all of them or none.

    One process at a time: SQLite's transaction is the lock; on PostgreSQL an advisory lock is taken, and
    the loser finds nothing left to do.
    """
    if conn.dialect.name == "postgresql":
        conn.execute(text(f"SET LOCAL statement_timeout = {DEADLINE_MS}"))
        conn.execute(text(f"SET LOCAL lock_timeout = {DEADLINE_MS}"))
        conn.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK_KEY})
    if not is_behind(conn):
        return
    if conn.dialect.name == "sqlite" and not inspect(conn).get_table_names():
        create(conn)
    else:
        run_revisions(conn)


def create(conn: Connection) -> None:
    """Everything that the revisions would make, in an empty database; later ones find it at the newest."""
    from tiered.meta import security_tables, views
    from tiered.meta.tables import ONLY_ROW, metadata, producer_id_block

    assert security_tables.acl.metadata is metadata, "they are among those created"
    metadata.create_all(conn)
    views.install(conn, REVISIONS[-1])
    conn.exec_driver_sql(
        "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL, "
        "CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))"
    )
    conn.execute(text("INSERT INTO alembic_version VALUES (:revision)"), {"revision": REVISIONS[-1]})
    conn.execute(insert(producer_id_block).values(id=ONLY_ROW, next_producer_id=0))


def run_revisions(conn: Connection) -> None:
    """Runs the revisions that the database does not have yet, by alembic."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = conn
    command.upgrade(config, "head")
