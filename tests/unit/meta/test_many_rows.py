"""Many rows in few steps of SQLite, as `upserts` puts them."""

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import Connection, event, select

from tiered.meta.engine import Database
from tiered.meta.numbered_rows import keep_newer
from tiered.meta.tables import group_offset

COUNT = 300


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    made = Database.open(f"sqlite:///{tmp_path / 'meta.db'}")
    made.migrate()
    yield made
    made.close_sync()


def rows(*, commit_number: int) -> list[dict[str, object]]:
    return [
        {
            "group_id": f"g\u00fc{number}", "topic_id": UUID(int=number), "partition": number, "leader_epoch": -1,
            "committed_offset": 2**62 + number, "metadata": "a\0b", "committed_at_ms": 1, "slot_epoch": 5,
            "commit_number": commit_number,
        }
        for number in range(COUNT)
    ]  # fmt: skip


def test_many_rows_are_put_with_few_statements_and_are_what_they_were(database: Database) -> None:
    statements: list[str] = []

    def put(conn: Connection) -> int:
        event.listen(conn, "before_cursor_execute", lambda *given: statements.append(given[2]))
        return keep_newer(conn, group_offset, rows(commit_number=2))

    assert database.run_sync(put) == COUNT
    assert len(statements) == 5, "128, 128, 32, 8 and 4 rows"
    stored = database.run_sync(lambda conn: conn.execute(select(group_offset)).mappings().all())
    assert sorted(map(dict, stored), key=lambda each: each["partition"]) == rows(commit_number=2)


def test_of_many_rows_those_that_are_newer_are_stored_and_counted(database: Database) -> None:
    older, newer = rows(commit_number=1), rows(commit_number=3)
    some = [newer[number] if number % 3 else older[number] for number in range(COUNT)]
    database.run_sync(lambda conn: keep_newer(conn, group_offset, rows(commit_number=2)))
    assert database.run_sync(lambda conn: keep_newer(conn, group_offset, some)) == COUNT * 2 // 3
    stored = database.run_sync(lambda conn: conn.execute(select(group_offset.c.commit_number)).scalars().all())
    assert sorted(stored) == [2] * (COUNT // 3) + [3] * (COUNT * 2 // 3)
