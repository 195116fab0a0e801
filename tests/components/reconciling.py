"""A broker whose rounds of reconciling the test begins, with something in its store, and how to spoil that."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.components.batches import batch
from tiered.broker.admin import NewTopic
from tiered.broker.broker import Broker
from tiered.broker.partitions.partition import Partition
from tiered.broker.reconcile.findings import Finding
from tiered.config import BrokerSettings, ServeOptions
from tiered.formats.checkpoint import CommittedSegment
from tiered.runtime import SystemClock

WAIT_S = 60.0
NEVER_MS = 10**9
SETTINGS = {
    "log.retention.check.interval.ms": str(NEVER_MS),
    "tiered.sweep.interval.ms": str(NEVER_MS),
    "tiered.upload.interval.ms": "20",
    # The test begins the rounds, and each is a whole turn.
    "tiered.reconcile.interval.ms": str(NEVER_MS),
    "tiered.reconcile.period.ms": "0",
    "tiered.scrub.period.ms": "1",
    "tiered.scrub.max.bytes.per.second": str(1 << 40),
}
SEGMENTS = 5


def options(root: Path, **settings: str) -> ServeOptions:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return ServeOptions(
        data_dir=root / "data",
        meta_url=f"sqlite:///{root / 'meta.db'}",
        store_url=f"file://{root / 'objects'}",
        rack="a",
        settings=BrokerSettings.of(SETTINGS | named),
    )


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    made = Broker(options(tmp_path), SystemClock())
    async with asyncio.TaskGroup() as tasks:
        await made.start(tasks, advertised=("127.0.0.1", 9092))
        yield made
        made.begin_stop()
        await made.stop()


async def eventually(claim: object) -> None:
    assert callable(claim)
    async with asyncio.timeout(WAIT_S):
        while not claim():
            await asyncio.sleep(0.01)


def append(broker: Broker, partition: Partition, count: int) -> None:
    for _ in range(count):
        data = bytearray(batch([b"v" * 500], first_ms=broker.clock.now_ms()))
        partition.append(memoryview(data), 0, len(data), acks=1, now_ms=broker.clock.now_ms())


async def uploaded(broker: Broker, **configs: str) -> Partition:
    """A partition with five segments in the store, and an active one."""
    topic = await broker.admin.create_topic(
        NewTopic(name="orders", partition_count=1, configs={"segment.bytes": "600", **configs})
    )
    partition = topic.partition(0)
    append(broker, partition, SEGMENTS + 1)
    await eventually(lambda: partition.cold_end_offset == SEGMENTS)
    return partition


def path_of(tmp_path: Path, segment: CommittedSegment) -> Path:
    return tmp_path / "objects" / segment.object_key


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x10
    path.write_bytes(data)


@contextmanager
def store_away(tmp_path: Path) -> Iterator[None]:
    """The folder is gone, and cannot be made anew, until the end."""
    (tmp_path / "objects").rename(tmp_path / "away")
    (tmp_path / "objects").write_bytes(b"")
    yield
    (tmp_path / "objects").unlink()
    (tmp_path / "away").rename(tmp_path / "objects")


async def found(broker: Broker) -> list[Finding]:
    await broker.reconciler.round()
    return broker.reconciler.findings.all()


async def only(broker: Broker) -> Finding:
    (finding,) = await found(broker)
    return finding
