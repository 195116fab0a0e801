"""Producers that never stop, and what became of every record they sent.

Owns their threads. Every send ends in the history with one outcome: what has none when all is over is unknown.
"""

import threading
import time
from dataclasses import dataclass, field
from typing import Any

import confluent_kafka

from tests.cluster.history import NO_OFFSET, HistoryWriter, Kind, Outcome, encode_value, value_of

TICK_S = 0.05
CERTAIN = {
    confluent_kafka.KafkaError._QUEUE_FULL,
    confluent_kafka.KafkaError.MSG_SIZE_TOO_LARGE,
    confluent_kafka.KafkaError.INVALID_REQUIRED_ACKS,
}
"""Errors after which a record is certainly not in the log."""
PATIENT: dict[str, Any] = {
    "enable.idempotence": True,
    "delivery.timeout.ms": 150_000,
}
QUICK: dict[str, Any] = {
    "request.timeout.ms": 1500,
    "socket.timeout.ms": 3000,
    "topic.metadata.refresh.interval.ms": 1000,
    "topic.metadata.refresh.fast.interval.ms": 50,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 200,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    # Fatal errors and little else.
    "log_level": 3,
    "log.connection.close": False,
}
"""A client that notices soon, so that what is measured is the cluster."""


def now_us() -> int:
    return time.monotonic_ns() // 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderPlan:
    """One producer: its number, what it sends how often, and how."""

    client: int
    per_second: float
    kind: Kind = Kind.SEND
    value_bytes: int = 240
    renewed_every_s: float | None = None
    """The producer is given up so often, with whatever is under way, and another one goes on: as after a crash."""
    config: dict[str, Any] = field(default_factory=dict)


class Sender(threading.Thread):
    """Sends to all partitions in turn."""

    def __init__(
        self, plan: SenderPlan, bootstrap: str, partitions: list[tuple[str, int]], history: HistoryWriter
    ) -> None:
        super().__init__(name=f"sender-{plan.client}", daemon=True)
        self.plan = plan
        self.acknowledged = 0
        self.fatal: list[str] = []
        self._addresses = bootstrap
        self._partitions = partitions
        self._history = history
        self._halt = threading.Event()
        self._sequence = 0
        self._open: dict[int, tuple[int, int]] = {}
        """Value to (partition, start) of what has no outcome yet."""
        self._producer = self._make()

    def _make(self) -> confluent_kafka.Producer:
        return confluent_kafka.Producer({"bootstrap.servers": self._addresses, **QUICK, **self.plan.config})

    def run(self) -> None:
        due = renewed = time.monotonic()
        while not self._halt.is_set():
            due += 1 / self.plan.per_second
            if self.plan.renewed_every_s is not None and due - renewed > self.plan.renewed_every_s:
                renewed = due
                self._renew()
            self._send()
            while (left := due - time.monotonic()) > 0 and not self._halt.is_set():
                self._poll(min(left, TICK_S))
            if left < -1.0:
                due = time.monotonic()

    def _send(self) -> None:
        index = self._sequence % len(self._partitions)
        topic, partition = self._partitions[index]
        value = value_of(self.plan.client, self._sequence)
        started_us = now_us()
        try:
            self._producer.produce(
                topic,
                encode_value(value, padding_bytes=self.plan.value_bytes),
                key=b"key-%d" % (self._sequence % 7),
                partition=partition,
                on_delivery=lambda error, message: self._delivered(value, error, message),
            )
        except BufferError:
            self._poll(TICK_S)
            return
        except confluent_kafka.KafkaException as error:
            self._begin_anew(str(error))
            return
        self._open[value] = (index, started_us)
        self._sequence += 1

    def _poll(self, timeout_s: float) -> None:
        try:
            self._producer.poll(timeout_s)
        except (SystemError, confluent_kafka.KafkaException) as error:
            # How the client raises a fatal error, and whatever a callback raised.
            self._begin_anew(str(error))

    def _renew(self) -> None:
        """Never by a short delivery time-out: librdkafka then sends the rest of a batch again, under a new epoch, of
        which the broker may have the whole. That is twice, and no broker could know."""
        self._producer.purge()
        self._give_up()
        self._producer = self._make()

    def _begin_anew(self, words: str) -> None:
        """A fatal error ends a producer; what it had under way is unknown."""
        self.fatal.append(f"producer {self.plan.client}: {words}")
        self._give_up()
        self._producer = self._make()

    def _delivered(self, value: int, error: Any, message: confluent_kafka.Message) -> None:
        index, started_us = self._open.pop(value, (-1, 0))
        if index < 0:
            return
        offset = NO_OFFSET
        if error is None:
            outcome = Outcome.OK
            self.acknowledged += 1
            # None where a later batch's success acknowledged this one too, whose own answer was an error.
            if (told := message.offset()) is not None and told >= 0:
                offset = told
        else:
            outcome = Outcome.FAIL if error.code() in CERTAIN else Outcome.UNKNOWN
        self._history.add(
            self.plan.kind,
            client=self.plan.client,
            partition=index,
            started_us=started_us,
            ended_us=now_us(),
            outcome=outcome,
            offset=offset,
            value=value,
        )

    def finish(self, timeout_s: float) -> int:
        """Stops sending and waits; how many records have no outcome by then. They are unknown."""
        self._halt.set()
        self.join(timeout_s)
        try:
            self._producer.flush(timeout_s)
        except (SystemError, confluent_kafka.KafkaException) as error:
            self.fatal.append(f"producer {self.plan.client}, at its end: {error}")
        left = len(self._open)
        self._give_up()
        return left

    def _give_up(self) -> None:
        for value, (index, started_us) in self._open.items():
            self._history.add(
                self.plan.kind,
                client=self.plan.client,
                partition=index,
                started_us=started_us,
                ended_us=now_us(),
                outcome=Outcome.UNKNOWN,
                value=value,
            )
        self._open.clear()
