"""Every rule and invariant that is cited anywhere has its text, its files and its tests in `docs/invariants.md`."""

import re
from pathlib import Path

import pytest

from tiered.server.http.door.rights import RIGHTS
from tiered.server.kafka.apis import served_apis

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs/invariants.md"
ROW = re.compile(r"^\| (rule \d+|[RTX]\d+) \| (.+?) \| (.+?) \| (.+?) \|(.*)\|$", re.MULTILINE)
ROWS = {number: (kept, tests, bugs) for number, _, kept, tests, bugs in ROW.findall(DOCUMENT.read_text())}
NUMBER = re.compile(r"\b([RTX]\d{1,2})\b")
RULES = re.compile(r"\brules? (\d+(?:(?:, | and |, and )\d+)*)")
CHECK = re.compile(r"`(tiered/[\w/]+\.py):(\w+)`")
FILE = re.compile(r"`(tiered/[\w/]+\.py)`")
TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
BUG = re.compile(r"`(\w+)`")
CITING = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "spark/**/*.md", "tiered/**/*.py", "spark/**/*.py", "tests/**/*.py")
    for path in ROOT.glob(pattern)
    if path != Path(__file__).resolve() and "site-packages" not in path.parts and "node_modules" not in path.parts
)


def cited(text: str) -> set[str]:
    rules = {f"rule {number}" for found in RULES.findall(text) for number in re.findall(r"\d+", found)}
    return rules | set(NUMBER.findall(text))


def listed_bugs() -> str:
    return "".join(path.read_text() for path in sorted((ROOT / "tests/simulation").glob("*bugs.py")))


def planted() -> dict[str, set[str]]:
    """The numbers that each planted bug says it breaks."""
    found = re.findall(r'name="(\w+)",\s+breaks="([^:"]+):', listed_bugs())
    return {name: cited(breaks) for name, breaks in found}


def test_no_rule_and_no_invariant_is_without_its_text() -> None:
    kinds = [("rule ", 10), ("R", 15), ("T", 9), ("X", 7)]
    assert list(ROWS) == [f"{kind}{number}" for kind, count in kinds for number in range(1, count + 1)]


def test_every_number_that_is_cited_has_its_text() -> None:
    unknown = {path.relative_to(ROOT).as_posix(): cited(path.read_text()) - set(ROWS) for path in CITING}
    assert not {path: numbers for path, numbers in unknown.items() if numbers}


def test_lists_of_rules_are_citations_too() -> None:
    assert cited("rules 3, 4 and 5; (rule 7), R10.") == {"rule 3", "rule 4", "rule 5", "rule 7", "R10"}


@pytest.mark.parametrize("number", ROWS)
def test_each_names_files_and_tests_that_exist(number: str) -> None:
    kept, tests, _ = ROWS[number]
    files = FILE.findall(kept)
    assert files, f"no file is named for {number}"
    assert not [path for path in files if not (ROOT / path).is_file()], f"{number} is kept by {kept}"
    assert TEST.findall(tests), f"no test is named for {number}"
    for path, name in TEST.findall(tests):
        assert re.search(rf"^(async )?def {name}\(", (ROOT / path).read_text(), re.MULTILINE)


def test_who_is_said_to_check_what_comes_from_outside_is_there() -> None:
    named = CHECK.findall(DOCUMENT.read_text())
    assert named
    assert not [
        f"{path}:{name}"
        for path, name in named
        if not re.search(rf"^ *(async )?(def|class) {name}\b", (ROOT / path).read_text(), re.MULTILINE)
    ]


def costs() -> list[str]:
    """The APIs and routes of each line about what a request may cost."""
    section = DOCUMENT.read_text().split("\n## What a request may cost")[1].split("\n## ")[0]
    return [line.split(" | ")[1] for line in section.splitlines() if line.startswith("| ")][1:]


def test_what_each_api_and_each_route_may_cost_stands_in_one_line() -> None:
    apis = [name for line in costs() for name in re.split(r"[ ,]+", re.sub("`[^`]*`", "", line)) if name]
    assert sorted(apis) == sorted(api.name for api in served_apis())
    named = [each.replace("…", "clusters/{cluster_id}") for line in costs() for each in re.findall("`([^`]*)`", line)]
    assert len(set(named)) == len(named)
    used = set()
    for route in RIGHTS:
        begins = [each for each in named if each.endswith("*") and route.startswith(each[:-1])]
        used.add(route if route in named else max(begins, key=len, default=f"nothing for {route}"))
    assert used == set(named)


def test_each_planted_bug_stands_at_what_it_breaks() -> None:
    named = {(bug, number) for number, (_, _, bugs) in ROWS.items() for bug in BUG.findall(bugs)}
    assert named == {(bug, number) for bug, numbers in planted().items() for number in numbers}
    bugs = re.findall(r'Mutant\(\s+name="(\w+)"', listed_bugs())
    assert sorted(planted()) == sorted(bugs)
