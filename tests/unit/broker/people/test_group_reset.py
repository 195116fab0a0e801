"""Resetting the offsets of a group: all of it or nothing, and never under members."""

from pathlib import Path

import pytest

from tests.unit.broker.groups.coordinators import commit, coordinating, joining
from tiered.broker.partitions.topics import Topic
from tiered.broker.people.offset_reset import reset_offsets
from tiered.errors import GroupNotEmpty, GroupNotFound, UnknownTopicOrPartition
from tiered.rules.groups.offset_reset import ToEarliest, ToOffset
from tiered.rules.partition.partition_state import LogBounds


class Logs:
    """Each partition holds offsets from 2 to 9."""

    async def bounds(self, topic: Topic, number: int) -> LogBounds:
        del topic, number
        return LogBounds(log_start_offset=2, high_watermark=10)

    async def offset_for_timestamp(self, topic: Topic, number: int, timestamp_ms: int) -> int | None:
        del topic, number, timestamp_ms
        return None


async def test_offsets_move_into_the_log_and_a_dry_run_moves_none(tmp_path: Path) -> None:
    async with coordinating(tmp_path) as broker:
        await commit(broker, "billing")
        orders = broker.topics.by_name("orders")
        for dry_run, expected in ((True, {0: 5}), (False, {0: 10, 1: 10, 2: 10})):
            told = await reset_offsets(
                broker.groups, "billing", orders, None, ToOffset(offset=99), dry_run=dry_run, logs=Logs()
            )
            assert [(each.partition, each.before, each.after, each.asked) for each in told] == [
                (0, 5, 10, 99),
                (1, None, 10, 99),
                (2, None, 10, 99),
            ]
            found = await broker.groups.offsets.fetch("billing")
            assert {key.partition: row.committed_offset for key, row in found.items()} == expected


async def test_what_cannot_be_done_changes_nothing(tmp_path: Path) -> None:
    async with coordinating(tmp_path, group_initial_rebalance_delay_ms="0") as broker:
        await commit(broker, "billing")
        await broker.groups.classic.join(joining())
        orders = broker.topics.by_name("orders")
        for group_id, numbers, error in (
            ("unknown", None, GroupNotFound),
            ("g", None, GroupNotEmpty),
            ("billing", [0, 7], UnknownTopicOrPartition),
        ):
            with pytest.raises(error):
                await reset_offsets(broker.groups, group_id, orders, numbers, ToEarliest(), dry_run=False, logs=Logs())
        (offset,) = (await broker.groups.offsets.fetch("billing")).values()
        assert offset.committed_offset == 5
