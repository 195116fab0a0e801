"""Planted bugs, in this process only: the simulation must find every one of `tests.simulation.bugs`.

Owns the search for a seed that shows each one. A bug is planted for as long as a `with` block lasts. Zero violations
would prove little if these were not found.
"""

import argparse
import multiprocessing
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from unittest.mock import patch

from tests.simulation import bugs, runner, transaction_bugs
from tests.simulation.bugs import Mutant

MUTANTS = (*bugs.MUTANTS, *transaction_bugs.MUTANTS)


@contextmanager
def planted(mutant: Mutant) -> Iterator[None]:
    """The product has this bug inside the block."""
    with ExitStack() as stack:
        for owner, name, substitute in mutant.patches():
            stack.enter_context(patch.object(owner, name, substitute))
        yield


@dataclass(frozen=True, slots=True, kw_only=True)
class Catch:
    """The first seed that shows a bug and holds without it, and what it shows."""

    seed: int
    violation: str
    seconds: float


def hunt(mutant: Mutant, seeds: range) -> Catch | None:
    """None when the bug has survived all of them."""
    runner.prepared()  # The checker's eyes are put around functions before bugs are, and stay there
    started = time.monotonic()
    for seed in seeds:
        with planted(mutant):
            outcome = runner.run_seed(seed, plan=mutant.plan)
        if outcome.violation is None:
            continue
        if "TypeError(" in outcome.violation or "AttributeError(" in outcome.violation:
            raise TypeError(f"{mutant.name} does not fit the code any more: {outcome.violation}")
        without = runner.run_seed(seed, plan=mutant.plan).violation
        if without is not None:
            print(f"seed {seed} proves nothing of {mutant.name}: without it: {without}", flush=True)
            continue
        return Catch(seed=seed, violation=outcome.violation, seconds=time.monotonic() - started)
    return None


def _hunt(task: tuple[str, int, int]) -> tuple[str, Catch | None]:
    name, first, seeds = task
    return name, hunt(next(each for each in MUTANTS if each.name == name), range(first, first + seeds))


def main() -> int:
    parser = argparse.ArgumentParser(prog="make mutants")
    parser.add_argument("--seeds", type=int, default=2000, help="after so many a bug has survived")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--only", default="", help="these mutants, with commas")
    parser.add_argument("--workers", type=int, default=None)
    told = parser.parse_args()
    runner.stable_hashes()
    wanted = [each for each in MUTANTS if not told.only or each.name in told.only.split(",")]
    catches: dict[str, Catch | None] = {}
    tasks = [(each.name, told.first, told.seeds) for each in wanted]
    with multiprocessing.get_context("fork").Pool(told.workers, maxtasksperchild=1) as pool:
        for name, found in pool.imap_unordered(_hunt, tasks):
            catches[name] = found
            said = "survives" if found is None else f"caught in seed {found.seed} after {found.seconds:.0f} s"
            print(f"{name}: {said}", flush=True)
    print("\n".join(_table(wanted, catches, told.seeds)))
    return 1 if None in catches.values() else 0


def _table(wanted: list[Mutant], catches: dict[str, Catch | None], seeds: int) -> list[str]:
    lines = ["", "| planted bug | what it breaks | seed | what the checker says |", "|---|---|---|---|"]
    for each in wanted:
        found = catches[each.name]
        seed, said = ("none", f"SURVIVED {seeds} seeds") if found is None else (str(found.seed), found.violation)
        lines.append(f"| {each.name} | {each.breaks} | {seed} | {said} |")
    caught = sum(found is not None for found in catches.values())
    return [*lines, "", f"{caught} of {len(wanted)} planted bugs caught"]


if __name__ == "__main__":
    sys.exit(main())
