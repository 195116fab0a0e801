"""Every step that `docs/walks.md` names is a function that exists."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
STEP = re.compile(r"`((?:tiered|spark)/[\w/]+\.py)::([\w.]+)`")
STEPS = sorted(set(STEP.findall((ROOT / "docs/walks.md").read_text())))


@cache
def functions_of(path: str) -> frozenset[str]:
    found: set[str] = set()
    for node in ast.parse((ROOT / path).read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            inner = (each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))
            found.update(f"{node.name}.{each.name}" for each in inner)
    return frozenset(found)


@pytest.mark.parametrize(("path", "function"), STEPS)
def test_each_step_of_a_walk_is_a_function_that_exists(path: str, function: str) -> None:
    assert (ROOT / path).is_file(), f"docs/walks.md names {path}, which does not exist"
    assert function in functions_of(path), f"docs/walks.md names {path}::{function}, which does not exist"


def test_no_walk_is_without_steps() -> None:
    walks = (ROOT / "docs/walks.md").read_text().split("\n## ")[1:]
    assert len(walks) == 9
    assert all(STEP.search(walk) for walk in walks)
