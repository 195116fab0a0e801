"""A test that fails is told of by its name, whatever it raised."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

NOT_TO_BE_SHOWN = """
class Unspeakable(Exception):
    def __repr__(self):
        raise ValueError("no words")

def test_before(): pass

def test_in_question():
    raise ExceptionGroup("several", [Unspeakable("the reason")])

def test_after(): pass
"""


def test_a_failure_that_pytest_cannot_show_is_told_and_the_rest_runs(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("from tests.conftest import pytest_runtest_makereport\n")
    (tmp_path / "test_it.py").write_text(NOT_TO_BE_SHOWN)
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "1", "-p", "no:cacheprovider", "-p", "no:schemathesis", str(tmp_path)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert ended.returncode == 1
    assert "1 failed, 2 passed" in ended.stdout
    assert "FAILED test_it.py::test_in_question" in ended.stdout
    assert "the reason" in ended.stdout
