"""Fetch (key 1), versions 4 to 18, by hand: payloads pass by reference, so that the sender can use sendfile.

Owns the layout of the request and of the response. A payload is bytes, or any object with a `length`; this
room never asks what is in it. Values are NamedTuples because a broker builds one for every partition of every
request. Times are milliseconds, error codes are Kafka's numbers.
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeVar
from uuid import UUID

from tiered.errors import MalformedRequest
from tiered.wire.frames import response_header
from tiered.wire.primitives import (
    MAX_ITEMS,
    MAX_LENGTH,
    TRUNCATED,
    Buffer,
    CurrentLeader,
    NodeEndpoint,
    crowded,
    current_leader_bytes,
    length_bytes,
    malformed,
    node_endpoints_bytes,
    read_count,
    read_current_leader,
    read_length,
    read_node_endpoints,
    read_nullable_string,
    read_string,
    read_tagged_fields,
    read_uuid,
    skip_tagged_fields,
    string_bytes,
    tagged_field,
    varint,
)

API_KEY = 1
MIN_VERSION = 4
MAX_VERSION = 18
FIRST_WITH_LOG_START_OFFSET = 5
FIRST_WITH_SESSIONS = 7
FIRST_WITH_LEADER_EPOCH = 9
FIRST_WITH_RACK = 11
FIRST_FLEXIBLE = 12
FIRST_WITH_TOPIC_IDS = 13
FIRST_WITH_REPLICA_STATE = 15
FIRST_WITH_NODE_ENDPOINTS = 16
FIRST_WITH_DIRECTORY_ID = 17
FIRST_WITH_REPLICA_HIGH_WATERMARK = 18

INLINE_BYTES = 4096
"""Payloads in memory up to this size are copied next to their headers: cheaper than another segment."""

HIGH_WATERMARK_NOT_SENT = (1 << 63) - 1

_NO_ID = UUID(int=0).bytes
_int32_at = struct.Struct(">i").unpack_from
_pack_int32 = struct.Struct(">i").pack


class Payload(Protocol):
    """Records that are somewhere else, `length` bytes of them."""

    @property
    def length(self) -> int: ...


P = TypeVar("P", bound=Payload)


class FetchPartition(NamedTuple):
    """What is asked of one partition. The last two come from followers only (versions 17 and 18)."""

    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    partition_max_bytes: int
    replica_directory_id: UUID | None = None
    high_watermark: int = HIGH_WATERMARK_NOT_SENT


class FetchTopic(NamedTuple):
    """`name` is None from version 13 on, `topic_id` None before it."""

    name: str | None
    topic_id: UUID | None
    partitions: Sequence[FetchPartition]


class ForgottenTopic(NamedTuple):
    """Partitions that an incremental request of a fetch session takes out of it."""

    name: str | None
    topic_id: UUID | None
    partitions: Sequence[int]


class FetchRequest(NamedTuple):
    """A decoded request. `replica_id` is -1 for consumers; `session_id` 0 and `session_epoch` -1 mean no session."""

    replica_id: int
    replica_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: Sequence[FetchTopic]
    forgotten_topics: Sequence[ForgottenTopic] = ()
    rack_id: str = ""
    cluster_id: str | None = None


class AbortedTransaction(NamedTuple):
    """Records of `producer_id` from `first_offset` to its next abort marker are not to be delivered."""

    producer_id: int
    first_offset: int


class EpochEndOffset(NamedTuple):
    """Where a follower's log diverges (version 12 and later)."""

    epoch: int = -1
    end_offset: int = -1


class FetchPartitionResult(NamedTuple):
    """The answer for one partition. `records` are whole batches, or None for none.

    `aborted_transactions` is None for read_uncommitted. Decoded answers carry a memoryview of the records.
    """

    partition_index: int
    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    records: "Payload | Buffer | None" = None
    aborted_transactions: Sequence[AbortedTransaction] | None = None
    preferred_read_replica: int = -1
    diverging_epoch: EpochEndOffset | None = None
    current_leader: CurrentLeader | None = None


class FetchTopicResult(NamedTuple):
    """The answers for one topic, by name (up to version 12) or by id."""

    name: str | None
    topic_id: UUID | None
    partitions: Sequence[FetchPartitionResult]


