"""Transactional ids that nobody uses cost nothing, as far as SQLite's plans tell: Flink leaves very many behind."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, event

from tests.catalogue import NOW_MS, open_ready
from tests.contracts.stored_groups import take
from tiered.meta import transactions

LOOKS: dict[str, Callable[[Connection], object]] = {
    "open": lambda conn: transactions.load_open(conn, [0, 1]),
    "decided": lambda conn: transactions.load_decided(conn, [0, 1]),
    "listed": lambda conn: transactions.load_some(conn, slots=[0, 1], after="", limit=9, open_only=True),
}


@pytest.mark.parametrize("look", [*LOOKS, "expired"])
def test_idle_transactional_ids_are_not_read_by_what_looks_for_others(tmp_path: Path, look: str) -> None:
    database = open_ready(f"sqlite:///{tmp_path / 'meta.db'}")
    by = take(database)

    def expired(conn: Connection) -> object:
        return transactions.remove_expired(conn, slots=[0, 1], before_ms=NOW_MS, limit=9, by=by)

    def plans(conn: Connection) -> list[str]:
        seen: list[tuple[str, Any]] = []
        event.listen(conn, "before_cursor_execute", lambda *of: seen.append((of[2], of[3])))
        LOOKS.get(look, expired)(conn)
        return [
            row[3]
            for statement, parameters in tuple(seen)
            if "FROM transactional_producer" in statement
            for row in conn.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
        ]

    try:
        index = "changed" if look == "expired" else "open"
        found = database.run_sync(plans)
        assert any(f"INDEX ix_transactional_producer_{index} (" in step for step in found), found
        assert not any(step.startswith("SCAN") for step in found), found
    finally:
        database.close_sync()
