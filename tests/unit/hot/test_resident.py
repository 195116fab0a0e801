"""Whether bytes are in memory, and bringing them there."""

import os
import time
from pathlib import Path

import pytest

from tiered.file_slice import FileSlice, OpenFile
from tiered.hot.resident import is_resident, make_resident


def sliced(path: Path, position: int, length: int) -> FileSlice:
    return FileSlice(file=OpenFile(str(path), "rb"), position=position, length=length)


def drop(part: FileSlice) -> None:
    """Takes its file out of the cache; fails after ten seconds. A page that the kernel is busy with stays, so whoever
    wants them all gone asks again."""
    give_up_at = time.monotonic() + 10
    while is_resident(part):
        assert time.monotonic() < give_up_at
        os.posix_fadvise(part.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        time.sleep(0.01)


def test_bytes_dropped_from_the_cache_are_not_resident_until_they_are_read(folder_on_disk: Path) -> None:
    path = folder_on_disk / "data"
    path.write_bytes(os.urandom(3 << 20))
    part = sliced(path, 1_000, 2 << 20)
    os.fsync(part.fileno())
    if not is_resident(part):
        pytest.skip("this file system cannot tell what is in memory (a tmpfs): no is its safe answer")
    drop(part)
    make_resident(part)
    assert is_resident(part)


def test_an_empty_slice_is_resident(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(b"x")
    assert is_resident(sliced(path, 1, 0))
    make_resident(sliced(path, 1, 0))


def test_a_file_that_became_shorter_ends_the_warming(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(b"x" * 10)
    make_resident(sliced(path, 5, 1_000_000))
