"""Moves the committed offsets of a group without members: to an end of the log, to an offset, or to a time.

Owns the order: look, check, commit. Nothing is changed unless all of it can be. Must never move the offsets of a
group that has members: they would commit over it, or read what they do not expect. Runs at the group's coordinator;
what the logs hold, their leaders are asked for.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tiered.broker.groups.coordinator import GroupCoordinator
from tiered.broker.groups.offsets import OffsetEntry
from tiered.broker.topics import Topic
from tiered.errors import GroupNotEmpty, GroupNotFound, InvalidRequest, OffsetOutOfRange, UnknownTopicOrPartition
from tiered.ids import TopicPartition

NO_MEMBER = ""
NO_GENERATION = -1
PARTITIONS_AT_ONCE = 20


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What the log of one partition holds for readers: from `log_start_offset` up to `high_watermark`."""

    log_start_offset: int
    high_watermark: int


class LeadersLogs(Protocol):
    """What the leaders of partitions know, wherever they are. Raises Retriable when one does not answer."""

    async def bounds(self, topic: Topic, number: int) -> Bounds:
        """What the partition's log holds now."""

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
    """What was changed (or would be), by partition; `numbers` None means all of them.

    Raises GroupNotFound, GroupNotEmpty, OffsetOutOfRange, UnknownTopicOrPartition, CoordinatorNotAvailable, and what
    `logs` raises; then nothing was changed.
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
        await _commit(groups, group_id, after)
    return [
        OffsetChange(
            partition=key.partition,
            before=stored[key].committed_offset if key in stored else None,
            after=offset,
        )
        for key, offset in after.items()
    ]


def _require_partition(topic: Topic, number: int) -> None:
    if not 0 <= number < topic.partition_count:
        raise UnknownTopicOrPartition(f"{topic.name} has no partition {number}; it has {topic.partition_count}")


async def _offsets_after(
    topic: Topic, chosen: Sequence[int], target: Target, logs: LeadersLogs
) -> dict[TopicPartition, int]:
    """Where the group will stand, by partition."""
    found: dict[TopicPartition, int] = {}
    for first in range(0, len(chosen), PARTITIONS_AT_ONCE):
        some = chosen[first : first + PARTITIONS_AT_ONCE]
        offsets = await asyncio.gather(*(_offset_of(topic, number, target, logs) for number in some))
        found |= {TopicPartition(topic.topic_id, number): at for number, at in zip(some, offsets, strict=True)}
    return found


async def _require_empty(groups: GroupCoordinator, group_id: str) -> None:
    groups.check_ours(group_id)
    group = await groups.load(group_id)
    if group is None:
        raise GroupNotFound(f"no group has the id {group_id}; list the groups to see their ids")
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


async def _offset_of(topic: Topic, number: int, target: Target, logs: LeadersLogs) -> int:
    bounds = await logs.bounds(topic, number)
    match target:
        case Earliest():
            return bounds.log_start_offset
        case Latest():
            return bounds.high_watermark
        case ToTimestamp():
            found = await logs.offset_for_timestamp(topic, number, target.timestamp_ms)
            return bounds.high_watermark if found is None else min(found, bounds.high_watermark)
        case ToOffset():
            if not bounds.log_start_offset <= target.offset <= bounds.high_watermark:
                raise OffsetOutOfRange(
                    f"{topic.name}-{number} has offsets {bounds.log_start_offset} to {bounds.high_watermark}, not "
                    f"{target.offset}: choose one of these, or reset some partitions at a time"
                )
            return target.offset
