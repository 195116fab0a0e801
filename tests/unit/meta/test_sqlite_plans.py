"""What SQLite reads for what brokers ask again and again: a few rows by an index, however many others there are."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, event

from tests.catalogue import NOW_MS, open_ready
from tests.contracts.stored_groups import take
from tiered.meta import groups, segments, transactions
from tiered.meta.group_offsets import WritingCoordinator
from tiered.rules.security.authorization import NameScope

Ask = Callable[[Connection, WritingCoordinator], object]
ASKED: dict[str, tuple[str, Ask]] = {
    "open transactions": (
        "transactional_producer_open",
        lambda conn, _: transactions.load_open(conn, [0, 1]),
    ),
    "decided transactions": (
        "transactional_producer_open",
        lambda conn, _: transactions.load_decided(conn, [0, 1]),
    ),
    "a list of open transactions": (
        "transactional_producer_open",
        lambda conn, _: transactions.load_some(conn, slots=[0, 1], after="", limit=9, open_only=True),
    ),
    "expired transactional ids": (
        "transactional_producer_changed",
        lambda conn, by: transactions.remove_expired(conn, slots=[0, 1], before_ms=NOW_MS, limit=9, by=by),
    ),
    "segments to purge": (
        "segment_retired",
        lambda conn, _: segments.list_purgeable(conn, now_ms=NOW_MS, leader=1),
    ),
    "groups whose names begin alike": (
        "consumer_group_by_slot (slot=? AND group_id>? AND group_id<?)",
        lambda conn, _: groups.load_some(
            conn, slots=[0, 1], after="", limit=9, scope=NameScope(frozenset(), ("alice-",))
        ),
    ),
    "overdue uploads": (
        "segment_planned",
        lambda conn, _: segments.list_overdue_planned(conn, planned_before_ms=NOW_MS),
    ),
}


@pytest.mark.parametrize("asked", ASKED)
def test_what_is_asked_often_is_found_by_an_index_of_its_own(tmp_path: Path, asked: str) -> None:
    index, ask = ASKED[asked]
    database = open_ready(f"sqlite:///{tmp_path / 'meta.db'}")
    by = take(database)

    def steps(conn: Connection) -> list[str]:
        seen: list[tuple[str, Any]] = []
        event.listen(conn, "before_cursor_execute", lambda *of: seen.append((of[2], of[3])))
        ask(conn, by)
        return [
            row[3]
            for statement, parameters in tuple(seen)
            for row in conn.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
        ]

    try:
        plan = [step for step in database.run_sync(steps) if re.search(" segment|transactional_producer|group", step)]
        assert any(f"INDEX ix_{index}" in step for step in plan), plan
        assert not any(step.startswith("SCAN") for step in plan if "planned" not in step), plan
    finally:
        database.close_sync()
