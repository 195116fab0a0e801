"""An SQLite catalogue that is made without alembic is the one that the revisions make."""

import re
import sqlite3
from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection

from tiered.meta import migrations
from tiered.meta.engine import Database
from tiered.meta.migrations import run_revisions
from tiered.testing.local_cluster import fresh_catalogue

Found = dict[str, object]


def described(path: Path) -> Found:
    """Everything in the file but the order of columns, which an ALTER puts at the end."""
    conn = sqlite3.connect(path)
    found: Found = {}
    for kind, name, sql in conn.execute("SELECT type, name, sql FROM sqlite_master").fetchall():
        if kind == "table":
            columns = conn.execute(f"PRAGMA table_info({name})").fetchall()
            found[f"columns of {name}"] = sorted(column[1:] for column in columns)
            found[f"keys of {name}"] = sorted(row[2:] for row in conn.execute(f"PRAGMA foreign_key_list({name})"))
            found[f"rows of {name}"] = conn.execute(f"SELECT * FROM {name}").fetchall()
            found[f"checks of {name}"] = sorted(re.findall(r"CONSTRAINT (\S+) CHECK", sql))
        elif kind == "index" and sql is None:
            table = conn.execute("SELECT tbl_name FROM sqlite_master WHERE name = ?", (name,)).fetchone()
            found[f"key {name}"] = (table, conn.execute(f"PRAGMA index_info({name})").fetchall())
        else:
            found[f"{kind} {name}"] = " ".join(sql.split())
    conn.close()
    return found


def test_a_new_catalogue_is_the_one_that_the_revisions_make(tmp_path: Path) -> None:
    (tmp_path / "fresh.db").write_bytes(fresh_catalogue())
    for name, make in (("created", Database.migrate), ("migrated", lambda made: made.run_sync(run_revisions))):
        database = Database.open(f"sqlite:///{tmp_path}/{name}.db")
        make(database)
        database.close_sync()
    migrated = described(tmp_path / "migrated.db")
    for path in (tmp_path / "fresh.db", tmp_path / "created.db"):
        made = described(path)
        assert made.keys() == migrated.keys()
        for name, value in migrated.items():
            assert made[name] == value, name


def test_a_catalogue_of_an_older_revision_is_migrated(tmp_path: Path) -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    config.set_main_option("path_separator", "os")
    database = Database.open(f"sqlite:///{tmp_path}/old.db")

    def begin(conn: Connection) -> None:
        config.attributes["connection"] = conn
        command.upgrade(config, migrations.REVISIONS[0])

    database.run_sync(begin)
    assert database.run_sync(migrations.stored_revision) == migrations.REVISIONS[0]
    database.migrate()
    database.close_sync()
    (tmp_path / "fresh.db").write_bytes(fresh_catalogue())
    assert described(tmp_path / "old.db") == described(tmp_path / "fresh.db")


def test_a_broker_finds_nothing_to_migrate_in_it(tmp_path: Path) -> None:
    (tmp_path / "fresh.db").write_bytes(fresh_catalogue())
    database = Database.open(f"sqlite:///{tmp_path}/fresh.db")
    assert not database.run_sync(migrations.is_behind)
    database.close_sync()
