"""Many connections to one broker in one process: idle ones, and ones that each send a record now and then.

Owns the connections and the clock. Run as `python -m benchmarks.kafka.connections idle|busy …`; prints JSON. Idle ones
stay until standard input ends.
"""

import argparse
import asyncio
import json
import sys
import time

from tiered.formats.record import Record
from tiered.formats.record_batch import encode_batch
from tiered.peer.connection import Peer
from tiered.wire.produce import TopicBatches

PER_SECOND_EACH = 10
AT_ONCE = 50
WARM_UP_SECONDS = 2.0


async def connect(bootstrap: str, count: int) -> list[Peer]:
    """Each has been answered which versions the broker speaks."""
    host, port = bootstrap.rsplit(":", 1)
    peers: list[Peer] = []
    while len(peers) < count:
        more = min(AT_ONCE, count - len(peers))
        peers += await asyncio.gather(*(Peer.connect(host, int(port)) for _ in range(more)))
    return peers


async def idle(bootstrap: str, count: int) -> None:
    peers = await connect(bootstrap, count)
    print(json.dumps({"connections": len(peers)}), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


async def busy(
    bootstrap: str, topic: str, count: int, *, partitions: int, size_bytes: int, seconds: float
) -> dict[str, float]:
    """Milliseconds until a record is acknowledged (acks=all), of records sent after a warm-up."""
    peers = await connect(bootstrap, count)
    batch = encode_batch([Record(offset=0, timestamp_ms=int(time.time() * 1000), key=None, value=bytes(size_bytes))])
    started = time.perf_counter()
    taken_ms: list[float] = []

    async def send(number: int) -> None:
        message = [TopicBatches(topic, None, [(number % partitions, batch)])]
        due = started + number / count / PER_SECOND_EACH
        while due < started + WARM_UP_SECONDS + seconds:
            await asyncio.sleep(due - time.perf_counter())
            sent = time.perf_counter()
            answer = await peers[number].produce(message, acks=-1, timeout_ms=30_000)
            if answer.topics[0].partitions[0].error_code:
                raise SystemExit(f"a record was refused: {answer}")
            if due > started + WARM_UP_SECONDS:
                taken_ms.append((time.perf_counter() - sent) * 1000)
            due += 1 / PER_SECOND_EACH

    await asyncio.gather(*(send(number) for number in range(count)))
    taken_ms.sort()
    return {
        "records": len(taken_ms),
        "per_second": len(taken_ms) / seconds,
        "p50_ms": taken_ms[len(taken_ms) // 2],
        "p99_ms": taken_ms[int(len(taken_ms) * 0.99)],
        "p99_9_ms": taken_ms[int(len(taken_ms) * 0.999)],
    }


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("idle", "busy"))
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--topic", default="")
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--size-bytes", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    if options.what == "idle":
        asyncio.run(idle(options.bootstrap, options.count))
        return 0
    result = asyncio.run(
        busy(
            options.bootstrap,
            options.topic,
            options.count,
            partitions=options.partitions,
            size_bytes=options.size_bytes,
            seconds=options.seconds,
        )
    )
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
