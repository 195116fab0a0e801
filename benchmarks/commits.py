"""Offset commits per second of 100 groups: written together as the product does, or one transaction a commit.

Owns one run. Everything is the product's own way: the broker with its catalogue, the coordinator's decision, and
`Offsets.commit`. What "one transaction a commit" changes is told by its variant. Run as
`python -m benchmarks.commits META_URL FOLDER VARIANT SECONDS`; prints JSON.
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from tiered.broker.admin import NewTopic
from tiered.broker.broker import Broker
from tiered.broker.groups import commit_writer as offset_commits
from tiered.broker.groups.committed_offsets import OffsetEntry
from tiered.broker.groups.values import Fence
from tiered.config import BrokerSettings, ServeOptions
from tiered.ids import TopicPartition
from tiered.meta import group_offsets
from tiered.meta.group_offsets import GroupCommit, WritingCoordinator
from tiered.runtime import SystemClock

GROUPS = 100
PARTITIONS = 10
WARM_UP_SECONDS = 0.5

TOGETHER = "together"
ONE_BY_ONE = "one by one"
FOUR_AT_ONCE = "one by one, on all connections"
"""The same transactions without their order: as many at once as the database has connections."""
VARIANTS = (TOGETHER, ONE_BY_ONE, FOUR_AT_ONCE)

Commit = Callable[[Fence, OffsetEntry], Awaitable[None]]


def commit_of(broker: Broker, variant: str) -> Commit:
    """How one commit gets to SQL in this variant."""
    if variant != FOUR_AT_ONCE:
        return lambda fence, entry: broker.groups.offsets.commit(fence, [entry])
    numbers = iter(range(1, sys.maxsize))
    epochs = broker.groups.slots.epochs

    async def alone(fence: Fence, entry: OffsetEntry) -> None:
        by = WritingCoordinator(
            broker_id=broker.broker_id,
            broker_epoch=broker.broker_epoch,
            slot_epochs=epochs,
            commit_number=next(numbers),
        )
        one = GroupCommit(
            group_id=fence.group_id,
            slot=fence.slot,
            generation=fence.generation,
            entries=(entry,),
            committed_at_ms=broker.clock.now_ms(),
        )
        written = await broker.database.run(lambda conn: group_offsets.write(conn, [one], [], by))
        assert not written.refused

    return alone


async def measure(meta_url: str, folder: Path, variant: str, seconds: float) -> dict[str, float]:
    """Each group commits, waits for the answer and commits again, as members do with commitSync."""
    settings = {}
    if variant == ONE_BY_ONE:
        offset_commits.MAX_BATCH_ENTRIES = 1
        settings = {"tiered.offset.commit.linger.ms": "0"}
    options = ServeOptions(
        data_dir=folder / "data",
        meta_url=meta_url,
        store_url=f"file://{folder / 'objects'}",
        rack="bench",
        settings=BrokerSettings.of(settings),
    )
    broker = Broker(options, SystemClock())
    async with asyncio.TaskGroup() as tasks:
        await broker.start(tasks, advertised=("127.0.0.1", 9092))
        topic = await broker.admin.create_topic(NewTopic(name="orders", partition_count=PARTITIONS))
        commit = commit_of(broker, variant)
        counts = [0] * GROUPS
        until = time.perf_counter() + WARM_UP_SECONDS + seconds

        async def member(number: int) -> None:
            group_id, partition = f"group-{number}", number % PARTITIONS
            while time.perf_counter() < until:
                fence = await broker.groups.check_commit(group_id, "", None, -1)
                counts[number] += 1
                await commit(fence, OffsetEntry(topic_id=topic.topic_id, partition=partition, offset=counts[number]))

        members = [asyncio.create_task(member(number)) for number in range(GROUPS)]
        await asyncio.sleep(WARM_UP_SECONDS)
        before, started, cpu_before = sum(counts), time.perf_counter(), time.process_time()
        await asyncio.sleep(seconds)
        done, took = sum(counts) - before, time.perf_counter() - started
        cpu = time.process_time() - cpu_before
        await asyncio.gather(*members)
        for number in range(GROUPS):
            key = TopicPartition(topic.topic_id, number % PARTITIONS)
            assert (await broker.groups.offsets.fetch(f"group-{number}", [key]))[key].committed_offset == counts[number]
        broker.begin_stop()
        await broker.stop()
    return {"commits_per_s": done / took, "cpu_ms_per_commit": cpu / done * 1000, "seconds": took}


def main(argv: list[str]) -> int:
    meta_url, folder, variant, seconds = argv
    print(json.dumps(asyncio.run(measure(meta_url, Path(folder), variant, float(seconds)))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
