"""`make bench-kafka`: ours and Apache Kafka in turn, cell by cell. Needs Java 17 and Maven, which fetches Apache Kafka.

Owns the command line. Results go to bench-results/ as JSON and as a table.
"""

import argparse
import datetime
import shutil
import sys
import tempfile
from pathlib import Path

from benchmarks import machine
from benchmarks.kafka import report
from benchmarks.kafka.cells import SUITES, chosen
from benchmarks.kafka.measures import Effort, Results, measure
from tests.clients.java_client import fetch_jars


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench-kafka", description="Ours and Apache Kafka, in turn.")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each cell on each side (5)")
    parser.add_argument("--gb", type=float, default=0.5, help="GB of one run at 1 KiB (0.5)")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long a rate is held (10)")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="2 short rounds of a small matrix: a look in minutes; with --only of whole suites",
    )
    parser.add_argument("--only", action="append", choices=SUITES, help="one of the suites; may be repeated")
    parser.add_argument("--results", type=Path, default=Path("bench-results"))
    parser.add_argument("--folder", type=Path, help="where the brokers' data goes (a temporary folder)")
    options = parser.parse_args()
    effort = Effort(rounds=options.rounds, gb=options.gb, seconds=options.seconds)
    if options.quick:
        effort = Effort(rounds=2, gb=0.2, seconds=3.0)
    folder: Path = options.folder or Path(tempfile.mkdtemp(prefix="tiered-bench-kafka-"))
    folder.mkdir(parents=True, exist_ok=True)

    def say(text: str) -> None:
        print(text, flush=True)

    facts = machine.facts() | {"rounds": effort.rounds, "gb": effort.gb, "command": " ".join(sys.argv[1:])}
    holes = folder / "holes"
    results: Results = {}
    try:
        fetch_jars("broker.xml", folder / "jars")
        (kafka,) = (folder / "jars").glob("kafka_2.13-*.jar")
        facts["kafka"] = kafka.stem.rpartition("-")[2]
        if not options.quick:
            say("warming the machine's memory, so that no host's page faults are measured")
            machine.warm_memory(holes)
        measure(chosen(options.only, is_quick=options.quick), folder, folder / "jars", effort, say, results)
    finally:
        # What an interrupted run has measured is measured.
        stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
        path = report.write(options.results, stamp, results, facts)
        say(f"\n{path.with_suffix('.md').read_text()}\nresults are in {path}")
        holes.unlink(missing_ok=True)
        if options.folder is None:
            shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
