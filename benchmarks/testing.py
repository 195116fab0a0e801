"""One test cluster, from `import tiered.testing` to its end: what a test pays for a real broker.

Run as a process of its own, `python -m benchmarks.testing CLIENT ROUNDS`; prints a JSON list with the seconds of each
round: the first one imports everything, the others find it there.
"""

import asyncio
import json
import sys
import time
from collections.abc import Callable

TOPIC = "bench"
CLIENTS = ("confluent-kafka", "aiokafka", "raw")


def confluent_round_trip(bootstrap: str) -> None:
    """Not idempotent, no linger: librdkafka's own timers are not what is measured."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 0})
    producer.produce(TOPIC, b"one")
    if producer.flush(30):
        raise SystemExit("the record was not acknowledged")
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "log_level": 0})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    message = consumer.poll(30)
    if message is None or message.value() != b"one":
        raise SystemExit("the record did not come back")
    consumer.close()


def aiokafka_round_trip(bootstrap: str) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

    async def run() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            await producer.send_and_wait(TOPIC, b"one", partition=0)
        async with AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition(TOPIC, 0)])
            if (await consumer.getone()).value != b"one":
                raise SystemExit("the record did not come back")

    asyncio.run(run())


def raw_round_trip(bootstrap: str) -> None:
    """Tiered's own client: no timers, so that what remains is the broker's."""
    from tiered.formats.record_batch import Record, encode_batch
    from tiered.peer import Cluster

    async def run() -> None:
        async with Cluster(bootstrap) as cluster:
            await cluster.produce(TOPIC, 0, encode_batch([Record(offset=0, timestamp_ms=0, key=None, value=b"one")]))
            if b"one" not in bytes((await cluster.fetch(TOPIC, 0, 0)).records):
                raise SystemExit("the record did not come back")

    asyncio.run(run())


ROUND_TRIPS: dict[str, Callable[[str], None]] = {
    "confluent-kafka": confluent_round_trip,
    "aiokafka": aiokafka_round_trip,
    "raw": raw_round_trip,
}


def main() -> int:
    client, rounds = sys.argv[1], int(sys.argv[2])
    seconds = []
    for _ in range(rounds):
        started = time.perf_counter()
        from tiered.testing import cluster

        with cluster(topics={TOPIC: 1}) as c:
            ROUND_TRIPS[client](c.bootstrap)
        seconds.append(time.perf_counter() - started)
    print(json.dumps(seconds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
