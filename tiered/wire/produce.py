"""Produce (key 0), versions 3 to 13, by hand: the batches are found, never copied and never looked into.

Owns the layout of the request and of the response. Values are NamedTuples because a broker builds some for
every request. Times are milliseconds, error codes are Kafka's numbers.
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from tiered.errors import MalformedRequest
from tiered.wire.primitives import (
    TRUNCATED,
    Buffer,
    CurrentLeader,
    NodeEndpoint,
    crowded,
    current_leader_bytes,
    error_message_bytes,
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
    read_varint,
    skip_tagged_fields,
    string_bytes,
    tagged_field,
    uuid_of,
    varint,
)

API_KEY = 0
MAX_REQUEST_ITEMS = 50_000
"""Topics and batches. A broker takes fewer batches; topics without any would keep it busy for seconds."""
MIN_VERSION = 3
MAX_VERSION = 13
FIRST_FLEXIBLE = 9
FIRST_WITH_LOG_START_OFFSET = 5
FIRST_WITH_RECORD_ERRORS = 8
FIRST_WITH_LEADERS = 10
FIRST_WITH_TOPIC_IDS = 13

_acks_and_timeout = struct.Struct(">hi").unpack_from
_int32_at = struct.Struct(">i").unpack_from
_ONE_BATCH = struct.Struct(">BhiB16sBi")
"""From version 13 on, with one topic and one partition: all up to the records' length."""
_NO_ID = UUID(int=0).bytes
_NO_TAGGED_FIELDS = bytes(3)
"""The partition, the topic and the request have none."""


class ProduceTopic(NamedTuple):
    """The batches for one topic. `name` is None from version 13 on, `topic_id` None before it.

    `partitions` holds (partition index, position, end) of each one's records in the buffer that was decoded;
    both positions are -1 where the records are null.
    """

    name: str | None
    topic_id: UUID | None
    partitions: list[tuple[int, int, int]]


class ProduceRequest(NamedTuple):
    """A decoded request; valid as long as its buffer is."""

    acks: int
    timeout_ms: int
    transactional_id: str | None
    topics: list[ProduceTopic]


class RecordError(NamedTuple):
    """Why one batch's record was refused (version 8 and later)."""

    batch_index: int
    message: str | None = None


class PartitionResult(NamedTuple):
    """The outcome for one partition's records. `log_append_time_ms` is -1 for topics with CreateTime."""

    partition_index: int
    error_code: int = 0
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[RecordError] = ()
    error_message: str | None = None
    current_leader: CurrentLeader | None = None


class TopicResult(NamedTuple):
    """The results of one topic, by name (up to version 12) or by id (13)."""

    name: str | None
    topic_id: UUID | None
    partitions: Sequence[PartitionResult]


class ProduceResponse(NamedTuple):
    """A decoded response."""

    topics: list[TopicResult]
    throttle_ms: int
    node_endpoints: tuple[NodeEndpoint, ...] = ()


class TopicBatches(NamedTuple):
    """A client's data for one topic: (partition index, raw batches or None) for each partition."""

    name: str | None
    topic_id: UUID | None
    partitions: Sequence[tuple[int, Buffer | None]]


def decode_produce_request(buffer: Buffer, position: int, end: int, version: int) -> ProduceRequest:
    """The request in `buffer[position:end]`, for versions 3 to 13. Positions in it count from the buffer's start.

    Bytes after the request are ignored, as Kafka does. Raises MalformedRequest.
    """
    assert MIN_VERSION <= version <= MAX_VERSION, version
    try:
        if version >= FIRST_WITH_TOPIC_IDS and end - position > _ONE_BATCH.size:
            request = _decode_one_batch(buffer, position, end)
            if request is not None:
                return request
        view = memoryview(buffer)[:end]
        if version >= FIRST_FLEXIBLE:
            return _decode_flexible(view, position, version >= FIRST_WITH_TOPIC_IDS)
        return _decode_legacy(view, position)
    except TRUNCATED as error:
        raise malformed("a Produce request", error) from None


