"""Consumers of a group in a process of their own: `python -m tests.faults.group_worker JSON`.

Each runs in a thread and writes what it does to a file of its own, line by line, before it commits: what was
processed is known whatever kills the process. Must never decide whether what it saw was right.
"""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka import TopicPartition


def _consume(settings: dict[str, Any], topic: str, log: Path, halt: threading.Event) -> None:
    """One consumer until told to stop. Lines: (kind, monotonic time, ...) with kinds assigned, revoked, lost, did,
    committed, failed and closed."""
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def say(*words: Any) -> None:
        os.write(file, (json.dumps([words[0], time.monotonic(), *words[1:]]) + "\n").encode())

    def numbers(partitions: list[TopicPartition]) -> list[int]:
        return [each.partition for each in partitions]

    def assigned(_: Any, partitions: list[TopicPartition]) -> None:
        say("assigned", numbers(partitions))

    def revoked(consumer: Any, partitions: list[TopicPartition]) -> None:
        say("revoked", numbers(partitions))

    def lost(_: Any, partitions: list[TopicPartition]) -> None:
        say("lost", numbers(partitions))

    consumer = confluent_kafka.Consumer(settings)
    consumer.subscribe([topic], on_assign=assigned, on_revoke=revoked, on_lost=lost)
    while not halt.is_set():
        messages = consumer.consume(200, 0.05)
        done: dict[int, list[int]] = {}
        for message in messages:
            if message.error() is not None:
                say("failed", str(message.error()))
            else:
                partition, offset = message.partition(), message.offset()
                assert partition is not None
                assert offset is not None
                done.setdefault(partition, []).append(offset)
        if not done:
            continue
        say("did", done)
        positions = [TopicPartition(topic, partition, max(offsets) + 1) for partition, offsets in done.items()]
        try:
            stored = consumer.commit(offsets=positions, asynchronous=False)
        except confluent_kafka.KafkaException as error:
            # Its partitions are being taken away, or the coordinator is: it goes on, and may see these again.
            say("failed", str(error))
        else:
            say("committed", {each.partition: each.offset for each in stored if each.error is None})
    consumer.close()
    say("closed")


def main() -> None:
    """Arguments: one JSON object."""
    told = json.loads(sys.argv[1])
    halt = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: halt.set())
    threads = [
        threading.Thread(target=_consume, args=(settings, told["topic"], Path(log), halt))
        for settings, log in told["consumers"]
    ]
    for thread in threads:
        thread.start()
    while not halt.wait(0.2):
        pass
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
