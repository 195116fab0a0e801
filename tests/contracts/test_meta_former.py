"""What a restore reads in an older database, on SQLite and on PostgreSQL, and that it changes nothing there."""

import sqlite3
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, insert, select

from tests.catalogue import NOW_MS
from tests.contracts.stored_groups import TOPIC
from tests.contracts.stored_transactions import begin
from tiered.errors import InvalidConfig
from tiered.formats.acl_entries import AclEntry
from tiered.formats.group_checkpoint import GroupEntry, StoredOffset
from tiered.meta import former, security
from tiered.meta.engine import Database
from tiered.meta.security import NOBODY, AclRow
from tiered.meta.tables import consumer_group, group_offset, metadata
from tiered.rules.security.quotas import QuotaChange, QuotaEntity
from tiered.rules.security.sasl.mechanism import ScramMechanism
from tiered.rules.security.sasl.scram import CredentialChange, ScramCredential
from tiered.rules.segments.former_database import DecidedCommit
from tiered.rules.transactions.transaction_state import KEEPS_EPOCH, TransactionState

pytest_plugins = ["tests.meta_databases"]

RULE = AclEntry(
    resource_type="TOPIC",
    resource_name="orders",
    pattern_type="PREFIXED",
    principal="User:ann",
    host="*",
    operation="READ",
    permission="DENY",
)
CREDENTIAL = ScramCredential(salt=b"\0salt", stored_key=b"\xffkey", server_key=b"server", iterations=4096)
ANN = ("ann", ScramMechanism.SHA_256)
QUOTAS = {
    (QuotaEntity(user="", client_id="app"), "producer_byte_rate"): 1024.0,
    (QuotaEntity(ip="10.0.0.1"), "connection_creation_rate"): 2.0,
}
OFFSET = StoredOffset(
    topic_id=TOPIC, partition=2, offset=17, leader_epoch=4, metadata="note", committed_at_ms=NOW_MS + 1
)


def fill(database: Database) -> None:
    """Something of everything that a restore takes, and transactions in other states."""
    fresh = {"slot": 0, "kind": "consumer", "protocol_type": "consumer", "slot_epoch": 1, "commit_number": 1}
    stored: dict[str, Any] = asdict(OFFSET)
    stored["committed_offset"] = stored.pop("offset")

    def write(conn: Connection) -> None:
        ann = CredentialChange(user_name=ANN[0], mechanism=ANN[1], credential=CREDENTIAL)
        security.alter_credentials(conn, [ann], secret=b"secret")
        security.alter_quotas(conn, [QuotaChange(entity=key[0], quota=key[1], value=QUOTAS[key]) for key in QUOTAS])
        security.create_acls(conn, [AclRow(**asdict(RULE))], now_ms=NOW_MS)
        for group_id, generation in (("billing", 3), ("idle", 0)):
            conn.execute(insert(consumer_group).values(group_id=group_id, generation=generation, **fresh))
        conn.execute(insert(group_offset).values(group_id="billing", slot_epoch=1, commit_number=1, **stored))

    database.run_sync(write)
    for producer_id, state in enumerate(TransactionState):
        begin(database, producer_id, state=state)


def contents(conn: Connection) -> dict[str, list[Any]]:
    return {table.name: sorted(map(repr, conn.execute(select(table)))) for table in metadata.sorted_tables}


def test_everything_that_a_restore_takes_is_read_and_nothing_is_changed(database: Database, database_url: str) -> None:
    fill(database)
    before = database.run_sync(contents)
    older = former.read_former(database_url)
    assert older.cluster_id == "test-cluster"
    assert older.credentials.keys() == {ANN, (NOBODY, ScramMechanism.SHA_512)}
    assert older.credentials[ANN] == CREDENTIAL
    assert older.credentials[NOBODY, ScramMechanism.SHA_512].salt == b"secret"
    assert older.quotas == QUOTAS
    assert older.acls == (RULE,)
    assert older.groups == (
        GroupEntry(group_id="billing", kind="consumer", protocol_type="consumer", generation=3, offsets=(OFFSET,)),
        GroupEntry(group_id="idle", kind="consumer", protocol_type="consumer", generation=0, offsets=()),
    )
    decided = list(TransactionState).index(TransactionState.PREPARE_COMMIT)
    assert older.commits == (DecidedCommit(producer_id=decided, marker_epoch=3, protocol=KEEPS_EPOCH),)
    assert database.run_sync(contents) == before


def test_what_was_never_this_programs_is_refused_in_words(database_url: str) -> None:
    empty = Database.open(database_url)
    empty.run_sync(lambda conn: conn.exec_driver_sql("CREATE TABLE cluster (id INTEGER)"))
    empty.close_sync()
    with pytest.raises(InvalidConfig, match="no column cluster_id in its table cluster"):
        former.read_former(database_url)


def test_a_database_from_before_one_of_the_tables_and_one_without_a_cluster_are_refused(database_url: str) -> None:
    empty = Database.open(database_url)
    empty.migrate()
    with pytest.raises(InvalidConfig, match="describes no cluster"):
        former.read_former(database_url)
    empty.run_sync(lambda conn: conn.exec_driver_sql("DROP TABLE client_quota"))
    empty.close_sync()
    with pytest.raises(InvalidConfig, match="no table client_quota"):
        former.read_former(database_url)


def test_more_rows_than_are_taken_are_refused(
    database: Database, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(database)
    monkeypatch.setattr(former, "MAX_ROWS", 1)
    with pytest.raises(InvalidConfig, match="more than 1 rows of scram_credential"):
        former.read_former(database_url)


def test_a_file_that_is_missing_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="cannot be copied: No such file"):
        former.read_former(f"sqlite:///{tmp_path}/gone.db")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", ["WAL", "DELETE"])
def test_files_stay_as_they_are_also_with_commits_that_are_only_in_the_journal(
    ready_sqlite: Path, tmp_path: Path, mode: str
) -> None:
    left = tmp_path / "left.db"
    left.write_bytes(ready_sqlite.read_bytes())
    kept = tmp_path / "kept"
    kept.mkdir()
    with closing(sqlite3.connect(left)) as conn:
        conn.execute(f"PRAGMA journal_mode={mode}")
        conn.execute("UPDATE cluster SET cluster_id = 'renamed'")
        conn.commit()
        # As kill -9 leaves it: nobody has moved the journal into the database.
        for file in tmp_path.glob("left.db*"):
            (kept / file.name).write_bytes(file.read_bytes())
    before = {file.name: file.read_bytes() for file in kept.iterdir()}
    assert ("left.db-wal" in before) is (mode == "WAL")
    assert former.read_former(f"sqlite:///{kept}/left.db").cluster_id == "renamed"
    assert {file.name: file.read_bytes() for file in kept.iterdir()} == before
