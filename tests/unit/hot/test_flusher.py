"""Group commit: who waits, who flushes, and what a cancelled wait leaves."""

import asyncio
import errno
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.hot.faulty_file_system import FaultyFileSystem
from tests.unit.hot.log_files import NOW_MS, append, batch, open_log
from tiered.errors import LogDirFailed, NotLeader
from tiered.hot.flusher import Flusher
from tiered.runtime import BlockingPool


class StandingClock:
    now: int = NOW_MS

    def now_ms(self) -> int:
        return self.now

    def monotonic_ms(self) -> float:
        return float(self.now)

    def elapsed_ms(self) -> float:
        return self.monotonic_ms()

    def worked_ms(self) -> float:
        return 0.0


@pytest.fixture
def clock() -> StandingClock:
    return StandingClock()


@pytest.fixture
async def flusher(clock: StandingClock) -> AsyncIterator[Flusher]:
    pool = BlockingPool("test-disk", threads=2)
    yield Flusher(pool, clock)
    pool.close()


@pytest.fixture
def fs(tmp_path: Path) -> FaultyFileSystem:
    return FaultyFileSystem(stash=tmp_path / "stash")


async def test_one_flush_serves_many_waiters(tmp_path: Path, flusher: Flusher, fs: FaultyFileSystem) -> None:
    log = open_log(tmp_path / "log", fs=fs)
    log.flush()
    before = fs.calls.get("sync", 0)
    waiters = []
    for _ in range(50):
        append(log, batch(1))
        waiters.append(asyncio.create_task(flusher.flushed(log, log.log_end_offset)))
    await asyncio.gather(*waiters)
    assert log.flushed_offset == 50
    assert fs.calls["sync"] - before <= 3


async def test_what_is_flushed_already_waits_for_nothing(
    tmp_path: Path, flusher: Flusher, fs: FaultyFileSystem
) -> None:
    log = open_log(tmp_path / "log", fs=fs)
    append(log, batch(3))
    log.flush()
    fs.fail("sync")
    await flusher.flushed(log, 3)


async def test_a_cancelled_waiter_cancels_nobody_elses_flush(tmp_path: Path, flusher: Flusher) -> None:
    log = open_log(tmp_path / "log")
    append(log, batch(1))
    first = asyncio.create_task(flusher.flushed(log, 1))
    second = asyncio.create_task(flusher.flushed(log, 1))
    await asyncio.sleep(0)
    first.cancel()
    await second
    assert log.flushed_offset == 1
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_a_failed_fsync_reaches_every_waiter(tmp_path: Path, flusher: Flusher, fs: FaultyFileSystem) -> None:
    log = open_log(tmp_path / "log", fs=fs)
    append(log, batch(1))
    fs.fail("sync", errno.EIO, times=1)
    results = await asyncio.gather(*(flusher.flushed(log, 1) for _ in range(5)), return_exceptions=True)
    assert all(isinstance(result, LogDirFailed) for result in results)
    assert log.flushed_offset == 0


async def test_waiting_for_a_truncated_record_ends(tmp_path: Path, flusher: Flusher) -> None:
    log = open_log(tmp_path / "log")
    append(log, batch(1))
    with pytest.raises(NotLeader):
        await flusher.flushed(log, 2)


async def test_the_tick_flushes_what_has_waited_long_enough(
    tmp_path: Path, flusher: Flusher, clock: StandingClock
) -> None:
    log = open_log(tmp_path / "log", flush_ms=1_000)
    append(log, batch(1))
    clock.now = NOW_MS + 999
    await flusher.flush_due([log])
    assert log.flushed_offset == 0
    clock.now = NOW_MS + 1_000
    await flusher.flush_due([log])
    assert log.flushed_offset == 1
    assert log.due_ms(may_roll=False) > NOW_MS + 10**9


async def test_the_tick_brings_closed_segments_to_disk_without_flush_ms(tmp_path: Path, flusher: Flusher) -> None:
    logs = [open_log(tmp_path / str(number)) for number in range(6)]
    for log in logs:
        append(log, batch(1))
        log.roll(NOW_MS)
    await flusher.flush_due(logs)
    assert all(log.segments[0].flushed for log in logs)
    assert all(log.due_ms(may_roll=False) > NOW_MS + 10**9 for log in logs)


async def test_the_tick_goes_on_past_a_log_whose_disk_fails(
    tmp_path: Path, flusher: Flusher, clock: StandingClock, fs: FaultyFileSystem
) -> None:
    bad, good = open_log(tmp_path / "bad", fs=fs, flush_ms=0), open_log(tmp_path / "good", flush_ms=0)
    for log in (bad, good):
        append(log, batch(1))
    fs.fail("sync")
    await flusher.flush_due([bad, good])
    assert bad.failed is not None
    assert good.flushed_offset == 1
    await flusher.flush_due([bad, good])
