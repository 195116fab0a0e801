"""Which offsets are too old: those that nobody could need, and never what a member subscribes to."""

from pathlib import Path

from sqlalchemy import text

from tests.unit.broker.groups.coordinators import Coordinating, commit, coordinating
from tiered.broker.groups.commit_writer import OffsetCommits
from tiered.broker.groups.offset_expiry import OffsetExpiry
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
