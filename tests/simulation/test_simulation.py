"""Seconds of the simulation, and a minute in `make soak-tests`: no seed may violate anything, or go two ways."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.mutants import MUTANTS, planted

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("seconds", [8, pytest.param(60, marks=pytest.mark.soak)])
def test_seeds_hold_every_invariant_and_repeat_exactly(seconds: int) -> None:
    """In a process of its own: the simulation wraps functions of the product, and wants hashes that are the same."""
    ended = subprocess.run(
        [sys.executable, "-m", "tests.simulation", "--seconds", str(seconds), "--workers", "1", "--json"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        timeout=seconds + 100,
    )
    assert ended.returncode == 0, f"{ended.stdout[-4000:]}\n{ended.stderr[-4000:]}"
    found = json.loads(ended.stdout.splitlines()[-1])
    assert found["seeds"] >= 1
    assert found["acknowledged"] > 0 < found["polled"]
    assert found["violations"] == 0


def test_each_planted_bug_finds_what_it_replaces() -> None:
    """`make mutants` takes long: a name that has changed is to be seen before."""
    for mutant in MUTANTS:
        with planted(mutant):
            pass
