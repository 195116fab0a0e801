"""Days of one broker with very many partitions that are hardly written to: requests, objects, CPU.

Owns the traffic: a record a minute for each partition, in batches of ten minutes. The broker has its defaults, and its
time passes as fast as its work lets it (`tests.support.passing_time`): a day of ten thousand partitions is most of an
hour of one core. Its store is a folder, whose operations are one request of S3 each, as long as an object has one part.
"""

import argparse
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.request import urlopen

from tests.support.passing_time import PassingBroker, passing_broker

TOPIC_PARTITIONS = 1000
BATCH_MINUTES = 10
RECORD = b"x" * 100
FIGURES = {
    "tiered_uploads_total": "uploads",
    "tiered_segments_joined_total": "joined",
    "tiered_disk_only_age_seconds": "age_s",
}
OPERATIONS = {"put": "PUT", "put_segment": "PUT", "list": "LIST"}
"""What is charged as a PUT is, by what it is there; everything else is as cheap as a GET, or free."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.days", description=__doc__)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--hours", type=int, default=27, help="virtual ones, and four more at rest (27)")
    parser.add_argument("--producer", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.producer:
        return _produce(options.producer, options.partitions)
    folder = Path(tempfile.mkdtemp(prefix="tiered-days-"))
    try:
        _run(folder, options.partitions, options.hours)
    finally:
        shutil.rmtree(folder)
    return 0


def _topics(partitions: int) -> dict[str, int]:
    """Partitions by topic."""
    whole, rest = divmod(partitions, TOPIC_PARTITIONS)
    return {f"t{number}": TOPIC_PARTITIONS for number in range(whole)} | ({"rest": rest} if rest else {})


def _run(folder: Path, partitions: int, hours: int) -> None:
    words = ("--data", f"{folder}/data", "--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0")
    producing = (sys.executable, "-m", "benchmarks.days", "--partitions", str(partitions), "--producer")
    with (
        passing_broker(*words) as broker,
        subprocess.Popen((*producing, broker.bootstrap), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as producer,
    ):
        assert producer.stdin is not None and producer.stdout is not None
        before = _seen(broker)
        for hour in range(1, hours + 1):
            for _ in range(60 // BATCH_MINUTES):
                producer.stdin.write(b"%d\n" % broker.now_ms())
                producer.stdin.flush()
                assert producer.stdout.readline(), "the producer failed"
                broker.let_pass(BATCH_MINUTES)
            before = _say(hour, before, _seen(broker))
        producer.stdin.close()
        for hour in range(hours + 1, hours + 5):  # What was joined is purged, and what came last is uploaded.
            broker.let_pass(60)
            before = _say(hour, before, _seen(broker))
    _say_objects(folder / "data")


def _seen(broker: PassingBroker) -> dict[str, float]:
    """The broker's figures, and the processor seconds of this process, in which it runs."""
    seen = dict.fromkeys(("PUT", "LIST", "others", *FIGURES.values()), 0.0)
    seen |= {"cpu_s": time.process_time(), "now_ms": float(broker.now_ms())}
    with urlopen(f"http://{broker.http}/metrics", timeout=600) as answer:
        for line in answer.read().decode().splitlines():
            name, _, value = line.rpartition(" ")
            if name in FIGURES:
                seen[FIGURES[name]] = float(value)
            elif name.startswith("tiered_store_seconds_count"):
                seen[OPERATIONS.get(name.split('"')[1], "others")] += float(value)
    return seen


def _say(hour: int, before: dict[str, float], seen: dict[str, float]) -> dict[str, float]:
    """What was seen at the end of that hour."""
    passed = {name: value - before[name] for name, value in seen.items()}
    rss_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(
        f"hour {hour:3}: {passed['uploads']:6.0f} uploads, {passed['PUT']:6.0f} PUT, "
        f"{passed['LIST']:5.0f} LIST, {passed['others']:6.0f} others, {passed['joined']:6.0f} objects joined, "
        f"{passed['cpu_s'] / (passed['now_ms'] / 1000.0):.3f} of a core, oldest on disks alone "
        f"{seen['age_s'] / 3600.0:.2f} h, at most {rss_mib} MiB",
        flush=True,
    )
    return seen


def _say_objects(data: Path) -> None:
    with sqlite3.connect(f"file:{data}/meta.db?mode=ro", uri=True) as sql:
        rows = sql.execute("SELECT state, joined_count, count(*) FROM segment GROUP BY 1, 2 ORDER BY 1, 2").fetchall()
    for state, joined_count, count in rows:
        print(f"{count:7} rows: {state}, of {joined_count or 1} uploads")
    print(f"{sum(path.is_file() for path in (data / 'objects' / 'segments').rglob('*')):7} objects of segments")
    print(f"{sum(path.suffix == '.log' for path in data.rglob('*')):7} local segments")


def _produce(bootstrap: str, partitions: int) -> int:
    """Ten records for every partition, for each line that comes: the time of the last one."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    topics = _topics(partitions)
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for created in admin.create_topics([NewTopic(name, count) for name, count in topics.items()]).values():
        created.result(120)
    producer = Producer(
        # Its connection is idle for minutes of the broker's time: it is closed again and again.
        {"bootstrap.servers": bootstrap, "linger.ms": 200, "queue.buffering.max.messages": 1_000_000, "log_level": 0}
    )
    failed = 0

    def delivered(error: object, _message: object) -> None:
        nonlocal failed
        failed += error is not None

    for line in sys.stdin:
        for name, count in topics.items():
            for partition in range(count):
                for minute in range(BATCH_MINUTES):
                    at_ms = int(line) - 60_000 * (BATCH_MINUTES - 1 - minute)
                    producer.produce(name, RECORD, partition=partition, timestamp=at_ms, callback=delivered)
            producer.poll(0)
        if producer.flush(300) or failed:
            return 1
        print("sent", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
