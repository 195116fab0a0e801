"""What a producer was promised, and whether the log keeps the promise.

Owns the bookkeeping of acknowledged and unknown records. Values are unique, so that each record can be
told from every other.
"""

import threading
import time
from dataclasses import dataclass, field

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

DEADLINE_S = 120.0


@dataclass(slots=True)
class Ledger:
    """Acknowledged (offset, value) pairs in the order of their delivery reports; the rest is unknown."""

    acknowledged: list[tuple[int, bytes]] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    sent: int = 0


class LoadGenerator(threading.Thread):
    """An idempotent producer that never stops sending until told to; it lives through restarts of the broker.

    It rests for `pause_ms` after every 50 records: what is left of them decides how long the test reads and checks.
    """

    def __init__(
        self, bootstrap: str, topic: str, *, value_bytes: int = 200, pause_ms: float = 1, name: str = "load"
    ) -> None:
        super().__init__(name=name, daemon=True)
        self.ledger = Ledger()
        self._topic = topic
        self._padding = b"x" * value_bytes
        self._pause_s = pause_ms / 1000
        self._halt = threading.Event()
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "batch.num.messages": 200,
                "delivery.timeout.ms": 120_000,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 200,
                "socket.timeout.ms": 10_000,
                "log_level": 0,
            }
        )

    def run(self) -> None:
        while not self._halt.is_set():
            value = b"%s-%012d-" % (self.name.encode(), self.ledger.sent) + self._padding
            try:
                self._producer.produce(self._topic, value, partition=0, on_delivery=self._delivered)
                self.ledger.sent += 1
            except BufferError:
                self._producer.poll(0.02)
            if self.ledger.sent % 50 == 0:
                self._producer.poll(0)
                time.sleep(self._pause_s)
        left = self._producer.flush(DEADLINE_S)
        assert left == 0, f"{left} records without an outcome"

    def wait_for_progress(self) -> None:
        """Returns once a record is acknowledged: getting its producer id takes librdkafka more than a second of
        the same broker, which a broker killed ten times in as many seconds never grants."""
        deadline = time.monotonic() + DEADLINE_S
        while not self.ledger.acknowledged:
            assert time.monotonic() < deadline, "no record was acknowledged"
            time.sleep(0.01)

    def finish(self) -> Ledger:
        """Stops sending and waits until every record has its outcome."""
        self._halt.set()
        self.join(DEADLINE_S + 10)
        assert not self.is_alive()
        return self.ledger

    def _delivered(self, error: object, message: confluent_kafka.Message) -> None:
        value = message.value()
        assert value is not None
        if error is None:
            offset = message.offset()
            assert offset is not None
            self.ledger.acknowledged.append((offset, value))
        else:
            self.ledger.failed.append(str(error))


def watermarks(consumer: Consumer, topic: str, partition: int) -> tuple[int, int]:
    """(first offset, end offset). A question that librdkafka had put to a bootstrap address, and drops once it knows
    the brokers by their numbers, is asked again."""
    for _ in range(5):
        try:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=20)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._DESTROY_BROKER:
                raise
        else:
            return low, high
    raise AssertionError(f"{topic}-{partition}: the client dropped five questions in a row")


def read_all(bootstrap: str, topic: str) -> list[tuple[int, bytes]]:
    """(offset, value) of every record from the beginning to the present end."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "ledger",
            "enable.auto.commit": False,
            "check.crcs": True,
            "log_level": 0,
        }
    )
    try:
        low, high = watermarks(consumer, topic, 0)
        consumer.assign([TopicPartition(topic, 0, low)])
        found: list[tuple[int, bytes]] = []
        deadline = time.monotonic() + DEADLINE_S
        while low + len(found) < high:
            assert time.monotonic() < deadline, f"read {len(found)} of {high - low} records in {DEADLINE_S} s"
            for message in consumer.consume(10_000, 0.5):
                assert message.error() is None, message.error()
                offset, value = message.offset(), message.value()
                assert offset is not None
                assert value is not None
                found.append((offset, value))
        return found
    finally:
        consumer.close()


def check(ledger: Ledger, found: list[tuple[int, bytes]], *, log_start_offset: int = 0) -> None:
    """No acknowledged record lost or moved, none twice, offsets contiguous, the order kept."""
    offsets = [offset for offset, _ in found]
    assert offsets == list(range(log_start_offset, log_start_offset + len(found))), "offsets are not contiguous"
    values = [value for _, value in found]
    assert len(set(values)) == len(values), f"{len(values) - len(set(values))} records stand in the log twice"
    stored = dict(found)
    lost = [offset for offset, value in ledger.acknowledged if stored.get(offset) != value]
    assert not lost, f"{len(lost)} acknowledged records are lost or moved, the first at offset {lost[0]}"
    assert values == sorted(values), "records of one producer are not in the order in which they were sent"
