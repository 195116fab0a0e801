"""A bucket that is a folder on the disk of the chunk cache: its objects are served as they lie there."""

import asyncio
import gc
import os
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.cold.reader_lab import Lab
from tests.unit.cold.stored_segments import StoredSegment, place_of, store_segment
from tiered.errors import CorruptObject, ObjectMissing

COUNT = 400


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return in_place(Lab(tmp_path))


@pytest.fixture
def folder_in_memory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        yield Path(name)


def in_place(lab: Lab) -> Lab:
    lab.store.is_in_place = True
    return lab


def stored_in(lab: Lab) -> StoredSegment:
    return store_segment(lab.store, lab.directory, range(1000, 1000 + COUNT))


async def read_whole(lab: Lab, stored: StoredSegment) -> bytes:
    """The log, chunk by chunk."""
    tail = await lab.reader.tail(place_of(stored.committed))
    assert len(tail.chunks) > 5
    return b"".join([(await lab.read(stored, row.first_offset)).read() for row in tail.chunks])


def test_chunks_are_served_from_the_objects_own_file_and_read_once(lab: Lab) -> None:
    stored = stored_in(lab)

    async def test() -> None:
        assert await read_whole(lab, stored) == stored.log
        asked = len(lab.store.ranges)
        assert await read_whole(lab, stored) == stored.log
        assert len(lab.store.ranges) == asked, "what was verified is not read again"
        found = await lab.read(stored, 0)
        assert os.path.samestat(os.fstat(found.fileno()), lab.object_path(stored).stat())
        assert not list(lab.cache.directory.iterdir())
        assert lab.cache.state.held_bytes == len(stored.log)

    lab.run(test)


def test_an_object_that_changed_after_it_was_verified_is_verified_again(lab: Lab) -> None:
    stored = stored_in(lab)

    async def test() -> None:
        await lab.read(stored, 0)
        lab.flip(stored, 20)
        with pytest.raises(CorruptObject, match="topic orders partition 3 offsets 0 to 399"):
            await lab.read(stored, 0)
        lab.flip(stored, 20)
        assert stored.log.startswith((await lab.read(stored, 0)).read())

    lab.run(test)


def test_a_change_that_keeps_size_and_time_of_the_last_write_is_seen(lab: Lab) -> None:
    stored = stored_in(lab)

    async def test() -> None:
        path = lab.object_path(stored)
        await lab.read(stored, 0)
        before = path.stat()
        lab.flip(stored, 20)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert path.stat().st_mtime_ns == before.st_mtime_ns
        with pytest.raises(CorruptObject, match="topic orders partition 3 offsets 0 to 399"):
            await lab.read(stored, 0)

    lab.run(test)


def test_an_object_cut_after_its_chunk_was_opened_is_corrupt(lab: Lab) -> None:
    stored = stored_in(lab)

    async def test() -> None:
        tail = await lab.reader.tail(place_of(stored.committed))
        last = tail.chunks[-1]
        await lab.read(stored, last.first_offset)
        is_cut = threading.Event()
        busy = asyncio.ensure_future(lab.reader._cutting.run(is_cut.wait, 30))
        begun = asyncio.ensure_future(lab.read(stored, last.last_offset, 1))
        await asyncio.sleep(0.05)  # The chunk is open, and waits for the thread that finds the batch in it.
        os.truncate(lab.object_path(stored), last.position)
        is_cut.set()
        with pytest.raises(CorruptObject, match=r"topic orders partition 3 offsets 0 to 399.*before the slice does"):
            await begun
        assert await busy

    lab.run(test)


def test_without_the_caches_folder_chunks_are_served_from_memory(lab: Lab) -> None:
    stored = stored_in(lab)

    async def test() -> None:
        lab.cache.directory.rmdir()
        assert await read_whole(lab, stored) == stored.log

    lab.run(test)


def test_reads_that_fail_leave_no_file_open(lab: Lab) -> None:
    stored = stored_in(lab)

    async def test() -> None:
        tail = await lab.reader.tail(place_of(stored.committed))
        lab.flip(stored, 20)
        os.truncate(lab.object_path(stored), tail.chunks[-1].position)
        opened = len(os.listdir("/proc/self/fd"))
        for _ in range(20):
            for row in (tail.chunks[0], tail.chunks[-1]):
                with pytest.raises(CorruptObject):
                    await lab.read(stored, row.first_offset)
        assert len(os.listdir("/proc/self/fd")) <= opened + 4

    gc.disable()  # It would close what circles hold.
    try:
        lab.run(test)
    finally:
        gc.enable()


def test_an_object_that_went_away_is_missing_though_it_was_read_before(lab: Lab) -> None:
    stored = stored_in(lab)

    async def test() -> None:
        before = await lab.read(stored, 0)
        lab.store.delete(stored.committed.object_key)
        with pytest.raises(ObjectMissing, match="topic orders partition 3 offsets 0 to 399"):
            await lab.read(stored, 0)
        assert stored.log.startswith(before.read()), "who has it open keeps it"

    lab.run(test)


def test_a_pipe_in_an_objects_place_is_not_waited_for(lab: Lab) -> None:
    stored = stored_in(lab)

    async def test() -> None:
        await lab.read(stored, 0)
        path = lab.object_path(stored)
        path.unlink()
        os.mkfifo(path)
        with pytest.raises(CorruptObject, match="is no file"):
            await asyncio.wait_for(lab.read(stored, 0), 30)

    lab.run(test)


def test_a_full_cache_forgets_chunks_and_leaves_the_objects(tmp_path: Path) -> None:
    lab = in_place(Lab(tmp_path, cache_bytes=20_000))
    stored = stored_in(lab)

    async def test() -> None:
        for _ in range(2):
            assert await read_whole(lab, stored) == stored.log
        assert lab.cache.state.evictions > 0
        assert lab.cache.state.held_bytes <= 20_000

    lab.run(test)


def test_a_chunk_damaged_on_its_way_is_served_from_the_file_that_was_read_again(lab: Lab) -> None:
    stored = stored_in(lab)

    async def test() -> None:
        await lab.reader.tail(place_of(stored.committed))
        lab.store.flip_next = 20
        assert stored.log.startswith((await lab.read(stored, 0)).read())
        assert lab.reader.state.refetched == 1

    lab.run(test)


def test_a_folder_on_another_disk_is_copied_into_the_cache(folder_on_disk: Path, folder_in_memory: Path) -> None:
    lab = in_place(Lab(folder_on_disk, cache_directory=folder_in_memory / "cache"))
    stored = stored_in(lab)

    async def test() -> None:
        assert await read_whole(lab, stored) == stored.log
        assert list(lab.cache.directory.iterdir())

    lab.run(test)
