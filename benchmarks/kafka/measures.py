"""One run of one cell on one side, and all runs in turn.

Owns the order: who goes first changes from round to round, so that what a run leaves behind meets both alike.
"""

import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks import beside_kafka, cold_reading
from benchmarks.kafka import cells, sides
from benchmarks.kafka.cells import Cell
from benchmarks.kafka.sides import Side
from benchmarks.machine import cpu_seconds, memory_mb
from benchmarks.scenarios import Load, Run, Say

Results = dict[Cell, dict[str, list[Run]]]
SMALL_RECORDS_SHARE = 0.4
TOPIC_PARTITIONS = 100
REQUEST_TOPICS = 10
"""A request of Apache Kafka's controller may make 10,000 partitions and not one more."""
FRESH = "fresh"
"""The kind of brokers that begin each run with empty folders; the others are those of `sides`."""
WARMING, WARM_UP = Cell(suite="", what=cells.CONSUME, partitions=4), 5
LEFT_BYTES = 4 << 20
"""What may be on a broker's own disk when a topic counts as cold: logs of its own, and the last segments."""
_START_TOGETHER_SECONDS = 3.0
_TIMEOUT_SECONDS = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How long and how often."""

    rounds: int
    gb: float
    seconds: float


def measure(chosen: list[Cell], folder: Path, jars: Path, effort: Effort, say: Say, results: Results) -> None:
    """Adds each run's numbers, by cell and side. A first round of all but those that begin with empty folders is
    dropped."""
    for (brokers, kind), group in itertools.groupby(chosen, key=lambda cell: (cell.brokers, _kind(cell))):
        where, is_fresh = folder / f"{kind}-{brokers}", kind == FRESH
        with ExitStack() as stack:
            both = [] if is_fresh else stack.enter_context(sides.running(where, jars, brokers, kind))
            for side in both:
                _warm(side, effort)
            for cell in group:
                for number in range(1 if is_fresh else 0, effort.rounds + 1):
                    if is_fresh:
                        both = sides.alone(where / f"{cell.partitions}-{number}", jars)
                    for side in both if number % 2 else reversed(both):
                        run = MEASURES[cell.what](side, cell, effort, number) | {"load": os.getloadavg()[0]}
                        if number:
                            results.setdefault(cell, {}).setdefault(side.name, []).append(run)
                            say(f"{cell.name:52}{side.name:8}" + _said(run))
                if cell.what in (cells.CONSUME, cells.BESIDE_COLD):
                    for side in both:
                        side.delete(_topic(cell))
                if is_fresh:
                    shutil.rmtree(where, ignore_errors=True)


def _warm(side: Side, effort: Effort) -> None:
    """Java compiles what it runs often: a broker that has served nothing yet costs twice as much."""
    much = replace(effort, gb=WARM_UP * effort.gb)
    _consume(side, WARMING, much, number=0)
    side.delete(_topic(WARMING))


def _kind(cell: Cell) -> str:
    """Of the brokers that it needs."""
    if cell.suite == "cold":
        return sides.TIERED if cell.what == cells.COLD else sides.READ_AGAIN
    if cell.suite == "polling":
        return sides.POLLING
    return FRESH if cell.what == cells.PARTITIONS else sides.RUNNING


def _said(run: Run) -> str:
    return "  ".join(f"{name} {value:,.2f}" for name, value in run.items() if name not in ("started_s", "ended_s"))


def _topic(cell: Cell, number: int | None = None) -> str:
    name = "".join(each if each.isalnum() else "-" for each in cell.name)
    return name if number is None else f"{name}-{number}"


@contextmanager
def _new_topic(side: Side, cell: Cell, number: int) -> Iterator[str]:
    topic = _topic(cell, number)
    side.create(topic, cell.partitions, is_cold=cell.what == cells.COLD)
    _acknowledged(side, topic, range(cell.partitions))  # What a topic's first record waits for is not measured.
    try:
        yield topic
    finally:
        side.delete(topic)


def _clients(side: Side, argvs: list[list[str]]) -> tuple[list[Run], float]:
    """What each of them printed, and the CPU seconds that the brokers used meanwhile."""
    before = side.cpu_seconds()
    clients = [
        subprocess.Popen([sys.executable, "-m", *argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for argv in argvs
    ]
    said = [client.communicate() for client in clients]
    for client, (_, error) in zip(clients, said, strict=True):
        if client.returncode != 0:
            raise SystemExit(f"{argvs[0]} on {side.name} failed: {error.strip()[-2000:]}")
    return [json.loads(out) for out, _ in said], side.cpu_seconds() - before


# Throughput


def _load(side: Side, cell: Cell, topic: str, effort: Effort, *, what: str) -> Run:
    """As many clients as the cell says, at once. Producers share the records, and each consumer reads all."""
    size_share = 1.0 if cell.size_bytes >= 1024 else SMALL_RECORDS_SHARE
    each = int(effort.gb * 1e9 * size_share / cell.size_bytes / cell.clients)
    is_fill = what != cell.what
    if cell.by_tool and not is_fill:
        return _load_by_tool(side, cell, topic, each)
    load = Load(
        name=cell.name,
        what=what,
        size_bytes=cell.size_bytes,
        records=each,
        acks=cell.acks,
        partitions=cell.partitions,
        ca=side.ca if cell.over_tls else "",
        linger_ms=cell.linger_ms,
        compression=cell.compression,
    )
    clients = 1 if is_fill else cell.clients
    argv = load.argv(side.secured if cell.over_tls else side.bootstrap, topic)[2:]
    if clients > 1:
        argv += ["--start-at", str(time.monotonic() + _START_TOGETHER_SECONDS)]
    runs, cpu = _clients(side, [argv] * clients)
    return together(runs, cell.size_bytes, cpu)


def _load_by_tool(side: Side, cell: Cell, topic: str, records: int) -> Run:
    argv = ["benchmarks.kafka.tools", cell.what, "--jars", str(side.jars), "--bootstrap", side.bootstrap]
    argv += ["--topic", topic, "--records", str(records), "--size-bytes", str(cell.size_bytes), "--acks", cell.acks]
    ((run,), cpu) = _clients(side, [argv])
    return run | {"broker_cpu_s_per_gb": cpu / (records * cell.size_bytes) * 1e9}


def together(runs: list[Run], size_bytes: int, cpu: float) -> Run:
    """Several clients as one: from when the first began until the last had ended."""
    seconds = max(run["ended_s"] for run in runs) - min(run["started_s"] for run in runs)
    records = sum(run["records"] for run in runs)
    return {
        "mb_per_s": records * size_bytes / seconds / 1e6,
        "records_per_s": records / seconds,
        "broker_cpu_s_per_gb": cpu / (records * size_bytes) * 1e9,
        "client_cpu_s_per_gb": sum(run["client_cpu_s_per_gb"] * run["records"] for run in runs) / records,
    }


def _produce(side: Side, cell: Cell, effort: Effort, number: int) -> Run:
    with _new_topic(side, cell, number) as topic:
        return _load(side, cell, topic, effort, what=cells.PRODUCE)


def _consume(side: Side, cell: Cell, effort: Effort, number: int) -> Run:
    """What the first round has filled is read in each."""
    topic = _topic(cell)
    if number == 0:
        side.create(topic, cell.partitions)
        _load(side, cell, topic, effort, what=cells.PRODUCE)
    return _load(side, cell, topic, effort, what=cells.CONSUME)


def _consume_cold(side: Side, cell: Cell, effort: Effort, number: int) -> Run:
    """The first read of what has just left the brokers' own disk, and its rate as a share of that of records that are
    still there."""
    with _new_topic(side, cell, number) as topic:
        _load(side, cell, topic, effort, what=cells.PRODUCE)
        _wait_until_cold(side, topic, cell.partitions)
        cold = _load(side, cell, topic, effort, what=cells.CONSUME)
    kept = replace(cell, what=cells.CONSUME)
    with _new_topic(side, kept, number) as topic:
        _load(side, kept, topic, effort, what=cells.PRODUCE)
        hot = _load(side, kept, topic, effort, what=cells.CONSUME)
    return cold | {"of_hot": cold["mb_per_s"] / hot["mb_per_s"]}


def _wait_until_cold(side: Side, topic: str, partitions: int) -> None:
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    while side.local_bytes() > LEFT_BYTES:
        if time.monotonic() > deadline:
            raise SystemExit(f"{side.name} kept {topic} for {_TIMEOUT_SECONDS:.0f} s")
        time.sleep(2.5)
        # Apache Kafka closes no segment by its age before the next record.
        _acknowledged(side, topic, range(partitions))


# Latency and connections


def _at_a_rate(side: Side, cell: Cell, effort: Effort, number: int) -> Run:
    module = "benchmarks.latency" if cell.what == cells.ACK else "benchmarks.tail_latency"
    with _new_topic(side, cell, number) as topic:
        argv = [module, "--bootstrap", side.bootstrap, "--topic", topic, "--acks", cell.acks]
        argv += ["--per-second", str(cell.per_second), "--seconds", str(effort.seconds)]
        started = time.monotonic()
        ((run,), cpu) = _clients(side, [[*argv, "--size-bytes", str(cell.size_bytes)]])
    return run | {"broker_cpu_percent": cpu / (time.monotonic() - started) * 100}


def _beside_cold(side: Side, cell: Cell, effort: Effort, number: int) -> Run:
    """What the first round has filled is read again and again meanwhile, from a store each time."""
    topic, read = _topic(cell), replace(WARMING, partitions=cold_reading.PARTITIONS)
    if number == 0:
        side.create(topic, read.partitions, is_cold=True)
        _load(side, read, topic, effort, what=cells.PRODUCE)
        _wait_until_cold(side, topic, read.partitions)
    with cold_reading.backfill(side.bootstrap, topic, int(effort.gb * 1e9 / read.size_bytes)) as runs:
        result = _at_a_rate(side, cell, effort, number)
    read_mb = sum(run["records"] for run in runs) * read.size_bytes / 1e6
    return result | {"beside_mb_per_s": read_mb / sum(run["seconds"] for run in runs)}


def _busy(side: Side, cell: Cell, effort: Effort, number: int) -> Run:
    with _new_topic(side, cell, number) as topic:
        argv = ["benchmarks.kafka.connections", "busy", "--bootstrap", side.bootstrap, "--topic", topic]
        argv += ["--count", str(cell.count), "--seconds", str(effort.seconds)]
        started = time.monotonic()
        ((run,), cpu) = _clients(side, [argv])
    return run | {"broker_cpu_percent": cpu / (time.monotonic() - started) * 100}


def _idle(side: Side, cell: Cell, effort: Effort, _number: int) -> Run:
    argv = [sys.executable, "-m", "benchmarks.kafka.connections", "idle", "--bootstrap", side.bootstrap]
    with subprocess.Popen(
        [*argv, "--count", str(cell.count)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as client:
        assert client.stdout is not None
        connected = json.loads(client.stdout.readline())["connections"]
        assert connected == cell.count
        cpu_percent = _idle_cpu_percent(side, effort)
        run = {"idle_cpu_percent": cpu_percent, "memory_mb": memory_mb(side.pid)}
        client.communicate()
    return run


def _idle_cpu_percent(side: Side, effort: Effort) -> float:
    """After time to settle, as Java goes on compiling what it has just run."""
    time.sleep(3 * effort.seconds)
    before, started = cpu_seconds(side.pid), time.monotonic()
    time.sleep(2 * effort.seconds)
    return (cpu_seconds(side.pid) - before) / (time.monotonic() - started) * 100


def _offsets(side: Side, cell: Cell, effort: Effort, _number: int) -> Run:
    scenario = beside_kafka.Scenario(what=cell.what.split()[1], clients=cell.count, partitions=cell.partitions)
    asked = beside_kafka.Side(name=side.name, bootstrap=side.bootstrap, pid=side.pid)
    return beside_kafka.run_asked(asked, scenario, _topic(cell), effort.seconds)


# Many partitions


def _partitions(side: Side, cell: Cell, effort: Effort, _number: int) -> Run:
    """From an empty folder: create them, write a record to each, idle, kill -9 and start again."""
    (broker,) = side.brokers
    each = min(TOPIC_PARTITIONS, cell.partitions)
    topics = cell.partitions // each
    names = [f"many-{number}" for number in range(topics)] if topics > 1 else ["many"]
    start_s = broker.start()
    try:
        started = time.perf_counter()
        admin = AdminClient({"bootstrap.servers": side.bootstrap, "log_level": 0})
        for some in (names[at : at + REQUEST_TOPICS] for at in range(0, topics, REQUEST_TOPICS)):
            new = [NewTopic(name, num_partitions=each, replication_factor=1, config=sides.KEPT) for name in some]
            for done in admin.create_topics(new, operation_timeout=60, request_timeout=60).values():
                done.result(_TIMEOUT_SECONDS)
        _acknowledged(side, names[-1], [each - 1])
        create_s = time.perf_counter() - started
        argv = ["benchmarks.client", "produce", "--bootstrap", side.bootstrap, "--topic", "many"]
        argv += ["--topics", str(topics), "--partitions", str(each)]
        _clients(side, [[*argv, "--records", str(cell.partitions), "--size-bytes", "100"]])
        idle_cpu_percent = _idle_cpu_percent(side, effort)
        idle_mb = memory_mb(side.pid)
        del admin
        broker.kill()
        started = time.perf_counter()
        broker.start()
        _acknowledged(side, names[-1], [each - 1])
        first_ack_s = time.perf_counter() - started
    finally:
        broker.kill()
    return {
        "start_s": start_s,
        "create_s": create_s,
        "idle_cpu_percent": idle_cpu_percent,
        "memory_mb": idle_mb,
        "first_ack_s": first_ack_s,
    }


def _acknowledged(side: Side, topic: str, partitions: Iterable[int]) -> None:
    """Once a record in each of them is."""
    settings = {"bootstrap.servers": side.bootstrap, "linger.ms": 0, "enable.metrics.push": False}
    producer = Producer({**settings, "log_level": 0})  # Until the leader is there it would tell of each try.
    for partition in partitions:
        producer.produce(topic, b"first", partition=partition)
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    while len(producer):
        producer.poll(0.001)
        if time.monotonic() > deadline:
            raise SystemExit(f"{side.name} acknowledged no record within {_TIMEOUT_SECONDS:.0f} s")


MEASURES: dict[str, Callable[[Side, Cell, Effort, int], Run]] = {
    cells.PRODUCE: _produce,
    cells.CONSUME: _consume,
    cells.COLD: _consume_cold,
    cells.ACK: _at_a_rate,
    cells.END_TO_END: _at_a_rate,
    cells.BESIDE_COLD: _beside_cold,
    cells.IDLE: _idle,
    cells.BUSY: _busy,
    cells.COMMITS: _offsets,
    cells.FETCHES: _offsets,
    cells.PARTITIONS: _partitions,
}
