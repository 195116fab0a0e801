"""Forks of a warm parent: for a test they are processes like any other."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.warm_start import WarmProcess


def start(tmp_path: Path, module: str, *arguments: str, **environ: str) -> WarmProcess:
    with (tmp_path / "stderr").open("a") as stderr:
        return WarmProcess(module, arguments, environ={**os.environ, **environ}, stderr=stderr.fileno())


def test_its_output_its_complaints_and_its_exit_code_are_its_own(tmp_path: Path) -> None:
    good, bad = start(tmp_path, "calendar", "2024", "1"), start(tmp_path, "calendar", "no year")
    assert "January 2024" in good.stdout.read()
    assert (good.wait(60), bad.wait(60)) == (0, 2)
    assert bad.stdout.read() == ""
    assert "no year" in (tmp_path / "stderr").read_text()


def test_its_environment_is_what_was_given_and_nobody_elses(tmp_path: Path) -> None:
    told = start(tmp_path, "tiered.cli", "serve", TIERED_BROKER_ID="not a number")
    assert told.wait(60) == 2
    assert "not a number" in (tmp_path / "stderr").read_text()
    assert start(tmp_path, "tiered.cli", "--version").wait(60) == 0


def test_it_runs_until_a_signal_ends_it_and_the_signal_is_told(tmp_path: Path) -> None:
    process = start(tmp_path, "http.server", "0", "--bind", "127.0.0.1")
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.05)
    assert Path(f"/proc/{process.pid}").exists()
    process.kill()
    assert process.wait(60) == -signal.SIGKILL
    assert process.poll() == -signal.SIGKILL
    assert not Path(f"/proc/{process.pid}").exists()
    process.kill()
