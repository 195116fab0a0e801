"""Appending to a log, rolling it, reading it and cutting it."""

import os
import sys
from pathlib import Path

import pytest

from tests.unit.hot.log_files import NOW_MS, append, batch, contents, open_log
from tiered.errors import OffsetOutOfRange, ShuttingDown
from tiered.formats import record_batch
from tiered.formats.producer_snapshot import ProducerEntry, decode_producers
from tiered.hot.file_system import RealFileSystem
from tiered.hot.log import LogConfig
from tiered.hot.segment import RESERVED_FROM_BYTES, TAIL_BATCHES
from tiered.rules.partition.rolling import MAX_RELATIVE_OFFSET, SMALL_AT_ONCE


def test_the_file_is_exactly_the_batches_as_they_were_stamped(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    first, second = batch(3), batch(2)
    append(log, first, epoch=4)
    append(log, second, epoch=4)
    for data, offset in ((first, 0), (second, 3)):
        record_batch.stamp_offsets(data, 0, offset, 4)
    assert (tmp_path / f"{0:020}.log").read_bytes() == bytes(first + second)
    assert (log.log_end_offset, log.size_bytes) == (5, len(first) + len(second))


def test_several_batches_of_one_append_are_renumbered_in_order(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(3) + batch(2) + batch(4))
    assert [offset for offset, _ in contents(log)] == [0, 3, 5]
    assert log.log_end_offset == 9


def test_a_segment_is_closed_before_the_append_that_would_exceed_it(tmp_path: Path) -> None:
    size = len(batch(1))
    log = open_log(tmp_path, segment_bytes=3 * size)
    for _ in range(7):
        append(log, batch(1))
    assert [segment.base_offset for segment in log.segments] == [0, 3, 6]
    assert [segment.closed for segment in log.segments] == [True, True, False]
    assert [segment.size_bytes for segment in log.segments] == [3 * size, 3 * size, size]


def test_a_batch_larger_than_a_segment_gets_one_of_its_own(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=200)
    append(log, batch(1))
    append(log, batch(1, value_bytes=1000))
    append(log, batch(1))
    assert [segment.base_offset for segment in log.segments] == [0, 1, 2]


def test_a_segment_is_closed_by_age_at_an_append_and_at_rest(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_ms=1_000)
    assert not log.roll_if_due(NOW_MS + 10**9)
    append(log, batch(1), now_ms=NOW_MS)
    append(log, batch(1), now_ms=NOW_MS + 999)
    assert len(log.segments) == 1
    append(log, batch(1), now_ms=NOW_MS + 1_000)
    assert [segment.base_offset for segment in log.segments] == [0, 2]
    assert not log.roll_if_due(NOW_MS + 1_999)
    assert log.roll_if_due(NOW_MS + 2_000)
    assert [segment.base_offset for segment in log.segments] == [0, 2, 3]


def test_the_age_of_a_segment_survives_a_restart(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_ms=1_000)
    append(log, batch(1), now_ms=NOW_MS)
    log.close()
    again = open_log(tmp_path, segment_ms=1_000, now_ms=NOW_MS + 900)
    assert again.roll_if_due(NOW_MS + 1_000)


def test_offsets_too_far_from_the_base_close_the_segment(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(1))
    append(log, record_batch.encode_batch([], last_offset=MAX_RELATIVE_OFFSET - 1))
    assert len(log.segments) == 1
    append(log, batch(2))
    assert [segment.base_offset for segment in log.segments] == [0, MAX_RELATIVE_OFFSET + 1]


def test_a_full_index_closes_the_segment(tmp_path: Path) -> None:
    log = open_log(tmp_path, index_interval_bytes=0, max_index_bytes=32)
    for _ in range(6):
        append(log, batch(1))
    assert [segment.base_offset for segment in log.segments] == [0, 5]


def test_rolling_an_empty_segment_does_nothing(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert not log.roll(NOW_MS)
    append(log, batch(1))
    assert log.roll(NOW_MS)
    assert not log.roll(NOW_MS)


def test_every_offset_is_found_in_every_segment(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=40_000, index_interval_bytes=512)
    for number in range(TAIL_BATCHES * 3):
        append(log, batch(1 + number % 3, marker=number))
    assert len(log.segments) > 2
    log.flush()
    for offset in range(0, log.log_end_offset, 7):
        part = log.read(offset, 1, end_offset=log.log_end_offset)
        assert part is not None
        header = record_batch.read_header(part.read())
        assert header.base_offset <= offset <= header.last_offset
        assert header.size_bytes == part.length


@pytest.mark.parametrize("flushed", [False, True])
def test_reads_give_whole_batches_within_the_bounds(tmp_path: Path, flushed: bool) -> None:
    log = open_log(tmp_path, segment_bytes=30_000, index_interval_bytes=300)
    sizes = []
    for number in range(400):
        data = batch(1, value_bytes=number % 50)
        sizes.append(len(data))
        append(log, data)
    if flushed:
        log.flush()
    for offset in (0, 1, 57, 199, 250, 398, 399):
        segment_end = next(each.end_offset for each in log.segments if each.end_offset > offset)
        for max_bytes in (0, 1, 99, 100, 500, 5_000, 10**6):
            for end_offset in (offset, offset + 1, offset + 13, 400):
                expected = 0
                for number in range(offset, min(end_offset, segment_end)):
                    if expected and expected + sizes[number] > max_bytes:
                        break
                    expected += sizes[number]
                found = log.read(offset, max_bytes, end_offset=end_offset)
                assert (found.length if found else 0) == expected
                fitting = log.read(offset, max_bytes, end_offset=end_offset, min_one_batch=False)
                assert (fitting.length if fitting else 0) == (expected if expected <= max_bytes else 0)


def test_an_end_within_a_batch_leaves_that_batch_out(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(3))
    append(log, batch(3))
    part = log.read(0, 10**6, end_offset=5)
    assert part is not None
    assert part.length == len(batch(3))
    assert log.read(4, 10**6, end_offset=5) is None


def test_the_end_has_nothing_yet_and_beyond_it_is_out_of_range(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(3))
    assert log.read(3, 100, end_offset=3) is None
    assert log.read(3, 100, end_offset=100) is None
    with pytest.raises(OffsetOutOfRange):
        log.read(4, 100, end_offset=100)


def test_removed_segments_are_out_of_range_but_their_readers_read_on(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=len(batch(1)))
    for _ in range(5):
        append(log, batch(1))
    part = log.read(1, 1000, end_offset=5)
    assert part is not None
    before = part.read()
    removed = log.delete_local_before(3)
    assert [segment.base_offset for segment in removed] == [0, 1, 2]
    assert part.read() == before
    assert log.local_log_start_offset == 3
    assert log.log_start_offset == 0
    with pytest.raises(OffsetOutOfRange):
        log.read(2, 1000, end_offset=5)
    assert sorted(path.name for path in tmp_path.glob("*.log")) == [f"{base:020}.log" for base in (3, 4)]


def test_only_whole_closed_segments_are_removed(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=2 * len(batch(1)))
    for _ in range(5):
        append(log, batch(1))
    assert log.delete_local_before(1) == ()
    assert len(log.delete_local_before(3)) == 1
    assert len(log.delete_local_before(10**6)) == 1
    assert [segment.base_offset for segment in log.segments] == [4]


def test_the_log_start_only_grows_and_survives_a_restart(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(10))
    log.set_log_start_offset(4)
    log.set_log_start_offset(2)
    with pytest.raises(OffsetOutOfRange):
        log.set_log_start_offset(11)
    assert (log.log_start_offset, log.local_log_start_offset) == (4, 4)
    log.close()
    assert open_log(tmp_path, log_start_offset=3).log_start_offset == 4
    assert open_log(tmp_path, log_start_offset=7).log_start_offset == 7


def test_truncation_goes_to_the_start_of_the_batch(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=300, index_interval_bytes=0)
    for number in range(10):
        append(log, batch(3, marker=number))
    kept = contents(log)
    assert log.truncate_to(100) == 30
    assert log.truncate_to(17) == 15
    assert contents(log) == kept[:5]
    append(log, batch(2, marker=77))
    assert log.log_end_offset == 17
    log.close()
    again = open_log(tmp_path, segment_bytes=300)
    assert contents(again)[:5] == kept[:5]
    assert again.log_end_offset == 17


def test_truncation_takes_back_what_was_flushed_and_what_was_remembered(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=300)
    log.begin_leader_epoch(1)
    for number in range(10):
        append(log, batch(1, timestamps_ms=[NOW_MS + number]))
        if number == 6:
            log.begin_leader_epoch(2)
    log.flush()
    assert log.flushed_offset == 10
    log.truncate_to(5)
    assert log.flushed_offset == 5
    assert log.leader_epochs.entries == ((1, 0),)
    assert log.max_timestamp_offset() == (4, NOW_MS + 4)
    assert log.latest_snapshot(100) is None or log.latest_snapshot(100)[0] <= 5  # type: ignore[index]
    del log
    crashed = open_log(tmp_path, segment_bytes=300)
    assert crashed.log_end_offset == 5
    assert crashed.leader_epochs.entries == ((1, 0),)


def test_truncation_below_the_first_segment_begins_anew(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=len(batch(1)))
    for _ in range(5):
        append(log, batch(1))
    log.delete_local_before(3)
    assert log.truncate_to(2) == 2
    assert (log.local_log_start_offset, log.log_end_offset) == (2, 2)


def test_a_log_can_begin_anew_further_on(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=300)
    log.begin_leader_epoch(1)
    for _ in range(10):
        append(log, batch(1))
    log.flush()
    log.truncate_fully_and_start_at(1_000)
    assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (0, 1_000, 1_000)
    assert list(log.leader_epochs.entries) == []
    log.restore_leader_epochs([(1, 0), (3, 500)])
    log.keep_leader_epochs()
    assert open_log(tmp_path).leader_epochs.entries == ((1, 0), (3, 500))
    log.begin_leader_epoch(4)
    append(log, batch(1), epoch=4)
    assert log.leader_epochs.entries == ((1, 0), (3, 500), (4, 1_000))
    log.close()
    again = open_log(tmp_path)
    assert (again.local_log_start_offset, again.log_end_offset) == (1_000, 1_001)
    assert again.leader_epochs.entries == ((1, 0), (3, 500), (4, 1_000))


def test_a_leader_epoch_is_on_disk_before_a_recovery_point_covers_its_batches(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.begin_leader_epoch(3)
    append(log, batch(1), epoch=3)
    assert not (tmp_path / "leader-epochs").exists()
    log.roll(NOW_MS)
    log.begin_leader_epoch(4)
    log.flush()
    assert (tmp_path / "recovery-point").exists()
    assert (tmp_path / "leader-epochs").read_bytes() == b"0\n1\n3 0\n", "4 has written nothing yet"


def test_a_leader_epoch_is_on_disk_before_its_batches_are_removed(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=1)
    for epoch in (1, 2, 3):
        log.begin_leader_epoch(epoch)
        append(log, batch(1), epoch=epoch)
    log.delete_local_before(2)
    del log
    killed = open_log(tmp_path)
    assert (killed.local_log_start_offset, killed.leader_epochs.entries) == (2, ((1, 0), (2, 1), (3, 2)))


def test_a_closed_log_takes_no_appends(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(1))
    log.close()
    log.close()
    with pytest.raises(ShuttingDown):
        append(log, batch(1))


def test_a_segment_for_upload_brings_its_epochs_and_producers(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=2 * len(batch(1)))
    log.begin_leader_epoch(1)
    for number in range(3):
        append(log, batch(1, producer_id=5, producer_epoch=0, base_sequence=number), epoch=1)
        if number == 0:
            log.begin_leader_epoch(2)
    for source in (False, True):
        segment = log.segment_for_upload(0)
        assert (segment.base_offset, segment.end_offset) == (0, 2)
        assert segment.leader_epochs == ((1, 0), (2, 1))
        (producer,) = decode_producers(segment.producer_snapshot)
        assert [each.base_sequence for each in producer.batches] == [0, 1]
        assert os.pread(segment.fileno(), segment.size_bytes + 1, 0) == (tmp_path / f"{0:020}.log").read_bytes()
        segment.close()
        if not source:
            log.flush()


def test_a_segment_that_is_not_there_cannot_be_uploaded_and_is_named(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(1))
    log.roll(NOW_MS)
    with pytest.raises(AssertionError, match="no segment begins at 7"):
        log.segment_for_upload(7)


def test_the_owner_of_the_producers_is_asked_when_a_segment_is_closed(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    known = ProducerEntry(producer_id=9, producer_epoch=2)
    log.producer_source = lambda: (known,)
    append(log, batch(1))
    log.roll(NOW_MS)
    assert log.latest_snapshot(10) == (1, (known,))


def test_snapshots_are_kept_for_the_ends_of_local_segments_and_the_newest_two(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for number in range(6):
        append(log, batch(1))
        log.write_snapshot(number + 1, ())
    assert sorted(path.name for path in tmp_path.glob("*.snapshot")) == [f"{n:020}.snapshot" for n in (5, 6)]
    log.roll(NOW_MS)
    for number in range(6, 10):
        append(log, batch(1))
        log.write_snapshot(number + 1, ())
    assert sorted(path.name for path in tmp_path.glob("*.snapshot")) == [f"{n:020}.snapshot" for n in (6, 9, 10)]


def test_settings_change_at_run_time(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(1))
    log.config = LogConfig(segment_bytes=10)
    append(log, batch(1))
    assert len(log.segments) == 2


def test_an_empty_log_costs_little_memory(tmp_path: Path) -> None:
    fs = RealFileSystem()
    logs = [open_log(tmp_path / str(number), fs=fs) for number in range(50)]
    seen: set[int] = {id(fs)}
    total = sum(_deep_bytes(log, seen) for log in logs)
    assert total / len(logs) < 4096


def _deep_bytes(value: object, seen: set[int]) -> int:
    if id(value) in seen or isinstance(value, type) or callable(value):
        return 0
    seen.add(id(value))
    size = sys.getsizeof(value)
    if isinstance(value, dict):
        size += sum(_deep_bytes(key, seen) + _deep_bytes(item, seen) for key, item in value.items())
    elif isinstance(value, (tuple, list, set)):
        size += sum(_deep_bytes(item, seen) for item in value)
    names = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    names += list(getattr(value, "__dict__", ()))
    return size + sum(_deep_bytes(getattr(value, name), seen) for name in names if hasattr(value, name))


@pytest.mark.parametrize("is_opened_again", [False, True])
def test_a_closed_segment_has_given_back_what_was_reserved_for_it(tmp_path: Path, is_opened_again: bool) -> None:
    log = open_log(tmp_path / "log")
    for _ in range(4):
        append(log, batch(value_bytes=RESERVED_FROM_BYTES // 2))
    (file,) = (tmp_path / "log").glob("*.log")
    assert file.stat().st_size == log.size_bytes
    assert file.stat().st_blocks * 512 >= log.size_bytes + RESERVED_FROM_BYTES // 8
    if is_opened_again:
        log.close()
        log = open_log(tmp_path / "log")
    log.roll(NOW_MS)
    assert file.stat().st_blocks * 512 < log.size_bytes + RESERVED_FROM_BYTES // 8
    assert len(contents(log, max_bytes=RESERVED_FROM_BYTES)) == 4


def test_a_segment_knows_when_it_was_written_last_over_a_restart(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for later_ms in (0, 1_000, 5_000):
        append(log, batch(timestamps_ms=[2**62]), now_ms=NOW_MS + later_ms)
    (segment,) = log.segments
    assert (segment.created_ms, segment.written_ms) == (NOW_MS, NOW_MS + 5_000)
    log.close()
    os.utime(segment.path, (0, NOW_MS // 1000))
    assert open_log(tmp_path, now_ms=NOW_MS + 60_000).segments[0].written_ms == NOW_MS
    assert open_log(tmp_path, now_ms=NOW_MS - 60_000).segments[0].written_ms == NOW_MS - 60_000, "a clock went back"


def test_a_log_that_may_close_a_segment_with_each_batch_has_a_bounded_number_of_them(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log", segment_bytes=14)
    for _ in range(SMALL_AT_ONCE + 50):
        append(log, batch())
    assert len(log.segments) == SMALL_AT_ONCE + 1
    assert log.segments[-1].end_offset == SMALL_AT_ONCE + 50
    assert not log.roll_if_due(NOW_MS), "the next look passes the bound no more than an append does"
    append(log, batch(), now_ms=NOW_MS + 1000)
    assert len(log.segments) == SMALL_AT_ONCE + 2
    append(log, batch(value_bytes=1 << 20), now_ms=NOW_MS)
    assert len(log.segments) == SMALL_AT_ONCE + 3, "one that is large gets a segment for itself"
    log.discard()
