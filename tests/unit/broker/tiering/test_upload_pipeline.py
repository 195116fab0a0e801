"""Uploads of many partitions through a store that refuses: bounded, in turns, and asked again before each begins."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.unit.broker.tiering.tiers import SEGMENTS, Tiers, tiers
from tests.unit.broker.tiering.unsteady_store import UnsteadyStore
from tiered.broker.tiering.upload_pipeline import UploadPipeline
from tiered.errors import CorruptFile, StoreRefused, StoreTrouble, StoreUnavailable
from tiered.rules.pacing import upload_pace

WAIT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Uploading:
    made: Tiers
    store: UnsteadyStore
    uploads: UploadPipeline

    @property
    def cold_ends(self) -> list[int]:
        return [each.cold_end_offset for each in self.made.partitions]

    def look(self) -> None:
        for each in self.made.partitions:
            self.uploads.look(each, self.made.clock.now_ms())
        self.uploads.begin()

    async def idle(self) -> None:
        """Returns once nothing is uploaded any more."""
        async with asyncio.timeout(WAIT_S):
            while self.uploads.running:
                await asyncio.sleep(0.001)


@asynccontextmanager
async def uploading(
    folder: Path, partition_count: int, *, others: Sequence[str] = (), concurrency: int = 4
) -> AsyncIterator[Uploading]:
    stores: list[UnsteadyStore] = []

    def store_at(url: str) -> UnsteadyStore:
        stores.append(UnsteadyStore(url))
        return stores[0]

    async with (
        tiers(
            folder,
            partition_count=partition_count,
            others=others,
            store_at=store_at,
            tiered_upload_concurrency=str(concurrency),
        ) as made,
        asyncio.TaskGroup() as group,
    ):
        uploads = UploadPipeline(
            context=made.context, lifecycle=made.lifecycle, topics=made.topics, uploaded=lambda _where: None
        )
        uploads.start(group)
        yield Uploading(made=made, store=stores[0], uploads=uploads)
        await uploads.stop()


async def test_one_look_uploads_all_that_is_closed_and_never_two_of_a_partition_at_once(tmp_path: Path) -> None:
    async with uploading(tmp_path, 3, concurrency=4) as parts:
        parts.look()
        parts.look()
        assert parts.uploads.running == 3
        await parts.idle()
        assert parts.cold_ends == [SEGMENTS] * 3
        assert sorted(parts.store.asked) == [
            ("orders", number, base) for number in range(3) for base in range(SEGMENTS)
        ]
        assert parts.made.context.counters.uploads_failed == 0


async def test_topics_take_turns_however_much_one_of_them_has_to_upload(tmp_path: Path) -> None:
    async with uploading(tmp_path, 1, others=["small"], concurrency=1) as parts:
        parts.look()
        assert parts.uploads.running == 1
        await parts.idle()
        assert parts.store.asked == [(topic, 0, base) for base in range(SEGMENTS) for topic in ("orders", "small")]


async def test_a_partition_that_fails_alone_rests_and_holds_up_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Longer than the others' uploads take on any machine.
    for name in ("FIRST_REST_MS", "MAX_REST_MS"):
        monkeypatch.setattr(upload_pace, name, 3_600_000)
    async with uploading(tmp_path, 2, concurrency=1) as parts:
        parts.store.fails = lambda key: CorruptFile("its file is torn") if "/0/" in key else None
        parts.look()
        await parts.idle()
        assert parts.cold_ends == [0, SEGMENTS]
        parts.look()
        await parts.idle()
        assert parts.made.context.counters.uploads_failed == 1
        parts.made.clock.waited_ms += upload_pace.FIRST_REST_MS
        parts.store.fails = lambda _key: None
        parts.look()
        await parts.idle()
        assert parts.cold_ends == [SEGMENTS] * 2


async def test_while_the_store_is_away_one_upload_asks_for_all(tmp_path: Path) -> None:
    async with uploading(tmp_path, 4, concurrency=4) as parts:
        parts.store.fails = lambda _key: StoreUnavailable("the store is away")
        while parts.uploads.allowed > 1:
            parts.look()
            await parts.idle()
            assert parts.cold_ends == [0] * 4
            parts.made.clock.waited_ms += upload_pace.MAX_REST_MS
        parts.store.asked.clear()
        parts.look()
        await parts.idle()
        assert len(parts.store.asked) == 1
        parts.look()
        assert parts.uploads.running == 0, "all of them rest"
        parts.store.fails = lambda _key: None
        parts.made.clock.waited_ms += upload_pace.MAX_REST_MS
        parts.look()
        await parts.idle()
        assert parts.cold_ends == [SEGMENTS] * 4
        assert parts.uploads.allowed == 4


async def test_a_partition_that_the_store_alone_refuses_holds_up_nobody(tmp_path: Path) -> None:
    async with uploading(tmp_path, 3, concurrency=1) as parts:
        parts.store.fails = lambda key: StoreUnavailable("it refuses this one") if "/0/" in key else None
        for _ in range(8):
            parts.look()
            await parts.idle()
            parts.made.clock.waited_ms += upload_pace.MAX_REST_MS
        assert parts.cold_ends == [0, SEGMENTS, SEGMENTS]


@pytest.mark.parametrize("trouble", [StoreTrouble.DENIED, StoreTrouble.LOCKED])
async def test_one_refused_object_lets_no_other_partition_rest(
    tmp_path: Path, trouble: StoreTrouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with uploading(tmp_path, 3, concurrency=1) as parts:
        now_ms = parts.made.clock.monotonic_ms()  # It stands still: a rest is a second.
        monkeypatch.setattr(parts.made.clock, "monotonic_ms", lambda: now_ms)
        parts.store.fails = lambda key: StoreRefused("not this one", trouble) if "/0/" in key else None
        parts.look()
        await parts.idle()
        assert parts.cold_ends == [0, SEGMENTS, SEGMENTS]
        parts.look()
        assert parts.uploads.running == 0, "the refused one rests"


async def test_a_store_that_denies_every_object_is_asked_by_one_upload_for_all(tmp_path: Path) -> None:
    async with uploading(tmp_path, 4, concurrency=4) as parts:
        parts.store.fails = lambda _key: StoreRefused("nobody is let in")
        while parts.uploads.allowed > 1:
            parts.look()
            await parts.idle()
            parts.made.clock.waited_ms += upload_pace.MAX_REST_MS
        parts.store.asked.clear()
        parts.look()
        await parts.idle()
        parts.look()
        await parts.idle()
        assert len(parts.store.asked) == 1
        parts.store.fails = lambda _key: None
        parts.made.clock.waited_ms += upload_pace.MAX_REST_MS
        parts.look()
        await parts.idle()
        assert parts.cold_ends == [SEGMENTS] * 4


async def test_a_bug_in_one_upload_stops_no_other(tmp_path: Path) -> None:
    async with uploading(tmp_path, 2, concurrency=1) as parts:
        parts.store.fails = lambda key: ZeroDivisionError("a bug") if "/0/" in key else None
        parts.look()
        await parts.idle()
        assert parts.cold_ends == [0, SEGMENTS]
        assert parts.made.context.counters.uploads_failed == 1


async def test_what_was_due_is_asked_again_before_it_begins(tmp_path: Path) -> None:
    async with uploading(tmp_path, 2, concurrency=1) as parts:
        paused = parts.made.partitions[1]
        parts.look()
        paused.configure(replace(paused.config, remote_log_copy_disable=True))
        await parts.idle()
        assert parts.cold_ends == [SEGMENTS, 0]


async def test_after_a_stop_nothing_begins(tmp_path: Path) -> None:
    async with uploading(tmp_path, 1) as parts:
        await parts.uploads.stop()
        parts.look()
        assert parts.uploads.running == 0
        assert parts.cold_ends == [0]