def _decode_one_batch(buffer: Buffer, position: int, end: int) -> ProduceRequest | None:
    """A request of one batch, without a transactional id and tagged fields, as Java's producers send mostly. None for
    any other request, valid or not: `_decode_flexible` decides then."""
    id_length, acks, timeout_ms, topics_length, topic_id, partitions_length, index = _ONE_BATCH.unpack_from(
        buffer, position
    )
    # Compact lengths are one more than the count; 0 is null.
    if id_length != 0 or topics_length != 2 or partitions_length != 2:
        return None
    records_length, start = read_varint(buffer, position + _ONE_BATCH.size)
    records_end = start + records_length - 1
    request_end = records_end + len(_NO_TAGGED_FIELDS)
    if records_length == 0 or request_end > end or buffer[records_end:request_end] != _NO_TAGGED_FIELDS:
        return None
    topic = ProduceTopic(None, uuid_of(topic_id), [(index, start, records_end)])
    return ProduceRequest(acks, timeout_ms, None, [topic])


def _decode_flexible(view: memoryview, position: int, with_ids: bool) -> ProduceRequest:
    """The hot path: single-byte lengths and empty tagged fields are handled here, without a call."""
    size = len(view)
    transactional_id = None
    if view[position]:
        transactional_id, position = read_nullable_string(view, position, True)
    else:
        position += 1
    acks, timeout_ms = _acks_and_timeout(view, position)
    topic_count, position = read_count(view, position + 6, True, 3)
    left = MAX_REQUEST_ITEMS - topic_count
    topics = []
    for _ in range(topic_count):
        name = topic_id = None
        if with_ids:
            topic_id, position = read_uuid(view, position)
        else:
            name, position = read_string(view, position, True)
        if view[position] == 2:  # One partition, as mostly.
            partition_count, position = 1, position + 1
        else:
            partition_count, position = read_count(view, position, True, 6)
        left -= partition_count
        if left < 0:
            crowded(MAX_REQUEST_ITEMS)
        partitions = []
        for _ in range(partition_count):
            (index,) = _int32_at(view, position)
            length, position = read_varint(view, position + 4)
            if length:
                start = position
                position += length - 1
                if position >= size:  # At the least, the count of tagged fields comes after the records.
                    raise MalformedRequest(f"{length - 1} bytes of records end after their request; send them whole")
                partitions.append((index, start, position))
            else:
                partitions.append((index, -1, -1))
            position = skip_tagged_fields(view, position) if view[position] else position + 1
        position = skip_tagged_fields(view, position) if view[position] else position + 1
        topics.append(ProduceTopic(name, topic_id, partitions))
    skip_tagged_fields(view, position)
    return ProduceRequest(acks, timeout_ms, transactional_id, topics)


def _decode_legacy(view: memoryview, position: int) -> ProduceRequest:
    size = len(view)
    transactional_id, position = read_nullable_string(view, position, False)
    acks, timeout_ms = _acks_and_timeout(view, position)
    topic_count, position = read_count(view, position + 6, False, 6)
    left = MAX_REQUEST_ITEMS - topic_count
    topics = []
    for _ in range(topic_count):
        name, position = read_string(view, position, False)
        partition_count, position = read_count(view, position, False, 8)
        left -= partition_count
        if left < 0:
            crowded(MAX_REQUEST_ITEMS)
        partitions = []
        for _ in range(partition_count):
            (index,) = _int32_at(view, position)
            (length,) = _int32_at(view, position + 4)
            start = position = position + 8
            if length == -1:
                partitions.append((index, -1, -1))
                continue
            position += length
            if not start <= position <= size:
                raise MalformedRequest(f"{length} bytes of records do not fit their request; send them whole")
            partitions.append((index, start, position))
        topics.append(ProduceTopic(name, None, partitions))
    return ProduceRequest(acks, timeout_ms, transactional_id, topics)


