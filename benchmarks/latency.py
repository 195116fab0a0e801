"""How long one record takes to be acknowledged at a steady rate: confluent-kafka, in a process of its own.

Owns the pace and the clock. Run as `python -m benchmarks.latency --bootstrap … --topic …`; prints JSON.
"""

import argparse
import json
import os
import sys
import threading
import time
from functools import partial

from confluent_kafka import Message, Producer

_TIMEOUT_SECONDS = 60.0
_WARM_UP_SECONDS = 2.0
_POLL_SECONDS = 0.1


def steady(
    bootstrap: str, topic: str, *, partitions: int, per_second: float, seconds: float, size_bytes: int, acks: str
) -> dict[str, float]:
    """Milliseconds from `produce` to the delivery report, without lingering, after a warm-up."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": acks, "linger.ms": 0, "enable.metrics.push": False})
    producer.list_topics(topic, timeout=30)
    value = os.urandom(size_bytes)
    taken: list[float] = []
    failed: list[str] = []

    def delivered(sent: float, counts: bool, error: object, _: Message) -> None:
        if error is not None:
            failed.append(str(error))
        elif counts:
            taken.append((time.perf_counter() - sent) * 1000)

    def listen() -> None:
        while not is_over.is_set():
            producer.poll(_POLL_SECONDS)

    # One thread sleeps until reports come, the other until a record is due. A single one would have to spin, as the
    # client waits in whole milliseconds, and would take one of the cores that the measured brokers run on.
    is_over = threading.Event()
    listener = threading.Thread(target=listen)
    listener.start()
    started = time.perf_counter()
    number = 0
    while (now := time.perf_counter()) - started < _WARM_UP_SECONDS + seconds:
        due = started + number / per_second
        if now < due:
            time.sleep(due - now)
            continue
        warm = now - started > _WARM_UP_SECONDS
        producer.produce(topic, value, partition=number % partitions, on_delivery=partial(delivered, now, warm))
        number += 1
    is_over.set()
    listener.join()
    if producer.flush(_TIMEOUT_SECONDS) or failed:
        raise SystemExit(f"{len(producer)} records were not acknowledged, {len(failed)} failed: {failed[:3]}")
    taken.sort()
    return {
        "records": len(taken),
        "per_second": len(taken) / seconds,
        "p50_ms": taken[len(taken) // 2],
        "p99_ms": taken[int(len(taken) * 0.99)],
        "p99_9_ms": taken[int(len(taken) * 0.999)],
        "max_ms": taken[-1],
    }


def steady_arguments(acks: str) -> argparse.ArgumentParser:
    """Where the records go, how often, for how long and how large they are."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--per-second", type=float, default=1000.0)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--size-bytes", type=int, default=100)
    parser.add_argument("--acks", default=acks)
    return parser


def main() -> int:
    parser = steady_arguments(acks="all")
    parser.add_argument("--partitions", type=int, default=1)
    options = parser.parse_args()
    result = steady(
        options.bootstrap,
        options.topic,
        partitions=options.partitions,
        per_second=options.per_second,
        seconds=options.seconds,
        size_bytes=options.size_bytes,
        acks=options.acks,
    )
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
