"""A disk that is full, that fails, and that heals."""

import errno
import os
import random
import subprocess
import sys
from collections.abc import Callable
from io import FileIO
from pathlib import Path

import pytest

from tests.unit.hot.faulty_file_system import FaultyFileSystem
from tests.unit.hot.log_files import NOW_MS, append, batch, contents, open_log
from tiered.errors import LogDirFailed
from tiered.formats.producer_snapshot import ProducerBatch, ProducerEntry
from tiered.hot import opening
from tiered.hot.file_system import RealFileSystem
from tiered.hot.log import Log
from tiered.hot.opening import write_again
from tiered.hot.segment import RESERVED_FROM_BYTES

REPOSITORY = Path(__file__).parents[3]
KNOWN = ProducerEntry(
    producer_id=7,
    producer_epoch=1,
    batches=(ProducerBatch(base_sequence=4, last_sequence=4, base_offset=0, last_offset=0, timestamp_ms=NOW_MS),),
)


@pytest.fixture
def fs(tmp_path: Path) -> FaultyFileSystem:
    return FaultyFileSystem(stash=tmp_path / "stash")


def append_in_epoch(log: Log, epoch: int) -> None:
    log.begin_leader_epoch(epoch)
    append(log, batch(3), epoch=epoch)


def test_a_full_disk_refuses_the_append_and_changes_nothing(tmp_path: Path, fs: FaultyFileSystem) -> None:
    log = open_log(tmp_path / "log", fs=fs)
    append(log, batch(3))
    whole = contents(log)
    size = log.size_bytes
    for space in (0, 1, 60, 61, 90):
        fs.space_left = space
        with pytest.raises(LogDirFailed, match="disk is full"):
            append(log, batch(3))
        assert (log.log_end_offset, log.size_bytes, log.failed) == (3, size, None)
        assert (tmp_path / "log" / f"{0:020}.log").stat().st_size == size
        assert contents(log) == whole
    fs.heal()
    assert append(log, batch(3)) == 3
    assert contents(log)[:1] == whole


