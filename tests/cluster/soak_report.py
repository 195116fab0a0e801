"""The report of a soak: what was done to the cluster, what its clients saw, and how long anything was away.

Owns the figures and the Markdown. Must never call a run good: the verdict and the runner's complaints do.
"""

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

from tests.cluster.checker import Verdict
from tests.cluster.history import Kind, Operation, Outcome
from tests.cluster.transaction_checks import TransactionsVerdict
from tests.cluster.violations import Violation

GAP_FLOOR_S = 0.5
"""Shorter silences of a prober, which sends several times a second, are its own."""


MAX_GROWTH_MB = 150.0
"""What one process may grow by after it was first looked at: caches fill, and then it must stay as it is."""
MAX_PAUSE_MS = 250.0
"""CPU time of one collection of garbage. A full one takes 15 to 50 ms where no cycles wait for it."""


@dataclass(slots=True, kw_only=True)
class SoakFigures:
    """Everything that a report says."""

    seed: int
    minutes: float
    brokers: int
    partitions: int
    per_second: float
    rounds: int = 0
    quiet_rounds: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    elections: int = 0
    partition_changes: int = 0
    catch_up_s: list[float] = field(default_factory=list)
    unavailability_s: list[float] = field(default_factory=list)
    store_requests: dict[int, dict[str, int]] = field(default_factory=dict)
    resident_mb: dict[int, list[float]] = field(default_factory=dict)
    """Memory by process of a broker, round by round."""
    longest_pause_ms: float = 0.0
    """CPU time of the longest collection of garbage."""
    complaints: list[str] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)
    violations: dict[str, int] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return not self.violations and not self.complaints

    @property
    def growth_mb(self) -> float:
        """By how much that process has grown which has grown most, since it was first looked at."""
        return max((max(sizes) - sizes[0] for sizes in self.resident_mb.values()), default=0.0)

    def take_memory(self, pid: int, resident_bytes: float, longest_pause_ms: float) -> None:
        """Notes what a broker says of itself; too much of it is a complaint, once."""
        was_small, was_short = self.growth_mb <= MAX_GROWTH_MB, self.longest_pause_ms <= MAX_PAUSE_MS
        self.resident_mb.setdefault(pid, []).append(round(resident_bytes / 1e6, 1))
        self.longest_pause_ms = max(self.longest_pause_ms, longest_pause_ms)
        if was_small and self.growth_mb > MAX_GROWTH_MB:
            self.complaints.append(f"a broker has grown by {self.growth_mb:.0f} MB: {MAX_GROWTH_MB:g} are allowed")
        if was_short and self.longest_pause_ms > MAX_PAUSE_MS:
            self.complaints.append(
                f"a collection of garbage took {self.longest_pause_ms:.0f} ms: {MAX_PAUSE_MS:g} are allowed"
            )

    def take(self, verdict: Verdict) -> None:
        self.numbers = {
            "acknowledged (acks=all)": verdict.acknowledged,
            "unknown": verdict.unknown,
            "unknown that appeared": verdict.unknown_that_appeared,
            "failed for certain": verdict.failed,
            "acknowledged (acks=1)": verdict.acknowledged_acks_1,
            "lost with acks=1 (allowed)": verdict.lost_acks_1,
            "polled": verdict.polled,
            "commits acknowledged": verdict.commits,
            "records at rest": verdict.stored,
        }
        self.violations = {str(kind): count for kind, count in verdict.found.counts.items()}
        self.words = [f"{kind}: {words}" for kind, words in verdict.found.words]

    def take_transactions(self, inputs: Verdict, verdict: TransactionsVerdict) -> None:
        """Adds what came of transactions, and of the inputs that they processed."""
        self.numbers |= {
            "inputs acknowledged": inputs.acknowledged,
            "inputs processed, by all groups": verdict.inputs,
            "transactions committed": verdict.commits,
            "transactions aborted": verdict.aborts,
            "transactions unknown": verdict.unknown,
            "unknown that were committed": verdict.unknown_that_were_committed,
            "polled as committed": verdict.polled,
            "objects read as committed": verdict.objects,
        }
        for found in (inputs.found, verdict.found):
            for kind, count in found.counts.items():
                self.violations[str(kind)] = self.violations.get(str(kind), 0) + count
            self.words += [f"{kind}: {words}" for kind, words in found.words]

    def take_java(self, history: Iterable[Operation], loops: Sequence[int]) -> None:
        """Adds what the loops of Java's client did. That they committed nothing is a complaint: it would prove
        nothing."""
        kinds = Counter(each.kind for each in history if each.client in loops and each.outcome is Outcome.OK)
        self.numbers |= {
            "transactions committed by Java": kinds[Kind.COMMIT_TRANSACTION],
            "transactions aborted by Java": kinds[Kind.ABORT_TRANSACTION],
        }
        if not kinds[Kind.COMMIT_TRANSACTION]:
            self.complaints.append("Java's loops committed no transaction: workload.log has their words")

    def to_json(self) -> dict[str, Any]:
        return {"passed": self.passed, **asdict(self), "growth_mb": self.growth_mb}

    def to_markdown(self) -> str:
        lines = [
            f"# Soak of {self.minutes:g} minutes: {'passed' if self.passed else 'FAILED'}",
            "",
            f"{self.brokers} brokers, {self.partitions} partitions with as many replicas, min.insync.replicas 2,"
            f" {self.per_second:g} records/s, seed {self.seed}."
            f" {self.rounds} rounds, {self.quiet_rounds} of them without a fault.",
            "",
            *_table("promise", "broken", {kind.value: self.violations.get(kind.value, 0) for kind in Violation}),
            "",
            *_table("operations", "", self.numbers),
            "",
            *_table("faults", "times", dict(sorted(self.faults.items()))),
            "",
            f"Elections: {self.elections}; changes of partitions in SQL: {self.partition_changes}."
            f" A broker grew by {self.growth_mb:.0f} MB at most, to"
            f" {max((max(sizes) for sizes in self.resident_mb.values()), default=0.0):.0f} MB at most;"
            f" the longest collection of garbage took {self.longest_pause_ms:.0f} ms.",
            "",
            "| seconds | times | p50 | max |",
            "|---|---:|---:|---:|",
            _spread("a partition took no write (prober's silences)", self.unavailability_s),
            _spread("until all replicas were in sync after a round", self.catch_up_s),
        ]
        if self.words or self.complaints:
            lines += ["", "## What went wrong", "", *(f"- {words}" for words in (*self.complaints, *self.words))]
        return "\n".join(lines) + "\n"


