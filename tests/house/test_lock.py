"""deploy/requirements.txt is what pyproject.toml asks for, and whatever installs a broker installs from it."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
LOCK = (ROOT / "deploy/requirements.txt").read_text()
RENEW = "run `make lock`"
ENTRY = re.compile(
    r"^(?P<requirement>[a-z0-9].*?) \\\n(?: +--hash=sha256:[0-9a-f]{64}(?: \\)?\n)+(?P<reasons>(?: +#.*\n)*)",
    re.MULTILINE,
)


def required() -> list[Requirement]:
    """What a broker needs, and what builds it."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = declared["project"]
    postgres = project["optional-dependencies"]["postgres"]
    return [Requirement(line) for line in [*project["dependencies"], *postgres, *declared["build-system"]["requires"]]]


def locked() -> dict[str, Requirement]:
    requirements = [Requirement(entry["requirement"]) for entry in ENTRY.finditer(LOCK)]
    return {canonicalize_name(requirement.name): requirement for requirement in requirements}


def test_every_package_has_one_version_and_hashes_and_no_address() -> None:
    assert len(locked()) == len(ENTRY.findall(LOCK)), RENEW
    assert [package for package in locked().values() if not str(package.specifier).startswith("==")] == []
    assert ENTRY.sub("", LOCK) == "".join(line for line in LOCK.splitlines(keepends=True) if line.startswith("#"))
    assert "://" not in LOCK


@pytest.mark.parametrize("requirement", required(), ids=lambda requirement: requirement.name)
def test_what_pyproject_asks_for_is_locked(requirement: Requirement) -> None:
    package = locked().get(canonicalize_name(requirement.name))
    assert package is not None, RENEW
    assert package.extras == requirement.extras, RENEW
    assert requirement.specifier.contains(str(package.specifier).removeprefix("==")), RENEW


def test_nothing_is_locked_that_pyproject_no_longer_asks_for() -> None:
    direct = {
        Requirement(entry["requirement"]).name for entry in ENTRY.finditer(LOCK) if "(pyproject" in entry["reasons"]
    }
    assert direct
    assert direct <= {canonicalize_name(requirement.name) for requirement in required()}, RENEW


@pytest.mark.parametrize("path", ["deploy/Containerfile", "deploy/release.sh", "deploy/bin/tiered-prepare"])
def test_whatever_installs_is_locked_or_asks_nobody(path: str) -> None:
    lines = [line for line in (ROOT / path).read_text().splitlines() if not line.startswith("#")]
    commands = [line for line in lines if re.search(r"bin/pip\b", line)]
    assert commands
    for command in commands:
        is_locked = "--require-hashes --only-binary :all:" in command
        asks_nobody = "--no-index" in command or "--no-deps --no-build-isolation" in command
        assert is_locked or asks_nobody, command
