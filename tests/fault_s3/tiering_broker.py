"""A broker in this process whose uploads go through a faulty S3, and what a test asks of both."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

from tests.components.batches import batch
from tests.fault_s3.moto_server import store_url
from tiered.broker.admin import NewTopic
from tiered.broker.broker import Broker
from tiered.broker.partitions.partition import Partition
from tiered.broker.replaceable_parts import BrokerParts
from tiered.cold.object_store import S3Address, parse_store_url
from tiered.cold.s3.store import S3Store
from tiered.config import BrokerSettings, ServeOptions
from tiered.formats import record_batch
from tiered.meta import segments
from tiered.meta.segments import SegmentRow
from tiered.runtime import SystemClock
from tiered.testing.faulty_s3 import FaultyS3, S3FaultKind

WAIT_S = 60.0
NEVER_MS = 10**9
VALUE_BYTES = 500
SEGMENT_KEY = re.compile(r"/segments/\w{4}/(?P<topic>.+)_[0-9a-f-]{36}/(?P<partition>\d+)/(?P<base>\d{20})-")
Uploaded = tuple[str, int, int]


def store_at(faults: FaultyS3, prefix: str, *, max_attempts: int = 2) -> S3Store:
    """A store that gives up soon: what is tested is what the broker does then."""
    address = parse_store_url(store_url(faults.url, prefix))
    assert isinstance(address, S3Address)
    return S3Store(address, first_backoff_ms=1, max_backoff_ms=5, max_attempts=max_attempts)


@asynccontextmanager
async def tiering_broker(
    tmp_path: Path, faults: FaultyS3, *, prefix: str | None = None, max_attempts: int = 2, **settings: object
) -> AsyncIterator[Broker]:
    """One that begins no retention and no sweep by itself; `tiered_upload_concurrency=1` is that setting."""
    prefix = prefix or f"p-{uuid4()}"
    given = {name.replace("_", "."): str(value) for name, value in settings.items()}
    options = ServeOptions(
        data_dir=tmp_path / "data",
        meta_url=f"sqlite:///{tmp_path / 'meta.db'}",
        store_url=store_url(faults.url, prefix),
        rack="a",
        settings=BrokerSettings.of(
            {
                "log.retention.check.interval.ms": str(NEVER_MS),
                "tiered.sweep.interval.ms": str(NEVER_MS),
                "tiered.upload.interval.ms": "20",
                **given,
            }
        ),
    )
    made = Broker(options, SystemClock(), BrokerParts(store=store_at(faults, prefix, max_attempts=max_attempts)))
    async with asyncio.TaskGroup() as tasks:
        await made.start(tasks, advertised=("127.0.0.1", 9092))
        yield made
        made.begin_stop()
        await made.stop()


async def make_topic(broker: Broker, name: str, *, partitions: int = 1, **configs: object) -> Sequence[Partition]:
    """Its partitions, with a segment for each batch."""
    wanted = {"segment.bytes": "600"} | {key.replace("_", "."): str(value) for key, value in configs.items()}
    topic = await broker.admin.create_topic(NewTopic(name=name, partition_count=partitions, configs=wanted))
    return topic.partitions


def fill(partition: Partition, batches: int, *, at_ms: int) -> None:
    """Appends so many batches as a producer would have at that time; each closes the segment of the one before."""
    for _ in range(batches):
        data = bytearray(batch([b"v" * VALUE_BYTES], first_ms=at_ms))
        partition.append(memoryview(data), 0, len(data), acks=1, now_ms=at_ms)


async def eventually(claim: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not claim():
            await asyncio.sleep(0.01)


def uploaded(faults: FaultyS3) -> list[Uploaded]:
    """(topic, partition, base offset) of every segment that reached the store, in that order."""
    arrived = [seen for seen in faults.seen if seen.method == "PUT" and seen.fault in (None, S3FaultKind.DELAY)]
    found = [SEGMENT_KEY.search(seen.path) for seen in arrived]
    return [(each["topic"], int(each["partition"]), int(each["base"])) for each in found if each is not None]


async def committed(broker: Broker, partition: Partition) -> Sequence[SegmentRow]:
    where = partition.topic_partition
    return await broker.database.read(lambda conn: segments.list_committed(conn, where.topic_id, where.partition))


async def read_everything(broker: Broker, partition: Partition) -> list[int]:
    """The offsets of every record, out of whichever tier."""
    found: list[int] = []
    while (offset := found[-1] + 1 if found else partition.log_start_offset) < partition.high_watermark:
        if offset < partition.log.local_log_start_offset:
            batches = await broker.reader.read_cold(partition, offset, 1 << 20)
        else:
            batches = partition.read_hot(offset, 1 << 20, committed_only=False, at_least_one=True)
        assert batches is not None
        data = batches.records.read()
        for position, _ in record_batch.whole_batches(data, 0, len(data)):
            found += [record.offset for record in record_batch.records(data, position) if record.offset >= offset]
    return found
