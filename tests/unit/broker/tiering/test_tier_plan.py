"""The work that a partition's tiers are due, by its own state and its topic's settings."""

from pathlib import Path

from tests.support.partition_appends import keyed
from tests.unit.broker.tiering.tiers import DAY_MS, SEGMENTS, tiers
from tiered.broker.tiering import tier_plan
from tiered.rules.segments.tiering import aged_from_ms


async def test_the_oldest_closed_segment_is_due_and_after_the_last_one_nothing(tmp_path: Path) -> None:
    async with tiers(tmp_path) as made:
        partition, now_ms = made.partition, made.clock.now_ms()
        closed = partition.log.segments[:SEGMENTS]
        for segment in closed:
            due = tier_plan.due_upload(partition, now_ms)
            assert due is not None
            assert (due.base_offset, due.size_bytes) == (segment.base_offset, segment.size_bytes)
            waiting = [each for each in closed if each.base_offset >= segment.base_offset]
            assert tier_plan.overdue_bytes(partition, now_ms) == sum(each.size_bytes for each in waiting)
            assert tier_plan.oldest_waiting_ms(partition) == segment.created_ms
            await made.lifecycle.upload(partition, segment.base_offset)
        assert tier_plan.due_upload(partition, now_ms) is None
        assert (tier_plan.overdue_bytes(partition, now_ms), tier_plan.oldest_waiting_ms(partition)) == (0, None)


async def test_a_segment_is_late_only_when_its_grace_is_over(tmp_path: Path) -> None:
    async with tiers(tmp_path) as made:
        closed_ms = made.partition.log.segments[-1].created_ms
        assert tier_plan.overdue_end_offset(made.partition, closed_ms + 9, 1000) == 0
        assert tier_plan.overdue_end_offset(made.partition, closed_ms + 1000, 1000) == SEGMENTS


async def test_local_segments_wait_for_the_store_and_the_active_one_stays(tmp_path: Path) -> None:
    async with tiers(tmp_path, {"local.retention.bytes": "0"}) as made:
        now_ms, before = made.clock.now_ms(), []
        for base_offset in range(SEGMENTS):
            before.append(tier_plan.local_delete_before(made.partition, now_ms))
            await made.lifecycle.upload(made.partition, base_offset)
        before.append(tier_plan.local_delete_before(made.partition, now_ms))
        assert before == list(range(SEGMENTS + 1))


async def test_small_segments_leave_the_disk_after_a_day_where_nobody_says_how_long_they_stay(tmp_path: Path) -> None:
    week = {"segment.bytes": "1048576", "retention.ms": str(7 * DAY_MS)}
    for name, config, goes in (
        ("said by nobody", {}, True),
        ("said", {"local.retention.ms": str(3 * DAY_MS)}, False),
        ("closed as in Kafka", {"tiered.disk.only.max.ms": "-1"}, False),
        ("compacted", {"cleanup.policy": "compact"}, False),
    ):
        async with tiers(tmp_path / name, {**week, **config}, written=lambda _: keyed("k", "v")) as made:
            log, now_ms = made.partition.log, made.clock.now_ms()
            log.roll(now_ms)
            for segment in log.segments[:-1]:
                await made.lifecycle.upload(made.partition, segment.base_offset)
            newest_ms = max(aged_from_ms(segment) for segment in log.segments[:-1])
            end_offset = log.active_base_offset
            assert tier_plan.local_delete_before(made.partition, newest_ms + DAY_MS) == 0
            assert tier_plan.local_delete_before(made.partition, newest_ms + DAY_MS + 1) == (end_offset if goes else 0)


async def test_an_active_segment_that_retention_outlived_is_closed_where_retention_deletes(tmp_path: Path) -> None:
    for policy, ends in (("delete", True), ("compact", False)):
        config = {"cleanup.policy": policy, "remote.storage.enable": "false"}
        async with tiers(tmp_path / policy, config, written=lambda _: keyed("k", "v" * 500)) as made:
            active = made.partition.log.active_base_offset
            latest_ms = made.partition.log.segments[-1].max_timestamp_ms
            tier_plan.roll_if_expired(made.partition, latest_ms + DAY_MS)
            assert made.partition.log.active_base_offset == active
            tier_plan.roll_if_expired(made.partition, latest_ms + DAY_MS + 1)
            assert (made.partition.log.active_base_offset > active) is ends
            assert tier_plan.has_retention(made.partition) is ends


async def test_the_oldest_record_that_the_store_lacks_is_known_until_the_store_has_all(tmp_path: Path) -> None:
    async with tiers(tmp_path) as made:
        partition = made.partition
        assert tier_plan.disk_only_since_ms(partition) == partition.log.segments[0].created_ms
        for segment in partition.log.segments[:SEGMENTS]:
            assert tier_plan.disk_only_since_ms(partition) == segment.created_ms
            await made.lifecycle.upload(partition, segment.base_offset)
        assert tier_plan.disk_only_since_ms(partition) == partition.log.active_since_ms is not None
        partition.log.roll(made.clock.now_ms())
        await made.lifecycle.upload(partition, SEGMENTS)
        assert tier_plan.disk_only_since_ms(partition) is None


async def test_what_is_not_meant_for_the_store_is_missed_by_nobody(tmp_path: Path) -> None:
    async with tiers(tmp_path, {"remote.storage.enable": "false"}) as made:
        assert tier_plan.disk_only_since_ms(made.partition) is None
