"""The systemd units, as systemd reads them. Nothing is started: that was never tried with a systemd that runs."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.terraform.installed import ROOT

pytestmark = [
    pytest.mark.terraform,
    pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is missing: install systemd"),
]

UNITS = sorted((ROOT / "deploy/systemd").iterdir())


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_systemd_understands_every_line(unit: Path, tmp_path: Path) -> None:
    for each in UNITS:
        # The programs are not installed here, and systemd would say only that.
        text = each.read_text().replace("/usr/local/sbin/tiered-", "/bin/true ").replace("/opt/tiered/", "/bin/true ")
        (tmp_path / each.name).write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(tmp_path / unit.name)],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_a_misspelt_line_would_be_seen(tmp_path: Path) -> None:
    (tmp_path / "wrong.service").write_text("[Service]\nExecStart=/bin/true\nNoNewPriviliges=yes\n")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(tmp_path / "wrong.service")],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert "NoNewPriviliges" in done.stderr
