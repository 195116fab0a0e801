"""Thousands of hostile connections at once: one memory budget holds, and another client is answered as before.

Each attack goes on, while it connects too, beside a client whose 99th percentile must stay within twice what it is
alone. It takes minutes and a quiet machine: `make soak-tests`.
"""

import asyncio
import struct
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.broker_process import BrokerProcess
from tests.fuzz.probe import SETTLING_S, probing
from tests.support.hostile_frames import DESCRIBE_CONFIGS, MIB, frame, resident_mib
from tests.support.topics import create
from tiered.formats.record_batch import Compression, Record, encode_batch
from tiered.wire import produce

pytestmark = pytest.mark.soak

CONNECTIONS = 5_000
BOMBS = 1_000
BUDGET_MIB = 64
SECONDS = 20.0
PAGES_MIB = 80
"""Of so many connections: a small object, a page of a buffer."""
NOISE_MS = 20.0
"""Of a machine that others use too: below this nobody would notice."""

Attack = Callable[[BrokerProcess], Coroutine[Any, Any, None]]


class Crowd:
    """Connections of one process that send and never read."""

    def __init__(self, broker: BrokerProcess, count: int) -> None:
        self._broker = broker
        self._count = count
        self.writers: list[asyncio.StreamWriter] = []

    async def connect(self) -> None:
        for first in range(0, self._count, 100):
            opened = await asyncio.gather(
                *(
                    asyncio.open_connection("127.0.0.1", self._broker.kafka_port, limit=4096)
                    for _ in range(min(100, self._count - first))
                )
            )
            self.writers += [writer for _, writer in opened]

    def send(self, data: bytes) -> None:
        for writer in self.writers:
            if not writer.is_closing():
                writer.write(data)

    def close(self) -> None:
        for writer in self.writers:
            writer.transport.abort()


@asynccontextmanager
async def crowd(broker: BrokerProcess, count: int) -> AsyncIterator[Crowd]:
    made = Crowd(broker, count)
    try:
        await made.connect()
        yield made
    finally:
        made.close()


# Attacks


async def half_a_request(broker: BrokerProcess) -> None:
    """Each connection holds nearly all of a small request."""
    async with crowd(broker, CONNECTIONS) as attackers:
        attackers.send(struct.pack(">ihh", 250_000, 0, 9) + bytes(200_000))
        await asyncio.sleep(SECONDS)


async def slow_loris(broker: BrokerProcess) -> None:
    """Each sends a byte a second of a request."""
    async with crowd(broker, CONNECTIONS) as attackers:
        attackers.send(struct.pack(">ihh", 250_000, 0, 9))
        for _ in range(int(SECONDS)):
            attackers.send(b"\x00")
            await asyncio.sleep(1)


async def deaf(broker: BrokerProcess) -> None:
    """Each asks for much and reads nothing."""
    asked = struct.pack(">i", 50) + b"\x02\x00\x04kept\xff\xff\xff\xff" * 50 + b"\x01\x01"
    async with crowd(broker, 500) as attackers:
        attackers.send(frame(DESCRIBE_CONFIGS, 3, asked) * 20)
        await asyncio.sleep(SECONDS)


async def bombs(broker: BrokerProcess) -> None:
    """A thousand batches at once that are a thousand times larger than they look."""
    records = [Record(offset=0, timestamp_ms=0, key=None, value=bytes(60 * MIB))]
    bomb = encode_batch(records, compression=Compression.ZSTD)
    wanted = [produce.TopicBatches("bombed", None, [(0, bomb)])]
    body = produce.encode_produce_request(wanted, 9, acks=1, timeout_ms=60_000)
    async with crowd(broker, BOMBS) as attackers:
        attackers.send(frame(0, 9, b"\x00" + body))
        await asyncio.sleep(SECONDS)


@pytest.mark.parametrize(
    ("attack", "most_mib", "most_ms"),
    [
        (half_a_request, BUDGET_MIB + PAGES_MIB, NOISE_MS),
        (slow_loris, PAGES_MIB, NOISE_MS),
        # They take turns, two milliseconds at a time: a turn of the loop is no longer for them, but it is never idle.
        (deaf, 256, 4 * NOISE_MS),
        # One at a time is decompressed beside the loop, into memory that Python neither clears nor copies.
        (bombs, 224, NOISE_MS),
    ],
    ids=["half_a_request", "slow_loris", "deaf", "bombs"],
)
def test_an_attack_costs_bounded_memory_and_no_one_else_their_answers(  # type: ignore[no-untyped-def]
    make_broker, attack: Attack, most_mib: int, most_ms: float
) -> None:
    settings = {"queued.max.request.bytes": BUDGET_MIB * MIB}
    process: BrokerProcess = make_broker(settings=settings).start()
    create(process, "kept")
    create(process, "bombed", compression_type="gzip")
    with probing(process, "kept") as probe:
        time.sleep(SETTLING_S)
        settled_s = time.monotonic()
        time.sleep(SECONDS / 2)
        before_mib = resident_mib(process)
        begun_s = time.monotonic()
        asyncio.run(attack(process))
        ended_s = time.monotonic()
    alone_ms = probe.p99_ms_between(settled_s, begun_s)
    beside_it_ms = probe.p99_ms_between(begun_s, ended_s)
    status = Path(f"/proc/{process.pid}/status").read_text()
    peak_mib = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")) / 1024
    print(
        f"\n{attack.__name__}: p99 {alone_ms:.1f} ms alone, {beside_it_ms:.1f} ms beside it; "
        f"{before_mib:.0f} MiB before, {peak_mib:.0f} MiB at most"
    )
    assert "unforeseen" not in process.log()
    assert peak_mib - before_mib < most_mib
    assert beside_it_ms <= max(2 * alone_ms, most_ms)
