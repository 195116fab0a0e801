"""Moves the committed offsets of a group without members: to an end of the log, to an offset, or to a time.

Owns the order: look, check, commit. Nothing is changed unless all of it can be. Must never move the offsets of a
group that has members: they would commit over it, or read what they do not expect. Runs at the group's coordinator;
what the logs hold, their leaders are asked for.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tiered.broker.groups.committed_offsets import OffsetEntry
from tiered.broker.groups.coordinator import GroupCoordinator
from tiered.broker.partitions.topics import Topic
from tiered.errors import GroupNotEmpty, InvalidRequest, UnknownTopicOrPartition
from tiered.ids import TopicPartition
from tiered.rules.groups.offset_reset import NewOffset, Target, ToTimestamp, new_offset
from tiered.rules.partition.partition_state import LogBounds

NO_MEMBER = ""
NO_GENERATION = -1
PARTITIONS_AT_ONCE = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetChange:
    """One partition. `before` is None when the group had committed nothing there; `asked` is that of NewOffset."""

    partition: int
    before: int | None
    after: int
    asked: int | None


class LeadersLogs(Protocol):
    """The logs of partitions, from their leaders, wherever these are. Raises Retriable when one does not answer."""

    async def bounds(self, topic: Topic, number: int) -> LogBounds:
        """The offsets that the partition's log holds now."""

    async def offset_for_timestamp(self, topic: Topic, number: int, timestamp_ms: int) -> int | None:
        """The first offset whose record is not older; None when all are."""


async def reset_offsets(
    groups: GroupCoordinator,
    group_id: str,
    topic: Topic,
    numbers: Sequence[int] | None,
    target: Target,
    *,
    dry_run: bool,
    logs: LeadersLogs,
) -> list[OffsetChange]:
    """The changes that were made (or would be), by partition; `numbers` None means all of them.

    Raises GroupNotFound, GroupNotEmpty, UnknownTopicOrPartition, CoordinatorNotAvailable, and the errors of `logs`;
    then nothing was changed.
    """
    if topic.is_internal:
        raise InvalidRequest(f"topic {topic.name} is internal: nobody reads it, so there is no offset to reset")
    await _require_empty(groups, group_id)
    chosen = range(topic.partition_count) if numbers is None else sorted(set(numbers))
    for number in chosen:
        _require_partition(topic, number)
    after = await _offsets_after(topic, chosen, target, logs)
    stored = await groups.offsets.fetch(group_id, list(after))
    if not dry_run:
        await _commit(groups, group_id, {key: new.offset for key, new in after.items()})
    return [
        OffsetChange(
            partition=key.partition,
            before=stored[key].committed_offset if key in stored else None,
            after=new.offset,
            asked=new.asked,
        )
        for key, new in after.items()
    ]


def _require_partition(topic: Topic, number: int) -> None:
    if not 0 <= number < topic.partition_count:
        raise UnknownTopicOrPartition(f"{topic.name} has no partition {number}; it has {topic.partition_count}")


async def _offsets_after(
    topic: Topic, chosen: Sequence[int], target: Target, logs: LeadersLogs
) -> dict[TopicPartition, NewOffset]:
    """Where the group will stand, by partition."""
    found: dict[TopicPartition, NewOffset] = {}
    for first in range(0, len(chosen), PARTITIONS_AT_ONCE):
        some = chosen[first : first + PARTITIONS_AT_ONCE]
        offsets = await asyncio.gather(*(_offset_of(topic, number, target, logs) for number in some))
        found |= {TopicPartition(topic.topic_id, number): at for number, at in zip(some, offsets, strict=True)}
    return found


async def _require_empty(groups: GroupCoordinator, group_id: str) -> None:
    group = await groups.existing(group_id)
    if not group.is_empty:
        raise GroupNotEmpty(
            f"group {group_id} has {group.member_count} members; stop them first, then reset its offsets"
        )


async def _commit(groups: GroupCoordinator, group_id: str, after: dict[TopicPartition, int]) -> None:
    # Looked at again: members may have come meanwhile. From here on the fence and SQL's own check hold them off.
    await _require_empty(groups, group_id)
    fence = await groups.check_commit(group_id, NO_MEMBER, None, NO_GENERATION)
    entries = [OffsetEntry(topic_id=key.topic_id, partition=key.partition, offset=at) for key, at in after.items()]
    await groups.offsets.commit(fence, entries)


async def _offset_of(topic: Topic, number: int, target: Target, logs: LeadersLogs) -> NewOffset:
    bounds = await logs.bounds(topic, number)
    found = None
    if isinstance(target, ToTimestamp):
        found = await logs.offset_for_timestamp(topic, number, target.timestamp_ms)
    new = new_offset(target, bounds, found=found)
    assert new is not None, "nobody shifts offsets here"
    return new