_RESULT_V3 = struct.Struct(">ihqq").pack
_RESULT_V5 = struct.Struct(">ihqqq").pack
_RESULT_V8_PLAIN = struct.Struct(">ihqqqih").pack
_RESULT_V9_PLAIN = struct.Struct(">ihqqqBBB").pack
_ONE_RESULT_V13 = struct.Struct(">B16sBihqqqBBBBiB").pack
"""The answer to what `_decode_one_batch` reads, when it was taken."""
_pack_int32 = struct.Struct(">i").pack


def encode_produce_response(
    topics: Sequence[TopicResult], version: int, throttle_ms: int = 0, node_endpoints: tuple[NodeEndpoint, ...] = ()
) -> bytes | bytearray:
    """The body of the response, for versions 3 to 13; what a version lacks is left out."""
    assert MIN_VERSION <= version <= MAX_VERSION, version
    if version >= FIRST_WITH_TOPIC_IDS and len(topics) == 1 and not node_endpoints:
        _, topic_id, partitions = topics[0]
        if topic_id is not None and len(partitions) == 1:
            index, code, base_offset, append_time_ms, log_start_offset, errors, message, leader = partitions[0]
            if not errors and message is None and leader is None:
                return _ONE_RESULT_V13(
                    2, topic_id.bytes, 2, index, code, base_offset, append_time_ms, log_start_offset, 1, 0, 0, 0,
                    throttle_ms, 0,
                )  # fmt: skip
    flexible = version >= FIRST_FLEXIBLE
    out = bytearray(length_bytes(len(topics), flexible))
    for name, topic_id, partitions in topics:
        if version >= FIRST_WITH_TOPIC_IDS:
            out += topic_id.bytes if topic_id is not None else _NO_ID
        else:
            assert name is not None, "a topic's name is missing"
            out += string_bytes(name, flexible)
        out += length_bytes(len(partitions), flexible)
        if flexible:
            _put_flexible_results(out, partitions, version)
            out.append(0)
        else:
            _put_legacy_results(out, partitions, version)
    out += _pack_int32(throttle_ms)
    if flexible:
        if node_endpoints and version >= FIRST_WITH_LEADERS:
            out += b"\x01" + tagged_field(0, node_endpoints_bytes(node_endpoints))
        else:
            out.append(0)
    return out


def _put_flexible_results(out: bytearray, partitions: Sequence[PartitionResult], version: int) -> None:
    for index, error_code, base_offset, append_time_ms, log_start_offset, errors, message, leader in partitions:
        if not errors and message is None and leader is None:
            out += _RESULT_V9_PLAIN(index, error_code, base_offset, append_time_ms, log_start_offset, 1, 0, 0)
            continue
        out += _RESULT_V5(index, error_code, base_offset, append_time_ms, log_start_offset)
        out += varint(len(errors) + 1)
        for batch_index, error_message in errors:
            out += _pack_int32(batch_index) + error_message_bytes(error_message, True) + b"\x00"
        out += error_message_bytes(message, True)
        if leader is not None and leader != (-1, -1) and version >= FIRST_WITH_LEADERS:
            out += b"\x01" + tagged_field(0, current_leader_bytes(leader))
        else:
            out.append(0)


def _put_legacy_results(out: bytearray, partitions: Sequence[PartitionResult], version: int) -> None:
    for index, error_code, base_offset, append_time_ms, log_start_offset, errors, message, _ in partitions:
        if version < FIRST_WITH_LOG_START_OFFSET:
            out += _RESULT_V3(index, error_code, base_offset, append_time_ms)
            continue
        if version < FIRST_WITH_RECORD_ERRORS:
            out += _RESULT_V5(index, error_code, base_offset, append_time_ms, log_start_offset)
            continue
        if not errors and message is None:
            out += _RESULT_V8_PLAIN(index, error_code, base_offset, append_time_ms, log_start_offset, 0, -1)
            continue
        out += _RESULT_V5(index, error_code, base_offset, append_time_ms, log_start_offset)
        out += _pack_int32(len(errors))
        for batch_index, error_message in errors:
            out += _pack_int32(batch_index) + error_message_bytes(error_message, False)
        out += error_message_bytes(message, False)


# The client's side


