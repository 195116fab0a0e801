"""Requests of Fetch, versions 4 to 18: both directions, since followers and clients of ours ask too.

Owns the layout of the request and nothing of what it means.
"""

import struct
from uuid import UUID

from tiered.wire.fetch.values import (
    FIRST_FLEXIBLE,
    FIRST_WITH_DIRECTORY_ID,
    FIRST_WITH_LEADER_EPOCH,
    FIRST_WITH_LOG_START_OFFSET,
    FIRST_WITH_RACK,
    FIRST_WITH_REPLICA_HIGH_WATERMARK,
    FIRST_WITH_REPLICA_STATE,
    FIRST_WITH_SESSIONS,
    FIRST_WITH_TOPIC_IDS,
    HIGH_WATERMARK_NOT_SENT,
    INCARNATION_TAG,
    MAX_VERSION,
    MIN_VERSION,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    topic_key,
)
from tiered.wire.primitives import (
    MAX_ITEMS,
    TRUNCATED,
    Buffer,
    crowded,
    length_bytes,
    malformed,
    read_count,
    read_nullable_string,
    read_string,
    read_tagged_fields,
    read_uuid,
    skip_tagged_fields,
    string_bytes,
    tagged_field,
    varint,
)

_int32_at = struct.Struct(">i").unpack_from
_pack_int32 = struct.Struct(">i").pack
_CONSUMER_ASKS = struct.Struct(">iiib").unpack_from
_SESSION = struct.Struct(">ii").unpack_from
_REPLICA_STATE = struct.Struct(">iq")
_PARTITION_V4 = struct.Struct(">iqi")
_PARTITION_V5 = struct.Struct(">iqqi")
_PARTITION_V9 = struct.Struct(">iiqqi")
_PARTITION_V12 = struct.Struct(">iiqiqi")
_PARTITION_V12_UNTAGGED = struct.Struct(">iiqiqix")


def decode_fetch_request(
    buffer: Buffer, position: int, end: int, version: int, *, max_items: int = MAX_ITEMS
) -> FetchRequest:
    """The request in `buffer[position:end]`, for versions 4 to 18; what a version lacks has its default.

    Bytes after the request are ignored, as Kafka does. Raises MalformedRequest, also for more topics and partitions,
    asked for or forgotten, than `max_items`: topics alone take 18 bytes and five microseconds each.
    """
    assert MIN_VERSION <= version <= MAX_VERSION, version
    view = memoryview(buffer)[:end]
    try:
        return _decode_request(view, position, version, max_items)
    except TRUNCATED as error:
        raise malformed("a Fetch request", error) from None


def _decode_request(view: memoryview, position: int, version: int, max_items: int) -> FetchRequest:
    flexible = version >= FIRST_FLEXIBLE
    replica_id = replica_epoch = -1
    if version < FIRST_WITH_REPLICA_STATE:
        (replica_id,) = _int32_at(view, position)
        position += 4
    max_wait_ms, min_bytes, max_bytes, isolation_level = _CONSUMER_ASKS(view, position)
    position += 13
    session_id, session_epoch = 0, -1
    if version >= FIRST_WITH_SESSIONS:
        session_id, session_epoch = _SESSION(view, position)
        position += 8
    topic_count, position = read_count(view, position, flexible, 3)
    left = max_items - topic_count
    if left < 0:
        crowded(max_items)
    topics = []
    for _ in range(topic_count):
        topic, position = _read_topic(view, position, version, left, max_items)
        left -= len(topic.partitions)
        topics.append(topic)
    forgotten: list[ForgottenTopic] = []
    if version >= FIRST_WITH_SESSIONS:
        forgotten, position = _read_forgotten(view, position, version, max_items)
    rack_id, cluster_id, incarnation = "", None, None
    if version >= FIRST_WITH_RACK:
        rack_id, position = read_string(view, position, flexible)
    if flexible and view[position]:
        tags, _ = read_tagged_fields(view, position)
        if 0 in tags:
            cluster_id, _ = read_nullable_string(view[: tags[0][1]], tags[0][0], True)
        if 1 in tags and version >= FIRST_WITH_REPLICA_STATE:
            replica_id, replica_epoch, incarnation = _read_replica_state(view[: tags[1][1]], tags[1][0])
    return FetchRequest(
        replica_id, replica_epoch, max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch,
        topics, forgotten, rack_id, cluster_id, incarnation,
    )  # fmt: skip


