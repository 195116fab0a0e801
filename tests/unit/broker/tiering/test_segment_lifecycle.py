"""A segment from its upload to the end of its object, whatever goes wrong in between (T2, T4)."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import update

from tests.unit.broker.tiering.tiers import SEGMENTS, TOPIC_ID, Tiers, tiers
from tiered.broker.tiering import segment_lifecycle
from tiered.cold.bucket import checkpoints
from tiered.cold.local import LocalStore
from tiered.cold.object_store import ObjectInfo, ObjectStore, parse_store_url
from tiered.errors import LostRace, StoreRefused, StoreUnavailable, TieredError
from tiered.formats.checkpoint import PageRef, PartitionCheckpoint
from tiered.formats.object_key import SEGMENTS_PREFIX, parse_segment_key, partition_checkpoint_key
from tiered.meta import partitions, segments, topics
from tiered.meta.segments import SegmentRow
from tiered.meta.tables import segment
from tiered.rules.segments.segment_states import SegmentState

HEAD = partition_checkpoint_key(TOPIC_ID, 0)


async def objects(made: Tiers) -> list[str]:
    return [key for key, _ in await made.context.uploads.run(made.context.store.list, SEGMENTS_PREFIX)]


async def committed(made: Tiers) -> Sequence[SegmentRow]:
    return await made.context.database.run(lambda conn: segments.list_committed(conn, TOPIC_ID, 0))


async def test_an_upload_leaves_an_object_its_row_and_a_cold_end(tmp_path: Path) -> None:
    async with tiers(tmp_path) as made:
        uploaded = await made.lifecycle.upload(made.partition, 0)
        (row,) = await committed(made)
        assert await objects(made) == [uploaded.object_key] == [row.object_key]
        assert (uploaded.base_offset, uploaded.end_offset, made.partition.cold_end_offset) == (0, 1, 1)
        after = await made.context.database.run(lambda conn: partitions.load(conn, TOPIC_ID, 0))
        assert after.cold_end_offset == 1


async def test_a_partition_that_was_closed_deletes_no_file_of_the_one_that_was_opened_after_it(tmp_path: Path) -> None:
    async with tiers(tmp_path, {"local.retention.bytes": "0"}) as made:
        await made.lifecycle.upload(made.partition, 0)
        made.partition.stop()
        await made.lifecycle.delete_local(made.partition)
        assert made.partition.log.segments[0].base_offset == 0


async def test_an_upload_that_comes_too_late_takes_over_what_sql_has_and_stores_nothing(tmp_path: Path) -> None:
    async with tiers(tmp_path) as made:
        await made.lifecycle.upload(made.partition, 0)
        kept = await objects(made)
        with pytest.raises(LostRace):
            await made.lifecycle.upload(made.partition, 0)
        assert await objects(made) == kept
        assert made.partition.cold_end_offset == 1


async def test_a_sweep_at_the_start_removes_what_an_upload_left_that_never_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def killed(name: str) -> None:
        if name == "upload.stored":
            raise Killed

    async with tiers(tmp_path) as made:
        with monkeypatch.context() as patch, pytest.raises(Killed):
            patch.setattr("tiered.broker.tiering.segment_lifecycle.crash_point", killed)
            await made.lifecycle.upload(made.partition, 0)
        assert len(await objects(made)) == 1
        await made.lifecycle.sweep(at_start=True)
        assert await objects(made) == []
        assert made.context.counters.orphans_swept == 1
        await made.lifecycle.upload(made.partition, 0)
        assert made.partition.cold_end_offset == 1


async def test_local_segments_go_only_where_the_store_has_them_and_has_not_lost_them(tmp_path: Path) -> None:
    async with tiers(tmp_path, {"local.retention.bytes": "0"}) as made:
        log = made.partition.log
        await made.lifecycle.delete_local(made.partition)
        assert log.local_log_start_offset == 0
        await made.upload_all()
        made.lost[made.partition.topic_partition] = 3
        await made.lifecycle.delete_local(made.partition)
        assert log.local_log_start_offset == 3
        made.lost.clear()
        made.context.store.is_ours = False
        await made.lifecycle.delete_local(made.partition)
        assert log.local_log_start_offset == 3, "no restore finds the copy in a store that is another cluster's"
        made.context.store.is_ours = True
        await made.lifecycle.delete_local(made.partition)
        assert log.local_log_start_offset == SEGMENTS


async def test_an_object_goes_when_its_grace_is_over_and_no_checkpoint_names_it(tmp_path: Path) -> None:
    async with tiers(tmp_path, {"tiered.purge.grace.ms": "0"}) as made:
        await made.upload_all()
        await made.lifecycle.move_log_start(made.partition, 2)
        assert made.partition.log_start_offset == 2
        assert len(await objects(made)) == SEGMENTS
        made.clock.set_by_ms = 1
        await made.lifecycle.sweep()
        assert len(await objects(made)) == SEGMENTS - 2
        assert not made.checkpoints.is_stale(TOPIC_ID, 0)
        assert {row.state for row in await committed(made)} == {SegmentState.COMMITTED}


@pytest.mark.parametrize(
    "key",
    [HEAD, "../../etc/passwd", "of another segment", "\n" * 1_000_000],
    ids=["checkpoint", "path", "other", "long"],
)
async def test_a_row_that_names_anything_but_its_own_object_has_nothing_deleted(
    tmp_path: Path, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with tiers(tmp_path, {"tiered.purge.grace.ms": "0"}) as made:
        await made.upload_all()
        await made.lifecycle.move_log_start(made.partition, 2)
        made.clock.set_by_ms = 1
        kept = await objects(made)
        rows = update(segment).where(segment.c.state == SegmentState.RETIRED)
        forged = rows.values(object_key=key.replace("of another segment", kept[-1]))
        await made.context.database.run(lambda conn: conn.execute(forged))
        await made.lifecycle.sweep()
        assert caplog.text.count("nothing is deleted") == 1
        assert await objects(made) == kept
        assert made.context.store.head(HEAD) is not None
        assert made.context.counters.objects_refused == 2


class Locked(LocalStore):
    """A local store that deletes some objects never, or nothing at all, whatever it is asked for."""

    def __init__(self, url: str) -> None:
        super().__init__(parse_store_url(url).directory)  # type: ignore[union-attr]
        self.refuses: Callable[[str], TieredError | None] = lambda _key: None
        self.tried: list[str] = []
        self.lets_in = True

    def head(self, key: str) -> ObjectInfo | None:
        if not self.lets_in:
            raise StoreRefused("no permission")
        return super().head(key)

    def delete(self, key: str) -> None:
        self.tried.append(key)
        error = self.refuses(key)
        if error is not None:
            raise error
        super().delete(key)


@asynccontextmanager
async def with_retired(folder: Path) -> AsyncIterator[tuple[Tiers, Locked, list[str]]]:
    """All segments but the last are retired, and their grace is over. Their keys, in the order of their deletion."""
    stores: list[Locked] = []

    def store_at(url: str) -> Locked:
        stores.append(Locked(url))
        return stores[0]

    async with tiers(folder, {"tiered.purge.grace.ms": "0"}, store_at=store_at) as made:
        await made.upload_all()
        await made.lifecycle.move_log_start(made.partition, SEGMENTS - 1)
        made.clock.set_by_ms = 1
        due = await made.context.database.run(lambda conn: segments.list_purgeable(conn, now_ms=2**60))
        yield made, stores[0], [row.object_key for row in due]


async def test_an_object_that_may_not_be_deleted_holds_up_no_other_and_is_tried_again_after_an_hour(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with with_retired(tmp_path) as (made, store, due):
        refused = StoreRefused("the object is locked")
        store.refuses = lambda key: refused if key == due[0] else None
        await made.lifecycle.sweep()
        assert store.tried == due
        assert due[0] in await objects(made)
        assert len(await objects(made)) == 2
        assert not made.context.store.times.is_failing, "the store is not away"
        assert made.context.counters.objects_refused == 1
        await made.lifecycle.sweep()
        assert store.tried == due, "neither what is gone nor what is refused is asked for again"
        assert caplog.text.count("the object is locked") == 1

        store.refuses = lambda _key: None
        made.clock.waited_ms += 3_600_001
        await made.lifecycle.sweep()
        assert len(await objects(made)) == 1
        assert made.context.counters.objects_refused == 0


async def test_a_store_that_refuses_everything_for_a_while_says_nothing_about_an_object(tmp_path: Path) -> None:
    async with with_retired(tmp_path) as (made, store, due):
        store.lets_in, store.refuses = False, lambda _key: StoreRefused("no permission")
        with pytest.raises(StoreRefused):
            await made.lifecycle.sweep()
        assert store.tried == due[:1]
        assert made.context.counters.objects_refused == 0
        store.lets_in, store.refuses = True, lambda _key: None
        made.clock.waited_ms += 60_001
        await made.lifecycle.sweep()
        assert len(await objects(made)) == 1, "not only after an hour"


async def test_what_is_gone_when_the_store_goes_away_is_not_deleted_again(tmp_path: Path) -> None:
    async with with_retired(tmp_path) as (made, store, due):
        store.refuses = lambda key: StoreUnavailable("it is away") if key == due[2] else None
        with pytest.raises(StoreUnavailable, match="it is away"):
            await made.lifecycle.sweep()
        assert store.tried == due[:3]
        assert made.context.store.times.is_failing
        await made.lifecycle.sweep()
        assert store.tried == due, "the next round begins with others: it may be that one alone which fails"
        store.refuses = lambda _key: None
        made.clock.waited_ms += 60_001
        await made.lifecycle.sweep()
        assert store.tried == [*due, due[2]]


async def test_objects_that_a_checkpoint_may_name_hold_up_no_deletion_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_lifecycle, "SWEEP_BATCH", 2)
    async with tiers(tmp_path, {"tiered.purge.grace.ms": "0"}, partition_count=2) as made:
        blocked, other = made.partitions
        for partition in (blocked, other):
            for base_offset in range(SEGMENTS):
                await made.lifecycle.upload(partition, base_offset)
            await made.lifecycle.move_log_start(partition, SEGMENTS - 1)
        made.clock.set_by_ms = 1
        write = checkpoints.write_partition_checkpoint

        def refused(store: ObjectStore, checkpoint: PartitionCheckpoint, known: frozenset[PageRef]) -> object:
            if checkpoint.partition == 0:
                raise StoreRefused("no permission")
            return write(store, checkpoint, known=known)

        monkeypatch.setattr(checkpoints, "write_partition_checkpoint", refused)
        await made.lifecycle.sweep()
        left = [parse_segment_key(key).partition for key in await objects(made)]
        assert left == [0] * SEGMENTS + [1]


async def test_a_deleted_topic_whose_checkpoint_may_not_be_deleted_keeps_no_other_from_being_forgotten(
    tmp_path: Path,
) -> None:
    stores: list[Locked] = []

    def store_at(url: str) -> Locked:
        stores.append(Locked(url))
        return stores[0]

    async with tiers(tmp_path, partition_count=3, others=("other",), store_at=store_at) as made:
        made.context.state.is_controller = True
        for partition in made.partitions:
            made.checkpoints.partition_changed(partition)
        await made.checkpoints.write_stale()
        for topic_id in {partition.topic_partition.topic_id for partition in made.partitions}:
            await made.context.database.run(partial(topics.delete_topic, topic_id=topic_id, now_ms=0, purge_after_ms=0))
        stores[0].refuses = lambda key: StoreRefused("no permission") if key == HEAD else None
        for _ in range(2):
            await made.lifecycle.forget_deleted_topics()
        heads = [key for key in stores[0].tried if str(TOPIC_ID) in key]
        others = [partition_checkpoint_key(TOPIC_ID, number) for number in (1, 2)]
        assert sorted(heads) == sorted([HEAD, HEAD, *others]), "what is gone is not deleted again"
        left = await made.context.database.run(topics.list_tombstones)
        assert [row.topic_id for row in left] == [TOPIC_ID]
        assert made.context.counters.failing_items["forgetting deleted topics"] == 1


async def test_a_store_that_refuses_one_after_the_other_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_lifecycle, "MAX_REFUSED_IN_A_ROW", 2)
    async with with_retired(tmp_path) as (made, store, due):
        store.refuses = lambda _key: StoreRefused("no permission")
        with pytest.raises(StoreRefused, match="no permission"):
            await made.lifecycle.sweep()
        assert store.tried == due[:2]
