"""The two structures inside group messages of protocol type "consumer": a subscription and an assignment.

Owns their bytes, versions 0 to 3; of a later version what version 3 has is read. Brokers pass them on as they
are: they are decoded to show them, for OffsetDelete, and where a group changes to KIP-848.
"""

import contextlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from tiered.errors import MalformedRequest
from tiered.wire.primitives import TRUNCATED, malformed, read_count, read_length, read_nullable_string, read_string

PROTOCOL_TYPE = "consumer"
HIGHEST_VERSION = 3
NO_GENERATION = -1
MAX_TOPICS = 100_000
"""Of one message: what anybody may send, others have to wait for."""
Partitions = Mapping[str, tuple[int, ...]]
_NOTHING: Partitions = MappingProxyType({})

_int16_at = struct.Struct(">h").unpack_from
_int32_at = struct.Struct(">i").unpack_from


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """A member's subscription, and the partitions it still owns. `generation` is that of `owned_partitions`, or -1."""

    topics: tuple[str, ...]
    owned_partitions: Partitions = field(default_factory=lambda: _NOTHING)
    generation: int = NO_GENERATION
    rack: str | None = None
    user_data: bytes | None = None
    version: int = HIGHEST_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """A member's assignment."""

    partitions: Partitions
    user_data: bytes | None = None
    version: int = HIGHEST_VERSION


def decode_subscription(data: bytes) -> Subscription:
    """The subscription, as far as it can be read: some clients claim a version and leave out its last fields.

    Raises MalformedRequest where its topics cannot be read.
    """
    topics: list[str] = []
    try:
        version, position = max(0, min(_int16_at(data, 0)[0], HIGHEST_VERSION)), 2
        count, position = read_count(data, position, False, 2)
        _check_count(count)
        for _ in range(count):
            topic, position = read_string(data, position, False)
            topics.append(topic)
    except TRUNCATED as error:
        raise malformed("a consumer's subscription", error) from error
    user_data: bytes | None = None
    owned: Partitions = _NOTHING
    generation, rack = NO_GENERATION, None
    with contextlib.suppress(MalformedRequest, *TRUNCATED):
        user_data, position = _nullable_bytes(data, position)
        if version >= 1:
            owned, position = _partitions(data, position)
        if version >= 2:
            generation, position = _int32_at(data, position)[0], position + 4
        if version >= 3:
            rack, position = read_nullable_string(data, position, False)
    return Subscription(
        topics=tuple(topics),
        owned_partitions=owned,
        generation=generation,
        rack=rack,
        user_data=user_data,
        version=version,
    )


def decode_assignment(data: bytes) -> Assignment:
    """Raises MalformedRequest."""
    try:
        version, position = _version(data)
        partitions, position = _partitions(data, position)
        user_data, position = _nullable_bytes(data, position)
    except TRUNCATED as error:
        raise malformed("a consumer's assignment", error) from error
    return Assignment(partitions=partitions, user_data=user_data, version=version)


def encode_subscription(subscription: Subscription) -> bytes:
    version = subscription.version
    out = bytearray(struct.pack(">hi", version, len(subscription.topics)))
    for topic in subscription.topics:
        out += _string(topic)
    out += _bytes(subscription.user_data)
    if version >= 1:
        out += _encoded_partitions(subscription.owned_partitions)
    if version >= 2:
        out += struct.pack(">i", subscription.generation)
    if version >= 3:
        out += b"\xff\xff" if subscription.rack is None else _string(subscription.rack)
    return bytes(out)


def encode_assignment(assignment: Assignment) -> bytes:
    return b"".join(
        (
            struct.pack(">h", assignment.version),
            _encoded_partitions(assignment.partitions),
            _bytes(assignment.user_data),
        )
    )


def _version(data: bytes) -> tuple[int, int]:
    version = _int16_at(data, 0)[0]
    if version < 0:
        raise MalformedRequest(f"version {version} of the consumer protocol; versions begin at 0")
    return min(version, HIGHEST_VERSION), 2


def _nullable_bytes(data: bytes, position: int) -> tuple[bytes | None, int]:
    length, position = read_length(data, position, False)
    if length < 0:
        return None, position
    if position + length > len(data):
        raise IndexError("bytes end too early")
    return data[position : position + length], position + length


def _partitions(data: bytes, position: int) -> tuple[Partitions, int]:
    count, position = read_count(data, position, False, 6)
    _check_count(count)
    found: dict[str, list[int]] = {}
    for _ in range(count):
        topic, position = read_string(data, position, False)
        length, position = read_count(data, position, False, 4)
        found.setdefault(topic, []).extend(struct.unpack_from(f">{length}i", data, position))
        position += 4 * length
    return {topic: tuple(partitions) for topic, partitions in found.items()}, position


def _check_count(topics: int) -> None:
    if topics > MAX_TOPICS:
        raise MalformedRequest(f"{topics} topics in one message of the consumer protocol; at most {MAX_TOPICS}")


def _encoded_partitions(partitions: Partitions) -> bytes:
    out = bytearray(struct.pack(">i", len(partitions)))
    for topic, numbers in partitions.items():
        out += _string(topic) + struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)
    return bytes(out)


def _string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack(">h", len(raw)) + raw


def _bytes(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data
