"""The soak with a seed of its own: under a minute of it, and two in `make soak-tests`. `make soak MINUTES=60` is the
long one.
"""

import os
from pathlib import Path

import pytest

from tests.cluster.soak import ROUND_S, Soak, write_report
from tests.cluster.soak_report import SoakFigures

# A small disk, expired credentials, a database promoted without its last second, a frozen one.
LONG_SEED = 16
# Faults in each of its three rounds, kill -9 first.
SHORT_SEED = 131


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_rotating_faults_break_no_promise(tmp_path: Path) -> None:
    figures = soaked(tmp_path, minutes=0.5, round_s=10.0, seed=SHORT_SEED)
    assert figures.numbers["acknowledged (acks=all)"] > 300


@pytest.mark.soak
def test_two_minutes_of_rotating_faults_break_no_promise(tmp_path: Path) -> None:
    figures = soaked(tmp_path, minutes=2.0, round_s=ROUND_S, seed=LONG_SEED)
    assert figures.numbers["acknowledged (acks=all)"] > 1000


def soaked(folder: Path, *, minutes: float, round_s: float, seed: int) -> SoakFigures:
    """What came of a run that broke no promise, though something was done to it."""
    seed = int(os.environ.get("TIERED_SEED", seed))
    figures = Soak(folder / "soak", minutes=minutes, seed=seed, per_second=30.0, round_s=round_s).run()
    path = write_report(figures, folder)
    print(path.read_text())
    assert figures.passed, f"logs, history and disks are in {folder}\n{path.read_text()}"
    assert sum(figures.faults.values()) > 0
    assert figures.numbers["transactions committed"] > 5
    return figures
