"""Opening what a process left behind."""

import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.unit.hot.faulty_file_system import FaultyFileSystem
from tests.unit.hot.log_files import NOW_MS, append, batch, contents, open_log
from tiered.errors import CorruptFile, OutOfOrderSequence, ShuttingDown
from tiered.formats import record_batch
from tiered.hot import opening
from tiered.hot.file_system import RealFileSystem
from tiered.hot.log import Log, LogConfig
from tiered.hot.marks import BEGUN_EPOCH_FILE, LEADER_EPOCHS_FILE
from tiered.rules.partition import producer_state
from tiered.runtime import SystemClock

LAST = f"{0:020}.log"


def left_by_kill(source: Path, target: Path) -> Path:
    """What is on disk at this moment, as a killed process leaves it."""
    shutil.copytree(source, target)
    return target


def some_log(directory: Path, count: int = 6, **config: Any) -> Log:
    log = open_log(directory, **config)
    log.begin_leader_epoch(1)
    for number in range(count):
        append(log, batch(1 + number % 3, marker=number), epoch=1)
    return log


def test_a_new_directory_is_a_clean_empty_log(tmp_path: Path) -> None:
    log = open_log(tmp_path / "topic" / "0")
    assert log.recovery.clean
    assert (log.log_start_offset, log.log_end_offset, log.flushed_offset) == (0, 0, 0)


def test_a_clean_close_is_opened_without_a_scan(tmp_path: Path) -> None:
    log = some_log(tmp_path, 50, segment_bytes=600)
    before, segments = contents(log), log.segments
    log.close()
    again = open_log(tmp_path, segment_bytes=600)
    assert again.recovery.clean
    assert again.recovery.scanned_bytes == 0
    assert contents(again) == before
    assert [each.max_timestamp_ms for each in again.segments] == [each.max_timestamp_ms for each in segments]
    assert again.flushed_offset == again.log_end_offset
    append(again, batch(1), epoch=1)
    assert contents(again)[:-1] == before


def test_torn_tail_is_cut_at_last_whole_batch_wherever_it_is_torn(tmp_path: Path) -> None:
    log = some_log(tmp_path / "log", 5)
    whole = contents(log)
    ends = [offset for offset, _ in whole] + [log.log_end_offset]
    data = (tmp_path / "log" / LAST).read_bytes()
    last_start = len(data) - len(whole[-1][1]) - 16
    torn = left_by_kill(tmp_path / "log", tmp_path / "torn")
    for size in range(last_start, len(data)):
        (torn / LAST).write_bytes(data[:size])
        again = open_log(torn)
        assert again.log_end_offset == ends[-2]
        assert again.recovery.truncated_bytes == size - last_start
        assert (torn / LAST).stat().st_size == last_start
        assert contents(again) == whole[:-1]
        if size % 40 == 0:
            append(again, batch(2), epoch=1)
            assert open_log(torn).log_end_offset == ends[-2] + 2


@pytest.mark.parametrize("filler", [b"\0", b"\xff", b"\x02"])
def test_a_tail_of_garbage_is_cut(tmp_path: Path, filler: bytes) -> None:
    log = some_log(tmp_path / "log", 5)
    whole = contents(log)
    for length in (1, 60, 61, 5_000, 300_000):
        torn = left_by_kill(tmp_path / "log", tmp_path / f"torn{length}")
        with (torn / LAST).open("ab") as file:
            file.write(filler * length)
        assert contents(open_log(torn)) == whole


def test_a_flipped_bit_above_the_recovery_point_ends_the_log_before_its_batch(tmp_path: Path) -> None:
    log = some_log(tmp_path / "log", 12)
    whole = contents(log)
    data = (tmp_path / "log" / LAST).read_bytes()
    starts = [0]
    for _, body in whole:
        starts.append(starts[-1] + len(body) + 16)
    chance = random.Random(5)
    for _ in range(60):
        position = chance.randrange(len(data))
        number = max(index for index, start in enumerate(starts) if start <= position)
        if 12 <= position - starts[number] < 16:
            continue  # The leader epoch lies outside the CRC.
        bad = bytearray(data)
        bad[position] ^= 1 << chance.randrange(8)
        flipped = left_by_kill(tmp_path / "log", tmp_path / "flipped")
        (flipped / LAST).write_bytes(bad)
        assert contents(open_log(flipped)) == whole[:number]
        shutil.rmtree(flipped)