def test_a_disk_without_room_ahead_takes_the_append_all_the_same(tmp_path: Path, fs: FaultyFileSystem) -> None:
    log = open_log(tmp_path / "log", fs=fs)
    fs.fail("reserve", errno.ENOSPC)
    for _ in range(4):
        append(log, batch(value_bytes=RESERVED_FROM_BYTES // 2))
    assert fs.calls["reserve"] == 2
    assert (log.log_end_offset, log.failed) == (4, None)


def test_a_full_disk_refuses_the_roll_and_the_segment_goes_on(tmp_path: Path, fs: FaultyFileSystem) -> None:
    log = open_log(tmp_path / "log", fs=fs, segment_bytes=300)
    append(log, batch(3))
    fs.fail("create", errno.ENOSPC, name_part=".log")
    for _ in range(3):
        with pytest.raises(LogDirFailed, match="disk is full"):
            append(log, batch(20))
    with pytest.raises(LogDirFailed, match="disk is full"):
        log.roll(NOW_MS)
    assert len(log.segments) == 1
    append(log, batch(1))
    fs.heal()
    append(log, batch(20))
    assert [segment.base_offset for segment in log.segments] == [0, 4]
    assert len(contents(log)) == 3


def test_a_snapshot_that_does_not_fit_leaves_no_empty_segment_behind(tmp_path: Path, fs: FaultyFileSystem) -> None:
    log = open_log(tmp_path / "log", fs=fs)
    log.producer_source = tuple
    append(log, batch(3))
    fs.space_left = 0
    with pytest.raises(LogDirFailed):
        log.roll(NOW_MS)
    assert [path.name for path in (tmp_path / "log").glob("*.log")] == [f"{0:020}.log"]
    fs.heal()
    assert log.roll(NOW_MS)


def test_the_first_append_of_an_epoch_waits_for_no_disk(tmp_path: Path, fs: FaultyFileSystem) -> None:
    log = open_log(tmp_path / "log", fs=fs)
    before = dict(fs.calls)
    for epoch in (1, 2):
        log.begin_leader_epoch(epoch)
        append(log, batch(1), epoch=epoch)
    assert {name: count - before.get(name, 0) for name, count in fs.calls.items() if count != before.get(name)} == {
        "write": 2
    }


def test_epochs_that_cannot_be_kept_do_not_keep_a_full_disk_from_being_freed(
    tmp_path: Path, fs: FaultyFileSystem
) -> None:
    log = open_log(tmp_path / "log", fs=fs, segment_bytes=1)
    for epoch in (1, 2, 3):
        log.begin_leader_epoch(epoch)
        append(log, batch(1), epoch=epoch)
    fs.space_left = 0
    assert len(log.delete_local_before(2)) == 2
    with pytest.raises(LogDirFailed):
        log.keep_leader_epochs()
    fs.heal()
    log.keep_leader_epochs()
    assert open_log(tmp_path / "log").leader_epochs.entries == ((1, 0), (2, 1), (3, 2))


def test_short_writes_are_completed(tmp_path: Path, fs: FaultyFileSystem) -> None:
    log = open_log(tmp_path / "log", fs=fs)
    fs.largest_write = 7
    append(log, batch(3) + batch(2))
    assert len(contents(log)) == 2


def test_a_partial_write_that_cannot_be_taken_back_ends_appends_but_not_reads(
    tmp_path: Path, fs: FaultyFileSystem
) -> None:
    log = open_log(tmp_path / "log", fs=fs)
    append(log, batch(3))
    whole = contents(log)
    fs.space_left = 10
    fs.fail("truncate")
    with pytest.raises(LogDirFailed):
        append(log, batch(3))
    fs.heal()
    assert log.failed is not None
    with pytest.raises(LogDirFailed, match="restart"):
        append(log, batch(3))
    with pytest.raises(LogDirFailed, match="restart"):
        log.flush()
    assert contents(log) == whole
    log.close()
    again = open_log(tmp_path / "log", fs=fs)
    assert contents(again) == whole
    append(again, batch(1))


@pytest.mark.parametrize("rolled", [False, True])
def test_after_a_failed_fsync_nothing_is_ever_called_flushed(
    tmp_path: Path, fs: FaultyFileSystem, rolled: bool
) -> None:
    log = open_log(tmp_path / "log", fs=fs)
    append(log, batch(3))
    log.flush()
    append(log, batch(3))
    if rolled:
        log.roll(NOW_MS)
        append(log, batch(1))
    fs.fail("sync", errno.EIO, name_part=".log", times=1)
    for _ in range(3):
        with pytest.raises(LogDirFailed, match="restart"):
            log.flush()
        assert log.flushed_offset == 3
    with pytest.raises(LogDirFailed):
        append(log, batch(1))
    whole = contents(log)
    log.close()
    again = open_log(tmp_path / "log", fs=fs)
    assert not again.recovery.clean
    assert again.recovery.scanned_bytes > 0
    assert contents(again) == whole
    again.flush()
    assert again.flushed_offset == again.log_end_offset


@pytest.mark.parametrize("rolled", [False, True])
def test_what_a_failed_fsync_left_is_on_disk_once_it_was_written_again(
    tmp_path: Path, fs: FaultyFileSystem, rolled: bool
) -> None:
    log = open_log(tmp_path / "log", fs=fs)
    append(log, batch(3))
    if rolled:
        log.roll(NOW_MS)
    log.flush()
    append(log, batch(3, value_bytes=1_500_000))
    if rolled:
        log.roll(NOW_MS)
        append(log, batch(1))
    whole = contents(log, max_bytes=8 << 20)
    fs.fail("sync", name_part=".log", times=2)
    with pytest.raises(LogDirFailed):
        log.flush()
    log.close()
    with pytest.raises(LogDirFailed, match="Check the disk"):
        write_again(fs, log.directory)
    write_again(fs, log.directory)
    again = open_log(tmp_path / "log", fs=fs)
    again.flush()
    again.close()
    assert fs.unwritten.drop() == []
    assert contents(open_log(tmp_path / "log", fs=fs), max_bytes=8 << 20) == whole


def test_what_is_written_again_goes_to_the_disk_in_parts_so_that_a_stop_waits_for_one_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class CountingFileSystem(RealFileSystem):
        syncs = 0

        def sync(self, file: FileIO) -> None:
            self.syncs += 1
            super().sync(file)

    log = open_log(tmp_path / "log")
    append(log, batch(1, value_bytes=5 << 20))
    log.discard()
    monkeypatch.setattr(opening, "_SYNC_BYTES", 2 << 20)
    fs = CountingFileSystem()
    write_again(fs, log.directory)
    assert fs.syncs == 3


def test_nothing_is_written_again_that_a_recovery_point_tells_of(tmp_path: Path, fs: FaultyFileSystem) -> None:
    write_again(fs, str(tmp_path / "none yet"))
    log = open_log(tmp_path / "log", fs=fs)
    for _ in range(2):
        append(log, batch(3))
        log.roll(NOW_MS)
    log.flush()
    append(log, batch(2))
    closed, active = log.segments[1].size_bytes, log.segments[2].size_bytes
    assert closed > active
    log.discard()
    snapshots = sum(path.stat().st_size for path in (tmp_path / "log").glob("*.snapshot"))
    fs.space_left = active + snapshots
    write_again(fs, log.directory)
    assert fs.space_left == 0


def test_an_fsync_that_fails_as_a_log_is_opened_is_never_only_a_full_disk(tmp_path: Path, fs: FaultyFileSystem) -> None:
    log = open_log(tmp_path / "log", fs=fs)
    append(log, batch(3))
    log.discard()
    with (tmp_path / "log" / f"{0:020}.log").open("ab") as file:
        file.write(b"torn")
    fs.fail("sync", errno.ENOSPC, name_part=".log")
    with pytest.raises(LogDirFailed) as failed:
        open_log(tmp_path / "log", fs=fs)
    assert isinstance(failed.value.__cause__, OSError)
    assert failed.value.__cause__.errno == errno.EIO


def test_the_owner_hears_of_a_failed_log_once_and_before_anybody_else(tmp_path: Path, fs: FaultyFileSystem) -> None:
    log = open_log(tmp_path / "log", fs=fs)
    append(log, batch(3))
    told: list[str] = []
    log.on_failure = lambda: told.append("owner")
    fs.fail("sync", errno.EIO, name_part=".log", times=1)
    for _ in range(2):
        with pytest.raises(LogDirFailed):
            log.flush()
        told.append("caller")
    assert told == ["owner", "caller", "caller"]


def test_a_recovery_point_that_does_not_fit_fails_no_flush(tmp_path: Path, fs: FaultyFileSystem) -> None:
    log = open_log(tmp_path / "log", fs=fs)
    append(log, batch(3))
    log.roll(NOW_MS)
    append(log, batch(3))
    log.write_snapshot(3, ())
    fs.fail("create", errno.ENOSPC, name_part="recovery-point")
    log.flush()
    assert log.flushed_offset == 6
    fs.heal()
    assert len(contents(open_log(tmp_path / "log", fs=fs))) == 2


@pytest.mark.parametrize("name", [".index", ".timeindex", ".snapshot", "recovery-point"])
def test_small_files_that_do_not_fit_are_written_when_there_is_space(
    tmp_path: Path, fs: FaultyFileSystem, name: str
) -> None:
    log = open_log(tmp_path / "log", fs=fs)
    append(log, batch(3))
    log.roll(NOW_MS)
    fs.fail("create", errno.ENOSPC, name_part=name)
    log.flush()
    assert (log.flushed_offset, log.failed, log.segments[0].flushed) == (3, None, False)
    assert log.due_ms(may_roll=False) <= NOW_MS
    assert len(contents(log)) == 1
    fs.heal()
    log.flush()
    assert log.segments[0].flushed
    assert log.due_ms(may_roll=False) > NOW_MS


@pytest.mark.parametrize("place", ["leader-epoch", "recovery-point"])
def test_a_full_disk_refuses_the_cut_and_changes_nothing(tmp_path: Path, fs: FaultyFileSystem, place: str) -> None:
    log = open_log(tmp_path / "log", fs=fs, segment_bytes=300)
    for epoch in (1, 1, 2, 3):
        append_in_epoch(log, epoch)
    log.flush()
    before = contents(log), log.leader_epochs, log.log_end_offset
    fs.fail("write", errno.ENOSPC, name_part=place)
    for _ in range(2):
        with pytest.raises(LogDirFailed, match="disk is full"):
            log.truncate_to(8)
        assert log.failed is None
        assert (contents(log), log.leader_epochs, log.log_end_offset) == before
    append_in_epoch(log, 3)
    again = open_log(tmp_path / "log", segment_bytes=300)
    assert again.log_end_offset == log.log_end_offset
    assert again.leader_epochs == log.leader_epochs
    fs.heal()
    assert log.truncate_to(8) == 6
    assert log.leader_epochs.entries == ((1, 0),)
    append_in_epoch(log, 4)
    again = open_log(tmp_path / "log", segment_bytes=300)
    assert contents(again) == contents(log)
    assert again.leader_epochs.entries == ((1, 0), (4, 6))


@pytest.mark.parametrize("place", ["leader-epoch", ".snapshot", "log-start", ".log"])
def test_a_full_disk_refuses_to_begin_anew_and_changes_nothing(
    tmp_path: Path, fs: FaultyFileSystem, place: str
) -> None:
    log = open_log(tmp_path / "log", fs=fs, log_start_offset=0)
    append_in_epoch(log, 1)
    append_in_epoch(log, 2)
    log.set_log_start_offset(3)
    before = contents(log), log.leader_epochs, log.log_end_offset, log.log_start_offset
    offset = 2 if place == "log-start" else 100
    fs.fail("create", errno.ENOSPC, name_part=place)
    for _ in range(2):
        with pytest.raises(LogDirFailed, match="disk is full"):
            log.truncate_fully_and_start_at(offset, leader_epochs=[(1, 0), (5, 40)], producers=[])
        assert log.failed is None
        assert (contents(log), log.leader_epochs, log.log_end_offset, log.log_start_offset) == before
    fs.heal()
    log.truncate_fully_and_start_at(offset, leader_epochs=[(1, 0), (5, 40)], producers=[])
    again = open_log(tmp_path / "log", first_needed_offset=offset)
    for found in (log, again):
        assert (found.log_end_offset, contents(found)) == (offset, [])
        assert found.log_start_offset == min(3, offset)
    assert log.leader_epochs.entries == ((1, 0), (5, 40))
    assert again.leader_epochs == log.leader_epochs.truncate_to_end(offset)
    assert not again.recovery.began_anew


def test_an_io_error_before_a_cut_ends_the_log_all_the_same(tmp_path: Path, fs: FaultyFileSystem) -> None:
    log = open_log(tmp_path / "log", fs=fs)
    append_in_epoch(log, 1)
    append_in_epoch(log, 2)
    fs.fail("write", errno.EIO, name_part="leader-epoch")
    with pytest.raises(LogDirFailed, match="was not finished"):
        log.truncate_to(3)
    assert log.failed is not None


def test_closing_what_has_not_changed_writes_nothing(tmp_path: Path, fs: FaultyFileSystem) -> None:
    log = open_log(tmp_path / "log", fs=fs)
    log.begin_leader_epoch(0)
    append(log, batch(3))
    log.close()
    for _ in range(2):
        again = open_log(tmp_path / "log", fs=fs)
        again.begin_leader_epoch(5)
        before = dict(fs.calls)
        again.close()
        assert fs.calls == before
    empty = open_log(tmp_path / "empty", fs=fs)
    before = dict(fs.calls)
    empty.close()
    assert fs.calls == before
    assert open_log(tmp_path / "empty", fs=fs).recovery.clean


def test_a_close_that_fails_is_recovered_later_and_its_owner_knows(tmp_path: Path, fs: FaultyFileSystem) -> None:
    """The kernel forgets pages that it could not write: the next start finds them gone, and nothing wrong."""
    log = open_log(tmp_path / "log", fs=fs)
    heard: list[None] = []
    log.on_failure = lambda: heard.append(None)
    append(log, batch(3))
    fs.fail("sync")
    with pytest.raises(OSError, match="Input/output error"):
        log.close()
    assert heard == [None]
    assert log.failed is not None
    fs.heal()
    again = open_log(tmp_path / "log", fs=fs)
    assert not again.recovery.clean
    assert again.log_end_offset == 3


def test_a_full_disk_at_the_close_loses_no_record_and_is_no_failure(tmp_path: Path, fs: FaultyFileSystem) -> None:
    log = open_log(tmp_path / "log", fs=fs)
    heard: list[None] = []
    log.on_failure = lambda: heard.append(None)
    append(log, batch(3))
    fs.fail("create", errno.ENOSPC)
    with pytest.raises(OSError, match="No space left"):
        log.close()
    assert heard == []
    assert log.flushed_offset == 3
    fs.heal()
    assert open_log(tmp_path / "log", fs=fs).log_end_offset == 3


def test_an_unreadable_disk_is_told_when_the_log_is_opened(tmp_path: Path, fs: FaultyFileSystem) -> None:
    fs.fail("sizes")
    with pytest.raises(LogDirFailed, match="cannot be opened"):
        open_log(tmp_path / "log", fs=fs)


def test_a_segment_that_cannot_be_removed_is_found_again_at_the_next_start(
    tmp_path: Path, fs: FaultyFileSystem
) -> None:
    log = open_log(tmp_path / "log", fs=fs, segment_bytes=100)
    for _ in range(4):
        append(log, batch(1))
    log.flush()
    fs.fail("unlink", errno.EIO, name_part=".log")
    with pytest.raises(LogDirFailed):
        log.delete_local_before(2)
    assert log.local_log_start_offset == 2
    fs.heal()
    log.close()
    again = open_log(tmp_path / "log", fs=fs)
    assert again.local_log_start_offset == 0
    assert len(again.delete_local_before(2)) == 2


@pytest.mark.parametrize(
    ("operation", "code", "name_part"),
    [
        ("sync", errno.EIO, ".snapshot"),
        ("sync", errno.ENOSPC, ".snapshot"),  # Never only a full disk: what was to be written may be lost.
        ("create", errno.EIO, "leader-epochs"),
    ],
)
def test_segments_stay_and_the_log_fails_where_what_they_say_is_not_kept(
    tmp_path: Path, fs: FaultyFileSystem, operation: str, code: int, name_part: str
) -> None:
    log = open_log(tmp_path / "log", fs=fs, segment_bytes=1)
    log.producer_source = lambda: (KNOWN,)
    for epoch in (1, 2, 3):
        append_in_epoch(log, epoch)
    heard: list[None] = []
    log.on_failure = lambda: heard.append(None)
    fs.fail(operation, code, name_part=name_part)
    with pytest.raises(LogDirFailed, match="restart"):
        log.delete_local_before(6)
    assert heard == [None]
    with pytest.raises(LogDirFailed, match="restart"):
        append(log, batch(1))
    log.close()
    fs.heal()
    write_again(fs, log.directory)
    assert [name for name in fs.unwritten.drop() if name.endswith(".snapshot")] == []
    again = open_log(tmp_path / "log", fs=fs)
    assert again.local_log_start_offset == 0
    assert again.latest_snapshot(6) == (6, (KNOWN,))
    assert len(again.delete_local_before(6)) == 2


@pytest.mark.parametrize("is_full", [False, True])
def test_a_power_loss_takes_no_producer_whose_batches_are_no_longer_here(tmp_path: Path, is_full: bool) -> None:
    gone = 0
    for seed in range(20):
        directory, fs = tmp_path / str(seed) / "log", FaultyFileSystem(stash=tmp_path / str(seed) / "stash")
        log = open_log(directory, fs=fs, segment_bytes=100)
        log.producer_source = lambda: (KNOWN,)
        for epoch in (1, 2, 3):
            append_in_epoch(log, epoch)
        fs.space_left = 0 if is_full else None
        log.flush()
        log.delete_local_before(6)
        fs.heal()
        fs.lose_power(directory, random.Random(seed))
        again = open_log(directory, fs=fs)
        gone += again.local_log_start_offset == 6
        assert again.latest_snapshot(6) == (6, (KNOWN,))
    assert gone, "otherwise the power loss gave all of them back"


LIMITED = """
import resource, signal, sys
from pathlib import Path
from tests.unit.hot.log_files import append, batch, contents, open_log
from tiered.errors import LogDirFailed
from tiered.hot.log import Log

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
log = open_log(Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, resource.RLIM_INFINITY))
refused = 0
while not refused:
    try:
        append(log, batch(5, value_bytes=100))
    except LogDirFailed as error:
        assert "disk is full" in str(error), error
        refused = log.log_end_offset
assert len(contents(log)) * 5 == refused
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
append(log, batch(5, value_bytes=100))
log.close()
print(refused + 5)
"""


def test_a_real_limit_on_the_file_size_refuses_and_heals(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path / "log")],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert open_log(tmp_path / "log").log_end_offset == int(done.stdout)


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE])
def test_a_log_for_which_no_file_can_be_opened_has_not_failed_and_goes_on_afterwards(
    tmp_path: Path, fs: FaultyFileSystem, code: int
) -> None:
    log = open_log(tmp_path / "log", fs=fs, segment_bytes=100)
    for _ in range(4):
        append(log, batch(1))
    for operation in ("open", "create", "sync_directory"):
        fs.fail(operation, code)
    tries: list[Callable[[], object]] = [
        log.flush,
        lambda: log.roll(NOW_MS),
        lambda: log.delete_local_before(2),
        lambda: log.truncate_to(3),
        lambda: open_log(tmp_path / "other", fs=fs),
    ]
    for attempt in tries:
        with pytest.raises(LogDirFailed, match="LimitNOFILE="):
            attempt()
    assert (log.failed, log.local_log_start_offset, log.log_end_offset) == (None, 0, 4)
    fs.heal()
    log.flush()
    assert log.flushed_offset == 4
    assert len(log.delete_local_before(2)) == 2
    assert log.truncate_to(3) == 3
    log.close()
    assert open_log(tmp_path / "log", fs=fs).log_end_offset == 3
