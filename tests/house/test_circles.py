"""Modules stand above one another: what imports each other, for types too, is at most a pair."""

import ast
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Rooms with a larger circle, each a facade and its own parts.
LARGER = {"tiered.cold": 6, "tiered.server.kafka": 5}


def modules() -> dict[str, Path]:
    found = {}
    for base in ("tiered", "spark"):
        for path in (ROOT / base).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(name: str, path: Path, known: Mapping[str, Path]) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            wanted = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            package = name.split(".")[: len(name.split(".")) - node.level + (path.name == "__init__.py")]
            base = ".".join([*(package if node.level else ()), *((node.module,) if node.module else ())])
            wanted = [each if (each := f"{base}.{alias.name}") in known else base for alias in node.names]
        else:
            continue
        yield from (each for each in wanted if each in known and each != name)


def circles(graph: Mapping[str, set[str]]) -> list[set[str]]:
    """Sets of modules that all reach each other, larger than one."""
    found = []
    left = {name: set(below) for name, below in graph.items()}
    while True:
        try:
            TopologicalSorter(left).prepare()
        except CycleError as error:
            start = error.args[1][0]
            circle = reached(left, start) & reached(turned(left), start)
            found.append(circle)
            for name in circle:
                left[name] -= circle
        else:
            return found


def reached(graph: Mapping[str, set[str]], start: str) -> set[str]:
    seen, ahead = {start}, [start]
    while ahead:
        new = graph[ahead.pop()] - seen
        seen |= new
        ahead.extend(new)
    return seen


def turned(graph: Mapping[str, set[str]]) -> dict[str, set[str]]:
    above: dict[str, set[str]] = {name: set() for name in graph}
    for name, below in graph.items():
        for each in below:
            above[each].add(name)
    return above


def test_no_circle_of_imports_is_larger_than_a_pair() -> None:
    known = modules()
    graph = {name: set(imports(name, path, known)) for name, path in known.items()}
    for circle in circles(graph):
        allowed = max([2, *(size for room, size in LARGER.items() if all(each.startswith(room) for each in circle))])
        assert len(circle) <= allowed, sorted(circle)


def test_only_the_composition_of_a_broker_knows_the_broker() -> None:
    known = modules()
    inside = {name for name in known if name.startswith("tiered.broker.") and name != "tiered.broker.broker"}
    knowing = [name for name in inside if "tiered.broker.broker" in set(imports(name, known[name], known))]
    assert not knowing
