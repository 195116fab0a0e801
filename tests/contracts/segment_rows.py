"""Segments of one partition in a catalogue: planned, committed and retired in one line each, and deaths on the way."""

import os
import signal
import subprocess
import sys
from uuid import UUID

from tests.catalogue import HOUR_MS, NOW_MS, elect, segment_plan
from tiered.meta import partitions, segments
from tiered.meta.engine import Database
from tiered.meta.segments import SegmentPlan, SegmentRow


def plan(database: Database, wanted: SegmentPlan) -> SegmentRow:
    return database.run_sync(lambda conn: segments.plan(conn, wanted))


def commit(database: Database, object_id: UUID, *, epoch: int = 0, size_bytes: int | None = None) -> SegmentRow:
    return database.run_sync(
        lambda conn: segments.commit(conn, object_id, leader_epoch=epoch, now_ms=NOW_MS, size_bytes=size_bytes)
    )


def add(database: Database, topic_id: UUID, base: int, end: int, *, epoch: int = 0) -> SegmentRow:
    row = plan(database, segment_plan(topic_id, base, end, leader_epoch=epoch))
    return commit(database, row.object_id, epoch=epoch)


def retire(database: Database, topic_id: UUID, to: int, *, epoch: int = 0) -> tuple[SegmentRow, ...]:
    return database.run_sync(
        lambda conn: segments.retire_before(
            conn,
            topic_id,
            0,
            leader_epoch=epoch,
            new_log_start_offset=to,
            now_ms=NOW_MS,
            purge_after_ms=NOW_MS + HOUR_MS,
        )
    )


def committed(database: Database, topic_id: UUID) -> list[tuple[int, int]]:
    rows = database.run_sync(lambda conn: segments.list_committed(conn, topic_id, 0))
    return [(row.base_offset, row.end_offset) for row in rows]


def bounds(database: Database, topic_id: UUID) -> tuple[int, int]:
    row = database.run_sync(lambda conn: partitions.load(conn, topic_id, 0))
    return row.log_start_offset, row.cold_end_offset


def new_leader(database: Database, topic_id: UUID) -> int:
    return database.run_sync(lambda conn: elect(conn, topic_id)).leader_epoch


def run_until_killed(script: str, crash_at: str, *arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env={**os.environ, "TIERED_CRASH_AT": crash_at},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