class FetchResponse(NamedTuple):
    """A decoded response; its records are views of the buffer that was decoded."""

    throttle_ms: int
    error_code: int
    session_id: int
    topics: Sequence[FetchTopicResult]
    node_endpoints: tuple[NodeEndpoint, ...] = ()


# Requests

_CONSUMER_ASKS = struct.Struct(">iiib").unpack_from
_SESSION = struct.Struct(">ii").unpack_from
_PARTITION_V4 = struct.Struct(">iqi")
_PARTITION_V5 = struct.Struct(">iqqi")
_PARTITION_V9 = struct.Struct(">iiqqi")
_PARTITION_V12 = struct.Struct(">iiqiqi")
_PARTITION_V12_UNTAGGED = struct.Struct(">iiqiqix")


def decode_fetch_request(buffer: Buffer, position: int, end: int, version: int) -> FetchRequest:
    """The request in `buffer[position:end]`, for versions 4 to 18; what a version lacks has its default.

    Bytes after the request are ignored, as Kafka does. Raises MalformedRequest.
    """
    assert MIN_VERSION <= version <= MAX_VERSION, version
    view = memoryview(buffer)[:end]
    try:
        return _decode_request(view, position, version)
    except TRUNCATED as error:
        raise malformed("a Fetch request", error) from None


def _decode_request(view: memoryview, position: int, version: int) -> FetchRequest:
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
    left = MAX_ITEMS - topic_count
    topics = []
    for _ in range(topic_count):
        topic, position = _read_topic(view, position, version, left)
        left -= len(topic.partitions)
        topics.append(topic)
    forgotten: list[ForgottenTopic] = []
    if version >= FIRST_WITH_SESSIONS:
        forgotten, position = _read_forgotten(view, position, version, left)
    rack_id, cluster_id = "", None
    if version >= FIRST_WITH_RACK:
        rack_id, position = read_string(view, position, flexible)
    if flexible and view[position]:
        tags, _ = read_tagged_fields(view, position)
        if 0 in tags:
            cluster_id, _ = read_nullable_string(view[: tags[0][1]], tags[0][0], True)
        if 1 in tags and version >= FIRST_WITH_REPLICA_STATE:
            replica_id, replica_epoch = struct.unpack_from(">iq", view[: tags[1][1]], tags[1][0])
    return FetchRequest(
        replica_id, replica_epoch, max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch,
        topics, forgotten, rack_id, cluster_id,
    )  # fmt: skip


def _read_topic(view: memoryview, position: int, version: int, left: int) -> tuple[FetchTopic, int]:
    name = topic_id = None
    if version >= FIRST_WITH_TOPIC_IDS:
        topic_id, position = read_uuid(view, position)
    else:
        name, position = read_string(view, position, version >= FIRST_FLEXIBLE)
    if version < FIRST_FLEXIBLE:
        partitions, position = _read_legacy_partitions(view, position, version, left)
        return FetchTopic(name, topic_id, partitions), position
    size = _PARTITION_V12_UNTAGGED.size
    count, position = read_count(view, position, True, size)
    if count > left:
        crowded()
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
    view: memoryview, position: int, version: int, left: int
) -> tuple[list[FetchPartition], int]:
    layout = _layout(version)
    count, position = read_count(view, position, False, layout.size)
    if count > left:
        crowded()
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


def _read_forgotten(view: memoryview, position: int, version: int, left: int) -> tuple[list[ForgottenTopic], int]:
    flexible = version >= FIRST_FLEXIBLE
    topic_count, position = read_count(view, position, flexible, 3)
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
            crowded()
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
        out += _topic_key(topic.name, topic.topic_id, version) + length_bytes(len(topic.partitions), flexible)
        for partition in topic.partitions:
            _put_asked(out, partition, version)
        if flexible:
            out.append(0)
    if version >= FIRST_WITH_SESSIONS:
        out += length_bytes(len(request.forgotten_topics), flexible)
        for forgotten in request.forgotten_topics:
            out += _topic_key(forgotten.name, forgotten.topic_id, version)
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
            tags.append(tagged_field(1, struct.pack(">iqB", request.replica_id, request.replica_epoch, 0)))
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


def _topic_key(name: str | None, topic_id: UUID | None, version: int) -> bytes:
    """A topic's name or id, whichever the version has."""
    if version >= FIRST_WITH_TOPIC_IDS:
        return topic_id.bytes if topic_id is not None else _NO_ID
    assert name is not None, "a topic's name is missing"
    return string_bytes(name, version >= FIRST_FLEXIBLE)


