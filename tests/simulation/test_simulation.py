"""Thirty seconds of the simulation: no seed may violate anything, and none may go two ways."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SECONDS = "24"


def test_seeds_hold_every_invariant_and_repeat_exactly() -> None:
    """In a process of its own: the simulation wraps functions of the product, and wants hashes that are the same."""
    ended = subprocess.run(
        [sys.executable, "-m", "tests.simulation", "--seconds", SECONDS, "--workers", "1", "--json"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert ended.returncode == 0, f"{ended.stdout[-4000:]}\n{ended.stderr[-4000:]}"
    found = json.loads(ended.stdout.splitlines()[-1])
    assert found["seeds"] >= 1
    assert found["acknowledged"] > 0 < found["polled"]
    assert found["violations"] == 0