def test_only_what_lies_above_the_recovery_point_is_scanned(tmp_path: Path) -> None:
    log = some_log(tmp_path / "log", 200, segment_bytes=2_000)
    log.flush()
    flushed_bytes = log.size_bytes
    for number in range(5):
        append(log, batch(1, marker=number), epoch=1)
    whole = contents(log)
    again = open_log(left_by_kill(tmp_path / "log", tmp_path / "killed"), segment_bytes=2_000)
    assert again.recovery.scanned_bytes == log.size_bytes - flushed_bytes
    assert not again.recovery.rebuilt_indexes
    assert contents(again) == whole
    assert again.flushed_offset >= 200


def test_segments_after_a_cut_are_put_aside(tmp_path: Path) -> None:
    log = some_log(tmp_path / "log", 60, segment_bytes=600)
    bases = [segment.base_offset for segment in log.segments]
    whole = contents(log)
    killed = left_by_kill(tmp_path / "log", tmp_path / "killed")
    with (killed / f"{bases[2]:020}.log").open("r+b") as file:
        file.truncate(250)
    again = open_log(killed, segment_bytes=600)
    found = contents(again)
    assert found == whole[: len(found)]
    assert bases[2] < again.log_end_offset < bases[3]
    assert len(again.recovery.dropped_files) == len(bases) - 3
    assert all(
        Path(name).name.endswith(".log.deleted") and Path(name).exists() for name in again.recovery.dropped_files
    )
    assert any("was cut" in note for note in again.recovery.notes)
    append(again, batch(1), epoch=1)
    again.close()
    assert not open_log(killed, segment_bytes=600).recovery.dropped_files
    assert not list(killed.glob("*.deleted"))


def test_damage_below_the_recovery_point_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    log = some_log(tmp_path / "log", 60, segment_bytes=600)
    log.close()
    bases = [segment.base_offset for segment in log.segments]
    killed = left_by_kill(tmp_path / "log", tmp_path / "short")
    name = f"{bases[2]:020}.log"
    with (killed / name).open("r+b") as file:
        file.truncate(250)
    with pytest.raises(CorruptFile, match=name):
        open_log(killed, segment_bytes=600)
    (killed / "recovery-point").unlink()
    cut = open_log(killed, segment_bytes=600)
    assert bases[2] < cut.log_end_offset < bases[3]


@pytest.mark.parametrize("which", [0, 2, -1])
def test_a_missing_segment_is_an_error_unless_it_is_not_needed(tmp_path: Path, which: int) -> None:
    log = some_log(tmp_path / "log", 60, segment_bytes=600)
    log.close()
    segment = log.segments[which]
    missing = left_by_kill(tmp_path / "log", tmp_path / "missing")
    Path(str(missing / f"{segment.base_offset:020}.log")).unlink()
    with pytest.raises(CorruptFile, match=str(missing)):
        open_log(missing, segment_bytes=600, first_needed_offset=0)
    again = open_log(missing, segment_bytes=600, first_needed_offset=segment.end_offset)
    assert again.log_end_offset == log.log_end_offset
    assert again.segments[0].base_offset == segment.end_offset


def test_all_segments_missing_is_an_error_unless_the_store_has_everything(tmp_path: Path) -> None:
    log = some_log(tmp_path, 10)
    end = log.log_end_offset
    log.close()
    (tmp_path / LAST).unlink()
    with pytest.raises(CorruptFile):
        open_log(tmp_path)
    assert open_log(tmp_path, first_needed_offset=end).log_end_offset == end


def test_a_log_behind_the_object_store_begins_anew_there(tmp_path: Path) -> None:
    log = some_log(tmp_path, 10)
    del log
    again = open_log(tmp_path, first_needed_offset=500)
    assert (again.local_log_start_offset, again.log_end_offset) == (500, 500)
    assert len(again.recovery.dropped_files) == 1
    assert again.recovery.began_anew
    again.restore_leader_epochs([(1, 400), (2, 450)])
    assert again.leader_epochs.entries == ((1, 0), (2, 450))


def test_only_a_log_without_any_past_began_anew(tmp_path: Path) -> None:
    assert not open_log(tmp_path / "new").recovery.began_anew
    assert open_log(tmp_path / "cold", first_needed_offset=7).recovery.began_anew
    log = some_log(tmp_path / "log", 3)
    log.roll(NOW_MS)
    log.flush()
    log.delete_local_before(log.log_end_offset)
    log.close()
    assert not open_log(tmp_path / "log").recovery.began_anew