def _table(left: str, right: str, rows: Mapping[str, int]) -> list[str]:
    return [f"| {left} | {right} |", "|---|---:|", *(f"| {name} | {count:,} |" for name, count in rows.items())]


def _spread(what: str, values: Sequence[float]) -> str:
    if not values:
        return f"| {what} | 0 | | |"
    return f"| {what} | {len(values)} | {statistics.median(values):.2f} | {max(values):.2f} |"


def silences_s(
    operations: Iterable[Operation], prober: int, *, period_s: float
) -> dict[int, list[tuple[float, float]]]:
    """(beginning, seconds) of each time in which a partition acknowledged no probe, by partition; times are seconds.

    A partition is probed every `period_s`, so that much is taken off each silence.
    """
    acknowledged: dict[int, list[float]] = defaultdict(list)
    for operation in operations:
        if operation.kind is Kind.SEND and operation.client == prober and operation.outcome is Outcome.OK:
            acknowledged[operation.partition].append(operation.ended_us / 1e6)
    found: dict[int, list[tuple[float, float]]] = {}
    for partition, times in acknowledged.items():
        times.sort()
        gaps = [(before, after - before - period_s) for before, after in pairwise(times)]
        found[partition] = [(before, gap) for before, gap in gaps if gap >= GAP_FLOOR_S]
    return found
