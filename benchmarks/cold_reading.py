"""Consuming what is cold, beside ranged GETs of the same bytes from the same S3 server; and what that does to a tail.

Owns the topic, the S3 server (moto, in a process of its own) and the broker, which starts anew before each run: its
cache is empty then. The reference reads the same objects with as many plain connections as there are partitions, in
pieces as long as the broker's largest ones, and looks at nothing; beside it, for comparison, in pieces of one chunk:
moto reads the whole object for each request, so that it is the slower the smaller they are. Server, broker and consumer
share the cores of one machine, so that there are two controls (ADR 0015): the same GETs while a consumer reads the same
records from the broker's local log, which is all of the work but the broker's own; and the tail of a broker while
another one serves the backfill, which is all of the load but the broker's own. The backfill beside a tail begins again
when it is through, with a cache too small for it, so that it is cold all the time.
"""

import http.client
import json
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from urllib.parse import urlsplit

from confluent_kafka import Consumer, TopicPartition

from benchmarks.machine import cpu_seconds
from benchmarks.scenarios import IN_MEMORY, Load, Run, Say, run_load
from benchmarks.systems import Tiered
from benchmarks.uploading import BUCKET, server
from tiered.formats.chunk_table import DEFAULT_CHUNK_BYTES
from tiered.rules.pacing.read_ahead import DEFAULT_LIMITS
from tiered.testing.moto_s3 import aws_environment, s3_client

PARTITIONS = 8
SIZE_BYTES = 1024
PIECE_BYTES, CHUNK_BYTES = DEFAULT_LIMITS.request_bytes, DEFAULT_CHUNK_BYTES
TOPIC, HOT, TAIL = "cold", "hot", "tail"
PREFIX = "cold-reading"
COLD, CONSUMER = f"consume {PARTITIONS} cold partitions", "tiered"
GETS, CHUNK_GETS = f"ranged GETs of {PIECE_BYTES >> 20} MiB", f"ranged GETs of {CHUNK_BYTES >> 20} MiB"
GETS_AND_HOT = f"{GETS}, and from the log"
TAILING, ALONE, BESIDE = "a tail at 1,000 records/s", "alone", "beside a backfill"
BESIDE_ANOTHER = "beside another broker's"
_CONFIGS = {"segment.bytes": str(32 << 20), "segment.ms": "2000", "retention.ms": "-1", "local.retention.ms": "1"}
SMALL_CACHE = {"tiered.cache.bytes": str(64 << 20)}
_TIMEOUT_SECONDS = 300.0


def cold_reading(folder: Path, *, rounds: int, gb: float, say: Say) -> dict[str, dict[str, list[Run]]]:
    """By scenario and side, each run's numbers; the first round only warms and is dropped."""
    results: dict[str, dict[str, list[Run]]] = {}
    records = int(gb * 1e9 / SIZE_BYTES / PARTITIONS) * PARTITIONS
    with server() as endpoint_url, aws_environment():
        broker = Tiered(
            folder=folder / "broker",
            settings={"log.retention.check.interval.ms": "500", "tiered.upload.interval.ms": "200"},
            arguments=("--store", f"s3://{BUCKET}/{PREFIX}?endpoint_url={endpoint_url}"),
        )
        another = Tiered(folder=folder / "another")
        try:
            _fill(broker, records, say)
            another.start()
            another.create_topic(TAIL, {"remote.storage.enable": "false"})
            another.stop()
            objects = _objects(endpoint_url)
            for number in range(rounds + 1):
                pair = {
                    GETS: _ranged_gets(endpoint_url, objects, PIECE_BYTES),
                    CONSUMER: _consume(broker, records),
                    GETS_AND_HOT: _gets_and_hot(broker, records, endpoint_url, objects),
                    CHUNK_GETS: _ranged_gets(endpoint_url, objects, CHUNK_BYTES),
                }
                tails = {
                    ALONE: _tail(broker),
                    BESIDE: _tail(broker, backfilled=broker, records=records),
                    BESIDE_ANOTHER: _tail(another, backfilled=broker, records=records),
                }
                if number == 0:
                    continue
                for side, run in pair.items():
                    results.setdefault(COLD, {}).setdefault(side, []).append(run)
                    say(f"{COLD:32}{side:34}{run['mb_per_s']:8.0f} MB/s")
                for side, run in tails.items():
                    results.setdefault(TAILING, {}).setdefault(side, []).append(run)
                    say(
                        f"{TAILING:32}{side:34}{run['p50_ms']:8.2f} ms p50{run['p99_ms']:8.2f} ms p99"
                        f"{run['backfill_mb_per_s']:8.0f} MB/s beside it"
                    )
        finally:
            broker.kill()
            another.kill()
    return results


