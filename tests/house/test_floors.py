"""Pure rooms are pure, clocks and randomness have one door, and no module outgrows its room."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import grimp
import pytest

from tests.house.sources import parsed

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted([*ROOT.glob("tiered/**/*.py"), *ROOT.glob("spark/**/*.py")])
MOST_IN_A_CIRCLE = 2
# The door itself, and what runs outside a broker, on a machine whose clock is the only one there is.
MAY_READ_CLOCKS = {"tiered/runtime.py", "tiered/testing/faulty_s3.py"}
# Names whose use is a decision about time or chance. `time.perf_counter` and `monotonic` too: all have one door.
CLOCKS_AND_CHANCE = {
    "time": None,
    "random": None,
    "secrets": None,
    "uuid": {"uuid1", "uuid4"},
    "datetime": set[str](),
}
FORBIDDEN_CALLS = {"datetime.now", "datetime.utcnow", "date.today", "datetime.today"}


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    """Who imports whom, for types alone too: who reads the one has to read the other."""
    return grimp.build_graph("tiered", "pyspark_tiered", exclude_type_checking_imports=False, cache_dir=None)


def test_no_more_than_two_modules_import_each_other(graph: grimp.ImportGraph) -> None:
    around = {
        frozenset({name} | graph.find_upstream_modules(name) & graph.find_downstream_modules(name))
        for name in graph.modules
    }
    assert [sorted(circle) for circle in around if len(circle) > MOST_IN_A_CIRCLE] == []


def test_no_part_of_a_broker_knows_the_broker(graph: grimp.ImportGraph) -> None:
    knowing = graph.find_modules_that_directly_import("tiered.broker.broker")
    assert not [name for name in knowing if name.startswith("tiered.broker.")]


def uses_of_clocks(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                for alias in names:
                    if CLOCKS_AND_CHANCE.get(alias.name, ()) is None:
                        yield node.lineno, f"import {alias.name}"
            case ast.ImportFrom(module=str(module), names=names):
                banned = CLOCKS_AND_CHANCE.get(module, set())
                for alias in names:
                    if banned is None or alias.name in banned:
                        yield node.lineno, f"from {module} import {alias.name}"
            case ast.Attribute(value=ast.Name(id="uuid"), attr=("uuid1" | "uuid4") as name):
                yield node.lineno, f"uuid.{name}"
            case ast.Call(func=ast.Attribute(value=ast.Name(id=owner), attr=name)) if (
                f"{owner}.{name}" in FORBIDDEN_CALLS
            ):
                yield node.lineno, f"{owner}.{name}()"
            case ast.Attribute(value=ast.Name(id="os"), attr=("urandom" | "getrandom") as name):
                yield node.lineno, f"os.{name}"


def test_clocks_and_randomness_come_through_runtime_alone() -> None:
    found = [
        f"{relative(path)}:{line}: {what}"
        for path in SOURCES
        if relative(path) not in MAY_READ_CLOCKS
        for line, what in uses_of_clocks(parsed(path))
    ]
    assert not found, "ask for a Clock, or for tiered.runtime's functions: " + "; ".join(found)


@pytest.mark.parametrize(
    "source",
    [
        "import time",
        "from time import monotonic",
        "import random",
        "from uuid import UUID, uuid4",
        "import uuid\nuuid.uuid4()",
        "datetime.now()",
        "import os\nos.urandom(4)",
    ],
)
def test_the_scan_sees_every_way_to_a_clock(source: str) -> None:
    assert list(uses_of_clocks(ast.parse(source)))


@pytest.mark.parametrize("source", ["from uuid import UUID", "from datetime import datetime, UTC", "clock.now_ms()"])
def test_the_scan_leaves_plain_values_alone(source: str) -> None:
    assert not list(uses_of_clocks(ast.parse(source)))


def test_a_module_says_what_it_is() -> None:
    silent = [relative(path) for path in SOURCES if parsed(path).body and not ast.get_docstring(parsed(path))]
    assert not silent, "these begin without saying what they own"


def test_a_public_class_name_stands_for_one_thing() -> None:
    homes: dict[str, list[str]] = {}
    for path in SOURCES:
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(relative(path))
    shared = {name: paths for name, paths in homes.items() if len(paths) > 1}
    assert not shared, "say whose each one is, or make them one: who searches for one must not find the others"


def test_relative_paths_of_the_tree_are_where_the_package_is() -> None:
    import tiered

    assert Path(tiered.__file__).resolve().is_relative_to(ROOT), "another tree's package is on the path"


def test_no_test_module_takes_anything_out_of_another() -> None:
    """What two share stands in a module without tests: `tests/support`, or beside them."""
    taken = re.compile(r"^ *(?:from|import) tests(?:\.\w+)*(?:\.| import )test_", re.MULTILINE)
    assert [relative(path) for path in ROOT.glob("tests/**/*.py") if taken.search(path.read_text())] == []
