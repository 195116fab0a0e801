"""What is measured, and how: throughput, start, idle, replay. Each gives every run's numbers.

Owns the sizes and the order. Systems alternate within a scenario, so that what else the machine does
meets both alike.
"""

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks import testing
from benchmarks.machine import cpu_seconds, memory_mb
from benchmarks.systems import System, Tiered

Run = dict[str, float]
Say = Callable[[str], None]
# The reference keeps the newest 5 MB of a partition: what is to be consumed from it is spread over many.
MANY_TOPICS = 50
MANY_PARTITIONS_EACH = 4
BYTES_PER_MANY = 4_000_000
RECORD_OVERHEAD_BYTES = 12
IN_MEMORY = {"remote.storage.enable": "false", "retention.ms": "-1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One scenario of the client: what it does with how much."""

    name: str
    what: str
    size_bytes: int
    records: int
    acks: str = "1"
    many: bool = False
    partitions: int = 1
    ca: str = ""
    """Over TLS: who signs for the brokers."""
    linger_ms: int = 5
    compression: str = "none"

    def argv(self, bootstrap: str, topic: str) -> list[str]:
        topics, partitions = (MANY_TOPICS, MANY_PARTITIONS_EACH) if self.many else (1, self.partitions)
        spread = ["--topics", str(topics), "--partitions", str(partitions)]
        return [
            *(sys.executable, "-m", "benchmarks.client", self.what, "--bootstrap", bootstrap, "--topic", topic),
            *("--records", str(self.records), "--size-bytes", str(self.size_bytes), "--acks", self.acks, *spread),
            *("--ca", self.ca, "--linger-ms", str(self.linger_ms), "--compression", self.compression),
        ]


def many_records(size_bytes: int) -> int:
    return MANY_TOPICS * MANY_PARTITIONS_EACH * (BYTES_PER_MANY // (size_bytes + RECORD_OVERHEAD_BYTES))


def run_load(system: System, load: Load, topic: str) -> Run:
    """One run of the client, with the CPU seconds per GB that the broker's process used meanwhile."""
    before = cpu_seconds(system.pid)
    run = subprocess.run(load.argv(system.bootstrap, topic), capture_output=True, text=True)
    if run.returncode != 0:
        raise SystemExit(f"{load.name} on {system.name} failed: {run.stderr.strip()[-2000:]}")
    result: Run = json.loads(run.stdout)
    used = cpu_seconds(system.pid) - before
    result["broker_cpu_s_per_gb"] = used / (result["records"] * load.size_bytes) * 1e9
    return result


def throughput(systems: list[System], *, rounds: int, gb: float, say: Say) -> dict[str, dict[str, list[Run]]]:
    """Produce on all systems and consume on ours from one partition; the first round only warms and is dropped."""
    results: dict[str, dict[str, list[Run]]] = {}
    for size_bytes, acks in ((1024, "1"), (1024, "all"), (100, "1")):
        records = int(gb * 1e9 * (1.0 if size_bytes == 1024 else 0.4) / size_bytes)
        label = f"{size_bytes} B, acks={acks}"
        produce = Load(name=f"produce {label}", what="produce", size_bytes=size_bytes, records=records, acks=acks)
        consume = Load(name=f"consume {size_bytes} B", what="consume", size_bytes=size_bytes, records=records)
        for number in range(rounds + 1):
            for system in systems:
                topic = f"bench-{size_bytes}-{acks}-{number}"
                system.create_topic(topic, IN_MEMORY)
                loads = [produce, consume] if isinstance(system, Tiered) and acks == "1" else [produce]
                for load in loads:
                    run = run_load(system, load, topic)
                    if number > 0:
                        results.setdefault(load.name, {}).setdefault(system.name, []).append(run)
                        say(f"{load.name:32}{system.name:8}{run['mb_per_s']:8.0f} MB/s"
                            f"{run['broker_cpu_s_per_gb']:8.2f} CPU s/GB")  # fmt: skip
                system.delete_topic(topic)
    return results


def warm(folder: Path, mock: System, *, rounds: int, gb: float, say: Say) -> dict[str, dict[str, list[Run]]]:
    """Produce at 1 KiB into pages that are cached, and into nothing, beside the reference: see `warm_broker`."""
    folded = Tiered(folder=folder / "folded", module=("benchmarks.warm_broker",))
    discarding = Tiered(folder=folder / "discarding", name="discard", module=("benchmarks.warm_broker", "--discard"))
    records = int(gb * 1e9 / 1024)
    results: dict[str, dict[str, list[Run]]] = {}
    systems: list[System] = [folded, discarding, mock]
    for system in systems:
        system.start()
    try:
        for acks in ("1", "all"):
            name = f"produce 1024 B, acks={acks}, warm pages"
            load = Load(name=name, what="produce", size_bytes=1024, records=records, acks=acks)
            for number in range(rounds + 1):
                for system in systems:
                    topic = f"warm-{acks}-{number}"
                    system.create_topic(topic, IN_MEMORY)
                    run = run_load(system, load, topic)
                    if number > 0:
                        results.setdefault(name, {}).setdefault(system.name, []).append(run)
                        say(f"{name:38}{system.name:8}{run['mb_per_s']:8.0f} MB/s"
                            f"{run['broker_cpu_s_per_gb']:8.2f} CPU s/GB")  # fmt: skip
                    system.delete_topic(topic)
    finally:
        for system in systems:
            system.stop()
    return results


def consume_many(systems: list[System], *, rounds: int, say: Say) -> dict[str, dict[str, list[Run]]]:
    """Consume from 200 partitions of 4 MB, which the reference can hold; filled once, read again and again."""
    results: dict[str, dict[str, list[Run]]] = {}
    for size_bytes in (1024, 100):
        topic = f"many-{size_bytes}"
        records = many_records(size_bytes)
        name = f"consume {size_bytes} B, {MANY_TOPICS * MANY_PARTITIONS_EACH} partitions"
        fill = Load(name=f"fill {topic}", what="produce", size_bytes=size_bytes, records=records, many=True)
        load = Load(name=name, what="consume", size_bytes=size_bytes, records=records, many=True)
        for system in systems:
            for number in range(MANY_TOPICS):
                system.create_topic(f"{topic}-{number}", IN_MEMORY, partitions=MANY_PARTITIONS_EACH)
            run_load(system, fill, topic)
        for number in range(rounds + 1):
            for system in systems:
                run = run_load(system, load, topic)
                if number > 0:
                    results.setdefault(name, {}).setdefault(system.name, []).append(run)
                    say(f"{name:32}{system.name:8}{run['mb_per_s']:8.0f} MB/s"
                        f"{run['broker_cpu_s_per_gb']:8.2f} CPU s/GB")  # fmt: skip
        for system in systems:
            for number in range(MANY_TOPICS):
                system.delete_topic(f"{topic}-{number}")
    return results


def start_and_idle(broker: Tiered, *, rounds: int, say: Say) -> dict[str, list[float]]:
    """Start on a folder with data: until the ready line, until the first acknowledged record; then what idling costs.

    The client is connected to nothing before the ready line, and what it needs to connect is counted.
    """
    from confluent_kafka import Producer

    results: dict[str, list[float]] = {"ready_s": [], "first_ack_s": [], "idle_rss_mb": [], "idle_cpu_percent": []}
    broker.start()
    broker.create_topic("start", IN_MEMORY)
    run_load(broker, Load(name="fill", what="produce", size_bytes=1024, records=100_000), "start")
    broker.stop()
    for _ in range(rounds):
        started = time.perf_counter()
        ready = broker.start()
        producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0, "enable.metrics.push": False})
        producer.produce("start", b"first", partition=0)
        while len(producer):
            producer.poll(0.001)
        first_ack = time.perf_counter() - started
        del producer
        time.sleep(2)
        cpu_before = cpu_seconds(broker.pid)
        time.sleep(5)
        idle_cpu = (cpu_seconds(broker.pid) - cpu_before) / 5 * 100
        rss = memory_mb(broker.pid)
        broker.stop()
        for name, value in zip(results, (ready, first_ack, rss, idle_cpu), strict=True):
            results[name].append(value)
        say(
            f"start: ready {ready:.2f} s, first acknowledgement {first_ack:.2f} s; idle: {rss:.0f} MB, {idle_cpu:.1f} %"
        )
    return results


