"""`make bench-kafka`: ours and Apache Kafka in turn, cell by cell. Needs Java 17 and Maven, which fetches Apache Kafka.

Owns the command line. Results go to bench-results/ as JSON and as a table.
"""

import argparse
import datetime
import re
import shlex
import shutil
import signal
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from benchmarks import machine
from benchmarks.kafka import report, sides
from benchmarks.kafka.cells import BY_NAME, SUITES, chosen
from benchmarks.kafka.measures import Effort, Results, measure
from tests.clients.java_client import fetch_jars

WHOLE, QUICK = Effort(rounds=5, gb=0.5, seconds=10.0), Effort(rounds=2, gb=0.2, seconds=2.0)
EFFORTS = ("rounds", "gb", "seconds")


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench-kafka", description="Ours and Apache Kafka, in turn.")
    parser.add_argument("--rounds", type=int, help="runs of each cell on each side (5)")
    parser.add_argument("--gb", type=float, help="GB of one run at 1 KiB (0.5)")
    parser.add_argument("--seconds", type=float, help="how long a rate is held (10)")
    quick = "a look in minutes: 2 rounds of 0.2 GB and 2 s, of a small matrix, or of what --only names"
    parser.add_argument("--quick", action="store_true", help=quick)
    only = f"{', '.join(SUITES)}, or a cell by its name in the table; may be repeated"
    parser.add_argument("--only", action="append", choices=(*SUITES, *BY_NAME), metavar="SUITE_OR_CELL", help=only)
    parser.add_argument("--results", type=Path, default=Path("bench-results"))
    parser.add_argument("--folder", type=Path, help="where the brokers' data goes (a temporary folder)")
    options = parser.parse_args()
    whole = QUICK if options.quick else WHOLE
    effort = replace(whole, **{name: vars(options)[name] for name in EFFORTS if vars(options)[name] is not None})
    folder: Path = options.folder or Path(tempfile.mkdtemp(prefix="tiered-bench-kafka-"))
    folder.mkdir(parents=True, exist_ok=True)

    def say(text: str) -> None:
        print(text, flush=True)

    command = re.sub(r" ?--(results|folder)[ =]\S+", "", shlex.join(sys.argv[1:])).strip()
    facts = machine.facts() | {"rounds": effort.rounds, "gb": effort.gb, "command": command}
    holes = folder / "holes"
    results: Results = {}
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # `timeout` ends it as Ctrl-C does.
    try:
        for project in ("broker.xml", "tools.xml"):
            fetch_jars(project, folder / "jars")
        if any(cell.suite == "cold" for cell in chosen(options.only, is_quick=options.quick)):
            fetch_jars("broker-tiered.xml", folder / sides.TIERED_JARS)
        (kafka,) = (folder / "jars").glob("kafka_2.13-*.jar")
        facts["kafka"] = kafka.stem.rpartition("-")[2]
        if not options.quick:
            say("warming the machine's memory, so that no host's page faults are measured")
            machine.warm_memory(holes)
        measure(chosen(options.only, is_quick=options.quick), folder, folder / "jars", effort, say, results)
    finally:
        # What an interrupted run has measured is measured.
        stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
        path = report.write(options.results, stamp, report.document(results, facts))
        say(f"\n{path.with_suffix('.md').read_text()}\nresults are in {path}")
        holes.unlink(missing_ok=True)
        if options.folder is None:
            shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
