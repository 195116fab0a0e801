"""How a process becomes the broker of its number, and what its marker lets the next one believe (rule 8)."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.broker.context import Surroundings, surroundings
from tests.unit.hot.faulty_file_system import FaultyFileSystem
from tests.unit.hot.log_files import append, batch, open_log
from tiered.broker.control.registration import Registered, Registration
from tiered.broker.host.marker import MARKER_FILE
from tiered.errors import InvalidConfig, LogDirFailed, ShuttingDown
from tiered.ids import TopicId, TopicPartition
from tiered.meta import brokers
from tiered.runtime import BlockingPool, new_uuid

ADDRESS = ("127.0.0.1", 9092)


async def registered(made: Surroundings, *, boot_id: str = "a boot") -> tuple[Registration, Registered]:
    registration = Registration(context=made.context, boot_id=boot_id)
    found = await registration.register(advertised=ADDRESS, http=None)
    made.state.broker_epoch = found.broker_epoch
    return registration, found


async def test_the_next_process_is_clean_after_a_kill_and_not_after_a_boot(tmp_path: Path) -> None:
    async with surroundings(tmp_path) as made:
        _, first = await registered(made)
        _, second = await registered(made)
        _, third = await registered(made, boot_id="another boot")
        assert (second.was_clean, third.was_clean) == (True, False)
        assert first.broker_epoch < second.broker_epoch < third.broker_epoch


async def test_logs_that_were_flushed_are_clean_after_a_boot_too(tmp_path: Path) -> None:
    async with surroundings(tmp_path) as made:
        registration, _ = await registered(made)
        await registration.logs_flushed()
        assert (await registered(made, boot_id="another boot"))[1].was_clean


async def test_a_log_that_failed_leaves_no_marker_behind(tmp_path: Path) -> None:
    async with surroundings(tmp_path) as made:
        registration, _ = await registered(made)
        registration.log_failed()
        await registration.logs_flushed()
        assert not (await registered(made))[1].was_clean


def with_unwritten_records(folder: Path, fs: FaultyFileSystem) -> str:
    """The directory of a log whose fsync has failed: its records are in the page cache alone."""
    written = open_log(folder, fs=fs)
    append(written, batch(3))
    fs.fail("sync", name_part=".log", times=1)
    with pytest.raises(LogDirFailed):
        written.flush()
    written.discard()
    return written.directory


async def test_after_an_io_error_all_logs_are_written_again_before_there_is_a_marker(tmp_path: Path) -> None:
    fs = FaultyFileSystem(stash=tmp_path / "stash")
    async with surroundings(tmp_path) as plain:
        made = replace(plain, context=replace(plain.context, files=fs))
        registration, _ = await registered(made)
        logs = [made.context.data.log_of(TopicPartition(TopicId(new_uuid()), number)) for number in range(2)]
        directories = [with_unwritten_records(folder, fs) for folder in logs]
        registration.log_failed()
        fs.fail("sync", name_part=".log", times=1)
        failing, _ = await registered(made)
        assert failing.has_failed_log()
        await failing.logs_flushed()
        assert not (await registered(made))[1].was_clean, "one of them was not written: that start left no marker"
        assert (await registered(made))[1].was_clean
        assert fs.unwritten.drop() == []
        assert [open_log(Path(directory), fs=fs).log_end_offset for directory in directories] == [3, 3]


async def test_a_start_that_finds_a_marker_writes_nothing_again(tmp_path: Path) -> None:
    fs = FaultyFileSystem(stash=tmp_path / "stash")
    async with surroundings(tmp_path) as plain:
        made = replace(plain, context=replace(plain.context, files=fs))
        await registered(made)
        written = open_log(made.context.data.log_of(TopicPartition(TopicId(new_uuid()), 0)), fs=fs)
        append(written, batch(3))
        written.discard()
        fs.fail("write", name_part=".log")
        for boot_id in ("a boot", "another boot"):
            assert not (await registered(made, boot_id=boot_id))[0].has_failed_log()


async def test_a_catalogue_for_one_broker_takes_no_second_one(tmp_path: Path) -> None:
    async with surroundings(tmp_path) as made:
        await made.context.database.run(
            lambda conn: brokers.register(conn, broker_id=9, host="h", port=1, boot_id="", clean_epoch=None)
        )
        with pytest.raises(InvalidConfig, match="belongs to broker 9"):
            await registered(made)


async def test_a_start_that_is_stopped_while_it_writes_logs_again_leaves_no_marker(tmp_path: Path) -> None:
    fs = FaultyFileSystem(stash=tmp_path / "stash")
    async with surroundings(tmp_path) as plain:
        made = replace(plain, context=replace(plain.context, files=fs))
        folder = made.context.data.log_of(TopicPartition(TopicId(new_uuid()), 0))
        directory = with_unwritten_records(folder, fs)
        stopping = replace(made, context=replace(made.context, disk=ClosingPool("disk", threads=1)))
        with pytest.raises(ShuttingDown):
            await registered(stopping)
        stopping.context.disk.close()
        assert not (made.context.data.root / MARKER_FILE).exists()
        await registered(made)
        assert fs.unwritten.drop() == [], "the next start has written them"
        assert open_log(Path(directory), fs=fs).log_end_offset == 3


class ClosingPool(BlockingPool):
    """Threads of a process that was told to stop."""

    def is_closing(self) -> bool:
        return True
