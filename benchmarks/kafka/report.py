"""From runs to a report: medians with their ranges, ratios to Apache Kafka, and which targets are reached.

Pure, but for `write`. Never rounds what goes into the JSON.
"""

import json
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.kafka.cells import BY_NAME, Cell, Target, targets

Runs = dict[str, dict[str, list[dict[str, float]]]]
"""Of each cell, by its name, and side."""
OURS, KAFKAS = "tiered", "kafka"
MORE_IS_BETTER = ("mb_per_s", "answers_per_s", "of_hot", "beside_mb_per_s")
METRICS = {
    "mb_per_s": ("MB/s", "{:,.0f}"),
    "answers_per_s": ("answers/s", "{:,.0f}"),
    "broker_cpu_s_per_gb": ("broker's CPU s/GB", "{:.2f}"),
    "broker_cpu_ms": ("broker's CPU ms an answer", "{:.2f}"),
    "broker_cpu_percent": ("broker's CPU, % of a core", "{:.1f}"),
    "p50_ms": ("p50 ms", "{:.2f}"),
    "p99_ms": ("p99 ms", "{:.2f}"),
    "p99_9_ms": ("p99.9 ms", "{:.2f}"),
    "of_hot": ("MB/s, as a share of a consume from the broker's disk", "{:.2f}"),
    "beside_mb_per_s": ("MB/s of the cold consume", "{:,.0f}"),
    "start_s": ("start on an empty folder, s", "{:.2f}"),
    "create_s": ("create, to a first ack, s", "{:.2f}"),
    "idle_cpu_percent": ("idle CPU, % of a core", "{:.2f}"),
    "memory_mb": ("memory, MB", "{:,.0f}"),
    "first_ack_s": ("start after kill -9, to a first ack, s", "{:.2f}"),
}
"""What the table shows, in this order; the JSON has more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """The runs of one side."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: list[float]) -> "Range":
        return cls(median=statistics.median(values), least=min(values), most=max(values))


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One number of one cell, of both sides."""

    cell: str
    metric: str
    ours: Range
    kafkas: Range
    target: Target | None

    @property
    def ratio(self) -> float | None:
        """Ours as a multiple of Apache Kafka's."""
        return self.ours.median / self.kafkas.median if self.kafkas.median else None

    @property
    def is_missed(self) -> bool:
        """Of a target with a ratio and a value, both have to hold."""
        if self.target is None:
            return False
        sign = -1 if self.metric in MORE_IS_BETTER else 1
        bounds = [(self.ratio, self.target.ratio), (self.ours.median, self.target.value)]
        return any(is_ and bound and sign * is_ > sign * bound for is_, bound in bounds)

    @property
    def is_behind(self) -> bool:
        """Whether Apache Kafka does better, whatever the target."""
        sign = -1 if self.metric in MORE_IS_BETTER else 1
        return sign * self.ours.median > sign * self.kafkas.median


def rows(runs: Runs) -> Iterator[Row]:
    for name, by_side in runs.items():
        if len(by_side) < 2:  # It was interrupted.
            continue
        wanted = {target.metric: target for target in targets(BY_NAME[name])}
        ours, kafkas = by_side[OURS], by_side[KAFKAS]
        for metric in METRICS:
            if metric in ours[0] and metric in kafkas[0]:
                yield Row(
                    cell=name,
                    metric=metric,
                    ours=Range.of([run[metric] for run in ours]),
                    kafkas=Range.of([run[metric] for run in kafkas]),
                    target=wanted.get(metric),
                )


def tables(suites: dict[str, Any]) -> str:
    """In Markdown: a table for each suite, and where it was measured."""
    parts = []
    for suite, each in suites.items():
        facts = each["facts"]
        parts += [
            f"### `{suite}`",
            f"{_machine(facts)}\n`{facts['command']}`, runs of each side: {facts['rounds']}.\n"
            f"The load average was {facts['load']}, and {facts['idle_share_before']:.0%} of all CPU was idle before.",
            table(rows(each["runs"])),
        ]
    return "\n\n".join(parts)


def _machine(facts: dict[str, Any]) -> str:
    return (
        f"{facts['cpus']} × {facts['cpu']}, {facts['memory_gb']} GB, Linux {facts['kernel']}, Python {facts['python']},"
        f" Apache Kafka {facts['kafka']}."
    )


def table(found: Iterable[Row]) -> str:
    lines = ["| cell | what | ours | Apache Kafka | ratio | target | |", "|---|---|---:|---:|---:|---|---|"]
    last = ""
    for row in found:
        label, form = METRICS[row.metric]
        verdict = "missed" if row.is_missed else "reached" if row.target else "behind" if row.is_behind else ""
        lines.append(
            f"| {row.cell if row.cell != last else '…'} | {label} | {_range(row.ours, form)} |"
            f" {_range(row.kafkas, form)} | {'' if row.ratio is None else f'{row.ratio:.2f}'} |"
            f" {_target(row)} | {verdict} |"
        )
        last = row.cell
    return "\n".join(lines)


def _range(of: Range, form: str) -> str:
    if of.least == of.most:
        return form.format(of.median)
    return f"{form.format(of.median)} ({form.format(of.least)} to {form.format(of.most)})"


def _target(row: Row) -> str:
    if row.target is None:
        return ""
    sign = "≥" if row.metric in MORE_IS_BETTER else "≤"
    bounds = [f"{row.target.ratio:g} ×"] if row.target.ratio is not None else []
    bounds += [f"{row.target.value:g}"] if row.target.value is not None else []
    return " and ".join(f"{sign} {bound}" for bound in bounds)


def document(results: dict[Cell, dict[str, list[dict[str, float]]]], facts: dict[str, Any]) -> dict[str, Any]:
    """What is kept: by suite, where it was measured and every run of each cell and side."""
    suites: dict[str, Any] = {}
    for cell, by_side in results.items():
        suites.setdefault(cell.suite, {"facts": facts, "runs": {}})["runs"][cell.name] = by_side
    for each in suites.values():
        loads = [run["load"] for by_side in each["runs"].values() for runs in by_side.values() for run in runs]
        each["facts"] = facts | {"load": f"{min(loads):.1f} to {max(loads):.1f}"}
    return {"suites": suites}


def write(folder: Path, stamp: str, kept: dict[str, Any]) -> Path:
    """Writes kafka-STAMP.json and kafka-STAMP.md into `folder`; gives the path of the JSON."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"kafka-{stamp}.json"
    path.write_text(json.dumps(kept, indent=2) + "\n")
    path.with_suffix(".md").write_text(tables(kept["suites"]) + "\n")
    return path
