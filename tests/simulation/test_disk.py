"""The simulated disk: power losses, failures, and the contract of every file system."""

import errno
from pathlib import Path
from random import Random

import pytest

from tests.simulation.disk import Disk, ProcessFiles
from tests.simulation.loop import Process, SimLoop
from tiered.hot.file_system import read_whole, replace_file, write_all


@pytest.fixture
def machine(tmp_path: Path, loop: SimLoop) -> tuple[Disk, ProcessFiles]:
    disk = Disk(tmp_path / "b1")
    disk.root.mkdir()
    return disk, ProcessFiles(disk, Process(loop, "b1"))


def test_a_power_loss_takes_what_was_not_synced_and_nothing_else(machine: tuple[Disk, ProcessFiles]) -> None:
    disk, files = machine
    lengths = set()
    for number in range(30):
        path = str(disk.root / f"{number}.log")
        file = files.create(path)
        files.sync_directory(str(disk.root))
        write_all(files, file, b"durable", 0)
        files.sync(file)
        write_all(files, file, b"lost", 7)
        disk.lose_power(Random(number))
        data = Path(path).read_bytes()
        assert data[:7] == b"durable"
        lengths.add(len(data.rstrip(b"\0")))
    assert lengths == {7, 8, 9, 10, 11}


def test_a_rename_is_lost_without_a_sync_of_its_directory(machine: tuple[Disk, ProcessFiles]) -> None:
    disk, files = machine
    path = str(disk.root / "marker")
    replace_file(files, path, b"old", durable=True)
    kept = set()
    for number in range(30):
        replace_file(files, path, b"new", durable=False)
        disk.lose_power(Random(number))
        kept.add(read_whole(files, path, max_bytes=10))
        replace_file(files, path, b"old", durable=True)
    assert b"old" in kept
    replace_file(files, path, b"new", durable=True)
    disk.lose_power(Random(1))
    assert read_whole(files, path, max_bytes=10) == b"new"


def test_a_full_and_a_broken_disk_say_so_until_healed(machine: tuple[Disk, ProcessFiles]) -> None:
    disk, files = machine
    file = files.create(str(disk.root / "a"))
    disk.is_full = True
    with pytest.raises(OSError, match="No space") as full:
        files.write(file, b"x", 0)
    assert full.value.errno == errno.ENOSPC
    disk.is_full = False
    disk.broken.add("sync")
    with pytest.raises(OSError, match="Input/output"):
        files.sync(file)
    disk.broken.clear()
    files.sync(file)


def test_a_dead_process_touches_no_file(machine: tuple[Disk, ProcessFiles]) -> None:
    disk, files = machine
    files._process.kill()
    with pytest.raises(OSError, match="dead"):
        files.create(str(disk.root / "a"))


def test_what_a_failed_fsync_left_is_lost_unless_it_is_written_again(machine: tuple[Disk, ProcessFiles]) -> None:
    disk, files = machine
    left = {}
    for name in ("trusted", "written again"):
        file = files.create(str(disk.root / name))
        write_all(files, file, b"synced", 0)
        files.sync(file)
        write_all(files, file, b"unwritten", 6)
        disk.broken.add("sync")
        with pytest.raises(OSError, match="Input/output"):
            files.sync(file)
        disk.broken.clear()
        if name == "written again":
            write_all(files, file, b"unwritten", 6)
        write_all(files, file, b"later", 15)
        files.sync(file)
        assert disk.has_unwritten_pages == (name == "trusted")
        assert disk.drop_dirty_pages() == (name == "trusted")
        left[name] = Path(file.name).read_bytes()
    assert left == {"trusted": b"synced" + bytes(9) + b"later", "written again": b"syncedunwrittenlater"}