# Responses

_HEAD_V4 = struct.Struct(">ihqqi").pack
_HEAD_V5 = struct.Struct(">ihqqqi").pack
_HEAD_V11 = struct.Struct(">ihqqqii").pack
_HEAD_V12 = struct.Struct(">ihqqqBi").pack
_HEAD_V12_ABORTED = struct.Struct(">ihqqq").pack
_NO_RECORDS_V12 = b"\x01"


def encode_fetch_response(
    version: int,
    correlation_id: int,
    error_code: int,
    session_id: int,
    topics: Sequence[FetchTopicResult],
    throttle_ms: int = 0,
    node_endpoints: tuple[NodeEndpoint, ...] = (),
) -> "list[bytes | bytearray | P]":
    """The whole frame, with length and header, for versions 4 to 18: bytes and payloads in the order to send them.

    Payloads that are bytes are copied if small, and otherwise passed on like those that are not.
    """
    assert MIN_VERSION <= version <= MAX_VERSION, version
    flexible = version >= FIRST_FLEXIBLE
    out = first = bytearray(4)
    out += response_header(correlation_id, API_KEY, version) + _pack_int32(throttle_ms)
    if version >= FIRST_WITH_SESSIONS:
        out += struct.pack(">hi", error_code, session_id)
    out += length_bytes(len(topics), flexible)
    segments: list[bytes | bytearray | P] = [out]
    sent_bytes = 0
    for name, topic_id, partitions in topics:
        out += _topic_key(name, topic_id, version) + length_bytes(len(partitions), flexible)
        for result in partitions:
            records = result[5]
            if records is None:
                length = 0
            elif isinstance(records, (bytes, bytearray, memoryview)):
                length = len(records)
            else:
                length = records.length
            if flexible:
                _put_flexible_head(out, result, length)
            else:
                _put_legacy_head(out, result, length, version)
            if length:
                if length <= INLINE_BYTES and isinstance(records, (bytes, bytearray, memoryview)):
                    out += records
                else:
                    sent_bytes += len(out) + length
                    out = bytearray()
                    segments += (records, out)  # type: ignore[arg-type]
            if flexible:
                if result[8] is None and result[9] is None:
                    out.append(0)
                else:
                    _put_result_tags(out, result)
        if flexible:
            out.append(0)
    if flexible:
        if node_endpoints and version >= FIRST_WITH_NODE_ENDPOINTS:
            out += b"\x01" + tagged_field(0, node_endpoints_bytes(node_endpoints))
        else:
            out.append(0)
    if not out:
        segments.pop()
    total = sent_bytes + len(out) - 4
    assert total <= MAX_LENGTH, "a response has 2 GiB or more: the caller bounds what it reads"
    struct.pack_into(">i", first, 0, total)
    return segments


def _put_flexible_head(out: bytearray, result: FetchPartitionResult, length: int) -> None:
    """Everything of a partition up to its records."""
    index, code, high_watermark, last_stable_offset, log_start_offset, _, aborted, preferred, _, _ = result
    if not aborted:
        count = 0 if aborted is None else 1
        out += _HEAD_V12(index, code, high_watermark, last_stable_offset, log_start_offset, count, preferred) + (
            varint(length + 1) if length else _NO_RECORDS_V12
        )
        return
    out += _HEAD_V12_ABORTED(index, code, high_watermark, last_stable_offset, log_start_offset)
    out += varint(len(aborted) + 1)
    for producer_id, first_offset in aborted:
        out += struct.pack(">qqB", producer_id, first_offset, 0)
    out += _pack_int32(preferred) + varint(length + 1)


def _put_result_tags(out: bytearray, result: FetchPartitionResult) -> None:
    tags = []
    if result.diverging_epoch is not None and result.diverging_epoch != (-1, -1):
        tags.append(tagged_field(0, struct.pack(">iqB", *result.diverging_epoch, 0)))
    if result.current_leader is not None and result.current_leader != (-1, -1):
        tags.append(tagged_field(1, current_leader_bytes(result.current_leader)))
    out += varint(len(tags)) + b"".join(tags)


