"""ListOffsets by time: the first record that is not older, wherever timestamps jump."""

from pathlib import Path

import pytest

from tests.unit.hot.log_files import append, batch, open_log
from tiered.formats.record_batch import Compression

BATCHES = [[50, 10, 20], [30], [90, 5], [60, 95, 70], [15], [95, 94], [40]]
FLAT = [time for times in BATCHES for time in times]


@pytest.mark.parametrize("segment_bytes", [10**6, 250, 1])
@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD])
def test_out_of_order_timestamps_give_the_first_offset_that_qualifies(
    tmp_path: Path, segment_bytes: int, flushed: bool, compression: Compression
) -> None:
    log = open_log(tmp_path, segment_bytes=segment_bytes, index_interval_bytes=0)
    for times in BATCHES:
        append(log, batch(timestamps_ms=times, compression=compression))
    if flushed:
        log.flush()
    for start in range(len(FLAT) + 1):
        log.set_log_start_offset(start)
        for end in (start, start + 1, 9, len(FLAT)):
            for wanted in (0, 5, 16, 60, 91, 95, 96):
                expected = next(
                    ((offset, FLAT[offset]) for offset in range(start, min(end, len(FLAT))) if FLAT[offset] >= wanted),
                    None,
                )
                assert log.offset_for_timestamp(wanted, end) == expected
        left = FLAT[start:]
        greatest = (start + left.index(max(left)), max(left)) if left else None
        assert log.max_timestamp_offset() == greatest


def test_records_without_timestamps_are_never_found(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=1)
    append(log, batch(timestamps_ms=[-1, -1]))
    append(log, batch(timestamps_ms=[-1]))
    assert log.offset_for_timestamp(0, 3) is None
    assert log.max_timestamp_offset() is None


def test_log_append_time_counts_for_every_record_of_the_batch(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(timestamps_ms=[1, 2, 3], log_append_time_ms=100))
    append(log, batch(timestamps_ms=[1, 2, 3], log_append_time_ms=200))
    assert log.offset_for_timestamp(100, 6) == (0, 100)
    assert log.offset_for_timestamp(101, 6) == (3, 200)
    assert log.max_timestamp_offset() == (3, 200)


def test_times_are_found_in_long_segments_after_a_restart(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=100_000, index_interval_bytes=1000)
    for number in range(3_000):
        append(log, batch(timestamps_ms=[number // 2 * 10]))
    log.close()
    again = open_log(tmp_path)
    for number in range(0, 3_000, 99):
        first = number // 2 * 2
        assert again.offset_for_timestamp(number // 2 * 10, 3_000) == (first, number // 2 * 10)
    assert again.max_timestamp_offset() == (2_998, 14_990)
