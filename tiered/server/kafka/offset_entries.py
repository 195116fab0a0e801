"""The offsets in a request that commits some: which of them can be stored.

Owns the check of each partition by itself. Must never decide who may commit: the group's coordinator does.
"""

from collections.abc import Sequence
from typing import Any

from tiered.broker.groups.committed_offsets import MAX_ENTRIES, OffsetEntry
from tiered.errors import InvalidRequest, OffsetMetadataTooLarge, TieredError, UnknownTopicOrPartition
from tiered.rules.security.acl import Operation
from tiered.server.kafka.authorize import require_topic, require_topic_by_id
from tiered.server.kafka.dispatch import Context, in_turns
from tiered.server.kafka.error_mapping import error_code


async def read_entries(
    context: Context, topics: Sequence[Any], codes: dict[tuple[int, int], int], *, by_id: bool
) -> list[OffsetEntry]:
    """The entries that can be stored; `codes` gets the errors of the rest, by their places in the request.

    `topics` are those of an OffsetCommit or a TxnOffsetCommit, by name or by id.
    """
    if sum([len(topic.partitions) async for topic in in_turns(topics)]) > MAX_ENTRIES:
        raise InvalidRequest(f"commit at most {MAX_ENTRIES} offsets at a time")
    entries = []
    async for number, topic in in_turns(enumerate(topics)):
        async for place, asked in in_turns(enumerate(topic.partitions)):
            try:
                entries.append(_entry(context, topic, asked, by_id=by_id))
            except TieredError as error:
                codes[number, place] = error_code(error)
    return entries


def _entry(context: Context, topic: Any, asked: Any, *, by_id: bool) -> OffsetEntry:
    topics = context.broker.topics
    if not by_id:
        require_topic(context, Operation.READ, topic.name)
    if by_id:
        found = topics.by_id(topic.topic_id)
        require_topic_by_id(context, Operation.READ, found)
    elif (named := topics.find(topic.name)) is not None:
        found = named
    else:
        raise UnknownTopicOrPartition(f"topic {topic.name} does not exist; refresh metadata")
    if found.is_internal or not 0 <= asked.partition_index < found.partition_count:
        raise UnknownTopicOrPartition(f"{found.name} has no partition {asked.partition_index}; refresh metadata")
    metadata = asked.committed_metadata or ""
    if len(metadata.encode()) > context.broker.settings.groups.offset_metadata_max_bytes:
        raise OffsetMetadataTooLarge(f"{found.name}-{asked.partition_index}: shorten the commit's metadata")
    return OffsetEntry(
        topic_id=found.topic_id,
        partition=asked.partition_index,
        offset=asked.committed_offset,
        leader_epoch=max(-1, getattr(asked, "committed_leader_epoch", -1)),
        metadata=metadata,
    )
