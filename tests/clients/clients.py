"""Real Kafka clients behind one shape: produce these records, read them all back.

Owns nothing of the broker. Each function uses its client as its documentation says, with stock settings but
for the codec.
"""

import asyncio
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import aiokafka
import confluent_kafka
import kafka
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient

DEADLINE_S = 60.0
MAX_BYTES = 4_000_000


@dataclass(frozen=True, slots=True)
class Sent:
    """A record as a client gives it: headers in order, times in milliseconds."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


def value_of(message: confluent_kafka.Message) -> bytes:
    """Of a record that has one."""
    value = message.value()
    assert value is not None
    return value


def headers_of(message: confluent_kafka.Message) -> tuple[tuple[str, bytes | None], ...]:
    found: list[tuple[str, bytes | None]] = []
    headers = message.headers() or []
    assert isinstance(headers, list)
    for name, value in headers:
        assert not isinstance(value, str)
        found.append((name, value))
    return tuple(found)


@cache
def admin(bootstrap: str) -> AdminClient:
    """Kept: a client that is collected takes its unfinished requests with it."""
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


Produce = Callable[[str, str, str, Sequence[Sent]], None]
Read = Callable[[str, str, int], list[Sent]]


def confluent_produce(bootstrap: str, topic: str, codec: str, records: Sequence[Sent]) -> None:
    failures: list[object] = []
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": codec,
            "message.max.bytes": MAX_BYTES,
            "linger.ms": 20,
            "log_level": 0,
        }
    )
    for record in records:
        producer.produce(
            topic,
            key=record.key,
            value=record.value,
            headers=list(record.headers),
            timestamp=record.timestamp_ms,
            partition=0,
            on_delivery=lambda error, message: failures.append(error) if error else None,
        )
    left = producer.flush(DEADLINE_S)
    assert left == 0, f"{left} records were not delivered"
    assert not failures, failures


def confluent_read(bootstrap: str, topic: str, count: int) -> list[Sent]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "check.crcs": True,
            "log_level": 0,
        }
    )
    try:
        consumer.assign([ConfluentPartition(topic, 0, 0)])
        found: list[Sent] = []
        deadline = time.monotonic() + DEADLINE_S
        while len(found) < count and time.monotonic() < deadline:
            for message in consumer.consume(count - len(found), 0.5):
                assert message.error() is None, message.error()
                assert message.offset() == len(found), "offsets are not contiguous"
                found.append(Sent(message.key(), message.value(), headers_of(message), message.timestamp()[1]))
        return found
    finally:
        consumer.close()


def aiokafka_produce(bootstrap: str, topic: str, codec: str, records: Sequence[Sent]) -> None:
    async def run() -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if codec == "none" else codec,
            max_request_size=MAX_BYTES,
            linger_ms=20,
        )
        async with producer:
            waiting = [
                await producer.send(
                    topic,
                    key=record.key,
                    value=record.value,
                    headers=list(record.headers),
                    timestamp_ms=record.timestamp_ms,
                    partition=0,
                )
                for record in records
            ]
            await asyncio.wait_for(asyncio.gather(*waiting), DEADLINE_S)

    asyncio.run(run())


def aiokafka_read(bootstrap: str, topic: str, count: int) -> list[Sent]:
    async def run() -> list[Sent]:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap, enable_auto_commit=False, auto_offset_reset="earliest", check_crcs=True
        )
        async with consumer:
            consumer.assign([aiokafka.TopicPartition(topic, 0)])
            found: list[Sent] = []
            while len(found) < count:
                message = await asyncio.wait_for(consumer.getone(), DEADLINE_S)
                assert message.offset == len(found), "offsets are not contiguous"
                found.append(Sent(message.key, message.value, tuple(message.headers), message.timestamp))
            return found

    return asyncio.run(run())


def kafka_python_produce(bootstrap: str, topic: str, codec: str, records: Sequence[Sent]) -> None:
    producer = kafka.KafkaProducer(
        bootstrap_servers=bootstrap,
        compression_type=None if codec == "none" else codec,
        max_request_size=MAX_BYTES,
        linger_ms=20,
    )
    try:
        waiting = [
            producer.send(
                topic,
                key=record.key,
                value=record.value,
                headers=list(record.headers),
                timestamp_ms=record.timestamp_ms,
                partition=0,
            )
            for record in records
        ]
        producer.flush(DEADLINE_S)
        for each in waiting:
            each.get(DEADLINE_S)
    finally:
        producer.close(10)


def kafka_python_read(bootstrap: str, topic: str, count: int) -> list[Sent]:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap, enable_auto_commit=False, auto_offset_reset="earliest", group_id=None
    )
    try:
        consumer.assign([kafka.TopicPartition(topic, 0)])
        found: list[Sent] = []
        deadline = time.monotonic() + DEADLINE_S
        while len(found) < count and time.monotonic() < deadline:
            for messages in consumer.poll(500).values():
                for message in messages:
                    assert message.offset == len(found), "offsets are not contiguous"
                    found.append(Sent(message.key, message.value, tuple(message.headers), message.timestamp))
        return found
    finally:
        consumer.close()


def kcat_produce(bootstrap: str, topic: str, codec: str, records: Sequence[Sent]) -> None:
    """kcat stamps the time itself and takes one set of headers a run: one run for each run of equal headers."""
    start = 0
    while start < len(records):
        end = start
        while end < len(records) and records[end].headers == records[start].headers:
            end += 1
        _kcat_send(bootstrap, topic, codec, records[start:end])
        start = end


def _kcat_send(bootstrap: str, topic: str, codec: str, records: Sequence[Sent]) -> None:
    """-Z: an empty key or value is null."""
    command = ["kcat", "-P", "-b", bootstrap, "-t", topic, "-p", "0", "-z", codec, "-Z", "-K", "\t", "-D", "\n"]
    command += ["-X", f"message.max.bytes={MAX_BYTES}"]
    for name, value in records[0].headers:
        assert value is not None
        command += ["-H", f"{name}={value.decode()}"]
    lines = b"".join(b"%s\t%s\n" % (record.key or b"", record.value or b"") for record in records)
    done = subprocess.run(command, input=lines, capture_output=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stderr.decode()


def kcat_read(bootstrap: str, topic: str, count: int) -> list[Sent]:
    """%R frames would be binary; base64 is not there, so the JSON envelope of kcat carries text only."""
    command = ["kcat", "-C", "-b", bootstrap, "-t", topic, "-p", "0", "-o", "0", "-c", str(count), "-q", "-u"]
    command += ["-X", f"fetch.message.max.bytes={MAX_BYTES}", "-f", "%T %K %S %h\\n%k%s"]
    done = subprocess.run(command, capture_output=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return _parse_kcat(done.stdout, count)


def _parse_kcat(output: bytes, count: int) -> list[Sent]:
    found: list[Sent] = []
    position = 0
    while position < len(output):
        line_end = output.index(b"\n", position)
        fields = output[position:line_end].split(b" ", 3)
        timestamp, key_bytes, value_bytes, headers = int(fields[0]), int(fields[1]), int(fields[2]), fields[3]
        position = line_end + 1
        key = output[position : position + key_bytes] if key_bytes >= 0 else None
        position += max(0, key_bytes)
        value = output[position : position + value_bytes] if value_bytes >= 0 else None
        position += max(0, value_bytes)
        pairs = (each.partition(b"=") for each in headers.split(b",") if each)
        parsed = tuple((name.decode("utf-8", "replace"), shown) for name, _, shown in pairs)
        found.append(Sent(key, value, parsed, timestamp))
    assert len(found) == count
    return found


PRODUCERS: dict[str, Produce] = {
    "confluent-kafka": confluent_produce,
    "aiokafka": aiokafka_produce,
    "kafka-python": kafka_python_produce,
    "kcat": kcat_produce,
}
READERS: dict[str, Read] = {
    "confluent-kafka": confluent_read,
    "aiokafka": aiokafka_read,
    "kafka-python": kafka_python_read,
    "kcat": kcat_read,
}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
