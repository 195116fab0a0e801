"""ListOffsets (key 2), versions 1 to 11: an offset by timestamp, or one of the special ones.

-1 latest (the last stable offset for read_committed), -2 earliest, -3 the record of the greatest timestamp
(v7), -4 the first local offset (v8), -5 the last tiered offset (v9), -6 the first offset that waits for its
upload (v11). A timestamp later than every record answers offset -1 without an error. Times are looked up
in both tiers. A special timestamp that the version does not have is UNSUPPORTED_VERSION. Only the leader answers,
and OFFSET_NOT_AVAILABLE for what depends on the end until it knows how far its log is committed. On a read replica,
which knows no leader epochs, what is local begins where the store ends.
"""

import logging
from typing import TYPE_CHECKING

from tiered.errors import LogDirFailed, OffsetNotAvailable, TieredError, UnsupportedVersion
from tiered.rules.security.acl import Operation
from tiered.server.kafka.authorize import require_topic
from tiered.server.kafka.dispatch import Api, Context, in_turns
from tiered.server.kafka.error_mapping import NONE, error_code

if TYPE_CHECKING:
    from kafka_messages.list_offsets import ListOffsetsPartition, Reply, Request, Response

log = logging.getLogger(__name__)

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
_KNOWN_AT_ONCE = (EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD)
FIRST_VERSION = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}


async def handle(context: Context, request: "Request", reply: "Reply") -> "Response":
    read_committed = getattr(request, "isolation_level", 0) == 1
    topics = []
    async for topic in in_turns(request.topics):
        partitions = []
        async for asked in in_turns(topic.partitions):
            try:
                timestamp_ms, offset, leader_epoch = await _offset(context, topic.name, asked, read_committed)
                code = NONE
            except TieredError as error:
                timestamp_ms, offset, leader_epoch, code = -1, -1, -1, error_code(error)
            except OSError as error:
                message = f"{topic.name}-{asked.partition_index} cannot be read from the broker's disk: {error}"
                log.error("%s", message)
                timestamp_ms, offset, leader_epoch, code = -1, -1, -1, error_code(LogDirFailed(message))
            partitions.append(
                reply.ListOffsetsPartitionResponse(
                    partition_index=asked.partition_index,
                    error_code=code,
                    timestamp=timestamp_ms,
                    offset=offset,
                    leader_epoch=leader_epoch,
                )
            )
        topics.append(reply.ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
    return reply.ListOffsetsResponse(throttle_time=0, topics=topics)


async def _offset(
    context: Context, topic: str, asked: "ListOffsetsPartition", read_committed: bool
) -> tuple[int, int, int]:
    """(timestamp in ms or -1, offset or -1, leader epoch)"""
    wanted: int = asked.timestamp
    require_topic(context, Operation.DESCRIBE, topic)
    known = context.broker.topics.by_name(topic)
    if known.is_internal:
        return await _committed_offsets(context, asked.partition_index, wanted)
    partition = known.partition(asked.partition_index)
    partition.check_leader_epoch(getattr(asked, "current_leader_epoch", -1))
    partition.require_leader()
    _check_timestamp(context.api_version, wanted)
    if partition.is_withheld and wanted not in _KNOWN_AT_ONCE:
        raise OffsetNotAvailable(f"{partition.name}: its new leader does not know yet where it ends; ask again")
    offsets = partition.offsets
    end = offsets.last_stable_offset if read_committed else offsets.high_watermark
    special = {
        LATEST: end,
        EARLIEST: offsets.log_start_offset,
        EARLIEST_LOCAL: max(offsets.local_log_start_offset, offsets.log_start_offset),
        LATEST_TIERED: offsets.cold_end_offset - 1 if offsets.cold_end_offset > offsets.log_start_offset else -1,
        EARLIEST_PENDING_UPLOAD: max(offsets.cold_end_offset, offsets.log_start_offset),
    }
    if wanted in special:
        return -1, special[wanted], partition.leader_epoch if special[wanted] >= 0 else -1
    reader = context.broker.reader
    if wanted == MAX_TIMESTAMP:
        found = await reader.max_timestamp(partition)
    else:
        found = await reader.offset_for_timestamp(partition, wanted)
    if found is None or found[0] >= end:
        return -1, -1, -1
    return found[1], found[0], partition.leader_epoch


async def _committed_offsets(context: Context, index: int, wanted: int) -> tuple[int, int, int]:
    """The same of a partition of `__consumer_offsets`, which is all local."""
    _check_timestamp(context.api_version, wanted)
    log_of_commits = await context.broker.groups.offsets_topic.loaded(index)
    match wanted:
        case -1:
            return -1, log_of_commits.end_offset, 0
        case -2 | -4 | -6:
            return -1, log_of_commits.start_offset, 0
        case -5:
            return -1, -1, -1
    found = log_of_commits.newest() if wanted == MAX_TIMESTAMP else log_of_commits.offset_at(wanted)
    return (-1, -1, -1) if found is None else (found[1], found[0], 0)


def _check_timestamp(version: int, wanted: int) -> None:
    """UnsupportedVersion for a special timestamp that the version does not have."""
    if version < FIRST_VERSION.get(wanted, 1) or wanted < EARLIEST_PENDING_UPLOAD:
        raise UnsupportedVersion(f"timestamp {wanted} means nothing in ListOffsets version {version}")


API = Api(2, "ListOffsets", (1, 11), rights="DESCRIBE on the topic", handle=handle, on_replica=handle)
