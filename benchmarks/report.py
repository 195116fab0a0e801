"""From runs to a report: medians, ratios to the reference, one JSON file and one table.

Owns the shape of bench-results/. Never rounds what goes into the JSON.
"""

import json
import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(slots=True)
class Report:
    """Everything that one invocation measured."""

    facts: dict[str, Any]
    throughput: dict[str, dict[str, list[dict[str, float]]]] = field(default_factory=dict)
    start: dict[str, list[float]] = field(default_factory=dict)
    testing: dict[str, list[float]] = field(default_factory=dict)
    replay: dict[str, dict[str, Any]] = field(default_factory=dict)
    commits: dict[str, dict[str, list[dict[str, float]]]] = field(default_factory=dict)
    beside_kafka: dict[str, dict[str, list[dict[str, float]]]] = field(default_factory=dict)
    replication: dict[str, dict[str, list[dict[str, float]]]] = field(default_factory=dict)
    verification: dict[str, dict[str, list[dict[str, float]]]] = field(default_factory=dict)
    uploading: dict[str, dict[str, list[dict[str, float]]]] = field(default_factory=dict)
    cold: dict[str, dict[str, list[dict[str, float]]]] = field(default_factory=dict)
    spark: dict[str, dict[str, list[dict[str, float]]]] = field(default_factory=dict)

    def medians(self) -> dict[str, Any]:
        """The median of every number of every scenario, and ours as a multiple of the reference where there is one."""
        medians: dict[str, Any] = {}
        for scenario, by_system in self.throughput.items():
            entry: dict[str, Any] = {
                system: {name: statistics.median(run[name] for run in runs) for name in runs[0]}
                for system, runs in by_system.items()
            }
            if "mock" in entry and "tiered" in entry:
                entry["throughput_ratio"] = entry["tiered"]["mb_per_s"] / entry["mock"]["mb_per_s"]
            medians[scenario] = entry
        for name, values in self.start.items():
            medians[name] = statistics.median(values)
        for name, values in self.testing.items():
            medians[f"test cluster: {name}"] = statistics.median(values)
        for scenario, result in self.replay.items():
            medians[scenario] = {"rows_per_s": statistics.median(result["rows_per_s"])}
        for database, by_variant in self.commits.items():
            medians[f"commits on {database}"] = {
                variant: statistics.median(run["commits_per_s"] for run in runs) for variant, runs in by_variant.items()
            }
        titled = {
            "beside Apache Kafka": self.beside_kafka,
            "replication": self.replication,
            "verify": self.verification,
            "upload": self.uploading,
            "cold": self.cold,
            "spark": self.spark,
        }
        for title, scenarios in titled.items():
            for scenario, by_side in scenarios.items():
                medians[f"{title}: {scenario}"] = {
                    side: {name: statistics.median(run[name] for run in runs) for name in runs[0]}
                    for side, runs in by_side.items()
                }
        return medians

    def write(self, folder: Path, stamp: str) -> Path:
        """Writes STAMP.json and STAMP.md into `folder`; gives the path of the JSON."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{stamp}.json"
        document = {
            "facts": self.facts,
            "medians": self.medians(),
            "runs": {
                "throughput": self.throughput,
                "start": self.start,
                "testing": self.testing,
                "replay": self.replay,
                "commits": self.commits,
                "beside_kafka": self.beside_kafka,
                "replication": self.replication,
                "verification": self.verification,
                "uploading": self.uploading,
                "cold": self.cold,
                "spark": self.spark,
            },
        }
        path.write_text(json.dumps(document, indent=2) + "\n")
        (folder / f"{stamp}.md").write_text(self.table() + "\n")
        return path

    def table(self) -> str:
        """The medians as Markdown tables, with the machine above them."""
        medians = self.medians()
        facts = self.facts
        lines = [
            f"{facts['cpus']} × {facts['cpu']}, {facts['memory_gb']} GB, Linux {facts['kernel']},",
            f"Python {facts['python']}; {facts['idle_share_before']:.0%} of all CPU was idle before.",
            f"Medians of {facts['rounds']} runs, systems alternating.",
            "",
            "| scenario | system | MB/s | records/s | broker CPU s/GB | client CPU s/GB | × mock |",
            "|---|---|---:|---:|---:|---:|---:|",
        ]
        for scenario in self.throughput:
            for system, each in medians[scenario].items():
                if isinstance(each, dict):
                    ratio = medians[scenario].get("throughput_ratio")
                    times = f"{ratio:.2f}" if system == "tiered" and ratio is not None else ""
                    lines.append(
                        f"| {scenario} | {system} | {each['mb_per_s']:.0f} | {each['records_per_s']:,.0f} |"
                        f" {each['broker_cpu_s_per_gb']:.2f} | {each['client_cpu_s_per_gb']:.2f} | {times} |"
                    )
        lines += ["", "| what | median |", "|---|---:|"]
        words = {
            "ready_s": ("start to ready line", "{:.2f} s"),
            "first_ack_s": ("start to first acknowledged record", "{:.2f} s"),
            "idle_rss_mb": ("resident memory, idle", "{:.0f} MB"),
            "idle_cpu_percent": ("CPU, idle", "{:.1f} %"),
        }
        lines += [
            f"| {label} | {form.format(medians[name])} |" for name, (label, form) in words.items() if name in medians
        ]
        lines += [f"| {name} | {medians[name]:.2f} s |" for name in medians if name.startswith("test cluster: ")]
        lines += [f"| {scenario} | {medians[scenario]['rows_per_s']:,.0f} rows/s |" for scenario in self.replay]
        if self.commits:
            lines += ["", "| offset commits of 100 groups | commits/s | × |", "|---|---:|---:|"]
        for database in self.commits:
            entry = medians[f"commits on {database}"]
            slowest = min(entry.values())
            lines += [f"| {database}, {name} | {each:,.0f} | {each / slowest:.1f} |" for name, each in entry.items()]
        lines += _rows_beside_kafka({each: medians[f"beside Apache Kafka: {each}"] for each in self.beside_kafka})
        if self.replication:
            lines += ["", "| replication | side | MB/s | × | p50 ms | p99 ms |", "|---|---|---:|---:|---:|---:|"]
        for scenario in self.replication:
            lines += _speed_and_latency_rows(scenario, medians[f"replication: {scenario}"])
        if self.cold:
            lines += ["", "| cold | side | MB/s | × | p50 ms | p99 ms |", "|---|---|---:|---:|---:|---:|"]
        for scenario in self.cold:
            lines += _speed_and_latency_rows(scenario, medians[f"cold: {scenario}"])
        lines += _spark_rows({scenario: medians[f"spark: {scenario}"] for scenario in self.spark})
        if self.verification:
            lines += ["", "| verify | side | MB/s | CPU s/GB | × |", "|---|---|---:|---:|---:|"]
        for scenario in self.verification:
            lines += _verification_rows(scenario, medians[f"verify: {scenario}"])
        if self.uploading:
            lines += [
                "",
                "| upload | side | MB/s | CPU s/GB | × CPU | PUT requests/GiB |",
                "|---|---|---:|---:|---:|---:|",
            ]
        for scenario in self.uploading:
            lines += _uploading_rows(scenario, medians[f"upload: {scenario}"])
        return "\n".join(lines)


def _rows_beside_kafka(scenarios: dict[str, dict[str, dict[str, float]]]) -> list[str]:
    """One row for each side; `×` is how many it answers as a multiple of the first side's. Nothing for no scenario."""
    rows = [
        "",
        "| beside Apache Kafka | side | answers/s | × | p50 ms | p99 ms | whole p99 ms | broker CPU ms |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for scenario, by_side in scenarios.items():
        first = next(iter(by_side.values()))
        rows += [
            f"| {scenario} | {side} | {each['answers_per_s']:,.0f} |"
            f" {each['answers_per_s'] / first['answers_per_s']:.2f} |"
            f" {each['p50_ms']:.2f} | {each['p99_ms']:.2f} | {each['whole_p99_ms']:.2f} | {each['broker_cpu_ms']:.2f} |"
            for side, each in by_side.items()
        ]
    return rows if scenarios else []


def _speed_and_latency_rows(scenario: str, by_side: dict[str, dict[str, float]]) -> list[str]:
    """One row for each side; `×` is its throughput as a multiple of the first side's."""
    rows = []
    first = next(iter(by_side.values()))
    for side, each in by_side.items():
        speed = f"{each['mb_per_s']:.0f} | {each['mb_per_s'] / first['mb_per_s']:.2f}" if "mb_per_s" in each else " | "
        times = f"{each['p50_ms']:.2f} | {each['p99_ms']:.2f}" if "p50_ms" in each else " | "
        rows.append(f"| {scenario} | {side} | {speed} | {times} |")
    return rows


def _verification_rows(scenario: str, by_side: dict[str, dict[str, float]]) -> list[str]:
    """One row for each side; `×` is its speed as a multiple of the first side's."""
    first = next(iter(by_side.values()))
    return [
        f"| {scenario} | {side} | {each['mb_per_s']:.0f} | {each['cpu_s_per_gb']:.2f} |"
        f" {each['mb_per_s'] / first['mb_per_s']:.2f} |"
        for side, each in by_side.items()
    ]


def _uploading_rows(scenario: str, by_side: dict[str, dict[str, float]]) -> list[str]:
    """One row for each side; `× CPU` is its CPU as a multiple of the first side's."""
    first = next(iter(by_side.values()))
    return [
        f"| {scenario} | {side} | {each['mb_per_s']:.0f} | {each['cpu_s_per_gb']:.2f} |"
        f" {each['cpu_s_per_gb'] / first['cpu_s_per_gb']:.2f} | {each['puts_per_gib']:.0f} |"
        for side, each in by_side.items()
    ]


def _spark_rows(scenarios: dict[str, dict[str, dict[str, float]]]) -> list[str]:
    """One row for each side; `×` is the first side's speed as a multiple of this one's. Nothing for no scenario."""
    rows = [
        "",
        "| Spark | side | rows/s | MB/s | CPU µs a row | broker's CPU µs a row | × | a task's peak MB |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for scenario, by_side in scenarios.items():
        first = next(iter(by_side.values()))
        for side, each in by_side.items():
            peak = f"{each['task_peak_mb']:.0f}" if "task_peak_mb" in each else ""
            rows.append(
                f"| {scenario} | {side} | {each['rows_per_s']:,.0f} | {each['mb_per_s']:.0f} |"
                f" {each['cpu_us_per_row']:.2f} | {each['broker_cpu_us_per_row']:.2f} |"
                f" {first['rows_per_s'] / each['rows_per_s']:.2f} | {peak} |"
            )
    return rows if scenarios else []