def _fill(broker: Tiered, records: int, say: Say) -> None:
    broker.start()
    broker.create_topic(TOPIC, _CONFIGS, partitions=PARTITIONS)
    broker.create_topic(TAIL, {"remote.storage.enable": "false"})
    broker.create_topic(HOT, IN_MEMORY, partitions=PARTITIONS)
    load = Load(name=TOPIC, what="produce", size_bytes=SIZE_BYTES, records=records, partitions=PARTITIONS)
    run_load(broker, load, TOPIC)
    run_load(broker, load, HOT)
    say(f"{TOPIC}: waiting until {records:,} records are in the store")
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    for partition in range(PARTITIONS):
        while not _is_cold(broker, partition):
            if time.monotonic() > deadline:
                raise SystemExit(f"{TOPIC} did not move to the store within {_TIMEOUT_SECONDS:.0f} s")
            time.sleep(0.5)
    broker.stop()


def _is_cold(broker: Tiered, partition: int) -> bool:
    url = f"http://{broker.http}/api/v1/topics/{TOPIC}/partitions/{partition}/segments"
    with urllib.request.urlopen(url, timeout=10) as response:
        segments = json.load(response)["segments"]
    filled = [each for each in segments if each["end_offset"] > each["base_offset"]]
    return bool(filled) and all(each["tier"] == "cold" for each in filled)


# The two sides


def _objects(endpoint_url: str) -> list[tuple[str, int]]:
    """Signed path and size of every segment in the bucket."""
    client = s3_client(endpoint_url)
    found: list[tuple[str, int]] = []
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=f"{PREFIX}/segments/"):
        for each in page.get("Contents", []):
            wanted = {"Bucket": BUCKET, "Key": each["Key"]}
            url = urlsplit(client.generate_presigned_url("get_object", Params=wanted, ExpiresIn=24 * 3600))
            found.append((f"{url.path}?{url.query}", each["Size"]))
    client.close()
    return found


def _ranged_gets(endpoint_url: str, objects: list[tuple[str, int]], piece_bytes: int) -> Run:
    """Every byte of every object once, over as many connections as a consumer has partitions."""
    where = urlsplit(endpoint_url)
    pieces = [
        (path, start, min(piece_bytes, size_bytes - start))
        for path, size_bytes in objects
        for start in range(0, size_bytes, piece_bytes)
    ]

    def read(share: list[tuple[str, int, int]]) -> int:
        connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=60)
        done_bytes = 0
        for path, start, length in share:
            connection.request("GET", path, headers={"Range": f"bytes={start}-{start + length - 1}"})
            response = connection.getresponse()
            done_bytes += len(response.read())
            if response.status != http.client.PARTIAL_CONTENT:
                raise SystemExit(
                    f"the S3 server answered {response.status} to a ranged GET of {path.partition('?')[0]}"
                )
        connection.close()
        return done_bytes

    started = time.perf_counter()
    with ThreadPoolExecutor(PARTITIONS) as threads:
        done_bytes = sum(threads.map(read, [pieces[number::PARTITIONS] for number in range(PARTITIONS)]))
    seconds = time.perf_counter() - started
    return {"mb_per_s": done_bytes / seconds / 1e6, "broker_cpu_s_per_gb": 0.0}


