"""Where a group stands: what it has committed and what its members read, each partition once."""

from dataclasses import replace
from pathlib import Path
from uuid import UUID

from tests.unit.broker.tiering.tiers import SEGMENTS, tiers
from tiered.broker.groups.committed_offsets import OffsetRow
from tiered.broker.groups.values import GroupDescription, GroupKind, MemberDescription
from tiered.broker.people.consumed_partitions import ConsumedPartition, consumed_partitions
from tiered.broker.people.log_bounds import KnownLogBounds
from tiered.ids import TopicId, TopicPartition

RECORDS = SEGMENTS + 1
MEMBER = MemberDescription(
    member_id="m",
    instance_id=None,
    client_id="client",
    client_host="/127.0.0.1",
    assignment={"orders": (1, 2), "deleted": (0,)},
)
GROUP = GroupDescription(
    group_id="billing",
    kind=GroupKind.CLASSIC,
    protocol_type="consumer",
    protocol_name="range",
    state="Stable",
    generation=1,
    members=(MEMBER,),
)


def stored(key: TopicPartition, offset: int) -> OffsetRow:
    return OffsetRow(
        topic_id=key.topic_id,
        partition=key.partition,
        committed_offset=offset,
        leader_epoch=-1,
        metadata="",
        committed_at_ms=0,
    )


async def test_each_partition_that_is_read_or_committed_comes_once_with_its_lag_and_reader(tmp_path: Path) -> None:
    async with tiers(tmp_path, partition_count=4) as made:
        keys = [partition.topic_partition for partition in made.partitions]
        gone = TopicPartition(TopicId(UUID(int=1)), 0)
        rows = {key: stored(key, offset) for key, offset in ((keys[2], 4), (keys[0], 99), (gone, 1))}
        log_bounds = KnownLogBounds(context=made.context, topics=made.topics, image=made.image)
        found = await consumed_partitions(GROUP, rows, topics=made.topics, log_bounds=log_bounds)
    assert [(each.topic, each.partition, each.lag, each.member) for each in found] == [
        ("orders", 0, 0, None),
        ("orders", 1, None, MEMBER),
        ("orders", 2, RECORDS - 4, MEMBER),
    ]
    assert [each.bounds.high_watermark for each in found] == [RECORDS] * 3
    assert lag_of(found[2], -1) is None, "the sign for the end is no position"


def lag_of(consumed: ConsumedPartition, offset: int) -> int | None:
    assert consumed.row is not None
    return consumed._replace(row=replace(consumed.row, committed_offset=offset)).lag
