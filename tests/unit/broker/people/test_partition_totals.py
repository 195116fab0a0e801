"""Sums over all partitions of a broker are made in one walk, with pauses."""

from pathlib import Path

import pytest

from tests.support.counted_turns import counted_turns
from tests.unit.broker.tiering.tiers import SEGMENTS, tiers
from tiered.broker.people.partition_totals import partition_totals
from tiered.broker.tiering import tier_plan


async def test_the_sums_are_of_all_partitions_and_those_of_uploads_of_led_ones(tmp_path: Path) -> None:
    async with tiers(tmp_path, partition_count=3) as made:
        await made.upload_all()  # Of the first partition.
        made.partitions[1].halt("a test", is_logged=True)
        now_ms = made.clock.now_ms() + 60_000
        totals = await partition_totals(made.topics, now_ms)
        waiting = made.partitions[2]
        assert (totals.replicas, totals.unusable, totals.halted_names) == (3, 1, ["orders-1"])
        assert totals.failed_names == []
        assert totals.local_bytes == sum(partition.log.size_bytes for partition in made.partitions)
        assert totals.led_cold_bytes == made.partition.cold_bytes > 0
        assert made.partitions[1].leadership is None
        assert totals.upload_backlog_bytes == tier_plan.overdue_bytes(waiting, now_ms) > 0
        closed_ms = tier_plan.oldest_waiting_ms(waiting)
        assert closed_ms is not None
        assert totals.upload_backlog_age_ms == now_ms - closed_ms
        assert totals.disk_only_age_ms >= 60_000
        assert (totals.held_back_partitions, totals.held_back_ms, totals.replica_lag) == (0, 0, 0)
        assert made.partition.cold_end_offset == SEGMENTS


async def test_a_broker_without_partitions_has_nothing_to_tell(tmp_path: Path) -> None:
    async with tiers(tmp_path) as made:
        made.topics.remove(made.topics.by_name("orders"))
        totals = await partition_totals(made.topics, made.clock.now_ms())
        assert (totals.replicas, totals.upload_backlog_age_ms, totals.disk_only_age_ms) == (0, 0, 0)


async def test_others_are_served_between_two_partitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with tiers(tmp_path, partition_count=20) as made:
        monkeypatch.setattr("tiered.runtime.TURN_MS", -1.0)
        turns, totals = await counted_turns(partition_totals(made.topics, made.clock.now_ms()))
        assert (totals.replicas, turns >= 20) == (20, True)
