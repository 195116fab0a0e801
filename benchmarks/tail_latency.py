"""How long a record takes from its producer to a consumer at the tail, at a steady rate: two clients in one process.

Owns the pace and the clock. Run as `python -m benchmarks.tail_latency --bootstrap … --topic …`; prints JSON.
"""

import json
import struct
import sys
import threading
import time

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.latency import steady_arguments

_WARM_UP_SECONDS = 2.0
_TIMEOUT_SECONDS = 60.0
_SENT = struct.Struct(">q")


def tail(
    bootstrap: str, topic: str, *, per_second: float, seconds: float, size_bytes: int, acks: str
) -> dict[str, float]:
    """Milliseconds from `produce` to `poll`, of records that were sent after a warm-up."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": acks, "linger.ms": 0, "enable.metrics.push": False})
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "tail",
            "enable.auto.commit": False,
            "enable.metrics.push": False,
        }
    )
    end_offset = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)[1]
    consumer.assign([TopicPartition(topic, 0, end_offset)])
    count = int(per_second * (_WARM_UP_SECONDS + seconds))
    taken_ms: list[float] = []
    arrived = 0

    def listen() -> None:
        nonlocal arrived
        deadline = time.monotonic() + _WARM_UP_SECONDS + seconds + _TIMEOUT_SECONDS
        while arrived < count and time.monotonic() < deadline:
            message = consumer.poll(0.1)  # Asked for many at once, it waits for all of them.
            value = message.value() if message is not None and message.error() is None else None
            if value is not None:
                arrived += 1
                taken_ms.append((time.monotonic_ns() - _SENT.unpack_from(value)[0]) / 1e6)

    listener = threading.Thread(target=listen)
    listener.start()
    started = time.monotonic()
    padding = bytes(max(0, size_bytes - _SENT.size))
    for number in range(count):
        due = started + number / per_second
        time.sleep(max(0.0, due - time.monotonic()))
        producer.produce(topic, _SENT.pack(time.monotonic_ns()) + padding, partition=0)
        producer.poll(0)
    producer.flush(_TIMEOUT_SECONDS)
    listener.join()
    consumer.close()
    if arrived < count:
        raise SystemExit(f"{arrived} of {count} records arrived")
    measured = sorted(taken_ms[int(per_second * _WARM_UP_SECONDS) :])
    return {
        "records": len(measured),
        "p50_ms": measured[len(measured) // 2],
        "p99_ms": measured[int(len(measured) * 0.99)],
        "p99_9_ms": measured[int(len(measured) * 0.999)],
        "max_ms": measured[-1],
    }


def main() -> int:
    options = steady_arguments(acks="1").parse_args()
    result = tail(
        options.bootstrap,
        options.topic,
        per_second=options.per_second,
        seconds=options.seconds,
        size_bytes=options.size_bytes,
        acks=options.acks,
    )
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
