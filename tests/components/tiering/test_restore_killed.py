"""`tiered restore --apply` killed with SIGKILL, at each of its steps in turn, and run again until it is done."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.restored_bucket import Bucket
from tests.unit.cold.stored_segments import PARTITION, TOPIC_ID
from tiered.meta import group_offsets, partitions, restore
from tiered.meta.engine import Database

STEPS = ("restore.claimed_cluster", "restore.claimed_some:2", "restore.written_some:4", "restore.committed")
PROCESS_S = 120


def run(bucket: Bucket, meta_url: str, *, crash_at: str = "") -> "subprocess.CompletedProcess[str]":
    environ = {key: value for key, value in os.environ.items() if key != "TIERED_CRASH_AT"}
    return subprocess.run(
        [sys.executable, "-m", "tiered.cli", "restore", "--from", bucket.store.url, "--meta", meta_url, "--apply"],
        env={**environ, "TIERED_CRASH_AT": crash_at} if crash_at else environ,
        capture_output=True,
        text=True,
        timeout=PROCESS_S,
    )


@pytest.mark.slow
def test_a_restore_that_was_killed_anywhere_is_simply_run_again(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    meta_url = f"sqlite:///{tmp_path}/new.db"
    for step in STEPS:
        assert restore.look_at(meta_url).holds is None, step
        killed = run(bucket, meta_url, crash_at=step)
        assert killed.returncode == -signal.SIGKILL, (step, killed)
    last = run(bucket, meta_url)
    assert (last.returncode, last.stderr) == (0, "")
    assert "is restored already" in last.stdout
    database = Database.open(meta_url)
    try:
        row = database.run_sync(lambda conn: partitions.load(conn, TOPIC_ID, PARTITION))
        assert (row.log_start_offset, row.cold_end_offset) == (10, 50)
        # The other groups' topics are not in this bucket.
        assert database.run_sync(lambda conn: group_offsets.load(conn, "billing", limit=10)) == ()
        held = database.run_sync(restore.look)
        assert held.cluster_id == bucket.plan().former_cluster_id
    finally:
        database.close_sync()
