"""The protocol's primitive types: variable-length integers, strings, tagged fields, and what messages share.

Owns how lengths are read and bounded. Every reader takes a view that ends where its message ends, so that a
truncated message runs into the end of the view: IndexError and struct.error there mean the same as
MalformedRequest, and each public decoder turns them into it (`malformed`). Must never allocate by a length
that was only announced.
"""

import struct
from functools import lru_cache
from typing import NamedTuple, NoReturn
from uuid import UUID

from tiered.errors import MalformedRequest

Buffer = bytes | bytearray | memoryview

TRUNCATED = (IndexError, struct.error, UnicodeDecodeError)
"""What the interpreter raises where a view ends too early, or where text is not UTF-8."""

MAX_LENGTH = 0x7FFFFFFF

MAX_STRING_BYTES = 0x7FFF
"""Of one text, in flexible versions too: Kafka's readers refuse longer ones, in requests and in answers."""

MAX_ITEMS = 1_000_000
"""Of one message, in all its arrays together: this many small structures already take 100 to 200 MB of objects."""

MAX_TAGGED_FIELDS = 100
"""In one place. Kafka has defined a handful; eight MiB of nothing else took their reader seconds."""

_int16_at = struct.Struct(">h").unpack_from
_int32_at = struct.Struct(">i").unpack_from
_pack_int16 = struct.Struct(">h").pack
_pack_int32 = struct.Struct(">i").pack


class CurrentLeader(NamedTuple):
    """The present leader of a partition; sent with NOT_LEADER_OR_FOLLOWER so that clients need no Metadata."""

    leader_id: int = -1
    leader_epoch: int = -1