def encode_produce_request(
    topics: Sequence[TopicBatches], version: int, *, acks: int, timeout_ms: int, transactional_id: str | None = None
) -> bytes:
    """The body of a request, for versions 3 to 13; the records are copied into it."""
    assert MIN_VERSION <= version <= MAX_VERSION, version
    flexible = version >= FIRST_FLEXIBLE
    tags = b"\x00" if flexible else b""
    parts: list[Buffer] = [
        string_bytes(transactional_id, flexible),
        struct.pack(">hi", acks, timeout_ms),
        length_bytes(len(topics), flexible),
    ]
    for name, topic_id, partitions in topics:
        if version >= FIRST_WITH_TOPIC_IDS:
            parts.append(topic_id.bytes if topic_id is not None else _NO_ID)
        else:
            assert name is not None, "a topic's name is missing"
            parts.append(string_bytes(name, flexible))
        parts.append(length_bytes(len(partitions), flexible))
        for index, records in partitions:
            parts.append(_pack_int32(index) + length_bytes(-1 if records is None else len(records), flexible))
            if records is not None:
                parts.append(records)
            parts.append(tags)
        parts.append(tags)
    parts.append(tags)
    return b"".join(parts)


def decode_produce_response(buffer: Buffer, position: int, end: int, version: int) -> ProduceResponse:
    """The response in `buffer[position:end]`, for versions 3 to 13. Raises MalformedRequest."""
    assert MIN_VERSION <= version <= MAX_VERSION, version
    view = memoryview(buffer)[:end]
    try:
        return _decode_response(view, position, version)
    except TRUNCATED as error:
        raise malformed("a Produce response", error) from None


def _decode_response(view: memoryview, position: int, version: int) -> ProduceResponse:
    flexible = version >= FIRST_FLEXIBLE
    topic_count, position = read_count(view, position, flexible, 3)
    topics = []
    for _ in range(topic_count):
        name = topic_id = None
        if version >= FIRST_WITH_TOPIC_IDS:
            topic_id, position = read_uuid(view, position)
        else:
            name, position = read_string(view, position, flexible)
        partition_count, position = read_count(view, position, flexible, 22)
        partitions = []
        for _ in range(partition_count):
            result, position = _read_result(view, position, version)
            partitions.append(result)
        if flexible:
            position = skip_tagged_fields(view, position)
        topics.append(TopicResult(name, topic_id, partitions))
    (throttle_ms,) = _int32_at(view, position)
    endpoints: tuple[NodeEndpoint, ...] = ()
    if flexible:
        tags, _ = read_tagged_fields(view, position + 4)
        if 0 in tags and version >= FIRST_WITH_LEADERS:
            endpoints = read_node_endpoints(view[: tags[0][1]], tags[0][0])
    return ProduceResponse(topics, throttle_ms, endpoints)


def _read_result(view: memoryview, position: int, version: int) -> tuple[PartitionResult, int]:
    flexible = version >= FIRST_FLEXIBLE
    index, error_code, base_offset, append_time_ms = struct.unpack_from(">ihqq", view, position)
    position += 22
    log_start_offset = -1
    errors: list[RecordError] = []
    message = leader = None
    if version >= FIRST_WITH_LOG_START_OFFSET:
        (log_start_offset,) = struct.unpack_from(">q", view, position)
        position += 8
    if version >= FIRST_WITH_RECORD_ERRORS:
        error_count, position = read_length(view, position, flexible)
        for _ in range(error_count):
            (batch_index,) = _int32_at(view, position)
            text, position = read_nullable_string(view, position + 4, flexible)
            if flexible:
                position = skip_tagged_fields(view, position)
            errors.append(RecordError(batch_index, text))
        message, position = read_nullable_string(view, position, flexible)
    if flexible:
        tags, position = read_tagged_fields(view, position)
        if 0 in tags and version >= FIRST_WITH_LEADERS:
            leader = read_current_leader(view[: tags[0][1]], tags[0][0])
    result = PartitionResult(index, error_code, base_offset, append_time_ms, log_start_offset, errors, message, leader)
    return result, position
