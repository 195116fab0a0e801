"""Small objects of a partition become one, in a real store and a real database, whatever comes between."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import select

from tests.unit.broker.tiering.tiers import SEGMENTS, Tiers, tiers
from tests.unit.broker.tiering.unsteady_store import UnsteadyStore
from tiered.broker.tiering.joining import UNREADABLE_MS, Joining
from tiered.cold.bucket import checkpoints as bucket_checkpoints
from tiered.cold.bucket import rewrite
from tiered.cold.bucket.rewrite import Rewritten
from tiered.config import TopicConfig
from tiered.errors import LostRace, StoreUnavailable
from tiered.formats.checkpoint import PartitionCheckpoint
from tiered.meta import pins
from tiered.meta.pins import WantedRange
from tiered.meta.tables import segment
from tiered.rules.segments import joining as rule
from tiered.rules.segments.segment_states import SegmentState

JOINED = 4
"""With one closed segment more, which is the newest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Joins:
    made: Tiers
    joins: Joining
    store: UnsteadyStore

    async def round(self) -> None:
        self.joins.uploaded(self.made.partition.topic_partition)
        await self.joins.round()

    @property
    def extents(self) -> list[tuple[int, int]]:
        return [(each.base_offset, each.end_offset) for each in self.made.partition.committed]

    @property
    def head(self) -> PartitionCheckpoint:
        """What the bucket says of the partition."""
        where = self.made.partition.topic_partition
        stored = bucket_checkpoints.read_partition_checkpoint(self.store, where.topic_id, where.partition)
        assert stored is not None
        return stored.checkpoint

    @property
    def objects(self) -> int:
        """Segments in the store."""
        return len(self.store.list("segments/"))


@asynccontextmanager
async def joins(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Joins]:
    """Over a partition with five segments in the store, of which four may be joined."""
    monkeypatch.setattr(rule, "JOINED_AT_ONCE", JOINED)
    stores: list[UnsteadyStore] = []

    def store_at(url: str) -> UnsteadyStore:
        stores.append(UnsteadyStore(url))
        return stores[0]

    async with tiers(folder, {"retention.ms": "-1"}, store_at=store_at) as made:
        joining = Joining(
            checkpoints=made.checkpoints,
            context=made.context,
            feed=made.feed,
            lifecycle=made.lifecycle,
            topics=made.topics,
        )
        await made.upload_all()
        # The segments were closed by their size; from here on they may be larger.
        made.partition.configure(TopicConfig.of({"retention.ms": "-1"}, made.context.settings))
        try:
            yield Joins(made=made, joins=joining, store=stores[0])
        finally:
            joining.close()


async def test_small_objects_become_one_that_has_their_bytes_and_their_place_in_the_chain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with joins(tmp_path, monkeypatch) as has:
        partition = has.made.partition
        before = list(partition.committed)
        plain = [has.store.get_range(each.object_key, 0, each.log_bytes) for each in before]
        await has.round()
        assert has.extents == [(0, JOINED), (JOINED, SEGMENTS)]
        one = partition.committed[0]
        assert has.store.get_range(one.object_key, 0, one.log_bytes) == b"".join(plain[:JOINED])
        assert (one.joined_count, one.record_count) == (JOINED, sum(each.record_count for each in before[:JOINED]))
        assert one.previous_root_sha256 == before[0].previous_root_sha256
        assert one.chain_root_sha256 == before[JOINED].previous_root_sha256
        assert has.made.context.counters.segments_joined == JOINED
        # The bucket names it at once, or what it replaces could not go.
        await has.made.checkpoints.write_stale()
        assert has.head.segments == partition.committed
        await has.round()
        assert has.extents == [(0, JOINED), (JOINED, SEGMENTS)]
        # The old objects go once the grace is over, and not before.
        await has.made.lifecycle.sweep()
        assert has.objects == SEGMENTS + 1
        has.made.clock.waited_ms += partition.config.tiered_purge_grace_ms + 1
        has.made.clock.set_by_ms += partition.config.tiered_purge_grace_ms + 1
        await has.made.lifecycle.sweep()
        assert has.objects == 2


async def test_an_upload_goes_on_behind_what_was_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with joins(tmp_path, monkeypatch) as has:
        partition = has.made.partition
        await has.round()
        partition.log.roll(has.made.clock.now_ms())
        newest = await has.made.lifecycle.upload(partition, SEGMENTS)
        assert newest.previous_root_sha256 == partition.committed[-2].chain_root_sha256
        assert has.extents == [(0, JOINED), (JOINED, SEGMENTS), (SEGMENTS, SEGMENTS + 1)]


