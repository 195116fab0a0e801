"""What a coordinator is asked by many clients at once, over and over: transactions, offset commits, offset fetches.

Owns the clients, which are confluent-kafka with librdkafka's defaults, each on a thread of its own, and the clock. Run
as `python -m benchmarks.coordinated --bootstrap … --topic …`; prints JSON.
"""

import argparse
import itertools
import json
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from benchmarks.machine import cpu_seconds

RECORDS = 10
VALUE = b"x" * 100
WARM_UP = 5
"""How often each client asks before the clock starts: by then it knows its coordinator, and topics of it are made."""
_TIMEOUT_SECONDS = 60.0
_QUIET = {"enable.metrics.push": False, "log_level": 3}

Ask = Callable[[], float]
"""Asks once; gives the seconds until the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Who asks whom for what, and for how long."""

    what: str
    bootstrap: str
    topic: str
    clients: int
    partitions: int
    seconds: float
    pid: int
    """The broker's, whose CPU is counted."""


def transactions(asked: Asked, number: int) -> Ask:
    """Transactions of `RECORDS` records, in turn to each partition. What is timed is their commit."""
    settings = {"bootstrap.servers": asked.bootstrap, "transactional.id": f"{asked.topic}-{number}"}
    producer = Producer(settings | _QUIET)
    producer.init_transactions(_TIMEOUT_SECONDS)
    partitions = itertools.cycle(range(asked.partitions))

    def ask() -> float:
        producer.begin_transaction()
        for _ in range(RECORDS):
            producer.produce(asked.topic, VALUE, partition=next(partitions))
        producer.flush(_TIMEOUT_SECONDS)
        started = time.perf_counter()
        producer.commit_transaction(_TIMEOUT_SECONDS)
        return time.perf_counter() - started

    return ask


def commits(asked: Asked, number: int) -> Ask:
    """A group that commits the offset of one partition."""
    consumer = _consumer(asked, number)
    offsets = itertools.count(1)

    def ask() -> float:
        offset = TopicPartition(asked.topic, number % asked.partitions, next(offsets))
        started = time.perf_counter()
        consumer.commit(offsets=[offset], asynchronous=False)
        return time.perf_counter() - started

    _until_coordinated(ask)
    return ask


def fetches(asked: Asked, number: int) -> Ask:
    """A group that asks for the offset that it has committed."""
    consumer = _consumer(asked, number)
    partition = TopicPartition(asked.topic, number % asked.partitions)
    _until_coordinated(lambda: consumer.commit(offsets=[TopicPartition(*_place(partition), 7)], asynchronous=False))

    def ask() -> float:
        started = time.perf_counter()
        (found,) = consumer.committed([partition], _TIMEOUT_SECONDS)
        if found.offset != 7:
            raise SystemExit(f"7 was committed, and {found.offset} came back")
        return time.perf_counter() - started

    return ask


def _place(partition: TopicPartition) -> tuple[str, int]:
    return partition.topic, partition.partition


def _consumer(asked: Asked, number: int) -> Consumer:
    settings = {"bootstrap.servers": asked.bootstrap, "group.id": f"{asked.topic}-{number}"}
    return Consumer({**settings, "enable.auto.commit": False, **_QUIET})


def _until_coordinated(ask: Callable[[], object]) -> None:
    """A client that has just been made does not know its coordinator yet, and a new broker may have none for it."""
    deadline = time.perf_counter() + _TIMEOUT_SECONDS
    while True:
        try:
            ask()
            return
        except KafkaException:
            if time.perf_counter() > deadline:
                raise
            time.sleep(0.05)


WHATS: dict[str, Callable[[Asked, int], Ask]] = {"transactions": transactions, "commits": commits, "fetches": fetches}


@dataclass(slots=True)
class _WindowState:
    """Between its beginning and its end, answers count."""

    begun: threading.Barrier
    until: float = 0.0
    taken: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)
    """As `taken`, with what a client does before it asks: of a transaction, sending its records."""


def measure(asked: Asked) -> dict[str, float]:
    """How many were answered in a second, how long they took, and the broker's CPU for each."""
    window = _WindowState(threading.Barrier(asked.clients + 1))

    def client(number: int) -> None:
        try:
            ask = WHATS[asked.what](asked, number)
            for _ in range(WARM_UP):
                ask()
            window.begun.wait(_TIMEOUT_SECONDS)
            window.begun.wait(_TIMEOUT_SECONDS)
            while True:
                started = time.perf_counter()
                taken = ask()
                if (now := time.perf_counter()) > window.until:
                    return
                window.taken.append(taken)
                window.whole.append(now - started)
        except threading.BrokenBarrierError:
            pass
        except BaseException:
            window.begun.abort()
            raise

    with ThreadPoolExecutor(asked.clients) as pool:
        running = [pool.submit(client, number) for number in range(asked.clients)]
        try:
            window.begun.wait(_TIMEOUT_SECONDS)
            cpu_before = cpu_seconds(asked.pid)
            window.until = time.perf_counter() + asked.seconds
            window.begun.wait(_TIMEOUT_SECONDS)
            time.sleep(asked.seconds)
            cpu = cpu_seconds(asked.pid) - cpu_before
        except threading.BrokenBarrierError:
            cpu = 0.0
        for each in running:
            each.result()
    count = len(window.taken)
    return {
        "answers_per_s": count / asked.seconds,
        "p50_ms": _of_sorted(window.taken, 0.5),
        "p99_ms": _of_sorted(window.taken, 0.99),
        "whole_p99_ms": _of_sorted(window.whole, 0.99),
        "broker_cpu_ms": cpu / count * 1000,
    }


def _of_sorted(seconds: list[float], share: float) -> float:
    return sorted(seconds)[int(len(seconds) * share)] * 1000


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=WHATS)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--clients", type=int, required=True)
    parser.add_argument("--partitions", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--pid", type=int, required=True)
    options: dict[str, Any] = vars(parser.parse_args())
    print(json.dumps(measure(Asked(**options))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
