"""Moves the committed offsets of a group without members: to an end of the log, to an offset, or to a time.

Owns the order: look, check, commit. Nothing is changed unless all of it can be. Must never move the offsets of a
group that has members: they would commit over it, or read what they do not expect.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tiered.broker.groups.offsets import OffsetEntry
from tiered.broker.partition import Partition
from tiered.broker.topics import Topic
from tiered.errors import GroupNotEmpty, GroupNotFound, InvalidRequest, OffsetOutOfRange
from tiered.ids import TopicPartition

if TYPE_CHECKING:
    from tiered.broker.broker import Broker

NO_MEMBER = ""
NO_GENERATION = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Earliest:
    """The first offset of the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Latest:
    """The end of the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToOffset:
    """The same offset in every partition."""

    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ToTimestamp:
    """The first record that is not older; the end of the log when all are."""

    timestamp_ms: int


Target = Earliest | Latest | ToOffset | ToTimestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetChange:
    """One partition. `before` is None when the group had committed nothing there."""

    partition: int
    before: int | None
    after: int


async def reset_offsets(
    broker: "Broker", group_id: str, topic: Topic, numbers: Sequence[int] | None, target: Target, *, dry_run: bool
) -> list[OffsetChange]:
    """What was changed (or would be), by partition; `numbers` None means all of them.

    Raises GroupNotFound, GroupNotEmpty, OffsetOutOfRange, UnknownTopicOrPartition, CoordinatorNotAvailable; then
    nothing was changed.
    """
    if topic.is_internal:
        raise InvalidRequest(f"topic {topic.name} is internal: nobody reads it, so there is no offset to reset")
    await _require_empty(broker, group_id)
    partitions = topic.partitions if numbers is None else [topic.partition(number) for number in sorted(set(numbers))]
    wanted = [each.topic_partition for each in partitions]
    after = {each.topic_partition: await _offset_of(broker, each, target) for each in partitions}
    stored = await broker.groups.offsets.fetch(group_id, wanted)
    if not dry_run:
        await _commit(broker, group_id, after)
    return [
        OffsetChange(
            partition=key.partition,
            before=stored[key].committed_offset if key in stored else None,
            after=offset,
        )
        for key, offset in after.items()
    ]


async def _require_empty(broker: "Broker", group_id: str) -> None:
    broker.groups.check_ours(group_id)
    group = await broker.groups.load(group_id)
    if group is None:
        raise GroupNotFound(f"no group has the id {group_id}; list the groups to see their ids")
    if not group.is_empty:
        raise GroupNotEmpty(
            f"group {group_id} has {group.member_count} members; stop them first, then reset its offsets"
        )


async def _commit(broker: "Broker", group_id: str, after: dict[TopicPartition, int]) -> None:
    # Looked at again: members may have come meanwhile. From here on the fence and SQL's own check hold them off.
    await _require_empty(broker, group_id)
    fence = await broker.groups.check_commit(group_id, NO_MEMBER, None, NO_GENERATION)
    entries = [OffsetEntry(topic_id=key.topic_id, partition=key.partition, offset=at) for key, at in after.items()]
    await broker.groups.offsets.commit(fence, entries)


async def _offset_of(broker: "Broker", partition: Partition, target: Target) -> int:
    match target:
        case Earliest():
            return partition.log_start_offset
        case Latest():
            return partition.high_watermark
        case ToTimestamp():
            found = await broker.reader.offset_for_timestamp(partition, target.timestamp_ms)
            return partition.high_watermark if found is None else min(found[0], partition.high_watermark)
        case ToOffset():
            if not partition.log_start_offset <= target.offset <= partition.high_watermark:
                raise OffsetOutOfRange(
                    f"{partition.name} has offsets {partition.log_start_offset} to {partition.high_watermark}, not "
                    f"{target.offset}: choose one of these, or reset some partitions at a time"
                )
            return target.offset
