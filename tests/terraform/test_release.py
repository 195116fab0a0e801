"""The archive that brokers install from: it holds all that is needed, and its hash is the one that is printed.

Asks the package registry, as whoever makes a release does; installing asks nobody.
"""

import hashlib
import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import parse_wheel_filename

from tests.certificates import Authority
from tests.terraform.installed import ROOT

pytestmark = [pytest.mark.terraform, pytest.mark.timeout(900)]
STEP_S = 600
# Without the path of these tests, on which Tiered is there already.
ENVIRON = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("release")
    trusted = Authority(folder).pem
    # What a build of another version left behind.
    platform = f"lib.{sysconfig.get_platform()}-{sys.implementation.cache_tag}"
    left = ROOT / "build" / platform / "tiered" / "gone_since.py"
    left.parent.mkdir(parents=True, exist_ok=True)
    left.touch()
    try:
        done = subprocess.run(
            [str(ROOT / "deploy/release.sh"), str(folder / "out"), str(trusted)],
            env={**ENVIRON, "PYTHON": sys.executable}, capture_output=True, text=True, timeout=STEP_S,
        )  # fmt: skip
    finally:
        left.unlink()
    assert done.returncode == 0, done.stderr
    (made,) = (folder / "out").iterdir()
    assert done.stdout.split() == [hashlib.sha256(made.read_bytes()).hexdigest(), made.name]
    return made


def test_a_release_installs_without_asking_anybody(archive: Path, tmp_path: Path) -> None:
    subprocess.run(["tar", "-xzf", str(archive), "-C", str(tmp_path)], check=True, timeout=STEP_S)
    assert "BEGIN CERTIFICATE" in (tmp_path / "database-ca.pem").read_text()
    (wheel,) = (tmp_path / "wheels").glob("tiered-*.whl")
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("tiered/") and name.endswith(".py")}
    lines = re.findall(r"^[a-z0-9].*==[^\\\n]+", (ROOT / "deploy/requirements.txt").read_text(), re.MULTILINE)
    locked = [Requirement(line) for line in lines]
    wanted = {
        f"{package.name}{package.specifier}" for package in locked if not package.marker or package.marker.evaluate()
    }
    packages = (parse_wheel_filename(path.name) for path in (tmp_path / "wheels").iterdir() if path != wheel)
    assert {f"{name}=={version}" for name, version, *_ in packages} == wanted
    assert packed == {str(path.relative_to(ROOT)) for path in (ROOT / "tiered").rglob("*.py")}
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True, timeout=STEP_S)
    words = ["install", "--quiet", "--no-index", "--find-links", str(tmp_path / "wheels"), "tiered[postgres]"]
    subprocess.run([str(tmp_path / "venv/bin/pip"), *words], check=True, timeout=STEP_S, env=ENVIRON, cwd=tmp_path)
    said = subprocess.run(
        [str(tmp_path / "venv/bin/tiered"), "serve", "--help"],
        env=ENVIRON, cwd=tmp_path, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert said.returncode == 0, said.stderr
    assert "--config FILE" in said.stdout


def test_a_file_that_is_no_certificate_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing")
    done = subprocess.run(
        [str(ROOT / "deploy/release.sh"), str(tmp_path / "out"), str(tmp_path / "ca.pem")],
        env={**ENVIRON, "PYTHON": sys.executable}, capture_output=True, text=True, timeout=STEP_S,
    )  # fmt: skip
    assert done.returncode == 1
    assert "holds no certificate" in done.stderr
