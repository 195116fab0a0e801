"""The package installs from a clean tree, with a C compiler and without one, and carries all that it needs."""

import os
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
BUILD_INPUTS = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "tiered", "spark")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def build_wheel(folder: Path, *, compiler: str | None) -> Path:
    """A wheel of a copy of the tree, so that nothing that was built in place can help."""
    source = folder / "source"
    source.mkdir()
    for name in BUILD_INPUTS:
        path = ROOT / name
        if path.is_dir():
            shutil.copytree(path, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.so", "*.egg-info"))
        else:
            shutil.copy(path, source / name)
    environment = os.environ | ({"CC": compiler} if compiler else {})
    environment.pop("PYTHONPATH", None)
    run = subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--no-deps", "--no-build-isolation",
         "--wheel-dir", str(folder), str(source)],
        env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    (wheel,) = folder.glob("*.whl")
    return wheel


def installed_python(folder: Path, wheel: Path) -> Path:
    """A Python of its own that has the wheel, and borrows the dependencies of the one that runs the tests."""
    venv.create(folder / "venv", with_pip=False, symlinks=True)
    python = folder / "venv/bin/python"
    site = subprocess.run(
        [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    zipfile.ZipFile(wheel).extractall(site)
    import kio

    Path(site, "borrowed.pth").write_text(str(Path(kio.__file__).resolve().parents[1]) + "\n")
    return python


def names_in(wheel: Path) -> set[str]:
    return set(zipfile.ZipFile(wheel).namelist())


def imports(python: Path, code: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run([str(python), "-c", code], env=environment, cwd="/", capture_output=True, text=True)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built where there is no C compiler."""
    return build_wheel(tmp_path_factory.mktemp("wheel"), compiler="/bin/false")


def test_without_a_compiler_the_install_succeeds_and_has_no_kernel(tmp_path: Path, wheel: Path) -> None:
    assert not [name for name in names_in(wheel) if name.endswith(".so")]
    run = imports(
        installed_python(tmp_path, wheel), "import tiered, tiered.config, pyspark_tiered; print(tiered.__file__)"
    )
    assert run.returncode == 0, run.stderr
    assert str(tmp_path) in run.stdout


def test_with_a_compiler_the_kernel_stands_beside_its_source(tmp_path: Path) -> None:
    names = names_in(build_wheel(tmp_path, compiler=None))
    assert [name for name in names if name.startswith("tiered/formats/_decode.") and name.endswith(".so")]


def test_the_wheel_carries_types_migrations_the_console_and_the_spark_source(wheel: Path) -> None:
    names = names_in(wheel)
    sources = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tiered").rglob("*.py")}
    spark = {path.relative_to(ROOT / "spark").as_posix() for path in (ROOT / "spark/pyspark_tiered").rglob("*.py")}
    assert sources | spark | {"tiered/py.typed"} <= names
    console = ROOT / "tiered/server/http/console"
    missing = {path.relative_to(ROOT).as_posix() for path in console.rglob("*") if path.is_file()} - names
    assert not missing, "the console has files that the wheel leaves out"


def test_the_extra_for_spark_names_what_dataframes_of_pyspark_need() -> None:
    """PySpark itself asks for them in an extra of its own alone."""
    optional = [Requirement(line) for line in metadata.requires("pyspark") or ()]
    needed = {line.name for line in optional if line.marker is not None and line.marker.evaluate({"extra": "sql"})}
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert needed
    assert needed <= {Requirement(line).name for line in extras["spark"]}
