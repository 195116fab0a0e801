"""The load: confluent-kafka producing or consuming as fast as it can, in a process of its own.

Owns what is sent and what is counted. Run as `python -m benchmarks.client produce|consume …`; prints JSON.
"""

import argparse
import json
import os
import resource
import sys
import time

from confluent_kafka import Consumer, Producer, TopicPartition

_TIMEOUT_SECONDS = 120.0
_AT_ONCE = 2000


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _result(records: int, size_bytes: int, seconds: float, cpu: float) -> dict[str, float]:
    return {
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


def produce(
    bootstrap: str, targets: list[tuple[str, int]], *, records: int, size_bytes: int, acks: str, ca: str = ""
) -> dict[str, float]:
    """Sends `records` values of random bytes, spread evenly, with librdkafka's defaults but for its limits."""
    producer = Producer(
        {
            **_connection(bootstrap, ca),
            "acks": acks,
            "linger.ms": 5,
            "batch.size": 1_000_000,
            "batch.num.messages": 1_000_000,
            "queue.buffering.max.messages": 2_000_000,
            "queue.buffering.max.kbytes": 1 << 20,
            "message.max.bytes": 4_000_000,
            "enable.metrics.push": False,
        }
    )
    value = os.urandom(size_bytes)
    each = records // len(targets)
    for topic in dict.fromkeys(topic for topic, _ in targets):
        producer.list_topics(topic, timeout=30)  # So that finding the leader is not measured.
    started, cpu_before = time.perf_counter(), _cpu()
    for topic, partition in targets:
        for sent in range(0, each, _AT_ONCE):
            left = min(_AT_ONCE, each - sent)
            while left > 0:  # The queue may be full; all messages are the same, so only their number counts.
                left -= _queue(producer, topic, partition, [{"value": value}] * left)
            while len(producer) > 400_000:
                producer.poll(0.005)
    if left := producer.flush(_TIMEOUT_SECONDS):
        raise SystemExit(f"{left} records were not acknowledged within {_TIMEOUT_SECONDS:.0f} s")
    return _result(each * len(targets), size_bytes, time.perf_counter() - started, _cpu() - cpu_before)


def _queue(producer: Producer, topic: str, partition: int, messages: list[dict[str, bytes]]) -> int:
    try:
        queued: int = producer.produce_batch(topic, messages, partition=partition)
    except BufferError:
        queued = 0
    if queued < len(messages):
        producer.poll(0.01)
    return queued


def consume(
    bootstrap: str, targets: list[tuple[str, int]], *, records: int, size_bytes: int, ca: str = ""
) -> dict[str, float]:
    """Reads the first `records` records, spread evenly, from the beginning of each partition."""
    consumer = Consumer(
        {
            **_connection(bootstrap, ca),
            "group.id": "bench",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.max.bytes": 50 << 20,
            "max.partition.fetch.bytes": 8 << 20,
            "queued.max.messages.kbytes": 1 << 20,
            "queued.min.messages": 1_000_000,
            "enable.metrics.push": False,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for topic, partition in targets])
    expected = records // len(targets) * len(targets)
    first = got = 0
    started = cpu_before = 0.0
    deadline = time.perf_counter() + _TIMEOUT_SECONDS
    while got < expected:
        messages = consumer.consume(10_000, 1.0)
        got += len(messages)
        if got and not started:  # The clock starts with the first records, so that connecting is not measured.
            started, cpu_before, first = time.perf_counter(), _cpu(), got
        if time.perf_counter() > deadline:
            raise SystemExit(f"{got} of {expected} records were read within {_TIMEOUT_SECONDS:.0f} s")
    seconds, cpu = time.perf_counter() - started, _cpu() - cpu_before
    consumer.close()
    return _result(got - first, size_bytes, seconds, cpu)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("produce", "consume"))
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--records", type=int, required=True)
    parser.add_argument("--size-bytes", type=int, required=True)
    parser.add_argument("--acks", default="1")
    parser.add_argument("--ca", default="", help="over TLS: who signs for the brokers")
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
        )
    else:
        result = consume(
            options.bootstrap, targets, records=options.records, size_bytes=options.size_bytes, ca=options.ca
        )
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
