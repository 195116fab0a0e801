"""`make bench-compare BASE=REV`: the same scenarios on an earlier revision and on this tree, turn by turn.

Owns the checkout of the earlier revision, the turns and the verdict. Each tree is measured by its own `benchmarks`, in
this environment; must never change either tree. What is worse beyond the noise of a turn makes the exit code 1.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.__main__ import SUITES

ROOT = Path(__file__).resolve().parent.parent
DEFAULT_SUITES = ("throughput", "replication", "cold", "start")
OF_OTHERS = ("mock", "kafka", "client_cpu_s_per_gb", "throughput_ratio")
"""What measures a reference, or the client: neither tree is to blame for it."""
MOST_WORSE_CPU, MOST_WORSE = 0.03, 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One number of both trees: the median over all turns, and how far apart the turns of one tree lay."""

    name: str
    base: float
    here: float
    spread: float

    @property
    def change(self) -> float:
        return self.here / self.base - 1 if self.base else 0.0

    @property
    def bound(self) -> float | None:
        """How much more it may be; None where more is better: of rates the client and the disk decide."""
        last = self.name.rpartition(" / ")[2]
        if last.endswith("_per_s") or not last.endswith(("_s", "_ms", "_mb", "_per_gb", "_percent")):
            return None
        return MOST_WORSE_CPU if "cpu" in last else MOST_WORSE

    @property
    def is_worse(self) -> bool:
        return self.bound is not None and self.change > self.bound

    @property
    def is_noise(self) -> bool:
        """The change is less than what two turns of the same tree differ by: nothing can be said of it."""
        return abs(self.change) <= self.spread


def figures(base: Sequence[Mapping[str, float]], here: Sequence[Mapping[str, float]]) -> list[Figure]:
    """Those that every turn of both trees gave, by name."""
    names = set.intersection(*(set(turn) for turn in (*base, *here)))
    return [
        Figure(
            name=name,
            base=statistics.median(turn[name] for turn in base),
            here=statistics.median(turn[name] for turn in here),
            spread=max(_spread(base, name), _spread(here, name)),
        )
        for name in sorted(names)
    ]


def _spread(turns: Sequence[Mapping[str, float]], name: str) -> float:
    values = [turn[name] for turn in turns]
    middle = statistics.median(values)
    return (max(values) - min(values)) / middle if middle else 0.0


def flat(medians: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, float]]:
    for name, value in medians.items():
        if name in OF_OTHERS:
            continue
        path = f"{above} / {name}" if above else name
        if isinstance(value, Mapping):
            yield from flat(value, path)
        else:
            yield path, float(value)


def turn(tree: Path, suites: list[str], extra: list[str]) -> dict[str, float]:
    """Every median of one run of that tree's own benchmarks."""
    with tempfile.TemporaryDirectory(prefix="tiered-compare-") as results:
        chosen = [each for suite in suites for each in ("--only", suite)]
        command = [sys.executable, "-m", "benchmarks", *chosen, *extra, "--results", results]
        paths = os.pathsep.join([str(tree), str(tree / "spark")])
        subprocess.run(command, cwd=tree, env=os.environ | {"PYTHONPATH": paths}, stdout=sys.stderr, check=True)
        (report,) = Path(results).glob("*.json")
        return dict(flat(json.loads(report.read_text())["medians"]))


def table(found: list[Figure]) -> str:
    lines = ["| figure | base | here | change | turns differ by | |", "|---|---:|---:|---:|---:|---|"]
    for each in found:
        said = ("worse, within the noise" if each.is_noise else "WORSE") if each.is_worse else ""
        lines.append(
            f"| {each.name} | {each.base:.3g} | {each.here:.3g} | {each.change:+.1%} | {each.spread:.1%} | {said} |"
        )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench-compare", description="This tree beside an earlier revision.")
    parser.add_argument("--base", required=True, help="the revision to compare with")
    parser.add_argument("--turns", type=int, default=3, help="runs of each tree (3)")
    parser.add_argument("--only", action="append", choices=SUITES, help="one of the suites; may be repeated")
    options, extra = parser.parse_known_args()
    suites = options.only or list(DEFAULT_SUITES)
    with tempfile.TemporaryDirectory(prefix="tiered-base-") as folder:
        base = Path(folder) / "tree"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", base, options.base], cwd=ROOT, check=True)
        try:
            build = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
            subprocess.run(build, cwd=base, stdout=sys.stderr, check=True)
            runs: dict[Path, list[Mapping[str, float]]] = {base: [], ROOT: []}
            for number in range(options.turns):
                # Who goes first changes: what a turn leaves behind meets both alike.
                for tree in (base, ROOT) if number % 2 == 0 else (ROOT, base):
                    runs[tree].append(turn(tree, suites, extra))
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", base], cwd=ROOT, check=True)
    found = figures(runs[base], runs[ROOT])
    print(table(found))
    return 1 if any(each.is_worse and not each.is_noise for each in found) else 0


if __name__ == "__main__":
    sys.exit(main())