def test_two_files_with_the_same_offsets_are_an_error(tmp_path: Path) -> None:
    log = some_log(tmp_path, 10)
    del log
    shutil.copy(tmp_path / LAST, tmp_path / f"{3:020}.log")
    with pytest.raises(CorruptFile, match="same offsets"):
        open_log(tmp_path)


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[tuple[int, bytes]]]:
    """The folder of a closed log of a few segments with many entries in each index, and what is in the log."""
    folder = tmp_path_factory.mktemp("indexed") / "log"
    log = open_log(folder, segment_bytes=4_000, index_interval_bytes=100)
    for number in range(150):
        append(log, batch(1, marker=number, timestamps_ms=[1_000 + number]))
        if number == 75:
            log.flush()
    whole = contents(log)
    log.close()
    return folder, whole


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
@pytest.mark.parametrize("damage", ["missing", "short", "half an entry", "garbage", "empty", "of another time"])
def test_a_bad_index_is_rebuilt(
    tmp_path: Path, indexed: tuple[Path, list[tuple[int, bytes]]], suffix: str, damage: str
) -> None:
    source, whole = indexed
    good = {path.name: path.read_bytes() for path in source.glob("*index")}
    for base in [int(path.stem) for path in source.glob("*.log")]:
        folder = left_by_kill(source, tmp_path / f"bad{base}")
        path = folder / f"{base:020}.{suffix}"
        data = path.read_bytes()
        if damage == "missing":
            path.unlink()
        else:
            entry = 8 if suffix == "index" else 12
            bad = {
                "short": data[: len(data) // entry // 2 * entry],
                "half an entry": data[:-3],
                "garbage": b"\xff" * (len(data) + entry),
                "empty": b"",
                "of another time": data[entry:],
            }
            path.write_bytes(bad[damage])
        again = open_log(folder, segment_bytes=4_000, index_interval_bytes=100)
        assert again.recovery.rebuilt_indexes == [base]
        assert contents(again) == whole
        for number in range(0, 150, 10):
            assert again.offset_for_timestamp(1_000 + number, 150) == (number, 1_000 + number)
            part = again.read(number, 1, end_offset=150)
            assert part is not None
            assert record_batch.read_header(part.read()).base_offset == number
        again.close()
        assert {path.name: path.read_bytes() for path in folder.glob("*index")} == good


def test_an_index_that_goes_bad_while_the_log_is_open_is_rebuilt_when_read(tmp_path: Path) -> None:
    log = some_log(tmp_path, 100, segment_bytes=2_000, index_interval_bytes=100)
    log.close()
    again = open_log(tmp_path, segment_bytes=2_000, index_interval_bytes=100)
    path = tmp_path / f"{again.segments[1].base_offset:020}.index"
    good = path.read_bytes()
    path.write_bytes(b"\1\2\3")
    assert len(contents(again)) == 100
    assert path.read_bytes() == good


@pytest.mark.parametrize("entry", [bytes(8), b"\0\0\0\6" + bytes(4)], ids=["all", "half"])
def test_a_log_is_cut_where_a_power_loss_took_the_one_entry_of_an_index(tmp_path: Path, entry: bytes) -> None:
    log = some_log(tmp_path, 6, segment_bytes=10_000, index_interval_bytes=300)
    whole = contents(log)
    log.close()
    path = tmp_path / f"{0:020}.index"
    assert len(path.read_bytes()) == 8
    path.write_bytes(entry)
    again = open_log(tmp_path, segment_bytes=10_000, index_interval_bytes=300)
    assert again.truncate_to(9) == 9
    assert contents(again) == whole[:5]


@pytest.mark.parametrize("content", [b"", b"{}", b'{"kind":"recovery-point"}\n00000000\n', b"\xff" * 100])
def test_a_bad_recovery_point_only_means_more_to_scan(tmp_path: Path, content: bytes) -> None:
    log = some_log(tmp_path, 30, segment_bytes=600)
    whole = contents(log)
    log.close()
    (tmp_path / "recovery-point").write_bytes(content)
    again = open_log(tmp_path, segment_bytes=600)
    assert contents(again) == whole
    assert again.recovery.scanned_bytes == again.size_bytes
    assert again.flushed_offset == 0
    again.flush()
    assert again.flushed_offset == again.log_end_offset


def test_leader_epochs_are_found_in_the_batches_when_their_file_is_lost(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=300)
    for epoch in (1, 4, 5):
        log.begin_leader_epoch(epoch)
        for _ in range(4):
            append(log, batch(1), epoch=epoch)
    expected = log.leader_epochs.entries
    assert expected == ((1, 0), (4, 4), (5, 8))
    log.close()
    for content in (None, b"", b"rubbish\n"):
        if content is None:
            (tmp_path / "leader-epochs").unlink()
        else:
            (tmp_path / "leader-epochs").write_bytes(content)
        again = open_log(tmp_path, segment_bytes=300)
        assert again.leader_epochs.entries == expected
        again.close()


def test_an_epoch_that_wrote_nothing_is_forgotten(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.begin_leader_epoch(1)
    append(log, batch(1), epoch=1)
    log.begin_leader_epoch(2)
    log.close()
    assert open_log(tmp_path).leader_epochs.entries == ((1, 0),)


def producing(log: Log, numbers: range, *, producer_id: int = 7) -> None:
    for number in numbers:
        append(log, batch(1, producer_id=producer_id, producer_epoch=0, base_sequence=number))


@pytest.mark.parametrize("ending", ["clean", "killed", "killed after a flush", "damaged snapshots", "no snapshots"])
def test_producers_are_known_again(tmp_path: Path, ending: str) -> None:
    log = open_log(tmp_path / "log", segment_bytes=500)
    producing(log, range(10))
    append(log, batch(3))
    producing(log, range(5), producer_id=8)
    if ending == "killed after a flush":
        log.flush()
    producing(log, range(10, 12))
    expected = sorted(log.producers_at_end(), key=lambda entry: entry.producer_id)
    assert [entry.producer_id for entry in expected] == [7, 8]
    if ending in ("clean", "damaged snapshots", "no snapshots"):
        log.close()
    folder = left_by_kill(tmp_path / "log", tmp_path / "left")
    for path in folder.glob("*.snapshot"):
        if ending == "damaged snapshots":
            path.write_bytes(path.read_bytes()[:-1])
        elif ending == "no snapshots":
            path.unlink()
    again = open_log(folder, segment_bytes=500)
    assert sorted(again.recovery.producers, key=lambda entry: entry.producer_id) == expected
    seven = next(entry for entry in again.recovery.producers if entry.producer_id == 7)
    duplicate = record_batch.read_header(batch(1, producer_id=7, producer_epoch=0, base_sequence=11))
    assert isinstance(producer_state.check(seven, duplicate), producer_state.Duplicate)
    with pytest.raises(OutOfOrderSequence):
        gap = record_batch.read_header(batch(1, producer_id=7, producer_epoch=0, base_sequence=13))
        producer_state.check(seven, gap)


def test_unflushed_batches_are_read_once_where_no_producer_has_an_id(tmp_path: Path) -> None:
    some_log(tmp_path / "log")
    fs = FaultyFileSystem(stash=tmp_path / "stash")
    assert open_log(tmp_path / "log", fs=fs).recovery.scanned_bytes > 0
    assert (fs.calls["open"], fs.calls["read"], fs.calls.get("unlink", 0)) == (1, 1, 0)


def test_snapshots_beyond_the_recovered_end_are_forgotten(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    producing(log, range(4))
    log.write_snapshot(4, log.producers_at_end())
    with (tmp_path / LAST).open("r+b") as file:
        file.truncate(log.size_bytes - 1)
    again = open_log(tmp_path)
    assert again.log_end_offset == 3
    assert again.latest_snapshot(100) is None
    (entry,) = again.recovery.producers
    assert entry.batches[-1].last_sequence == 2


def test_what_unfinished_work_left_is_removed(tmp_path: Path) -> None:
    log = some_log(tmp_path, 5)
    log.close()
    for name in ("recovery-point.tmp", f"{77:020}.index", f"{77:020}.timeindex"):
        (tmp_path / name).write_bytes(b"left")
    open_log(tmp_path)
    assert not [path for path in tmp_path.iterdir() if path.name.endswith(".tmp") or path.name.startswith(f"{77:020}")]


def test_a_restart_in_the_middle_of_a_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    expected = 0
    for round_number in range(6):
        log = open_log(tmp_path, segment_bytes=700, now_ms=NOW_MS + round_number)
        assert log.log_end_offset == expected
        for number in range(7):
            append(log, batch(2, marker=number))
        expected = log.log_end_offset
        if round_number % 3 == 0:
            log.flush()
        elif round_number % 3 == 1:
            log.close()
    assert len(contents(open_log(tmp_path))) == 42


def test_a_link_in_the_place_of_a_segment_is_not_read_and_its_records_are_missed(tmp_path: Path) -> None:
    some_log(tmp_path / "log", 5).close()
    secret = tmp_path / "secret"
    (tmp_path / "log" / LAST).rename(secret)
    before = secret.read_bytes()
    (tmp_path / "log" / LAST).symlink_to(secret)
    with pytest.raises(CorruptFile):
        open_log(tmp_path / "log")
    assert secret.read_bytes() == before


def test_an_opening_may_be_stopped_at_any_batch_and_the_next_one_loses_nothing(tmp_path: Path) -> None:
    log = some_log(tmp_path / "log", 12, segment_bytes=400)
    log.flush()
    for number in range(12, 30):
        append(log, batch(1, marker=number, producer_id=7, base_sequence=number - 12), epoch=1)
    whole = contents(log)
    (tmp_path / "log" / LEADER_EPOCHS_FILE).unlink(missing_ok=True)

    def opened(directory: Path, looks: int) -> tuple[Log | None, int]:
        """The log, if it was open before somebody had looked so often whether to stop, and how often that was."""
        count = 0

        def is_stopping() -> bool:
            nonlocal count
            count += 1
            return count > looks

        try:
            config = LogConfig(segment_bytes=400)
            return opening.open_log(
                directory, RealFileSystem(), config=config, now_ms=NOW_MS, is_stopping=is_stopping
            ), count
        except ShuttingDown:
            return None, count

    _, most = opened(left_by_kill(tmp_path / "log", tmp_path / "most"), 10_000)
    assert most > 2 * len(whole), "epochs, the scan, and producers"
    for looks in range(most):
        killed = left_by_kill(tmp_path / "log", tmp_path / f"stopped-{looks}")
        assert opened(killed, looks) == (None, looks + 1)
        again = open_log(killed, segment_bytes=400)
        assert contents(again) == whole
        assert [entry.producer_id for entry in again.recovery.producers] == [7]
        again.discard()


def test_an_epoch_that_wrote_nothing_is_known_after_a_restart_and_is_none_of_the_logs(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.begin_leader_epoch(1)
    append(log, batch(2), epoch=1)
    log.begin_leader_epoch(4, leaves_word=True)
    del log
    again = open_log(tmp_path)
    assert again.recovery.begun_epoch == 4
    assert again.leader_epochs.entries == ((1, 0),)
    again.forget_empty_leader_epochs()
    again.discard()
    assert open_log(tmp_path).recovery.begun_epoch is None, "another one led"


@pytest.mark.parametrize("is_torn", [False, True])
def test_an_epoch_that_batches_tell_of_or_that_a_power_loss_tore_is_not_taken_from_its_file(
    tmp_path: Path, is_torn: bool
) -> None:
    log = open_log(tmp_path)
    log.begin_leader_epoch(4, leaves_word=True)
    path = tmp_path / BEGUN_EPOCH_FILE
    if is_torn:
        path.write_bytes(path.read_bytes()[:-4])
    else:
        append(log, batch(1), epoch=4)
    del log
    assert open_log(tmp_path).recovery.begun_epoch is None
    assert not path.exists(), "cut to where the epoch began, the log would seem to be further than it is"


def test_after_a_kill_the_active_segment_is_as_old_as_it_may_be(tmp_path: Path) -> None:
    some_log(tmp_path / "log", 12, segment_bytes=400)
    torn = left_by_kill(tmp_path / "log", tmp_path / "torn")
    *_, before, active = sorted(torn.glob("*.log"))
    now_ms = SystemClock().now_ms()
    for path, age_s in ((before, 3000), (active, 60)):
        os.utime(path, (now_ms / 1000 - age_s, now_ms / 1000 - age_s))
    since_ms = open_log(torn, segment_bytes=400, now_ms=now_ms).active_since_ms
    assert since_ms == pytest.approx(now_ms - 3_000_000, abs=2), "its first record came after the last one before it"
    (alone,) = left_by_kill(Path(some_log(tmp_path / "short", 2).directory), tmp_path / "torn-too").glob("*.log")
    os.utime(alone, (now_ms / 1000 - 60, now_ms / 1000 - 60))
    assert open_log(alone.parent, now_ms=now_ms).active_since_ms == pytest.approx(now_ms - 60_000, abs=2)
