"""Runs seeds on all cores, each or some of them twice, and adds up what happened.

Owns the operating system's processes and the figures. Must never keep a violating seed to itself.
"""

import gc
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from unittest.mock import patch

from tests.simulation import hooks
from tests.simulation.database import Catalogue
from tests.simulation.plan import Outcome, Plan
from tests.simulation.world import World
from tiered.broker.view import store_reach

_catalogue: Catalogue | None = None


def prepared() -> Catalogue:
    """What all runs of this operating system process share, made at the first call."""
    global _catalogue
    if _catalogue is None:
        _catalogue = Catalogue()
        hooks.install()
        gc.collect()
        gc.freeze()  # What the imports made is no run's garbage
    return _catalogue


AS_SHORT_AS_FAULTS: dict[str, Any] = {
    "LOOK_MS": 1_000.0,
    "LOOK_AGAIN_MS": 300.0,
    "REPORT_AFTER_MS": 500.0,
    "PASS_ON_AFTER_MS": 2_000.0,
}
"""A store is out of reach for eight seconds at the most: others must lead by then."""


def run_seed(seed: int, *, plan: Plan | None = None, traces: bool = False) -> Outcome:
    """One run."""
    with patch.multiple(store_reach, **AS_SHORT_AS_FAULTS):
        return World(seed, prepared(), plan=plan, traces=traces).run()


def run_checked(seed: int, *, again_every: int = 1) -> Outcome:
    """As `run_seed`; a second run that goes another way is a violation too. Only one seed of so many has one."""
    first = run_seed(seed)
    if first.violation is not None or seed % again_every:
        return first
    second = run_seed(seed)
    if first.digest != second.digest:
        return replace(first, violation=f"not deterministic: digests {first.digest:x} and {second.digest:x}")
    return replace(first, is_checked_twice=True)


@dataclass(slots=True)
class Summary:
    """The figures of many seeds."""

    seeds: int = 0
    twice: int = 0
    """How many of them ran twice, with the same trace."""
    steps: int = 0
    virtual_s: float = 0.0
    acknowledged: int = 0
    polled: int = 0
    elections: int = 0
    isr_changes: int = 0
    truncations: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    violations: list[Outcome] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        self.seeds += 1
        self.twice += outcome.is_checked_twice
        self.steps += outcome.steps
        self.virtual_s += outcome.virtual_s
        self.acknowledged += outcome.acknowledged
        self.polled += outcome.polled
        self.elections += outcome.elections
        self.isr_changes += outcome.isr_changes
        self.truncations += outcome.truncations
        self.faults.update(outcome.faults)
        self.counts.update(outcome.counts)
        if outcome.violation is not None:
            self.violations.append(outcome)

    def figures(self) -> dict[str, float]:
        """For programs."""
        return {
            "seeds": self.seeds,
            "steps": self.steps,
            "virtual_s": self.virtual_s,
            "acknowledged": self.acknowledged,
            "polled": self.polled,
            "elections": self.elections,
            "faults": sum(self.faults.values()),
            "violations": len(self.violations),
        }

    def lines(self, seconds: float) -> list[str]:
        """For people."""
        found = [
            f"{self.seeds} seeds, {self.twice} of them twice with the same trace, in {seconds:.0f} s: "
            f"{self.virtual_s / 3600:.1f} h of virtual time, {self.steps:,} steps",
            f"{self.acknowledged:,} records acknowledged by acks=all, {self.polled:,} read, {self.elections:,} "
            f"elections, {self.isr_changes:,} changes of an ISR, {self.truncations:,} truncations",
            f"{sum(self.faults.values()):,} faults: "
            + ", ".join(f"{name} {count:,}" for name, count in self.faults.most_common()),
            "besides: " + ", ".join(f"{name} {count:,}" for name, count in sorted(self.counts.items())),
            f"violations: {len(self.violations)}",
        ]
        return [line for line in found if line]


def stable_hashes() -> None:
    """Starts this program anew unless text hashes the same in every run: sets of names have an order then."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def outcomes(seeds: Iterable[int], *, workers: int | None = None, again_every: int = 1) -> Iterator[Outcome]:
    """In the order in which they end."""
    count = workers or os.cpu_count() or 1
    run = partial(run_checked, again_every=again_every)
    if count == 1:
        yield from map(run, seeds)
        return
    context = multiprocessing.get_context("fork")
    with context.Pool(count, maxtasksperchild=250) as pool:
        yield from pool.imap_unordered(run, seeds)


def run_many(
    seeds: Iterable[int],
    *,
    keep_going: bool = False,
    workers: int | None = None,
    total: int = 0,
    seconds: float | None = None,
    again_every: int = 1,
) -> Summary:
    """Ends with the first violation unless told to keep going, or after `seconds`. Says how far it is now and then."""
    summary, started, said = Summary(), time.monotonic(), time.monotonic()
    for outcome in outcomes(seeds, workers=workers, again_every=again_every):
        summary.add(outcome)
        now = time.monotonic()
        if outcome.violation is not None:
            print(f"VIOLATION in seed {outcome.seed}: {outcome.violation}")
            print(f"    make sim SEED={outcome.seed} TRACE=1", flush=True)
            if not keep_going:
                break
        if seconds is not None and now - started > seconds:
            break
        if now - said > 10.0:
            said = now
            print(
                f"{summary.seeds} of {total or '?'} seeds in {now - started:.0f} s, "
                f"{len(summary.violations)} violations",
                flush=True,
            )
    return summary