def _read_replica_state(view: memoryview, position: int) -> tuple[int, int, UUID | None]:
    replica_id, replica_epoch = _REPLICA_STATE.unpack_from(view, position)
    position += _REPLICA_STATE.size
    tags = read_tagged_fields(view, position)[0] if position < len(view) else {}
    if INCARNATION_TAG not in tags:
        return replica_id, replica_epoch, None
    start, end = tags[INCARNATION_TAG]
    return replica_id, replica_epoch, read_uuid(view[:end], start)[0]


def _read_topic(view: memoryview, position: int, version: int, left: int, max_items: int) -> tuple[FetchTopic, int]:
    name = topic_id = None
    if version >= FIRST_WITH_TOPIC_IDS:
        topic_id, position = read_uuid(view, position)
    else:
        name, position = read_string(view, position, version >= FIRST_FLEXIBLE)
    if version < FIRST_FLEXIBLE:
        partitions, position = _read_legacy_partitions(view, position, version, left, max_items)
        return FetchTopic(name, topic_id, partitions), position
    size = _PARTITION_V12_UNTAGGED.size
    count, position = read_count(view, position, True, size)
    if count > left:
        crowded(max_items)
    end = position + count * size
    # The usual request has no tagged fields: every partition takes 33 bytes, of which the last is 0.
    if not any(view[position + size - 1 : end : size]):
        rows = _PARTITION_V12_UNTAGGED.iter_unpack(view[position:end])
        partitions = [FetchPartition(*row) for row in rows]
        position = end
    else:
        partitions = []
        for _ in range(count):
            partition, position = _read_tagged_partition(view, position, version)
            partitions.append(partition)
    return FetchTopic(name, topic_id, partitions), skip_tagged_fields(view, position)


def _read_tagged_partition(view: memoryview, position: int, version: int) -> tuple[FetchPartition, int]:
    values = _PARTITION_V12.unpack_from(view, position)
    tags, position = read_tagged_fields(view, position + _PARTITION_V12.size)
    directory_id, high_watermark = None, HIGH_WATERMARK_NOT_SENT
    if 0 in tags and version >= FIRST_WITH_DIRECTORY_ID:
        found, _ = read_uuid(view[: tags[0][1]], tags[0][0])
        directory_id = found if found.int else None
    if 1 in tags and version >= FIRST_WITH_REPLICA_HIGH_WATERMARK:
        (high_watermark,) = struct.unpack_from(">q", view[: tags[1][1]], tags[1][0])
    return FetchPartition._make((*values, directory_id, high_watermark)), position


def _read_legacy_partitions(
    view: memoryview, position: int, version: int, left: int, max_items: int
) -> tuple[list[FetchPartition], int]:
    layout = _layout(version)
    count, position = read_count(view, position, False, layout.size)
    if count > left:
        crowded(max_items)
    end = position + count * layout.size
    partitions = []
    for row in layout.iter_unpack(view[position:end]):
        if version >= FIRST_WITH_LEADER_EPOCH:
            index, leader_epoch, offset, log_start_offset, max_bytes = row
        elif version >= FIRST_WITH_LOG_START_OFFSET:
            index, offset, log_start_offset, max_bytes = row
            leader_epoch = -1
        else:
            index, offset, max_bytes = row
            leader_epoch = log_start_offset = -1
        partitions.append(FetchPartition(index, leader_epoch, offset, -1, log_start_offset, max_bytes))
    return partitions, end


def _layout(version: int) -> struct.Struct:
    """One partition of a request, without tagged fields."""
    if version >= FIRST_FLEXIBLE:
        return _PARTITION_V12
    if version >= FIRST_WITH_LEADER_EPOCH:
        return _PARTITION_V9
    return _PARTITION_V5 if version >= FIRST_WITH_LOG_START_OFFSET else _PARTITION_V4


