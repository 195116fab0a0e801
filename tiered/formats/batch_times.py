"""The times of a batch's records, and whether they are proven.

A producer wrote the header's timestamps, and some producers write -1, the first record's time, or too much. Brokers
since decision 0028 look at every record of a batch on its way in and set `max_timestamp_ms` right; batches from before
are stored as they came (docs/adr/0028).

Owns what may be concluded from a header, and the walk over the records' times. Must never call a time proven that only
an unchecked producer has said.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from tiered.errors import CorruptBatch
from tiered.formats.compression import decompress
from tiered.formats.record import MIN_RECORD_BYTES, read_varint
from tiered.formats.record_batch import (
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    HEADER_BYTES,
    BatchHeader,
    Buffer,
    read_header,
)

UNPROVEN: Final = 2**63 - 1
"""Stands for "no offset" where batches are proven from an offset on."""
_MIN_MS: Final = -(2**63)
_MAX_MS: Final = 2**63 - 1


class BatchTimes(NamedTuple):
    """The times of a batch with records. `header_is_right`: the header's own `max_timestamp_ms` is the maximum."""

    min_ms: int
    max_ms: int
    min_is_proven: bool
    max_is_proven: bool
    header_is_right: bool


def proven_times(header: BatchHeader) -> BatchTimes:
    """The times of a batch whose header a broker has set right, or whose records all have the log's append time.

    The base timestamp is the first record's, and a later record may be older: only of one record it is the minimum.
    """
    one_time = header.is_log_append_time or header.record_count == 1
    return BatchTimes(_smallest(header), header.max_timestamp_ms, one_time, True, True)


def claimed_times(header: BatchHeader) -> BatchTimes:
    """The times that a producer has written into a header, to show to people: no maximum is proven."""
    return proven_times(header)._replace(max_is_proven=False, header_is_right=False)


def counted_times(buffer: Buffer, position: int = 0) -> BatchTimes:
    """The times of all records of the batch at `position`. Raises CorruptBatch where they cannot be read."""
    header = read_header(buffer, position, len(buffer))
    if header.is_log_append_time:
        return proven_times(header)
    times = [timestamp_ms for _, timestamp_ms in record_times(buffer, position)]
    smallest_ms, greatest_ms = min(times), max(times)
    return BatchTimes(smallest_ms, greatest_ms, True, True, greatest_ms == header.max_timestamp_ms)


def is_proven(header: BatchHeader, proven_from_offset: int) -> bool:
    """Whether the header's maximum may be relied upon, where batches from that offset on were checked."""
    return header.base_offset >= proven_from_offset or header.is_log_append_time


def record_times(buffer: Buffer, position: int = 0) -> Iterator[tuple[int, int]]:
    """Offset and timestamp of each record of the batch at `position`; keys, values and headers are skipped.

    Raises CorruptBatch, as `record_batch.records`, but for what is wrong in the parts that are skipped.
    """
    header = read_header(buffer, position, len(buffer))
    packed = memoryview(buffer)[position + HEADER_BYTES : position + header.size_bytes]
    body = decompress(header.compression, packed, max_bytes=DEFAULT_MAX_DECOMPRESSED_BYTES)
    if not 0 <= header.record_count <= len(body) // MIN_RECORD_BYTES:
        raise CorruptBatch(f"{header.record_count} records do not fit into {len(body)} bytes")
    append_time_ms = header.max_timestamp_ms if header.is_log_append_time else None
    base_offset, base_ms, end, at, last_delta = header.base_offset, header.base_timestamp_ms, len(body), 0, -1
    for _ in range(header.record_count):
        try:
            length, at = read_varint(body, at)
            next_at = at + length
            timestamp_delta, at = read_varint(body, at + 1)
            offset_delta, at = read_varint(body, at)
        except IndexError:
            raise CorruptBatch("a record goes beyond the end of its batch") from None
        timestamp_ms = base_ms + timestamp_delta if append_time_ms is None else append_time_ms
        if not at <= next_at <= end or not _MIN_MS <= timestamp_ms <= _MAX_MS:
            raise CorruptBatch(f"a record claims {length} bytes or a time delta of {timestamp_delta}")
        if not last_delta < offset_delta <= header.last_offset_delta:
            raise CorruptBatch(
                f"offset delta {offset_delta} after {last_delta}, in a batch of {header.last_offset_delta}"
            )
        last_delta, at = offset_delta, next_at
        yield base_offset + offset_delta, timestamp_ms
    if at != end:
        raise CorruptBatch(f"{end - at} bytes follow the last of {header.record_count} records")


def _smallest(header: BatchHeader) -> int:
    return (
        header.max_timestamp_ms if header.is_log_append_time else min(header.max_timestamp_ms, header.base_timestamp_ms)
    )