def _consume(broker: Tiered, records: int, topic: str = TOPIC) -> Run:
    broker.start()
    try:
        _meet(broker)
        load = Load(name=COLD, what="consume", size_bytes=SIZE_BYTES, records=records, partitions=PARTITIONS)
        run = run_load(broker, load, topic)
    finally:
        broker.stop()
    return {"mb_per_s": run["mb_per_s"], "broker_cpu_s_per_gb": run["broker_cpu_s_per_gb"]}


def _gets_and_hot(broker: Tiered, records: int, endpoint_url: str, objects: list[tuple[str, int]]) -> Run:
    """Both at once, at the speed of the slower one: what reaches the client has come from the server, and from a log,
    but nobody has checked it or carried it from the one to the other."""
    with ThreadPoolExecutor(1) as thread:
        hot = thread.submit(_consume, broker, records, HOT)
        gets = _ranged_gets(endpoint_url, objects, PIECE_BYTES)
        run = hot.result()
    return run | {"mb_per_s": min(run["mb_per_s"], gets["mb_per_s"])}


def _meet(broker: Tiered) -> None:
    """A first client, because it pays for the broker's import of the messages' codecs."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "first", "enable.metrics.push": False})
    consumer.assign([TopicPartition(TAIL, 0, 0)])
    consumer.poll(1.0)
    consumer.close()


# The tail


def _tail(broker: Tiered, *, backfilled: Tiered | None = None, records: int = 0) -> Run:
    """Milliseconds from a record's produce to its arrival at a consumer, while another one reads all `records` of
    `backfilled` or not."""
    brokers = [broker] if backfilled is None or backfilled is broker else [broker, backfilled]
    for each in brokers:
        each.settings |= SMALL_CACHE
        each.start()
    try:
        with nullcontext() if backfilled is None else backfill(backfilled.bootstrap, TOPIC, records):
            before, cold_bytes = cpu_seconds(broker.pid), _cold_bytes(backfilled)
            began = time.monotonic()
            argv = [sys.executable, "-m", "benchmarks.tail_latency", "--bootstrap", broker.bootstrap, "--topic", TAIL]
            run = subprocess.run(argv, capture_output=True, text=True)
            if run.returncode != 0:
                raise SystemExit(f"{TAILING} failed: {run.stderr.strip()[-2000:]}")
            result: Run = json.loads(run.stdout)
            backfill_mb_per_s = (_cold_bytes(backfilled) - cold_bytes) / (time.monotonic() - began) / 1e6
            return result | {"broker_cpu_s": cpu_seconds(broker.pid) - before, "backfill_mb_per_s": backfill_mb_per_s}
    finally:
        for each in brokers:
            each.stop()
            for name in SMALL_CACHE:
                del each.settings[name]


def _cold_bytes(broker: Tiered | None) -> float:
    """What the broker has served from the store since its start."""
    if broker is None:
        return 0.0
    with urllib.request.urlopen(f"http://{broker.http}/metrics", timeout=10) as response:
        lines = response.read().decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("tiered_fetched_cold_bytes_total "))


@contextmanager
def backfill(bootstrap: str, topic: str, records: int) -> Iterator[list[Run]]:
    """Meanwhile consumers read everything, one after the other. What each of them has read is there afterwards."""
    load = Load(name=COLD, what="consume", size_bytes=SIZE_BYTES, records=records, partitions=PARTITIONS)
    over = threading.Event()
    runs: list[Run] = []

    def read() -> None:
        while not over.is_set():
            with subprocess.Popen(load.argv(bootstrap, topic), stdout=subprocess.PIPE, text=True) as consumer:
                while consumer.poll() is None and not over.wait(0.05):
                    pass
                consumer.terminate()
                said, _ = consumer.communicate()
            if said:
                runs.append(json.loads(said))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield runs
    finally:
        over.set()
        reader.join()
