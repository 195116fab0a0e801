"""Where a group stands: its committed offsets and its members' partitions, held against what the logs have.

For people: nothing is ever decided by it.
"""

from collections.abc import Mapping
from typing import NamedTuple

from tiered.broker.groups.committed_offsets import OffsetRow
from tiered.broker.groups.values import GroupDescription, MemberDescription
from tiered.broker.partitions.topics import Topics
from tiered.broker.people.log_bounds import KnownLogBounds
from tiered.ids import TopicPartition
from tiered.rules.partition.partition_state import LogBounds


class ConsumedPartition(NamedTuple):
    """One partition that the group has committed an offset of, or that `member` reads."""

    topic: str
    partition: int
    bounds: LogBounds
    row: OffsetRow | None
    member: MemberDescription | None

    @property
    def lag(self) -> int | None:
        """None without a committed offset that is a position in the log."""
        if self.row is None or not self.row.is_position:
            return None
        return max(0, self.bounds.high_watermark - self.row.committed_offset)


async def consumed_partitions(
    group: GroupDescription, stored: Mapping[TopicPartition, OffsetRow], *, topics: Topics, log_bounds: KnownLogBounds
) -> list[ConsumedPartition]:
    """Each partition once, by topic and number; those of topics that are deleted are left out.

    Raises MetadataUnavailable.
    """
    readers: dict[TopicPartition, MemberDescription] = {}
    for member in group.members:
        for name, numbers in member.assignment.items():
            topic = topics.find(name)
            if topic is not None:
                readers |= {TopicPartition(topic.topic_id, number): member for number in numbers}
    found = []
    for key, bounds in (await log_bounds.of({*readers, *stored})).items():
        topic = topics.find_id(key.topic_id)
        if topic is not None:
            found.append(ConsumedPartition(topic.name, key.partition, bounds, stored.get(key), readers.get(key)))
    return sorted(found, key=lambda each: (each.topic, each.partition))
