"""A process of consumers in one group, as an application would run it: poll, process, commit. Killed at will.

What they do is appended to a file, in lines that kill -9 cannot tear: `R time consumer partition offsets…` for
records processed (before they are committed), `A`, `V` and `L` with partitions assigned, revoked and lost. Times
are of the machine's monotonic clock, which all processes share.
"""

import json
import os
import signal
import sys
import time
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

CONSUME_S = 0.01
BATCH = 500


class Log:
    """Appends whole lines."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(self, kind: str, consumer: str, *fields: object) -> None:
        line = " ".join(map(str, (kind, time.monotonic(), consumer, *fields)))
        os.write(self._descriptor, line.encode() + b"\n")


def subscribe(number: int, options: dict[str, Any], log: Log) -> Consumer:
    name = f"{options['name']}-{number}"
    config = {
        "bootstrap.servers": options["bootstrap"],
        "group.id": options["group"],
        "client.id": name,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 500,
        "topic.metadata.refresh.interval.ms": 30_000,
        "log_level": 0,
        **options["config"],
    }
    if options["static"]:
        config["group.instance.id"] = name
    consumer = Consumer(config)

    def event(kind: str) -> Any:
        def called(_: Consumer, partitions: list[TopicPartition]) -> None:
            log.write(kind, name, *(each.partition for each in partitions))

        return called

    consumer.subscribe([options["topic"]], on_assign=event("A"), on_revoke=event("V"), on_lost=event("L"))
    return consumer


def process(messages: list[Message], name: str, log: Log) -> None:
    by_partition: dict[int, list[int]] = {}
    for message in messages:
        if message.error() is None:
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            by_partition.setdefault(partition, []).append(offset)
    for partition, offsets in by_partition.items():
        log.write("R", name, partition, *offsets)


def commit(consumer: Consumer, *, wait: bool) -> None:
    try:
        if wait:
            consumer.commit(asynchronous=False)
        else:
            consumer.commit(asynchronous=True)
    except KafkaException:
        pass  # Committed again later, or processed again by whoever comes next.


def main() -> None:
    options = json.loads(sys.argv[1])
    log = Log(options["log"])
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopping.append(number))
    consumers = [subscribe(number, options, log) for number in range(options["count"])]
    print("started", flush=True)
    while not stopping:
        for number, consumer in enumerate(consumers):
            messages = consumer.consume(BATCH, CONSUME_S)
            if messages:
                process(messages, f"{options['name']}-{number}", log)
                commit(consumer, wait=False)
    for consumer in consumers:
        commit(consumer, wait=True)
        consumer.close()


if __name__ == "__main__":
    main()
