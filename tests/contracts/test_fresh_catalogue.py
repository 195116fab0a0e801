"""The catalogue that test clusters begin with is the one that the migrations make."""

import re
import sqlite3
from pathlib import Path

from tiered.meta import migrations
from tiered.meta.engine import Database
from tiered.testing.fresh_catalogue import fresh_catalogue

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


def test_the_catalogue_of_test_clusters_is_the_one_that_the_migrations_make(tmp_path: Path) -> None:
    (tmp_path / "fresh.db").write_bytes(fresh_catalogue())
    database = Database.open(f"sqlite:///{tmp_path}/migrated.db")
    database.migrate()
    database.close_sync()
    fresh, migrated = described(tmp_path / "fresh.db"), described(tmp_path / "migrated.db")
    assert fresh.keys() == migrated.keys()
    for name, value in migrated.items():
        assert fresh[name] == value, name


def test_a_broker_finds_nothing_to_migrate_in_it(tmp_path: Path) -> None:
    (tmp_path / "fresh.db").write_bytes(fresh_catalogue())
    database = Database.open(f"sqlite:///{tmp_path}/fresh.db")
    assert not database.run_sync(migrations.is_behind)
    database.close_sync()
