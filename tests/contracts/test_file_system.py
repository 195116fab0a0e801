"""What the hot room relies on in a file system; holds for the real one and for the tests' faulty one."""

import errno
from pathlib import Path

import pytest

from tests.unit.hot.faulty_file_system import FaultyFileSystem
from tiered.hot.file_system import FileSystem, RealFileSystem, read_whole, replace_file, write_all


@pytest.fixture(params=["real", "faulty"])
def fs(request: pytest.FixtureRequest, tmp_path: Path) -> FileSystem:
    if request.param == "real":
        return RealFileSystem()
    return FaultyFileSystem(stash=tmp_path / "stash")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    folder.mkdir()
    return folder


def test_what_was_written_is_read_at_any_position(fs: FileSystem, folder: Path) -> None:
    with fs.create(str(folder / "a")) as file:
        write_all(fs, file, memoryview(b"0123456789"), 0)
        write_all(fs, file, bytearray(b"abc"), 10)
        fs.sync(file)
        assert fs.read(file, 5, 8) == b"89abc"
        assert fs.read(file, 100, 11) == b"bc"
        assert fs.read(file, 100, 13) == b""


def test_an_existing_file_is_never_created_over(fs: FileSystem, folder: Path) -> None:
    (folder / "a").write_bytes(b"data")
    with pytest.raises(FileExistsError):
        fs.create(str(folder / "a"))
    assert (folder / "a").read_bytes() == b"data"


def test_opening_a_missing_file_fails(fs: FileSystem, folder: Path) -> None:
    with pytest.raises(FileNotFoundError):
        fs.open(str(folder / "none"))
    with pytest.raises(FileNotFoundError):
        fs.open(str(folder / "none"), writable=True)
    assert read_whole(fs, str(folder / "none"), max_bytes=10) is None


def test_a_file_opened_for_reading_cannot_be_written(fs: FileSystem, folder: Path) -> None:
    (folder / "a").write_bytes(b"data")
    with fs.open(str(folder / "a")) as file, pytest.raises(OSError, match="Bad file descriptor"):
        fs.write(file, b"x", 0)


def test_an_opened_file_keeps_its_bytes_and_can_be_extended(fs: FileSystem, folder: Path) -> None:
    (folder / "a").write_bytes(b"data")
    with fs.open(str(folder / "a"), writable=True) as file:
        write_all(fs, file, b"more", 4)
    assert (folder / "a").read_bytes() == b"datamore"


def test_truncation_cuts_and_extends(fs: FileSystem, folder: Path) -> None:
    with fs.create(str(folder / "a")) as file:
        write_all(fs, file, b"0123456789", 0)
        fs.truncate(file, 4)
        assert fs.read(file, 10, 0) == b"0123"
        fs.truncate(file, 6)
        assert fs.read(file, 10, 0) == b"0123\0\0"


def test_what_is_reserved_changes_no_size_and_goes_back_with_a_truncation(fs: FileSystem, folder: Path) -> None:
    with fs.create(str(folder / "a")) as file:
        write_all(fs, file, b"0123456789", 0)
        fs.reserve(file, 10, 1 << 20)
        assert fs.sizes(str(folder)) == {"a": 10}
        assert (folder / "a").stat().st_blocks * 512 >= 1 << 20
        assert fs.read(file, 20, 0) == b"0123456789"
        fs.truncate(file, 10)
        assert (folder / "a").stat().st_blocks * 512 < 1 << 20
        assert fs.read(file, 20, 0) == b"0123456789"
    with fs.open(str(folder / "a")) as file, pytest.raises(OSError, match="Bad file descriptor"):
        fs.reserve(file, 10, 1 << 20)


def test_an_unlinked_file_stays_readable_while_open(fs: FileSystem, folder: Path) -> None:
    (folder / "a").write_bytes(b"data")
    with fs.open(str(folder / "a")) as file:
        fs.unlink(str(folder / "a"))
        assert fs.read(file, 10, 0) == b"data"
    assert fs.sizes(str(folder)) == {}
    with pytest.raises(FileNotFoundError):
        fs.unlink(str(folder / "a"))


