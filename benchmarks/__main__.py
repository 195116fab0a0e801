"""`make bench`: produce and consume beside librdkafka's mock broker and over TLS, offset commits, transactions and
groups' offsets beside Apache Kafka, replication, start, idle, Spark replay, verifying a store, uploading to one,
consuming what is cold, Spark beside its own connector.

Owns the command line. Results go to bench-results/ as JSON and as a table.
"""

import argparse
import datetime
import shutil
import sys
import tempfile
from collections.abc import Collection
from pathlib import Path

from benchmarks import machine, scenarios
from benchmarks.report import Report
from benchmarks.systems import MockBroker, System, Tiered

SUITES = (
    "throughput",
    "warm",
    "many",
    "tls",
    "start",
    "testing",
    "replay",
    "commits",
    "transactions",
    "offsets",
    "replication",
    "verify",
    "upload",
    "cold",
    "spark",
)


def _verification(
    folder: Path, suites: Collection[str], *, rounds: int, gb: float, say: scenarios.Say
) -> dict[str, dict[str, list[scenarios.Run]]]:
    if "verify" not in suites:
        return {}
    from benchmarks.verification import verification

    folder.mkdir()
    return verification(folder, rounds=rounds, gb=gb, say=say)


def _beside_kafka(
    folder: Path, suites: Collection[str], *, rounds: int, seconds: float, say: scenarios.Say
) -> dict[str, dict[str, list[scenarios.Run]]]:
    if not {"transactions", "offsets"}.intersection(suites):
        return {}
    from benchmarks.beside_kafka import beside_kafka

    return beside_kafka(folder, suites, rounds=rounds, seconds=seconds, say=say)


def _over_tls(
    folder: Path, suites: Collection[str], *, rounds: int, gb: float, say: scenarios.Say
) -> dict[str, dict[str, list[scenarios.Run]]]:
    if "tls" not in suites:
        return {}
    from benchmarks.tls import over_tls

    return over_tls(folder, rounds=rounds, gb=gb, say=say)


def _uploading(
    folder: Path, suites: Collection[str], *, rounds: int, gb: float, say: scenarios.Say
) -> dict[str, dict[str, list[scenarios.Run]]]:
    if "upload" not in suites:
        return {}
    from benchmarks.uploading import uploading

    return uploading(folder, rounds=rounds, gb=gb, say=say)


def _reading(
    folder: Path, suites: Collection[str], *, rounds: int, gb: float, say: scenarios.Say
) -> dict[str, dict[str, list[scenarios.Run]]]:
    if "cold" not in suites:
        return {}
    from benchmarks.cold_reading import cold_reading

    return cold_reading(folder, rounds=rounds, gb=gb, say=say)


def _spark(
    folder: Path, suites: Collection[str], *, rounds: int, gb: float, say: scenarios.Say
) -> dict[str, dict[str, list[scenarios.Run]]]:
    if "spark" not in suites:
        return {}
    from benchmarks.spark_reading import spark_reading

    return spark_reading(folder, rounds=rounds, gb=gb, say=say)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench", description="Measurements, beside a reference.")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each scenario (5)")
    parser.add_argument("--gb", type=float, default=1.0, help="GB to produce in one run at 1 KiB (1.0)")
    parser.add_argument("--quick", action="store_true", help="3 rounds of 0.25 GB: a look, not a measurement")
    parser.add_argument("--only", action="append", choices=SUITES, help="one of the suites; may be repeated")
    parser.add_argument("--results", type=Path, default=Path("bench-results"))
    parser.add_argument("--folder", type=Path, help="where the broker's data goes (a temporary folder)")
    options = parser.parse_args()
    rounds, gb, seconds = (3, 0.25, 2.0) if options.quick else (options.rounds, options.gb, 5.0)
    suites = options.only or SUITES
    folder: Path = options.folder or Path(tempfile.mkdtemp(prefix="tiered-bench-"))

    def say(text: str) -> None:
        print(text, flush=True)

    report = Report(machine.facts() | {"rounds": rounds, "gb": gb, "command": " ".join(sys.argv[1:])})
    folder.mkdir(parents=True, exist_ok=True)
    holes = folder / "holes"
    try:
        if "throughput" in suites and not options.quick:
            say("warming the machine's memory, so that no host's page faults are measured")
            machine.warm_memory(holes)
        report.facts["append_floor_cpu_s_per_gb"] = round(machine.append_floor(folder), 2)
        say(f"appending to a file costs {report.facts['append_floor_cpu_s_per_gb']} CPU s/GB here, before any broker")
        if "throughput" in suites or "many" in suites:
            ours = Tiered(folder=folder / "throughput")
            systems: list[System] = [ours, MockBroker()]
            for system in systems:
                system.start()
            try:
                if "throughput" in suites:
                    report.throughput |= scenarios.throughput(systems, rounds=rounds, gb=gb, say=say)
                if "many" in suites:
                    report.throughput |= scenarios.consume_many(systems, rounds=rounds, say=say)
                report.facts["peak_rss_mb_under_load"] = machine.memory_mb(ours.pid, "VmHWM")
            finally:
                for system in systems:
                    system.stop()
        if "warm" in suites:
            report.throughput |= scenarios.warm(folder / "warm", MockBroker(), rounds=rounds, gb=gb, say=say)
        report.throughput |= _over_tls(folder / "tls", suites, rounds=rounds, gb=gb, say=say)
        if "start" in suites:
            report.start = scenarios.start_and_idle(Tiered(folder=folder / "start"), rounds=rounds, say=say)
        if "testing" in suites:
            report.testing = scenarios.test_clusters(rounds=rounds, say=say)
        if "replay" in suites:
            report.replay = scenarios.replay(folder / "replay", rounds=rounds, gb=gb, say=say)
        if "commits" in suites:
            from benchmarks import commit_scenarios

            report.commits = commit_scenarios.commits(folder / "commits", rounds=rounds, seconds=seconds, say=say)
        report.beside_kafka = _beside_kafka(folder / "kafka", suites, rounds=rounds, seconds=seconds, say=say)
        if "replication" in suites:
            from benchmarks.replication import replication

            report.replication = replication(folder / "replication", rounds=rounds, gb=gb, say=say)
        report.verification = _verification(folder / "verify", suites, rounds=rounds, gb=gb, say=say)
        report.uploading = _uploading(folder / "upload", suites, rounds=rounds, gb=gb, say=say)
        report.spark = _spark(folder / "spark", suites, rounds=rounds, gb=gb, say=say)
        report.cold = _reading(folder / "cold", suites, rounds=rounds, gb=gb, say=say)
    finally:
        holes.unlink(missing_ok=True)
        if options.folder is None:
            shutil.rmtree(folder, ignore_errors=True)
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
    path = report.write(options.results, stamp)
    print(f"\n{report.table()}\n\nresults are in {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
