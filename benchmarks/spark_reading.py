"""A cold replay with Spark, beside Spark's own Kafka connector, Parquet, and the decoder alone: the same records.

Owns the broker and the topics. Records are in the bucket and on the broker's disk at the same time: the connector is
served from the hot log, which is the best that it can get. The JARs of the connector come from Maven Central.
"""

import json
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from benchmarks.scenarios import Load, Run, Say, run_load
from benchmarks.spark_side import TIERED, Spec
from benchmarks.systems import Tiered

PARTITIONS = 4
CORES = (1, 2)
SPLITS = (1, 2, 4, 8, 16, 32)
SIZES = {100: 0.4, 1024: 1.0}
"""By the records' size, the share of the GB: small ones cost more each."""
_CONFIGS = {"segment.bytes": str(128 << 20), "segment.ms": "3000", "retention.ms": "-1", "local.retention.ms": "-1"}
_SETTINGS = {
    "log.retention.check.interval.ms": "500",
    "tiered.upload.interval.ms": "200",
    "tiered.checkpoint.interval.ms": "200",
}
_TIMEOUT_SECONDS = 300.0
_POM = Path(__file__).parent / "java" / "pom.xml"


def spark_reading(folder: Path, *, rounds: int, gb: float, say: Say) -> dict[str, dict[str, list[Run]]]:
    """By scenario and side, each run's numbers."""
    results: dict[str, dict[str, list[Run]]] = {}
    jars = _connector(folder / "jars")
    broker = Tiered(folder=folder, settings=_SETTINGS)
    broker.start()
    try:
        for size_bytes, share in SIZES.items():
            topic = f"spark-{size_bytes}"
            records = int(gb * 1e9 * share / size_bytes / PARTITIONS) * PARTITIONS
            broker.create_topic(topic, _CONFIGS, partitions=PARTITIONS)
            load = Load(name=topic, what="produce", size_bytes=size_bytes, records=records, partitions=PARTITIONS)
            run_load(broker, load, topic)
            say(f"{topic}: waiting until {records:,} records are in the bucket")
            _wait_until_uploaded(broker, topic, records)
            for cores in CORES:
                name = f"{size_bytes} B, local[{cores}]"
                spec = Spec(
                    store=f"file://{folder / 'data' / 'objects'}",
                    topic=topic,
                    records=records,
                    size_bytes=size_bytes,
                    cores=cores,
                    rounds=rounds,
                    folder=str(folder),
                    bootstrap=broker.bootstrap,
                    broker_pid=broker.pid,
                    jars=jars,
                    splits=list(SPLITS),
                )
                results[name] = _measure(spec, say, name)
    finally:
        broker.kill()
    return results


def _measure(spec: Spec, say: Say, name: str) -> dict[str, list[Run]]:
    command = [sys.executable, "-m", "benchmarks.spark_side", spec.to_text()]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode != 0:
        raise SystemExit(f"reading with Spark, {name}, failed: {run.stderr.strip()[-3000:]}")
    found: dict[str, list[Run]] = json.loads(run.stdout.strip().splitlines()[-1])
    for side, runs in found.items():
        if not side.startswith(f"{TIERED},"):
            rates = sorted(each["rows_per_s"] for each in runs)
            say(f"{name:20}{side:28}{rates[len(rates) // 2]:12,.0f} rows/s")
    return found


def _connector(folder: Path) -> list[str]:
    """The connector's JARs. Ends the run where they can't be had: without them there is nothing to compare."""
    command = ["mvn", "-q", "-B", "-f", str(_POM), "dependency:copy-dependencies"]
    try:
        subprocess.run(
            [*command, f"-DoutputDirectory={folder}"], check=True, timeout=300, capture_output=True, text=True
        )
    except FileNotFoundError:
        raise SystemExit("Spark's Kafka connector comes from Maven Central: install Maven (mvn)") from None
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"Maven Central did not give Spark's Kafka connector: {error.stdout[-2000:]}") from None
    return sorted(str(each) for each in folder.glob("*.jar"))


def _wait_until_uploaded(broker: Tiered, topic: str, records: int) -> None:
    """Returns when the checkpoints have every record; all of them stay on the disk as well."""
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        ends = []
        for partition in range(PARTITIONS):
            url = f"http://{broker.http}/api/v1/topics/{topic}/partitions/{partition}/segments"
            with urllib.request.urlopen(url, timeout=10) as response:
                ends.append(int(json.load(response)["cold_end_offset"]))
        if sum(ends) == records:
            time.sleep(2)  # The checkpoint follows the commit.
            return
        time.sleep(0.3)
    raise SystemExit(f"{topic} was not uploaded within {_TIMEOUT_SECONDS:.0f} s")