def test_rename_replaces_in_one_step(fs: FileSystem, folder: Path) -> None:
    (folder / "a").write_bytes(b"new")
    (folder / "b").write_bytes(b"old")
    fs.rename(str(folder / "a"), str(folder / "b"))
    fs.sync_directory(str(folder))
    assert fs.sizes(str(folder)) == {"b": 3}
    assert read_whole(fs, str(folder / "b"), max_bytes=10) == b"new"


def test_sizes_lists_regular_files_only(fs: FileSystem, folder: Path) -> None:
    (folder / "a").write_bytes(b"data")
    (folder / "inner").mkdir()
    (folder / "link").symlink_to(folder / "a")
    assert fs.sizes(str(folder)) == {"a": 4}
    with pytest.raises(FileNotFoundError):
        fs.sizes(str(folder / "missing"))


def test_directories_are_made_with_their_parents_and_may_exist(fs: FileSystem, folder: Path) -> None:
    for names in (("a", "b"), ("b", "c")):
        fs.make_directories(str(folder / "x" / "y"), names)
        assert all((folder / "x" / "y" / name).is_dir() for name in names)


def test_directories_that_a_power_loss_may_take_are_not_there(folder: Path) -> None:
    class Unsynced(RealFileSystem):
        def sync_directory(self, path: str) -> None:
            raise OSError(errno.EIO, "it is not on disk")

    (folder / "old").mkdir()
    with pytest.raises(OSError, match="not on disk"):
        Unsynced().make_directories(str(folder), ("new", "old"))
    assert [each.name for each in folder.iterdir()] == ["old"]


@pytest.mark.parametrize("durable", [True, False])
def test_replacing_a_file_leaves_nothing_else_behind(fs: FileSystem, folder: Path, durable: bool) -> None:
    (folder / "a.tmp").write_bytes(b"left by a crash")
    for content in (b"first", b"second, longer", b"3"):
        replace_file(fs, str(folder / "a"), content, durable=durable)
        assert fs.sizes(str(folder)) == {"a": len(content)}
        assert read_whole(fs, str(folder / "a"), max_bytes=100) == content


def test_a_file_is_closed_when_its_last_reference_goes(fs: FileSystem, folder: Path) -> None:
    file = fs.create(str(folder / "a"))
    link = Path(f"/proc/self/fd/{file.fileno()}")
    assert link.readlink() == folder / "a"
    del file
    # Its number may be another file's by now: threads of earlier tests open files too.
    assert not link.is_symlink() or link.readlink() != folder / "a"


def test_short_writes_are_completed(tmp_path: Path, folder: Path) -> None:
    fs = FaultyFileSystem(stash=tmp_path / "stash", largest_write=3)
    with fs.create(str(folder / "a")) as file:
        write_all(fs, file, b"0123456789", 0)
    assert (folder / "a").read_bytes() == b"0123456789"


@pytest.mark.parametrize("operation", ["create", "write", "sync", "rename"])
def test_a_failed_replacement_leaves_the_old_content(tmp_path: Path, folder: Path, operation: str) -> None:
    fs = FaultyFileSystem(stash=tmp_path / "stash")
    replace_file(fs, str(folder / "a"), b"old", durable=True)
    fs.fail(operation, errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        replace_file(fs, str(folder / "a"), b"new", durable=True)
    assert fs.sizes(str(folder)) == {"a": 3}
    assert (folder / "a").read_bytes() == b"old"


def test_a_full_disk_takes_what_fits_and_then_refuses(tmp_path: Path, folder: Path) -> None:
    fs = FaultyFileSystem(stash=tmp_path / "stash", space_left=4)
    with fs.create(str(folder / "a")) as file, pytest.raises(OSError, match="No space left"):
        write_all(fs, file, b"0123456789", 0)
    assert (folder / "a").read_bytes() == b"0123"
