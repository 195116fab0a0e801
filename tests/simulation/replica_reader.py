"""Everything that is in the store at the end of a run, as a read replica gives it to a read_committed consumer.

Owns that one reading. Must never look at anything but the bucket.
"""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from tests.simulation.books import Violation
from tests.simulation.clients import READ_BYTES
from tests.simulation.clock import SimClock
from tests.simulation.loop import Process
from tests.simulation.stable_reader import StableReader
from tests.simulation.store import ProcessStore
from tiered.broker.replaceable_parts import BrokerParts
from tiered.config import BrokerSettings, ServeOptions
from tiered.errors import InvalidConfig, UnknownTopicId
from tiered.ids import TopicPartition
from tiered.read_replica.replica import ReadReplica
from tiered.rules.partition import read_plan

if TYPE_CHECKING:
    from tests.simulation.world import World


async def read_as_replica(world: "World", root: Path, settings: BrokerSettings, keys: list[TopicPartition]) -> None:
    """Raises Violation."""
    root.mkdir()
    process = Process(world.loop, "replica")
    options = ServeOptions(
        data_dir=root, meta_url="sqlite://", store_url=f"file://{root}/unused", broker_id=9, settings=settings
    )
    store = ProcessStore(world.bucket, world.network, process.name, process, world.rng)

    async def read() -> None:
        async with asyncio.TaskGroup() as tasks:
            replica = ReadReplica(options, SimClock(world.loop), BrokerParts(store=store))
            await replica.start(tasks, listeners=())
            for number, key in enumerate(keys):
                reader = StableReader(world, 1_000 + number, key)
                await _read_all(replica, reader)
            await replica.stop()

    try:
        await process.spawn(read())
    except ExceptionGroup as group:
        (error,) = group.exceptions
        if not isinstance(error, (InvalidConfig, UnknownTopicId)):  # The bucket has no checkpoint of them yet.
            raise error from None


async def _read_all(replica: ReadReplica, reader: StableReader) -> None:
    partition = replica.topics.by_id(reader.key.topic_id).partition(reader.key.partition)
    while isinstance(partition.plan_read(reader.position, committed_only=True), read_plan.Cold):
        before = reader.position
        piece = await replica.reader.read_cold(partition, before, READ_BYTES)
        if piece is not None:
            reader.take(piece.records.read(), piece.aborted)
        if reader.position == before:
            raise Violation(f"X6: {partition.name}: a read replica gives nothing at offset {before}")
    if reader.position != partition.last_stable_offset:
        raise Violation(f"X6: {partition.name}: a read replica gives nothing from offset {reader.position} on")