def _put_legacy_head(out: bytearray, result: FetchPartitionResult, length: int, version: int) -> None:
    index, code, high_watermark, last_stable_offset, log_start_offset, _, aborted, preferred, _, _ = result
    count = -1 if aborted is None else len(aborted)
    if version < FIRST_WITH_LOG_START_OFFSET:
        out += _HEAD_V4(index, code, high_watermark, last_stable_offset, count)
    else:
        out += _HEAD_V5(index, code, high_watermark, last_stable_offset, log_start_offset, count)
    for producer_id, first_offset in aborted or ():
        out += struct.pack(">qq", producer_id, first_offset)
    if version >= FIRST_WITH_RACK:
        out += _pack_int32(preferred)
    out += _pack_int32(length)


def decode_fetch_response(buffer: Buffer, position: int, end: int, version: int) -> FetchResponse:
    """The response body in `buffer[position:end]`, for versions 4 to 18; records are views of the buffer.

    Raises MalformedRequest.
    """
    assert MIN_VERSION <= version <= MAX_VERSION, version
    view = memoryview(buffer)[:end]
    try:
        return _decode_response(view, position, version)
    except TRUNCATED as error:
        raise malformed("a Fetch response", error) from None


def _decode_response(view: memoryview, position: int, version: int) -> FetchResponse:
    flexible = version >= FIRST_FLEXIBLE
    (throttle_ms,) = _int32_at(view, position)
    position += 4
    error_code = session_id = 0
    if version >= FIRST_WITH_SESSIONS:
        error_code, session_id = struct.unpack_from(">hi", view, position)
        position += 6
    topic_count, position = read_count(view, position, flexible, 3)
    topics = []
    for _ in range(topic_count):
        name = topic_id = None
        if version >= FIRST_WITH_TOPIC_IDS:
            topic_id, position = read_uuid(view, position)
        else:
            name, position = read_string(view, position, flexible)
        count, position = read_count(view, position, flexible, 24)
        partitions = []
        for _ in range(count):
            result, position = _read_result(view, position, version)
            partitions.append(result)
        if flexible:
            position = skip_tagged_fields(view, position)
        topics.append(FetchTopicResult(name, topic_id, partitions))
    endpoints: tuple[NodeEndpoint, ...] = ()
    if flexible:
        tags, _ = read_tagged_fields(view, position)
        if 0 in tags and version >= FIRST_WITH_NODE_ENDPOINTS:
            endpoints = read_node_endpoints(view[: tags[0][1]], tags[0][0])
    return FetchResponse(throttle_ms, error_code, session_id, topics, endpoints)


def _read_result(view: memoryview, position: int, version: int) -> tuple[FetchPartitionResult, int]:
    flexible = version >= FIRST_FLEXIBLE
    index, code, high_watermark, last_stable_offset = struct.unpack_from(">ihqq", view, position)
    position += 22
    log_start_offset = preferred = -1
    if version >= FIRST_WITH_LOG_START_OFFSET:
        (log_start_offset,) = struct.unpack_from(">q", view, position)
        position += 8
    aborted, position = _read_aborted(view, position, flexible)
    if version >= FIRST_WITH_RACK:
        (preferred,) = _int32_at(view, position)
        position += 4
    length, position = read_length(view, position, flexible)
    records = None
    if length >= 0:
        if position + length > len(view):
            raise MalformedRequest(f"{length} bytes of records end after their response; fetch again")
        records = view[position : position + length]
        position += length
    elif length != -1:
        raise MalformedRequest(f"records have length {length}; fetch again")
    diverging = leader = None
    if flexible:
        tags, position = read_tagged_fields(view, position)
        if 0 in tags:
            diverging = EpochEndOffset(*struct.unpack_from(">iq", view[: tags[0][1]], tags[0][0]))
        if 1 in tags:
            leader = read_current_leader(view[: tags[1][1]], tags[1][0])
    return (
        FetchPartitionResult(
            index, code, high_watermark, last_stable_offset, log_start_offset, records, aborted, preferred,
            diverging, leader,
        ),
        position,
    )  # fmt: skip


def _read_aborted(view: memoryview, position: int, flexible: bool) -> tuple[list[AbortedTransaction] | None, int]:
    count, position = read_length(view, position, flexible)
    if count < 0:
        if count != -1:
            raise MalformedRequest(f"a list of aborted transactions has length {count}; fetch again")
        return None, position
    aborted = []
    for _ in range(count):
        aborted.append(AbortedTransaction(*struct.unpack_from(">qq", view, position)))
        position += 16
        if flexible:
            position = skip_tagged_fields(view, position)
    return aborted, position