class NodeEndpoint(NamedTuple):
    """Where the brokers named by `CurrentLeader` listen."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


def malformed(what: str, reason: object) -> MalformedRequest:
    """The error for a message that ends too early or whose lengths contradict it."""
    return MalformedRequest(f"{what} does not parse ({reason}); send it as the protocol guide describes")


def too_long(what: str, length: int) -> NoReturn:
    """Refuses a text of more bytes than any may have."""
    raise MalformedRequest(f"{what} has {length} bytes; a text has {MAX_STRING_BYTES} at the most")


def crowded(most: int = MAX_ITEMS) -> NoReturn:
    """Refuses a message of more items than `most`."""
    raise MalformedRequest(f"a message holds more than {most} items; split the request")


# Reading. Each answers (value, position after it).


def read_varint(view: Buffer, position: int) -> tuple[int, int]:
    """An unsigned integer of 1 to 5 bytes, at most 2^31 - 1."""
    value = view[position]
    if value < 0x80:
        return value, position + 1
    byte = view[position + 1]
    value = (value & 0x7F) | (byte & 0x7F) << 7
    position += 2
    if byte < 0x80:
        return value, position
    for shift in (14, 21, 28):
        byte = view[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > MAX_LENGTH:
                raise MalformedRequest(f"length {value} exceeds 2^31 - 1; the message is corrupt")
            return value, position
    raise MalformedRequest("a variable-length integer has more than 5 bytes; the message is corrupt")


def read_length(view: Buffer, position: int, flexible: bool) -> tuple[int, int]:
    """The length of an array or of bytes; -1 is null."""
    if flexible:
        length, position = read_varint(view, position)
        return length - 1, position
    (length,) = _int32_at(view, position)
    return length, position + 4


def read_count(view: Buffer, position: int, flexible: bool, item_bytes: int) -> tuple[int, int]:
    """The length of an array that must not be null, whose items take `item_bytes` or more; bounded by the view."""
    count, position = read_length(view, position, flexible)
    if not 0 <= count <= (len(view) - position) // item_bytes:
        raise MalformedRequest(f"an array announces {count} items in {len(view) - position} bytes; send them all")
    return count, position


def read_nullable_string(view: Buffer, position: int, flexible: bool) -> tuple[str | None, int]:
    if flexible:
        length, position = read_varint(view, position)
        length -= 1
        if length > MAX_STRING_BYTES:
            too_long("a string", length)
    else:
        (length,) = _int16_at(view, position)
        position += 2
    if length < 0:
        if length != -1:
            raise MalformedRequest(f"a string has length {length}; the message is corrupt")
        return None, position
    end = position + length
    if end > len(view):
        raise MalformedRequest(f"a string of {length} bytes ends after its message; send it whole")
    return str(view[position:end], "utf-8"), end


def read_string(view: Buffer, position: int, flexible: bool) -> tuple[str, int]:
    text, position = read_nullable_string(view, position, flexible)
    if text is None:
        raise MalformedRequest("a string is null where the protocol demands one; send it")
    return text, position


def read_uuid(view: Buffer, position: int) -> tuple[UUID, int]:
    """16 bytes; all zeros stay a UUID of zeros."""
    end = position + 16
    if end > len(view):
        raise MalformedRequest(f"{len(view) - position} bytes are left where an id has 16; send the whole message")
    return uuid_of(bytes(view[position:end])), end


@lru_cache(maxsize=4096)
def uuid_of(raw: bytes) -> UUID:
    """The UUID of these 16 bytes. Topic ids come again with every request, and a UUID takes long to build."""
    return UUID(bytes=raw)


def skip_tagged_fields(view: Buffer, position: int) -> int:
    """The position after a block of tagged fields (KIP-482), whatever they are."""
    count = view[position]
    position += 1
    if not count:
        return position
    if count > MAX_TAGGED_FIELDS:
        count, position = read_tag_count(view, position - 1)
    for _ in range(count):
        _, position = read_varint(view, position)
        position = tagged_field_end(view, position)[1]
    return position


def read_tag_count(view: Buffer, position: int) -> tuple[int, int]:
    """How many tagged fields follow."""
    count, position = read_varint(view, position)
    if count > MAX_TAGGED_FIELDS:
        raise MalformedRequest(f"{count} tagged fields are in one place; {MAX_TAGGED_FIELDS} are read at the most")
    return count, position


def tagged_field_end(view: Buffer, position: int) -> tuple[int, int]:
    """(position of a tagged field's content, its end), read at the field's size and checked against the view."""
    size, position = read_varint(view, position)
    if position + size > len(view):
        raise MalformedRequest(f"a tagged field of {size} bytes ends after its message; send it whole")
    return position, position + size


def read_tagged_fields(view: Buffer, position: int) -> tuple[dict[int, tuple[int, int]], int]:
    """({tag: (position, end)}, position after the block). The slow twin of `skip_tagged_fields`."""
    count, position = read_tag_count(view, position)
    found: dict[int, tuple[int, int]] = {}
    for _ in range(count):
        tag, position = read_varint(view, position)
        found[tag] = _, position = tagged_field_end(view, position)
    return found, position


def read_current_leader(view: Buffer, position: int) -> CurrentLeader:
    """The content of the tagged field `current_leader`."""
    leader_id, leader_epoch = struct.unpack_from(">ii", view, position)
    return CurrentLeader(leader_id, leader_epoch)


def read_node_endpoints(view: Buffer, position: int) -> tuple[NodeEndpoint, ...]:
    """The content of the tagged field `node_endpoints`."""
    count, position = read_count(view, position, True, 11)
    endpoints = []
    for _ in range(count):
        (node_id,) = _int32_at(view, position)
        host, position = read_string(view, position + 4, True)
        (port,) = _int32_at(view, position)
        rack, position = read_nullable_string(view, position + 4, True)
        position = skip_tagged_fields(view, position)
        endpoints.append(NodeEndpoint(node_id, host, port, rack))
    return tuple(endpoints)


# Writing


def varint(value: int) -> bytes:
    """The bytes of an unsigned variable-length integer."""
    if value < 0x80:
        return _ONE_BYTE[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_ONE_BYTE = tuple(bytes((value,)) for value in range(0x80))


def length_bytes(length: int, flexible: bool) -> bytes:
    """How the length of an array or of bytes goes out; -1 is null."""
    return varint(length + 1) if flexible else _pack_int32(length)


def string_bytes(text: str | None, flexible: bool) -> bytes:
    """A nullable string with its length. Raises ValueError for more than 32,767 bytes outside flexible messages."""
    if text is None:
        return b"\x00" if flexible else b"\xff\xff"
    encoded = text.encode()
    if flexible:
        return varint(len(encoded) + 1) + encoded
    if len(encoded) > MAX_STRING_BYTES:
        raise ValueError(f"a string of {len(encoded)} bytes does not fit this version of the message; shorten it")
    return _pack_int16(len(encoded)) + encoded


def error_message_bytes(text: str | None, flexible: bool) -> bytes:
    """As `string_bytes`, for words about an error: they may repeat names of any length. What no client reads is cut."""
    if text is not None:
        text = text.encode()[:MAX_STRING_BYTES].decode(errors="ignore")
    return string_bytes(text, flexible)


def tagged_field(tag: int, content: bytes | bytearray) -> bytes:
    """One tagged field with its tag and size."""
    return varint(tag) + varint(len(content)) + content


def current_leader_bytes(leader: CurrentLeader) -> bytes:
    """The content of the tagged field `current_leader`."""
    return struct.pack(">iiB", *leader, 0)


def node_endpoints_bytes(endpoints: tuple[NodeEndpoint, ...]) -> bytes:
    """The content of the tagged field `node_endpoints`."""
    out = bytearray(varint(len(endpoints) + 1))
    for node_id, host, port, rack in endpoints:
        out += _pack_int32(node_id) + string_bytes(host, True)
        out += _pack_int32(port) + string_bytes(rack, True) + b"\x00"
    return bytes(out)
