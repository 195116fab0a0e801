"""Metrics that clients push (KIP-714): OpenTelemetry's MetricsData, as protobuf.

Owns the few fields of it that Kafka's clients fill: gauges and sums of numbers, and their attributes; all else is
skipped. Hand-written, because protobuf's runtime and OpenTelemetry's classes are a native library and a hundred modules
for a dozen fields, and bound neither work nor counts. Here each field that is looked at counts against `MAX_FIELDS`,
and nothing is allocated by an announced length. Source: opentelemetry-proto 1.x, metrics/v1/metrics.proto.
"""

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tiered.errors import MalformedRequest

MAX_FIELDS: Final = 50_000
"""Of one message, at every depth. A Java client with all its metrics sends some ten thousand."""
MAX_TEXT_BYTES: Final = 255
"""Of a name or an attribute; what is longer is cut."""
MAX_ATTRIBUTES: Final = 16
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_DELTA = 1
_double_at = struct.Struct("<d").unpack_from
_int64_at = struct.Struct("<q").unpack_from

Attributes = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One number. Of a sum it counts from the client's start, or (`is_delta`) from the point before."""

    name: str
    attributes: Attributes
    value: float
    is_counter: bool = False
    is_delta: bool = False


def decode_metrics(data: bytes) -> list[Point]:
    """Every number of a gauge or a sum. Raises MalformedRequest for a wrong or too large message."""
    message = _Message(data)
    found: list[Point] = []
    for resource in message.parts(0, len(data), 1):
        for scope in message.parts(*resource, 2):
            for metric in message.parts(*scope, 2):
                found.extend(message.points(*metric))
    return found


class _Message:
    """One message and how many of its fields were looked at."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._fields_left = MAX_FIELDS

    def points(self, start: int, end: int) -> Iterator[Point]:
        """The numbers of one Metric."""
        name = ""
        bodies: list[tuple[int, int, bool]] = []
        for number, kind, first, last in self._fields(start, end):
            if kind == _BYTES and number == 1:
                name = self._text(first, last)
            elif kind == _BYTES and number in (5, 7):
                bodies.append((first, last, number == 7))
        for first, last, is_sum in bodies:
            is_delta = is_monotonic = False
            places: list[tuple[int, int]] = []
            for number, kind, at, to in self._fields(first, last):
                if number == 1 and kind == _BYTES:
                    places.append((at, to))
                elif is_sum and number == 2 and kind == _VARINT:
                    is_delta = at == _DELTA
                elif is_sum and number == 3 and kind == _VARINT:
                    is_monotonic = bool(at)
            for place in places:
                value, attributes = self._number(*place)
                if value is not None:
                    yield Point(
                        name=name, attributes=attributes, value=value, is_counter=is_monotonic, is_delta=is_delta
                    )

    def parts(self, start: int, end: int, wanted: int) -> Iterator[tuple[int, int]]:
        """Where the messages in field `wanted` are."""
        for number, kind, first, last in self._fields(start, end):
            if number == wanted and kind == _BYTES:
                yield first, last

    def _number(self, start: int, end: int) -> tuple[float | None, Attributes]:
        """Of one NumberDataPoint."""
        value: float | None = None
        attributes: list[tuple[str, str]] = []
        for number, kind, first, last in self._fields(start, end):
            if kind == _FIXED64 and number == 4:
                value = float(_double_at(self._data, first)[0])
            elif kind == _FIXED64 and number == 6:
                value = float(_int64_at(self._data, first)[0])
            elif kind == _BYTES and number == 7 and len(attributes) < MAX_ATTRIBUTES:
                attributes.append(self._attribute(first, last))
        if value is not None and not math.isfinite(value):
            value = None  # Not a number, as of a rate of nothing: it cannot be added up.
        return value, tuple(attributes)

    def _attribute(self, start: int, end: int) -> tuple[str, str]:
        key = value = ""
        for number, kind, first, last in self._fields(start, end):
            if kind == _BYTES and number == 1:
                key = self._text(first, last)
            elif kind == _BYTES and number == 2:
                value = self._value(first, last)
        return key, value

    def _value(self, start: int, end: int) -> str:
        """Of an AnyValue: text, truth or number; lists and maps are not looked into."""
        text = ""
        for number, kind, first, last in self._fields(start, end):
            if kind == _BYTES and number == 1:
                text = self._text(first, last)
            elif kind == _VARINT and number == 2:
                text = "true" if first else "false"
            elif kind == _VARINT and number == 3:
                text = str(first - (1 << 64) if first >= 1 << 63 else first)
            elif kind == _FIXED64 and number == 4:
                text = repr(float(_double_at(self._data, first)[0]))
        return text

    def _text(self, start: int, end: int) -> str:
        return self._data[start : min(end, start + MAX_TEXT_BYTES)].decode("utf-8", "replace")

    def _fields(self, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
        """(number, kind, first, last) of each field: where its bytes are, or the value of a varint and 0."""
        position = start
        while position < end:
            self._fields_left -= 1
            if self._fields_left < 0:
                raise MalformedRequest(f"the metrics have more than {MAX_FIELDS} fields; subscribe to fewer")
            tag, position = self._varint(position, end)
            number, kind = tag >> 3, tag & 7
            if kind == _VARINT:
                value, position = self._varint(position, end)
                yield number, kind, value, 0
                continue
            if kind == _BYTES:
                length, position = self._varint(position, end)
            elif kind in (_FIXED64, _FIXED32):
                length = 8 if kind == _FIXED64 else 4
            else:
                raise MalformedRequest(f"the metrics have a field of the unknown kind {kind}")
            if length > end - position:
                raise MalformedRequest("the metrics end within a field")
            yield number, kind, position, position + length
            position += length

    def _varint(self, position: int, end: int) -> tuple[int, int]:
        value = shift = 0
        while position < end and shift < 70:
            byte = self._data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & 0xFFFF_FFFF_FFFF_FFFF, position
            shift += 7
        raise MalformedRequest("the metrics end within a number, or have one of more than 64 bits")
