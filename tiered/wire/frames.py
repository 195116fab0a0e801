"""Frames: a length, a header, a body. Reads and writes the first two.

Owns which versions of an API are flexible, for that decides the header's shape. Must never read a body, and
never look beyond the `end` it is given: a connection's buffer holds other frames behind it.
"""

import struct

from tiered.errors import MalformedRequest
from tiered.wire.primitives import TRUNCATED, Buffer, malformed, skip_tagged_fields

LENGTH_BYTES = 4
API_VERSIONS = 18

FLEXIBLE_FROM: dict[int, int | None] = {
    0: 9, 1: 12, 2: 6, 3: 9, 8: 8, 9: 6, 10: 3, 11: 6, 12: 4, 13: 4, 14: 4, 15: 5, 16: 3, 17: None, 18: 3, 19: 5,
    20: 4, 21: 2, 22: 2, 23: 4, 24: 3, 25: 3, 26: 3, 27: 1, 28: 3, 29: 2, 30: 2, 31: 2, 32: 4, 33: 2, 34: 2, 35: 2,
    36: 2, 37: 2, 38: 2, 39: 2, 40: 2, 41: 2, 42: 2, 43: 2, 44: 1, 45: 0, 46: 0, 47: None, 48: 1, 49: 1, 50: 0, 51: 0,
    55: 0, 57: 0, 60: 0, 61: 0, 64: 0, 65: 0, 66: 0, 68: 0, 69: 0, 71: 0, 72: 0, 74: 0, 75: 0, 76: 0, 77: 0, 78: 0,
    79: 0, 80: 0, 81: 0, 83: 0, 84: 0, 85: 0, 86: 0, 87: 0, 88: 0, 89: 0, 90: 0, 91: 0, 92: 0,
}  # fmt: skip
"""The first flexible version of each API; None when there is none. KIP-482."""

_HEADER = struct.Struct(">hhih")
_RESPONSE_V0 = struct.Struct(">i")
_RESPONSE_V1 = struct.Struct(">iB")


def is_flexible(api_key: int, api_version: int) -> bool:
    """Whether this version has compact lengths and tagged fields. False for APIs that are not known."""
    first = FLEXIBLE_FROM.get(api_key)
    return first is not None and api_version >= first


def read_request_header(buffer: Buffer, position: int, end: int) -> tuple[int, int, int, str | None, int]:
    """(API key, its version, correlation id, client id, position of the body) of the request in `buffer[position:end]`;
    raises MalformedRequest.

    An API that is not known is taken to have a header of version 1, and its tagged fields stay unread.
    """
    if end - position < _HEADER.size:
        raise malformed("a request header", f"{end - position} bytes of {_HEADER.size}")
    try:
        api_key, api_version, correlation_id, length = _HEADER.unpack_from(buffer, position)
        position += 10
        client_id = None
        if length >= 0:
            if position + length > end:
                raise MalformedRequest(f"a client id of {length} bytes ends after its request; send it whole")
            client_id = str(buffer[position : position + length], "utf-8")
            position += length
        elif length != -1:
            raise MalformedRequest(f"the client id has length {length}; the request is corrupt")
        first = FLEXIBLE_FROM.get(api_key)
        if first is not None and api_version >= first:
            if position < end and not buffer[position]:
                position += 1  # No tagged fields, as mostly.
            else:
                position = skip_tagged_fields(memoryview(buffer)[:end], position)
    except TRUNCATED as error:
        raise malformed("a request header", error) from None
    return api_key, api_version, correlation_id, client_id, position


def request_header(api_key: int, api_version: int, correlation_id: int, client_id: str | None) -> bytes:
    """The fields that `read_request_header` reads."""
    encoded = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(encoded)
    tags = b"\x00" if is_flexible(api_key, api_version) else b""
    return _HEADER.pack(api_key, api_version, correlation_id, length) + encoded + tags


def response_header(correlation_id: int, api_key: int, api_version: int) -> bytes:
    """4 bytes, or 5 for flexible versions; ApiVersions always 4, for who asks does not know us yet (KIP-511)."""
    first = FLEXIBLE_FROM.get(api_key)
    if first is None or api_version < first or api_key == API_VERSIONS:
        return _RESPONSE_V0.pack(correlation_id)
    return _RESPONSE_V1.pack(correlation_id, 0)


def read_response_header(buffer: Buffer, position: int, end: int, api_key: int, api_version: int) -> tuple[int, int]:
    """(correlation id, position of the body) of the response in `buffer[position:end]`; raises MalformedRequest."""
    view = memoryview(buffer)[:end]
    try:
        (correlation_id,) = _RESPONSE_V0.unpack_from(view, position)
        position += 4
        if api_key != API_VERSIONS and is_flexible(api_key, api_version):
            position = skip_tagged_fields(view, position)
    except TRUNCATED as error:
        raise malformed("a response header", error) from None
    return correlation_id, position


def frame_length(length_bytes: int) -> bytes:
    """The 4 bytes in front of a frame of `length_bytes`."""
    assert 0 <= length_bytes <= 0x7FFFFFFF, "a frame has 2 GiB or more"
    return _RESPONSE_V0.pack(length_bytes)


def read_frame_length(buffer: Buffer, position: int) -> int:
    """The length of the frame after these 4 bytes; raises MalformedRequest when negative or not there."""
    try:
        (length,) = _RESPONSE_V0.unpack_from(buffer, position)
    except struct.error as error:
        raise malformed("a frame length", error) from None
    if length < 0:
        raise MalformedRequest(f"a frame announces {length} bytes; this is no Kafka client")
    return int(length)
