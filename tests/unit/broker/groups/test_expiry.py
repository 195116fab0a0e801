"""Which offsets are too old: those that nobody could need, and never what a member subscribes to."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from tests.unit.broker.groups.coordinators import Coordinating, commit, coordinating
from tiered.broker.groups.commit_writer import OffsetCommits
from tiered.broker.groups.offset_expiry import SLOT_OF_DELETED_TOPICS, OffsetExpiry
from tiered.rules.groups.assignors import NO_PARTITIONS
from tiered.rules.groups.consumer_heartbeat import Heartbeat

WEEK_MS = 7 * 24 * 3_600_000


def expiry(broker: Coordinating, commits: OffsetCommits) -> OffsetExpiry:
    return OffsetExpiry(
        context=broker.context,
        find_group=broker.groups.find,
        forget_group=broker.groups.forget,
        topics=broker.topics,
        commits=commits,
        slots=broker.groups.slots,
    )


async def test_old_offsets_go_with_their_group_unless_a_member_subscribes_to_the_topic(tmp_path: Path) -> None:
    async with coordinating(tmp_path, offsets_retention_minutes="60") as broker:
        for group_id in ("old", "young", "used"):
            await commit(broker, group_id)
        heartbeat = Heartbeat(
            group_id="used", member_id="m", epoch=0, rebalance_timeout_ms=10_000, topics=frozenset({"orders"}),
            owned=NO_PARTITIONS,
        )  # fmt: skip
        await broker.groups.consumer.heartbeat(heartbeat)
        aged = text(
            f"UPDATE group_offset SET committed_at_ms = committed_at_ms - {WEEK_MS} WHERE group_id IN ('old', 'used')"
        )
        emptied = text(f"UPDATE consumer_group SET empty_since_ms = empty_since_ms - {WEEK_MS} WHERE group_id = 'old'")
        await broker.database.run(lambda conn: (conn.execute(aged), conn.execute(emptied)))
        await expiry(broker, broker.groups.offsets.commits).expire()
        found = {group_id: await broker.groups.offsets.fetch(group_id) for group_id in ("old", "young", "used")}
        assert [group_id for group_id, offsets in found.items() if offsets] == ["young", "used"]
        assert await broker.groups.offsets.load_group("old") is None


async def test_where_nothing_is_old_no_commit_waits_for_a_transaction_of_expiry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with coordinating(tmp_path, offsets_retention_minutes="60") as broker:
        for group_id in ("a", "b", "c"):
            await commit(broker, group_id)
        commits, changed = broker.groups.offsets.commits, list[Collection[int]]()
        exclusively = commits.exclusively

        async def counted(slots: Collection[int], change: Any, **options: Any) -> Any:
            changed.append(slots)
            return await exclusively(slots, change, **options)

        monkeypatch.setattr(commits, "exclusively", counted)
        await expiry(broker, commits).expire()
        assert changed == [[SLOT_OF_DELETED_TOPICS]]
        await broker.database.run(lambda conn: conn.execute(text("DELETE FROM group_offset WHERE group_id = 'b'")))
        emptied = text(f"UPDATE consumer_group SET empty_since_ms = empty_since_ms - {WEEK_MS}")
        await broker.database.run(lambda conn: conn.execute(emptied))
        await expiry(broker, commits).expire()
        assert len(changed) == 3
        assert [await broker.groups.offsets.load_group(name) is None for name in ("a", "b", "c")] == [
            False,
            True,
            False,
        ]
