"""OpenTelemetry's MetricsData as clients push it, by hand: the fields that a test wants, and nothing checked."""

import struct


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def part(number: int, body: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(body)) + body


def point(value: float, **attributes: str) -> bytes:
    """A NumberDataPoint: whole numbers as such, others as doubles."""
    pairs = (part(1, key.encode()) + part(2, part(1, text.encode())) for key, text in attributes.items())
    if isinstance(value, int):
        number = varint(6 << 3 | 1) + struct.pack("<q", value)
    else:
        number = varint(4 << 3 | 1) + struct.pack("<d", value)
    return b"".join(part(7, pair) for pair in pairs) + varint(3 << 3 | 1) + bytes(8) + number


def gauge(name: str, *points: bytes) -> bytes:
    return part(1, name.encode()) + part(5, b"".join(part(1, each) for each in points))


def total(name: str, *points: bytes, is_delta: bool = False) -> bytes:
    """A monotonic sum."""
    kind = bytes([2 << 3, 1 if is_delta else 2, 3 << 3, 1])
    return part(1, name.encode()) + part(7, b"".join(part(1, each) for each in points) + kind)


def metrics_data(*metrics: bytes) -> bytes:
    return part(1, part(2, b"".join(part(2, each) for each in metrics)))
