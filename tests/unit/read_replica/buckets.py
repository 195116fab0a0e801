"""A bucket as brokers write it, which may be away, and the view of it without a read replica's process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.unit.broker.context import SetClock
from tests.unit.cold.stored_segments import PARTITION, TOPIC, TOPIC_ID, store_segment
from tests.unit.cold.verified_store import RECORDS, VerifiedStore
from tiered.cold.local import LocalStore
from tiered.cold.object_store import ObjectFile
from tiered.cold.read_only_store import ReadOnlyStore
from tiered.errors import StoreRefused, StoreUnavailable
from tiered.formats import object_key
from tiered.read_replica.bucket_topics import BucketPartition, BucketTopics

NEVER_MS = 600_000
HEAD = object_key.partition_checkpoint_key(TOPIC_ID, PARTITION)
"""The checkpoint of the one partition that has records."""


class Bucket(LocalStore):
    """A folder that may be away, all of it or the objects that `away_keys` names."""

    away = False
    away_keys: frozenset[str] = frozenset()
    refused_keys: frozenset[str] = frozenset()
    asked_away = 0
    """How often somebody asked for what is away."""

    def get(self, key: str, *, max_bytes: int) -> tuple[bytes, str]:
        self._require_there(key)
        return super().get(key, max_bytes=max_bytes)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        self._require_there(key)
        return super().get_range(key, start, length)

    def read_into(self, key: str, start: int, buffer: memoryview) -> ObjectFile | None:
        self._require_there(key)
        return super().read_into(key, start, buffer)

    def head(self, key: str) -> Any:
        self._require_there(key)
        return super().head(key)

    def _require_there(self, key: str) -> None:
        if key in self.refused_keys:
            raise StoreRefused("no permission")
        if self.away or key in self.away_keys:
            self.asked_away += 1
            raise StoreUnavailable("the bucket is away; try again later")


def grow(made: VerifiedStore) -> None:
    """Another segment, as its leader commits it."""
    last = made.rows[-1]
    made.segments.append(
        store_segment(
            made.store,
            made.root.parent / "logs",
            range(5_000, 5_000 + RECORDS),
            base_offset=last.end_offset,
            previous_root_sha256=last.root_sha256,
        )
    )
    made.write_head()


@asynccontextmanager
async def looking_at(bucket: Bucket, clock: SetClock) -> AsyncIterator[BucketTopics]:
    """Started: it has looked once, and looks again when the test says `refresh`."""
    topics = BucketTopics(ReadOnlyStore(bucket), clock, interval_ms=NEVER_MS)
    try:
        async with asyncio.TaskGroup() as tasks:
            await topics.start(tasks)
            try:
                yield topics
            finally:
                await topics.stop()
    finally:
        topics.close()


def partition_of(topics: BucketTopics, number: int = PARTITION) -> BucketPartition:
    return topics.partition(topics.by_name(TOPIC), number)


def bounds(topics: BucketTopics, number: int = PARTITION) -> tuple[int, int]:
    """Where the partition begins and ends."""
    offsets = partition_of(topics, number).offsets
    return offsets.log_start_offset, offsets.high_watermark