@pytest.mark.parametrize(
    "held_back", ["a snapshot", "a store that refuses", "uploads are switched off", "a checkpoint that is not written"]
)
async def test_nothing_is_joined_and_nothing_is_left_behind_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held_back: str
) -> None:
    async with joins(tmp_path, monkeypatch) as has:
        partition, database = has.made.partition, has.made.context.database
        where = partition.topic_partition
        if held_back == "a snapshot":
            take = partial(pins.take, pin_id=uuid4(), name="kept", owner="somebody", ttl_ms=None, max_pins=1)
            ranges = [WantedRange(partition=where.partition, start_offset=2, end_offset=3)]
            await database.run(lambda conn: take(conn, topic_id=where.topic_id, ranges=ranges))
        elif held_back == "a store that refuses":
            has.store.fails = lambda _key: StoreUnavailable("it is away")
        elif held_back == "uploads are switched off":
            partition.configure(TopicConfig.of({"remote.log.copy.disable": "true"}, has.made.context.settings))
        else:
            monkeypatch.setattr(type(has.made.checkpoints), "is_stale", lambda *_: True)
        await has.round()
        assert has.extents == [(number, number + 1) for number in range(SEGMENTS)]
        assert has.objects == SEGMENTS
        rows = await database.run(lambda conn: conn.execute(select(segment.c.state, segment.c.owner)).all())
        left = [row for row in rows if row.state != SegmentState.COMMITTED]
        assert {row.state for row in left} <= {SegmentState.PURGED}
        # Once nothing is in the way, the next round joins them without another upload.
        if held_back == "a store that refuses":
            has.store.fails = lambda _key: None
            await has.joins.round()
            assert has.extents == [(0, JOINED), (JOINED, SEGMENTS)]


@pytest.mark.parametrize("point", ["join.planned", "join.stored"])
async def test_a_death_in_between_leaves_the_log_as_it_was_and_is_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    async with joins(tmp_path, monkeypatch) as has:

        def killed(name: str) -> None:
            if name == point:
                raise KilledHere

        with monkeypatch.context() as patch:
            patch.setattr("tiered.broker.tiering.joining.crash_point", killed)
            with pytest.raises(KilledHere):
                await has.joins._join(has.made.partition, has.made.partition.committed[:JOINED])
        assert has.extents == [(number, number + 1) for number in range(SEGMENTS)]
        has.made.clock.set_by_ms += 2 * has.made.context.settings.tiering.tiered_upload_timeout_ms
        await has.made.lifecycle.sweep_of_the_dead()
        assert has.objects == SEGMENTS
        await has.round()
        assert has.extents == [(0, JOINED), (JOINED, SEGMENTS)]


class KilledHere(BaseException):
    """The process would be gone."""


async def test_retention_that_is_faster_takes_its_segments_and_the_rest_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with joins(tmp_path, monkeypatch) as has:
        partition = has.made.partition
        run = partition.committed[:JOINED]
        await has.made.lifecycle.move_log_start(partition, 2, is_explicit=True)

        with pytest.raises(LostRace):
            await has.joins._join(partition, run)
        assert has.extents == [(number, number + 1) for number in range(2, SEGMENTS)]


async def test_an_object_that_cannot_be_read_keeps_only_its_neighbours_from_being_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with joins(tmp_path, monkeypatch) as has:
        monkeypatch.setattr(rule, "JOINED_AT_ONCE", 2)
        partition = has.made.partition
        path = next(tmp_path.rglob(Path(partition.committed[0].object_key).name))
        hidden = path.rename(path.with_suffix(".hidden"))
        for _ in range(3):
            await has.round()
        assert has.extents == [(0, 1), (1, 2), (2, 4), (4, 5)]
        hidden.rename(path)
        await has.round()
        assert has.extents == [(0, 1), (1, 2), (2, 4), (4, 5)]
        has.made.clock.waited_ms += int(UNREADABLE_MS)
        await has.round()
        assert has.extents == [(0, 2), (2, 4), (4, 5)]


async def test_all_runs_that_the_checkpoint_names_are_joined_with_one_write_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with joins(tmp_path, monkeypatch) as has:
        monkeypatch.setattr(rule, "JOINED_AT_ONCE", 2)
        await has.made.checkpoints.write_stale()
        version = has.head.version
        await has.round()
        assert has.extents == [(0, 2), (2, 4), (4, 5)]
        assert has.head.version == version
        await has.joins.round()
        assert has.extents == [(0, 4), (4, 5)]


async def test_an_object_that_would_come_too_late_to_be_swept_is_not_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with joins(tmp_path, monkeypatch) as has:
        plain = rewrite.join

        def slow(*arguments: Any) -> Rewritten:
            has.made.clock.waited_ms += has.made.context.settings.tiering.tiered_upload_timeout_ms + 1
            return plain(*arguments)

        monkeypatch.setattr(rewrite, "join", slow)
        await has.round()
        assert has.extents == [(number, number + 1) for number in range(SEGMENTS)]
        assert has.objects == SEGMENTS


async def test_partitions_that_a_round_did_not_reach_have_their_turn_in_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with joins(tmp_path, monkeypatch) as has:
        has.joins.uploaded(has.made.partition.topic_partition)
        monkeypatch.setattr(has.joins, "_join_all", away)
        await has.joins.round()
        monkeypatch.undo()
        monkeypatch.setattr(rule, "JOINED_AT_ONCE", JOINED)
        await has.joins.round()
        assert has.extents == [(0, JOINED), (JOINED, SEGMENTS)]


async def away(_partition: object) -> None:
    raise StoreUnavailable("it is away")
