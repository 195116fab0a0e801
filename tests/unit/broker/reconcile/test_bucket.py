"""What the bucket has and what was committed, compared: told for certain, mended by nobody but the one who may."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.unit.broker.tiering.tiers import SEGMENTS, TOPIC_ID, Tiers, tiers
from tiered.broker.reconcile.bucket import BucketComparison, RequestBudget
from tiered.broker.reconcile.findings import FindingKind, Findings
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


@asynccontextmanager
async def compared(folder: Path) -> AsyncIterator[Compared]:
    """With every closed segment in the store, and a turn each hour."""
    async with tiers(folder, {"tiered.purge.grace.ms": "0"}, tiered_reconcile_period_ms="3600000") as made:
        await made.upload_all()
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
