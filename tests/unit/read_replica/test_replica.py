"""A read replica's reads of a bucket that changes under them, and the settings with which it is not made."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.unit.broker.context import SetClock
from tests.unit.cold.verified_store import RECORDS, VerifiedStore, make_store
from tests.unit.read_replica.buckets import Bucket, looking_at, partition_of
from tiered.cold.chunks.cache import ChunkCache
from tiered.cold.chunks.reader import ColdReader
from tiered.cold.read_only_store import ReadOnlyStore
from tiered.config import BrokerSettings, ServeOptions
from tiered.errors import CorruptObject, InvalidConfig, StoreUnavailable
from tiered.metrics import CountersState
from tiered.read_replica.bucket_topics import BucketPartition
from tiered.read_replica.replica import BucketReader, ReadReplica
from tiered.runtime import BlockingPool, SystemClock


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """`partition` as it was seen before the test changed the bucket."""

    reader: BucketReader
    partition: BucketPartition
    counters: CountersState

    async def read(self, offset: int) -> bytes | None:
        found = await self.reader.read_cold(self.partition, offset, 1 << 20)
        return None if found is None else found.records.read()


@pytest.fixture
def made(tmp_path: Path) -> VerifiedStore:
    """240 records in each of three segments."""
    (tmp_path / "logs").mkdir()
    return make_store(tmp_path / "bucket", tmp_path / "logs")


@asynccontextmanager
async def reading(made: VerifiedStore) -> AsyncIterator[Reading]:
    bucket = Bucket(made.root)
    pool, disk = BlockingPool("download", threads=2), BlockingPool("disk", threads=1)
    cold = ColdReader(ReadOnlyStore(bucket), ChunkCache(made.root.parent / "cache", max_bytes=1 << 20, pool=pool), pool)
    try:
        async with looking_at(bucket, SetClock()) as topics, asyncio.TaskGroup() as tasks:
            await cold.start(tasks)
            counters = CountersState()
            reader = BucketReader(cold, disk, counters, topics)
            try:
                yield Reading(reader=reader, partition=partition_of(topics), counters=counters)
            finally:
                await cold.stop()
    finally:
        pool.close()
        disk.close()


async def test_what_retention_took_since_the_last_look_is_seen_with_the_read_and_is_no_corruption(
    made: VerifiedStore,
) -> None:
    async with reading(made) as found:
        made.write_head(log_start_offset=RECORDS)
        made.path(0).unlink()
        assert await found.read(0) is None
        assert found.partition.log_start_offset == RECORDS
        assert found.counters.cold_corruptions == 0
        assert (await found.read(RECORDS) or b"").startswith(made.segments[1].log[:1000])


async def test_a_lookup_by_time_goes_on_behind_what_retention_took(made: VerifiedStore) -> None:
    async with reading(made) as found:
        made.write_head(log_start_offset=RECORDS)
        made.path(0).unlink()
        assert await found.reader.offset_for_timestamp(found.partition, 1_100) == (RECORDS + 100, 1_100)
        assert await found.reader.max_timestamp(found.partition) == (2 * RECORDS - 1, 1_000 + RECORDS - 1)
        assert await found.reader.offset_for_timestamp(found.partition, 9_999) is None


async def test_an_object_that_the_checkpoint_still_names_is_asked_for_again_and_said_once(
    made: VerifiedStore, caplog: pytest.LogCaptureFixture
) -> None:
    aside = made.root.parent / "aside"
    async with reading(made) as found:
        made.path(1).rename(aside)
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="still names it: try again"):
                await found.read(RECORDS + 5)
        assert caplog.text.count(made.rows[1].object_key) == 1
        assert found.counters.cold_corruptions == 2
        aside.rename(made.path(1))
        assert await found.read(RECORDS + 5)


async def test_a_damaged_chunk_is_never_served_and_those_beside_it_are(made: VerifiedStore) -> None:
    async with reading(made) as found:
        made.flip(1, 20)
        with pytest.raises(CorruptObject):
            await found.read(RECORDS)
        assert found.counters.cold_corruptions == 1
        last = made.tail(1).chunks[-1]
        assert await found.read(last.first_offset) == made.segments[1].log[last.position :]


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"tiered.authorizer": "acl"}, "knows no access control lists"),
        ({"tiered.http.authentication": "basic"}, "no users with passwords"),
    ],
)
def test_what_only_a_database_could_answer_is_refused_before_anything_is_opened(
    tmp_path: Path, settings: dict[str, str], why: str
) -> None:
    options = ServeOptions(
        data_dir=tmp_path / "data",
        meta_url="",
        store_url=f"file://{tmp_path / 'bucket'}",
        settings=BrokerSettings.of(settings),
        read_only=True,
    )
    with pytest.raises(InvalidConfig, match=why):
        ReadReplica(options, SystemClock())
    assert list(tmp_path.iterdir()) == []
