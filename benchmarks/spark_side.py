"""One Spark session in which all sides of a comparison read the same records, one after the other, round by round.

Owns the session, in a process of its own, and what it measures of it. Run as `python -m benchmarks.spark_side SPEC`,
where SPEC is JSON; prints JSON: by side, each round's numbers. The first round only warms, and is dropped.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.machine import cpu_seconds, memory_mb
from benchmarks.ready_rows import FORMAT, ReadyRows

if TYPE_CHECKING:
    from pyspark_tiered.options import Options
    from pyspark_tiered.plan import Split

TIERED, CONNECTOR, PARQUET, READY, DECODER = (
    "tiered, from the bucket",
    "Spark's Kafka connector",
    "Parquet",
    "Spark alone, rows ready made",
    "the decoder alone",
)
Run = dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """What is read, and how wide. `splits` are further runs of the bucket's side, with about so many tasks each."""

    store: str
    topic: str
    records: int
    size_bytes: int
    cores: int
    rounds: int
    folder: str
    bootstrap: str
    broker_pid: int
    jars: list[str]
    splits: list[int]

    def to_text(self) -> str:
        return json.dumps({name: getattr(self, name) for name in self.__slots__})


def main(argv: list[str]) -> int:
    spec = Spec(**json.loads(argv[0]))
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    spark = _session(spec)
    sides = _sides(spark, spec)
    results: dict[str, list[Run]] = {}
    for number in range(spec.rounds + 1):
        for side, act in sides.items():
            run = _timed(spec, act)
            if number > 0:
                results.setdefault(side, []).append(run)
    workers = [each for each in _descendants(os.getpid()) if "pyspark.daemon" in _command(each)]
    peak = max((memory_mb(each, "VmHWM") for each in workers), default=0.0)
    for run in results[TIERED]:
        run["task_peak_mb"] = peak
    spark.stop()
    print(json.dumps(results))
    return 0


def _session(spec: Spec) -> Any:
    from pyspark.sql import SparkSession

    builder = SparkSession.Builder().master(f"local[{spec.cores}]").appName("tiered-bench")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "2g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.jars": ",".join(spec.jars),
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _sides(spark: Any, spec: Spec) -> dict[str, Callable[[], int]]:
    def noop(frame: Any) -> Callable[[], int]:
        def act() -> int:
            frame.write.format("noop").mode("overwrite").save()
            return spec.records

        return act

    cold = spark.read.format("tiered").option("store", spec.store).option("subscribe", spec.topic)
    found = cold.load().count()
    if found != spec.records:
        raise SystemExit(f"{found} of {spec.records} records are in the bucket")
    parquet = str(Path(spec.folder) / f"parquet-{spec.topic}")
    if not Path(parquet).exists():
        cold.load().write.parquet(parquet)
    kafka = spark.read.format("kafka").option("kafka.bootstrap.servers", spec.bootstrap)
    kafka = kafka.option("subscribe", spec.topic).option("startingOffsets", "earliest")
    if kafka.load().count() != spec.records:
        raise SystemExit("Spark's connector does not see the same records")
    spark.dataSource.register(ReadyRows)
    tasks = len(_splits(spec)[1])
    made = {"rows": spec.records // tasks * tasks, "sizeBytes": spec.size_bytes, "tasks": tasks}
    sides = {
        TIERED: noop(cold.load()),
        CONNECTOR: noop(kafka.load()),
        PARQUET: noop(spark.read.parquet(parquet)),
        READY: noop(spark.read.format(FORMAT).options(**made).load()),
    }
    if spec.cores == 1:
        sides[DECODER] = lambda: _decode(spec)
    for splits in spec.splits:
        size_bytes = _bytes_of(spec) // splits + 1
        sides[f"{TIERED}, {splits} splits"] = noop(cold.option("splitBytes", size_bytes).load())
    return sides


def _splits(spec: Spec, **options: str) -> "tuple[Options, list[Split]]":
    from pyspark_tiered.batch import plan_batch
    from pyspark_tiered.log_source import open_log_source
    from pyspark_tiered.options import parse_options

    parsed = parse_options({"store": spec.store, "subscribe": spec.topic} | options, streaming=False)
    with open_log_source(parsed) as source:
        return parsed, plan_batch(source, parsed)


def _bytes_of(spec: Spec) -> int:
    from pyspark_tiered.plan import ColdSplit

    _, splits = _splits(spec, splitBytes=str(1 << 50))
    cold = [split for split in splits if isinstance(split, ColdSplit)]
    return sum(segment.log_bytes for split in cold for segment in split.segments)


def _decode(spec: Spec) -> int:
    """The way of a task without Spark: fetched, hashed, checked, decoded to Arrow, in this process, all columns."""
    from pyspark_tiered.batch import TaskOptions
    from tiered.formats.arrow import COLUMNS

    options, splits = _splits(spec)
    task = TaskOptions(options=options, columns=tuple(COLUMNS))
    return sum(batch.num_rows for split in splits for batch in task.read(split))


# What it takes


def _timed(spec: Spec, act: Callable[[], int]) -> Run:
    mine, broker = _tree_cpu(), cpu_seconds(spec.broker_pid)
    started = time.perf_counter()
    rows = act()
    seconds = time.perf_counter() - started
    return {
        "rows_per_s": rows / seconds,
        "mb_per_s": rows * spec.size_bytes / seconds / 1e6,
        "cpu_us_per_row": (_tree_cpu() - mine) / rows * 1e6,
        "broker_cpu_us_per_row": (cpu_seconds(spec.broker_pid) - broker) / rows * 1e6,
    }


def _tree_cpu() -> float:
    """CPU seconds of this process, the JVM and its Python workers, which all live on between rounds."""
    total = cpu_seconds(os.getpid())
    for pid in _descendants(os.getpid()):
        try:
            total += cpu_seconds(pid)
        except OSError:
            continue
    return total


def _descendants(pid: int) -> list[int]:
    try:
        children = [
            int(each)
            for task in Path(f"/proc/{pid}/task").iterdir()
            for each in (task / "children").read_text().split()
        ]
    except FileNotFoundError:
        return []  # It ended meanwhile, or one of its threads did.
    return [found for child in children for found in (child, *_descendants(child))]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode() if pid else ""
    except FileNotFoundError:
        return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
