"""Batches and logs for the tests of the hot room."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tiered.formats import record_batch
from tiered.formats.record_batch import BatchHeader, Record, encode_batch
from tiered.hot import opening
from tiered.hot.file_system import FileSystem, RealFileSystem
from tiered.hot.log import Log, LogConfig
from tiered.hot.segment_files import OpenSegments

NOW_MS = 1_700_000_000_000


def batch(
    count: int = 1,
    *,
    value_bytes: int = 20,
    timestamps_ms: Sequence[int] | None = None,
    marker: int = 0,
    **changes: Any,
) -> bytearray:
    """A batch of `count` records, its offsets from 0, as a client sends it."""
    times = timestamps_ms if timestamps_ms is not None else [NOW_MS] * count
    records = [
        Record(offset=index, timestamp_ms=times[index], key=b"%d" % marker, value=b"v" * value_bytes)
        for index in range(len(times))
    ]
    return bytearray(encode_batch(records, **changes))


def append(
    log: Log, data: bytearray | bytes, *, epoch: int = 0, now_ms: int = NOW_MS, times_proven_from: int | None = None
) -> int:
    """Appends the batches in `data` as a partition does, and answers their base offset."""
    buffer = memoryview(bytearray(data))
    headers: list[tuple[int, BatchHeader]] = list(record_batch.exact_batches(buffer, 0, len(buffer)))
    base_offset = offset = log.log_end_offset
    for position, header in headers:
        record_batch.stamp_offsets(buffer, position, offset, epoch)
        offset += header.last_offset_delta + 1
    log.append(
        buffer,
        0,
        len(buffer),
        headers,
        base_offset=base_offset,
        now_ms=now_ms,
        times_proven_from=times_proven_from,
    )
    return base_offset


def open_log(
    directory: Path,
    *,
    fs: FileSystem | None = None,
    log_start_offset: int = 0,
    first_needed_offset: int | None = None,
    now_ms: int = NOW_MS,
    **config: int,
) -> Log:
    return opening.open_log(
        directory,
        fs or RealFileSystem(),
        config=LogConfig(**config),
        log_start_offset=log_start_offset,
        first_needed_offset=first_needed_offset,
        now_ms=now_ms,
        open_segments=OpenSegments(max_files=4),
    )


def contents(log: Log, *, max_bytes: int = 1 << 20) -> list[tuple[int, bytes]]:
    """Every batch of the local log, as (base offset, bytes after the stamped fields), read from its start."""
    found: list[tuple[int, bytes]] = []
    offset = log.segments[0].base_offset
    while offset < log.log_end_offset:
        part = log.read(offset, max_bytes, end_offset=log.log_end_offset)
        assert part is not None
        data = part.read()
        for position, header in record_batch.exact_batches(data, 0, len(data)):
            record_batch.verify_crc(data, position, header.size_bytes)
            assert header.base_offset == offset, "a gap or an overlap"
            found.append((offset, data[position + 16 : position + header.size_bytes]))
            offset = header.end_offset
    return found
