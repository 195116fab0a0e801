"""The load: confluent-kafka producing or consuming as fast as it can, in a process of its own.

Owns what is sent and what is counted. Run as `python -m benchmarks.client produce|consume …`; prints JSON.
"""

import argparse
import json
import os
import resource
import signal
import sys
import threading
import time

from confluent_kafka import Consumer, Producer, TopicPartition

_TIMEOUT_SECONDS = 120.0
_AT_ONCE = 2000


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _result(records: int, size_bytes: int, started: float, cpu_before: float) -> dict[str, float]:
    """What was done since; the clock is one of the machine, so that the times of several clients can be compared."""
    ended, cpu = time.perf_counter(), _cpu() - cpu_before
    seconds = ended - started
    return {
        "started_s": started,
        "ended_s": ended,
        "records": records,
        "seconds": seconds,
        "mb_per_s": records * size_bytes / seconds / 1e6,
        "records_per_s": records / seconds,
        "client_cpu_s_per_gb": cpu / (records * size_bytes) * 1e9,
    }


def partitions_of(topic: str, *, topics: int, partitions: int) -> list[tuple[str, int]]:
    """Every partition of `topics` topics; a single topic has the plain name."""
    names = [topic] if topics == 1 else [f"{topic}-{number}" for number in range(topics)]
    return [(name, partition) for name in names for partition in range(partitions)]


def _connection(bootstrap: str, ca: str) -> dict[str, str]:
    """The client's settings that say where the brokers are; over TLS where `ca` names who signs for them."""
    secured = {"security.protocol": "SSL", "ssl.ca.location": ca} if ca else {}
    return {"bootstrap.servers": bootstrap, **secured}


def values_of(size_bytes: int, compression: str) -> list[bytes]:
    """What is sent at once: the same random bytes where nothing compresses them, else halves that differ."""
    if compression == "none":
        return [os.urandom(size_bytes)] * _AT_ONCE
    same = os.urandom(size_bytes - size_bytes // 2)
    return [os.urandom(size_bytes // 2) + same for _ in range(_AT_ONCE)]


def produce(
    bootstrap: str,
    targets: list[tuple[str, int]],
    *,
    records: int,
    size_bytes: int,
    acks: str,
    ca: str = "",
    linger_ms: int = 5,
    compression: str = "none",
    start_at: float = 0.0,
) -> dict[str, float]:
    """Sends `records` values, spread evenly, with librdkafka's defaults but for its limits; begins when
    `time.monotonic()` is `start_at`, so that several clients begin together."""
    producer = Producer(
        {
            **_connection(bootstrap, ca),
            "acks": acks,
            "linger.ms": linger_ms,
            "compression.type": compression,
            "batch.size": 1_000_000,
            "batch.num.messages": 1_000_000,
            "queue.buffering.max.messages": 2_000_000,
            "queue.buffering.max.kbytes": 1 << 20,
            "message.max.bytes": 4_000_000,
            "enable.metrics.push": False,
        }
    )
    messages = [{"value": value} for value in values_of(size_bytes, compression)]
    each = records // len(targets)
    for topic in dict.fromkeys(topic for topic, _ in targets):
        producer.list_topics(topic, timeout=30)  # So that finding the leader is not measured.
    time.sleep(max(0.0, start_at - time.monotonic()))
    started, cpu_before = time.perf_counter(), _cpu()
    for topic, partition in targets:
        for sent in range(0, each, _AT_ONCE):
            left = min(_AT_ONCE, each - sent)
            while left > 0:  # The queue may be full; one message is as good as another: only their number counts.
                left -= _queue(producer, topic, partition, messages[:left])
            while len(producer) > 400_000:
                producer.poll(0.005)
    if left := producer.flush(_TIMEOUT_SECONDS):
        raise SystemExit(f"{left} records were not acknowledged within {_TIMEOUT_SECONDS:.0f} s")
    return _result(each * len(targets), size_bytes, started, cpu_before)


def _queue(producer: Producer, topic: str, partition: int, messages: list[dict[str, bytes]]) -> int:
    try:
        queued: int = producer.produce_batch(topic, messages, partition=partition)
    except BufferError:
        queued = 0
    if queued < len(messages):
        producer.poll(0.01)
    return queued


def consume(
    bootstrap: str,
    targets: list[tuple[str, int]],
    *,
    records: int,
    size_bytes: int,
    ca: str = "",
    start_at: float = 0.0,
) -> dict[str, float]:
    """Reads the first `records` records, spread evenly, from the beginning of each partition, or until SIGTERM."""
    is_over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: is_over.set())
    consumer = Consumer(
        {
            **_connection(bootstrap, ca),
            "group.id": "bench",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.max.bytes": 50 << 20,
            "max.partition.fetch.bytes": 8 << 20,
            "queued.max.messages.kbytes": 1 << 20,
            # As many as librdkafka allows: at the bound it asks for nothing for a second.
            "queued.min.messages": 10_000_000,
            "enable.metrics.push": False,
        }
    )
    time.sleep(max(0.0, start_at - time.monotonic()))
    consumer.assign([TopicPartition(topic, partition, 0) for topic, partition in targets])
    expected = records // len(targets) * len(targets)
    first = got = 0
    started = cpu_before = 0.0
    deadline = time.perf_counter() + _TIMEOUT_SECONDS
    while got < expected and not is_over.is_set():
        messages = consumer.consume(min(10_000, expected - got), 1.0)  # It waits a second for more than there is.
        got += len(messages)
        if got and not started:  # The clock starts with the first records, so that connecting is not measured.
            started, cpu_before, first = time.perf_counter(), _cpu(), got
        if time.perf_counter() > deadline:
            raise SystemExit(f"{got} of {expected} records were read within {_TIMEOUT_SECONDS:.0f} s")
    result = _result(got - first, size_bytes, started, cpu_before)
    consumer.close()
    return result


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("produce", "consume"))
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--records", type=int, required=True)
    parser.add_argument("--size-bytes", type=int, required=True)
    parser.add_argument("--acks", default="1")
    parser.add_argument("--ca", default="", help="over TLS: who signs for the brokers")
    parser.add_argument("--linger-ms", type=int, default=5)
    parser.add_argument("--compression", default="none")
    parser.add_argument("--start-at", type=float, default=0.0, help="by the machine's monotonic clock")
    parser.add_argument("--topics", type=int, default=1)
    parser.add_argument("--partitions", type=int, default=1)
    options = parser.parse_args()
    targets = partitions_of(options.topic, topics=options.topics, partitions=options.partitions)
    if options.what == "produce":
        result = produce(
            options.bootstrap,
            targets,
            records=options.records,
            size_bytes=options.size_bytes,
            acks=options.acks,
            ca=options.ca,
            linger_ms=options.linger_ms,
            compression=options.compression,
            start_at=options.start_at,
        )
    else:
        result = consume(
            options.bootstrap,
            targets,
            records=options.records,
            size_bytes=options.size_bytes,
            ca=options.ca,
            start_at=options.start_at,
        )
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
