"""Responses of Fetch, versions 4 to 18: payloads pass by reference, so that the sender can use sendfile.

Owns the layout of the response. A payload is bytes, or any object with a `length`; must never ask what is in it.
"""

import struct
from collections.abc import Sequence
from typing import TypeVar

from tiered.errors import MalformedRequest
from tiered.wire.fetch.values import (
    API_KEY,
    FIRST_FLEXIBLE,
    FIRST_WITH_LOG_START_OFFSET,
    FIRST_WITH_NODE_ENDPOINTS,
    FIRST_WITH_RACK,
    FIRST_WITH_SESSIONS,
    FIRST_WITH_TOPIC_IDS,
    MAX_VERSION,
    MIN_VERSION,
    AbortedTransaction,
    EpochEndOffset,
    FetchPartitionResult,
    FetchResponse,
    FetchTopicResult,
    Payload,
    topic_key,
)
from tiered.wire.frames import response_header
from tiered.wire.primitives import (
    MAX_LENGTH,
    TRUNCATED,
    Buffer,
    NodeEndpoint,
    current_leader_bytes,
    length_bytes,
    malformed,
    node_endpoints_bytes,
    read_count,
    read_current_leader,
    read_length,
    read_node_endpoints,
    read_string,
    read_tagged_fields,
    read_uuid,
    skip_tagged_fields,
    tagged_field,
    varint,
)

INLINE_BYTES = 4096
"""Payloads in memory up to this size are copied next to their headers: cheaper than another segment."""

P = TypeVar("P", bound=Payload)

_int32_at = struct.Struct(">i").unpack_from
_pack_int32 = struct.Struct(">i").pack

_HEAD_V4 = struct.Struct(">ihqqi").pack
_HEAD_V5 = struct.Struct(">ihqqqi").pack
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
        out += topic_key(name, topic_id, version) + length_bytes(len(partitions), flexible)
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
