"""Three brokers with every record on each of them, beside one broker that keeps a single copy.

Owns the cluster of the measurement: PostgreSQL, three `tiered serve` on this machine, and one more by itself. Both
sides get the same load in turn, from the same client.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.machine import cpu_seconds
from benchmarks.scenarios import Run, Say
from benchmarks.systems import Tiered, create_topic
from tests.postgres import PostgresServer

BROKERS = 3
SIZE_BYTES = 1024
IN_MEMORY = {"remote.storage.enable": "false", "retention.ms": "-1"}
ONE, THREE = "one broker, acks=1", "three replicas, acks=all"
LATENCY = "1,000 records/s of 100 B"


@dataclass(slots=True, kw_only=True)
class Side:
    """What is loaded: the brokers that serve one topic, and how the client asks them."""

    name: str
    brokers: list[Tiered]
    acks: str
    configs: dict[str, str]

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers)

    def create(self, topic: str, partitions: int) -> None:
        create_topic(self.bootstrap, topic, self.configs, partitions=partitions, copies=len(self.brokers))

    def delete(self, topic: str) -> None:
        self.brokers[0].delete_topic(topic)

    def run(self, *argv: str) -> Run:
        """One run of a client, with the CPU seconds that all brokers used meanwhile."""
        before = sum(cpu_seconds(broker.pid) for broker in self.brokers)
        run = subprocess.run([sys.executable, "-m", *argv], capture_output=True, text=True)
        if run.returncode != 0:
            raise SystemExit(f"{argv[0]} on {self.name} failed: {run.stderr.strip()[-2000:]}")
        result: Run = json.loads(run.stdout)
        return result | {"brokers_cpu_s": sum(cpu_seconds(broker.pid) for broker in self.brokers) - before}


@contextmanager
def sides(folder: Path) -> Iterator[list[Side]]:
    """Both sides, running."""
    # Unix sockets have short names, and the server's own user must be able to enter the folder.
    postgres_folder = Path(tempfile.mkdtemp(prefix="tiered-pg-"))
    server = PostgresServer(postgres_folder, durable=True)
    alone = Tiered(folder=folder / "alone")
    three = [
        Tiered(
            folder=folder / f"broker-{number}",
            settings={"min.insync.replicas": "2"},
            arguments=(
                *("--broker-id", str(number), "--rack", f"rack-{number}"),
                *("--meta", server.url(), "--store", f"file://{folder / 'objects'}"),
            ),
        )
        for number in range(1, BROKERS + 1)
    ]
    brokers = [alone, *three]
    try:
        for broker in brokers:
            broker.start()
        yield [
            Side(name=ONE, brokers=[alone], acks="1", configs=IN_MEMORY),
            Side(name=THREE, brokers=three, acks="all", configs={**IN_MEMORY, "min.insync.replicas": "2"}),
        ]
    finally:
        for broker in brokers:
            broker.kill()
        server.stop()
        shutil.rmtree(postgres_folder, ignore_errors=True)


def replication(folder: Path, *, rounds: int, gb: float, say: Say) -> dict[str, dict[str, list[Run]]]:
    """By scenario and side, each run's numbers; the first round only warms and is dropped."""
    results: dict[str, dict[str, list[Run]]] = {}
    with sides(folder) as both:
        for partitions in (1, BROKERS):
            scenario = f"produce {SIZE_BYTES} B, {partitions} partition{'s' if partitions > 1 else ''}"
            for number in range(rounds + 1):
                for side in both:
                    topic = f"replicated-{partitions}-{number}"
                    side.create(topic, partitions)
                    run = side.run(
                        *("benchmarks.client", "produce", "--bootstrap", side.bootstrap, "--topic", topic),
                        *("--records", str(int(gb * 1e9 / SIZE_BYTES)), "--size-bytes", str(SIZE_BYTES)),
                        *("--acks", side.acks, "--partitions", str(partitions)),
                    )
                    if number > 0:
                        results.setdefault(scenario, {}).setdefault(side.name, []).append(run)
                        say(f"{scenario:42}{side.name:26}{run['mb_per_s']:8.0f} MB/s{run['brokers_cpu_s']:8.2f} CPU s")
                    side.delete(topic)
        for partitions in (1, BROKERS):
            scenario = f"{LATENCY}, {partitions} partition{'s' if partitions > 1 else ''}"
            for number in range(rounds + 1):
                for side in both:
                    topic = f"latency-{partitions}-{number}"
                    side.create(topic, partitions)
                    run = side.run(
                        *("benchmarks.latency", "--bootstrap", side.bootstrap, "--topic", topic),
                        *("--partitions", str(partitions)),
                    )
                    if number > 0:
                        results.setdefault(scenario, {}).setdefault(side.name, []).append(run)
                        say(f"{scenario:42}{side.name:26}{run['p50_ms']:8.2f} ms p50{run['p99_ms']:8.2f} ms p99")
                    side.delete(topic)
    return results
