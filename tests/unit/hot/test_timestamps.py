"""ListOffsets by time: the first record that is not older, wherever timestamps jump."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.claimed_times import WRONG, broken, claiming
from tests.unit.hot.log_files import NOW_MS, append, batch, open_log
from tiered.formats.batch_times import UNPROVEN
from tiered.formats.record_batch import Compression
from tiered.hot.log import Log
from tiered.hot.marks import RECOVERY_POINT_FILE, RecoveryPoint, decode_recovery_point, encode_recovery_point

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


def test_where_only_records_without_timestamps_are_left_there_is_no_greatest(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(timestamps_ms=[5, -1]))
    append(log, batch(timestamps_ms=[-1]))
    for start in (1, 2):
        log.set_log_start_offset(start)
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


# Batches from before brokers looked at every record


def check_all(log: Log, times: list[int], start: int = 0) -> None:
    """The log answers as a scan of its records does."""
    for wanted in (-1, 0, 5, 16, 60, 91, 95, 96, 99, 1_000):
        expected = next(
            ((offset, times[offset]) for offset in range(start, len(times)) if times[offset] >= wanted), None
        )
        assert log.offset_for_timestamp(wanted, len(times)) == expected, wanted
    left = times[start:]
    assert log.max_timestamp_offset() == (start + left.index(max(left)), max(left))


@pytest.mark.parametrize("segment_bytes", [10**6, 250])
@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("compression", [Compression.NONE, Compression.GZIP])
def test_headers_that_no_broker_has_checked_are_not_believed(
    tmp_path: Path, segment_bytes: int, wrong: str, compression: Compression
) -> None:
    log = open_log(tmp_path, segment_bytes=segment_bytes, index_interval_bytes=0)
    for times in BATCHES:
        data = claiming(batch(timestamps_ms=times, compression=compression), wrong)
        append(log, data, times_proven_from=UNPROVEN)
    for times in ([40, 99, 98], [99]):
        append(log, batch(timestamps_ms=times, compression=compression))
    everything = [*FLAT, 40, 99, 98, 99]
    check_all(log, everything)
    check_all(log, everything)  # Now that somebody has looked.
    log.set_log_start_offset(5)
    check_all(log, everything, 5)
    log.close()
    check_all(open_log(tmp_path, segment_bytes=segment_bytes, index_interval_bytes=0), everything, 5)


def test_a_batch_that_nobody_can_decode_is_stepped_over(tmp_path: Path) -> None:
    log = open_log(tmp_path, index_interval_bytes=0)
    append(log, batch(timestamps_ms=[10, 20]))
    append(log, broken(batch(timestamps_ms=[30, 40])), times_proven_from=UNPROVEN)
    append(log, batch(timestamps_ms=[15]))
    assert log.offset_for_timestamp(15, 5) == (1, 20)
    assert log.offset_for_timestamp(21, 5) is None
    assert log.max_timestamp_offset() == (1, 20)


def test_a_log_of_the_version_before_is_looked_into_and_what_it_appends_then_is_not(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=250)
    for times in BATCHES[:4]:
        append(log, claiming(batch(timestamps_ms=times), "missing"))
    log.close()
    path = tmp_path / RECOVERY_POINT_FILE
    point = decode_recovery_point(path.read_bytes())
    assert point is not None
    marks = tuple(replace(mark, times_proven_from=None) for mark in point.segments)
    path.write_bytes(encode_recovery_point(RecoveryPoint(segments=marks)))
    log = open_log(tmp_path, segment_bytes=250)
    assert {segment.times_are_proven for segment in log.segments} == {False}
    for times in BATCHES[4:]:
        append(log, batch(timestamps_ms=times))
    assert log.segments[-1].times_are_proven
    check_all(log, FLAT)
    log.close()
    log = open_log(tmp_path, segment_bytes=250)
    assert log.recovery.clean
    assert {segment.times_are_proven for segment in log.segments} == {False, True}
    check_all(log, FLAT)


def test_what_a_restart_has_to_scan_may_be_of_any_version(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(timestamps_ms=[10]))
    log.flush()
    append(log, claiming(batch(timestamps_ms=[90]), "missing"))
    log.discard()  # As a crash leaves it.
    log = open_log(tmp_path)
    assert not log.segments[0].times_are_proven
    assert log.times_proven_from(0) == 2
    assert log.max_timestamp_offset() == (1, 90)


def test_what_is_cut_off_is_looked_for_no_more(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, claiming(batch(timestamps_ms=[10]), "missing"), times_proven_from=UNPROVEN)
    append(log, claiming(batch(timestamps_ms=[90]), "missing"), times_proven_from=UNPROVEN)
    assert log.max_timestamp_offset() == (1, 90)
    log.truncate_to(1)
    append(log, claiming(batch(timestamps_ms=[95]), "missing"), times_proven_from=UNPROVEN)
    assert log.max_timestamp_offset() == (1, 95)
    assert log.offset_for_timestamp(91, 2) == (1, 95)


def test_the_newest_time_is_no_later_than_the_newest_record_nor_than_its_file(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    times = [log.newest_ms]
    append(log, batch(timestamps_ms=[NOW_MS - 9_000]), now_ms=NOW_MS)
    times.append(log.newest_ms)  # A replica that was copied has a file that is newer.
    append(log, batch(timestamps_ms=[NOW_MS + 9_000]), now_ms=NOW_MS)
    times.append(log.newest_ms)  # A producer's clock may be ahead.
    log.roll(NOW_MS + 60_000)
    times.append(log.newest_ms)  # An empty segment was not written.
    assert times == [None, NOW_MS - 9_000, NOW_MS, NOW_MS]
    log.close()
