"""Two minutes of the soak, with a seed of its own. `make soak MINUTES=60` is the long one."""

import os
from pathlib import Path

import pytest

from tests.cluster.soak import Soak, write_report

MINUTES = 2.0
SEED = 4


@pytest.mark.slow
@pytest.mark.timeout(420)
def test_two_minutes_of_rotating_faults_break_no_promise(tmp_path: Path) -> None:
    seed = int(os.environ.get("TIERED_SEED", SEED))
    soak = Soak(tmp_path / "soak", minutes=MINUTES, seed=seed, per_second=30.0)
    figures = soak.run()
    path = write_report(figures, tmp_path)
    print(path.read_text())
    assert figures.passed, f"logs, history and disks are in {tmp_path}\n{path.read_text()}"
    assert sum(figures.faults.values()) > 0
    assert figures.numbers["acknowledged (acks=all)"] > 1000