def _read_forgotten(view: memoryview, position: int, version: int, max_items: int) -> tuple[list[ForgottenTopic], int]:
    flexible = version >= FIRST_FLEXIBLE
    topic_count, position = read_count(view, position, flexible, 3)
    left = max_items - topic_count
    if left < 0:
        crowded(max_items)
    topics = []
    for _ in range(topic_count):
        name = topic_id = None
        if version >= FIRST_WITH_TOPIC_IDS:
            topic_id, position = read_uuid(view, position)
        else:
            name, position = read_string(view, position, flexible)
        count, position = read_count(view, position, flexible, 4)
        left -= count
        if left < 0:
            crowded(max_items)
        partitions = list(struct.unpack_from(f">{count}i", view, position))
        position += 4 * count
        if flexible:
            position = skip_tagged_fields(view, position)
        topics.append(ForgottenTopic(name, topic_id, partitions))
    return topics, position


def encode_fetch_request(request: FetchRequest, version: int) -> bytes:
    """The body of a request, for versions 4 to 18; what a version lacks is left out."""
    assert MIN_VERSION <= version <= MAX_VERSION, version
    flexible = version >= FIRST_FLEXIBLE
    out = bytearray()
    if version < FIRST_WITH_REPLICA_STATE:
        out += _pack_int32(request.replica_id)
    out += struct.pack(">iiib", request.max_wait_ms, request.min_bytes, request.max_bytes, request.isolation_level)
    if version >= FIRST_WITH_SESSIONS:
        out += struct.pack(">ii", request.session_id, request.session_epoch)
    out += length_bytes(len(request.topics), flexible)
    for topic in request.topics:
        out += topic_key(topic.name, topic.topic_id, version) + length_bytes(len(topic.partitions), flexible)
        for partition in topic.partitions:
            _put_asked(out, partition, version)
        if flexible:
            out.append(0)
    if version >= FIRST_WITH_SESSIONS:
        out += length_bytes(len(request.forgotten_topics), flexible)
        for forgotten in request.forgotten_topics:
            out += topic_key(forgotten.name, forgotten.topic_id, version)
            out += length_bytes(len(forgotten.partitions), flexible)
            out += struct.pack(f">{len(forgotten.partitions)}i", *forgotten.partitions)
            if flexible:
                out.append(0)
    if version >= FIRST_WITH_RACK:
        out += string_bytes(request.rack_id, flexible)
    if flexible:
        tags = []
        if request.cluster_id is not None:
            tags.append(tagged_field(0, string_bytes(request.cluster_id, True)))
        if version >= FIRST_WITH_REPLICA_STATE and (request.replica_id, request.replica_epoch) != (-1, -1):
            shown = request.replica_incarnation
            own = [] if shown is None else [tagged_field(INCARNATION_TAG, shown.bytes)]
            state = _REPLICA_STATE.pack(request.replica_id, request.replica_epoch)
            tags.append(tagged_field(1, state + varint(len(own)) + b"".join(own)))
        out += varint(len(tags)) + b"".join(tags)
    return bytes(out)


def _put_asked(out: bytearray, asked: FetchPartition, version: int) -> None:
    if version < FIRST_WITH_LOG_START_OFFSET:
        out += _PARTITION_V4.pack(asked.partition, asked.fetch_offset, asked.partition_max_bytes)
    elif version < FIRST_WITH_LEADER_EPOCH:
        out += _PARTITION_V5.pack(
            asked.partition, asked.fetch_offset, asked.log_start_offset, asked.partition_max_bytes
        )
    elif version < FIRST_FLEXIBLE:
        out += _PARTITION_V9.pack(
            asked.partition, asked.current_leader_epoch, asked.fetch_offset, asked.log_start_offset,
            asked.partition_max_bytes,
        )  # fmt: skip
    else:
        out += _PARTITION_V12.pack(*asked[:6])
        tags = []
        if asked.replica_directory_id is not None and version >= FIRST_WITH_DIRECTORY_ID:
            tags.append(tagged_field(0, asked.replica_directory_id.bytes))
        if asked.high_watermark != HIGH_WATERMARK_NOT_SENT and version >= FIRST_WITH_REPLICA_HIGH_WATERMARK:
            tags.append(tagged_field(1, struct.pack(">q", asked.high_watermark)))
        out += varint(len(tags)) + b"".join(tags)
