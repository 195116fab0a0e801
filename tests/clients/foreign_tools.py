"""The tools that clients from outside the Python registry need, and their programs made ready to run."""

import shutil
import subprocess
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent
# What Debian and Ubuntu call the packages of these.
PACKAGES = {
    "go": "golang-go",
    "java": "openjdk-17-jdk-headless",
    "javac": "openjdk-17-jdk-headless",
    "mvn": "maven",
    "node": "nodejs",
    "npm": "npm",
}


def tool(name: str) -> str:
    """Its path; without it the test fails."""
    found = shutil.which(name)
    if found is None:
        words = f"{name} is not on PATH: install it (Debian, Ubuntu: apt-get install {PACKAGES[name]})"
        pytest.fail(words, pytrace=False)
    return found


def go_programs(folder: Path) -> Path:
    """`folder`, with a binary for each folder of `tests/clients/go`. Go keeps modules and builds in its own caches."""
    subprocess.run(
        [tool("go"), "build", "-mod=readonly", "-o", f"{folder}/", "./..."],
        cwd=PROGRAMS / "go", check=True, timeout=900,
    )  # fmt: skip
    return folder


def go_program(source: str, folder: Path) -> Path:
    """The binary of a folder that is a module of its own."""
    binary = folder / source
    subprocess.run(
        [tool("go"), "build", "-mod=readonly", "-o", binary, "."], cwd=PROGRAMS / source, check=True, timeout=900
    )
    return binary


def node_programs(folder: Path) -> Path:
    """`folder`, with the programs of `tests/clients/node` and the packages that its lock file names."""
    shutil.copytree(PROGRAMS / "node", folder, dirs_exist_ok=True)
    subprocess.run(
        [tool("npm"), "ci", "--omit=optional", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"],
        cwd=folder, check=True, timeout=600,
    )  # fmt: skip
    return folder