def test_clusters(*, rounds: int, say: Say) -> dict[str, list[float]]:
    """Seconds that a test cluster takes from `import tiered.testing` to its end, one record there and back included.

    `first` is that of a new process, which imports everything; `later` that of the next ones in it.
    """
    results: dict[str, list[float]] = {}
    for client in testing.CLIENTS:
        for _ in range(rounds):
            run = subprocess.run(
                [sys.executable, "-m", "benchmarks.testing", client, "4"], capture_output=True, text=True
            )
            if run.returncode != 0:
                raise SystemExit(f"a test cluster with {client} failed: {run.stderr.strip()[-2000:]}")
            first, *later = json.loads(run.stdout)
            results.setdefault(f"first, {client}", []).append(first)
            results.setdefault(f"later, {client}", []).extend(later)
            say(f"test cluster, {client:16} first {first:.2f} s, later {max(later):.2f} s at most")
    return results


def replay(folder: Path, *, rounds: int, gb: float, say: Say) -> dict[str, dict[str, object]]:
    """Spark's rows a second from the object store (a local folder), brokers stopped, at 100 B and 1 KiB values."""
    results: dict[str, dict[str, object]] = {}
    store = f"file://{folder / 'data' / 'objects'}"
    broker = Tiered(
        folder=folder, settings={"log.retention.check.interval.ms": "500", "tiered.upload.interval.ms": "200"}
    )
    configs = {"segment.bytes": str(64 << 20), "segment.ms": "2000", "retention.ms": "-1", "local.retention.ms": "1"}
    broker.start()
    for size_bytes in (100, 1024):
        topic = f"replay-{size_bytes}"
        broker.create_topic(topic, configs)
        load = Load(name=topic, what="produce", size_bytes=size_bytes, records=int(gb * 1e9 / size_bytes / 2))
        run_load(broker, load, topic)
        say(f"{topic}: waiting until {load.records:,} records are in the store")
        _wait_until_cold(broker, topic)
    broker.stop()
    for size_bytes in (100, 1024):
        topic = f"replay-{size_bytes}"
        run = subprocess.run(
            [sys.executable, "-m", "benchmarks.replay", store, topic, str(rounds)], capture_output=True, text=True
        )
        if run.returncode != 0:
            raise SystemExit(f"replay of {topic} failed: {run.stderr.strip()[-3000:]}")
        result = json.loads(run.stdout.strip().splitlines()[-1])
        result["rows_per_s"] = [result["rows"] / seconds for seconds in result["seconds"]]
        results[f"Spark replay, {size_bytes} B"] = result
        say(f"Spark replay, {size_bytes} B: {result['rows']:,} rows, {max(result['rows_per_s']):,.0f} rows/s at best")
    return results


def _wait_until_cold(broker: Tiered, topic: str, *, timeout_seconds: float = 120) -> None:
    url = f"http://{broker.http}/api/v1/topics/{topic}/partitions/0/segments"
    deadline = time.monotonic() + timeout_seconds
    while time.monotonic() < deadline:
        with urllib.request.urlopen(url, timeout=10) as response:
            segments = json.load(response)["segments"]
        filled = [each for each in segments if each["end_offset"] > each["base_offset"]]
        if filled and all(each["tier"] == "cold" for each in filled):
            return
        time.sleep(0.3)
    raise SystemExit(f"{topic} did not move to the object store within {timeout_seconds:.0f} s")
