"""Records for groups to process: one idempotent producer that knows where each record is, whoever tells it.

Owns the producer and its thread. Must never read.
"""

import threading
import time
from typing import Any

import confluent_kafka

Place = tuple[int, int]
"""(partition, offset)"""
DEADLINE_S = 60.0


class Load:
    """Writes records to all partitions in turn, as fast as asked for, in a thread or all at once."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._topic = topic
        self._partitions = partitions
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "reconnect.backoff.max.ms": 200,
                # Who is suspended keeps its connections: it is given up when it does not answer.
                "socket.timeout.ms": 5_000,
                "log_level": 0,
            }
        )
        self._number = 0
        """Of records written so far."""
        self._halted = threading.Event()
        self._thread: threading.Thread | None = None
        self.acknowledged: list[Place] = []
        self._next: dict[int, int] = {}
        """Of each partition, the offset after the last acknowledged record: nobody else writes there."""

    def _one(self) -> None:
        self._producer.produce(
            self._topic,
            b"record-%d" % self._number,
            partition=self._number % self._partitions,
            on_delivery=self._delivered,
        )
        self._number += 1

    def _delivered(self, error: Any, message: Any) -> None:
        assert error is None, error
        partition, offset = message.partition(), message.offset()
        if offset is None or offset < 0:
            # The client knows by a later batch's success that it is stored, and was never told where.
            offset = self._next.get(partition, 0)
        self._next[partition] = offset + 1
        self.acknowledged.append((partition, offset))

    def write(self, count: int) -> list[Place]:
        """Where these records are, once all are acknowledged."""
        first = len(self.acknowledged)
        for _ in range(count):
            self._one()
        assert self._producer.flush(DEADLINE_S) == 0
        return self.acknowledged[first:]

    def begin(self, *, records_per_s: int) -> None:
        self._halted.clear()
        self._thread = threading.Thread(target=self._run, args=(records_per_s,), daemon=True)
        self._thread.start()

    def _run(self, records_per_s: int) -> None:
        started = time.monotonic()
        sent = 0
        while not self._halted.is_set():
            due = int((time.monotonic() - started) * records_per_s)
            while sent < due:
                self._one()
                sent += 1
            self._producer.poll(0.01)

    def halt(self) -> None:
        """Writes nothing more, and waits for nothing."""
        self._halted.set()
        if self._thread is not None:
            self._thread.join()

    def end(self) -> list[Place]:
        """Where all records are that were ever written, once all are acknowledged."""
        self.halt()
        assert self._producer.flush(DEADLINE_S) == 0
        return self.acknowledged
