"""What the bucket has and what was committed, compared: told for certain, mended by nobody but the one who may."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.unit.broker.tiering.tiers import SEGMENTS, TOPIC_ID, Tiers, tiers
from tiered.broker.reconcile.bucket import BucketComparison, RequestBudget
from tiered.broker.reconcile.findings import FindingKind, Findings
from tiered.cold.local import LocalStore
from tiered.cold.object_store import ObjectStore, parse_store_url
from tiered.cold.opening import open_store
from tiered.errors import StoreRefused, StoreUnavailable, TieredError
from tiered.formats import object_key
from tiered.runtime import new_uuid


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    made: Tiers
    findings: Findings
    bucket: BucketComparison

    @property
    def told(self) -> list[tuple[FindingKind, int]]:
        """Kind and first offset of each finding."""
        return [(each.kind, each.first_offset) for each in self.findings.all()]

    def key(self, offset: int) -> str:
        return self.made.partition.committed[offset].object_key

    async def next_turn(self) -> None:
        self.made.clock.waited_ms += 3_600_000
        await self.bucket.round()


class Unlisted(LocalStore):
    """A local store that lists some prefixes never."""

    def __init__(self, url: str) -> None:
        super().__init__(parse_store_url(url).directory)  # type: ignore[union-attr]
        self.fails: Callable[[str], TieredError | None] = lambda _prefix: None

    def list(self, prefix: str, *, start_after: str | None = None, limit: int = 1000) -> list[tuple[str, int]]:
        error = self.fails(prefix)
        if error is not None:
            raise error
        return super().list(prefix, start_after=start_after, limit=limit)


@asynccontextmanager
async def compared(
    folder: Path, *, partition_count: int = 1, store_at: Callable[[str], ObjectStore] = open_store
) -> AsyncIterator[Compared]:
    """With every closed segment of partition 0 in the store, the first one of others, and a turn each hour."""
    async with tiers(
        folder,
        {"tiered.purge.grace.ms": "0"},
        partition_count=partition_count,
        store_at=store_at,
        tiered_reconcile_period_ms="3600000",
    ) as made:
        await made.upload_all()
        for partition in made.partitions[1:]:
            await made.lifecycle.upload(partition, 0)
        findings = Findings()
        bucket = BucketComparison(
            context=made.context, image=made.image, topics=made.topics, pool=made.context.uploads, findings=findings
        )
        yield Compared(made=made, findings=findings, bucket=bucket)


async def test_an_object_that_is_gone_or_another_is_told_until_it_is_back(tmp_path: Path) -> None:
    async with compared(tmp_path) as has:
        store = has.made.context.store
        kept, _ = store.get(has.key(3), max_bytes=1 << 20)
        store.delete(has.key(1))
        store.delete(has.key(3))
        store.put(has.key(3), kept[:-1])
        await has.bucket.round()
        assert has.told == [(FindingKind.MISSING, 1), (FindingKind.WRONG_SIZE, 3)]
        store.put(has.key(3), kept)
        await has.bucket.round()
        assert len(has.told) == 2, "the next turn is not due"
        await has.next_turn()
        assert has.told == [(FindingKind.MISSING, 1)]


async def test_an_object_without_a_row_is_told_and_stays(tmp_path: Path) -> None:
    async with compared(tmp_path) as has:
        key = object_key.segment_key("orders", TOPIC_ID, 0, 2, 3, 0, new_uuid())
        has.made.context.store.put(key, b"of nobody")
        await has.bucket.round()
        assert has.told == [(FindingKind.UNKNOWN_OBJECT, 2)]
        assert has.made.context.store.head(key) is not None


async def test_an_object_that_comes_back_after_its_deletion_is_swept(tmp_path: Path) -> None:
    async with compared(tmp_path) as has:
        made, key = has.made, has.key(0)
        await made.lifecycle.move_log_start(made.partition, 1)
        made.clock.set_by_ms = 1
        await made.lifecycle.sweep()
        assert made.context.store.head(key) is None
        made.context.store.put(key, b"late")
        await has.bucket.round()
        assert (has.told, made.context.store.head(key)) == ([], None)


async def test_a_round_makes_no_more_requests_than_it_may_and_the_next_one_goes_on(tmp_path: Path) -> None:
    async with compared(tmp_path) as has:
        for offset in (1, SEGMENTS - 1):
            has.made.context.store.delete(has.key(offset))
        told = []
        for _ in range(3):
            await has.bucket.round(RequestBudget(2))
            told.append((len(has.told), has.made.context.counters.reconcile_requests, has.bucket.turns))
        assert told == [(1, 2, 0), (2, 4, 0), (2, 4, 1)]


async def test_a_partition_that_cannot_be_compared_holds_up_no_other_and_is_counted(tmp_path: Path) -> None:
    stores: list[Unlisted] = []

    def store_at(url: str) -> Unlisted:
        stores.append(Unlisted(url))
        return stores[0]

    async with compared(tmp_path, partition_count=3, store_at=store_at) as has:
        for partition in has.made.partitions:
            stores[0].delete(partition.committed[0].object_key)
        stores[0].fails = lambda prefix: StoreRefused("no permission") if prefix.endswith("/0/") else None
        await has.bucket.round()
        assert [finding.partition for finding in has.findings.all()] == [1, 2]
        assert has.bucket.turns == 1
        assert has.made.context.counters.failing_items["comparing with the bucket"] == 1
        stores[0].fails = lambda _prefix: None
        await has.next_turn()
        assert [finding.partition for finding in has.findings.all()] == [0, 1, 2]


async def test_a_turn_waits_for_a_store_that_is_away_where_it_was(tmp_path: Path) -> None:
    stores: list[Unlisted] = []

    def store_at(url: str) -> Unlisted:
        stores.append(Unlisted(url))
        return stores[0]

    async with compared(tmp_path, partition_count=5, store_at=store_at) as has:
        for partition in has.made.partitions:
            stores[0].delete(partition.committed[0].object_key)
        stores[0].fails = lambda _prefix: StoreUnavailable("away")
        for _ in range(3):
            with pytest.raises(StoreUnavailable):
                await has.bucket.round()
        stores[0].fails = lambda _prefix: None
        await has.bucket.round()
        assert [finding.partition for finding in has.findings.all()] == [0, 1, 2, 3, 4]
