"""Cold reads over a way that flips, delays, cuts and slows: right bytes or a named error, and nothing twice."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from uuid import uuid4

import pytest

from tests.fault_s3.moto_server import store_url
from tests.unit.cold.reader_lab import NO_READ_AHEAD, run_with
from tests.unit.cold.stored_segments import StoredSegment, place_of, store_segment
from tiered.cold.chunks.cache import ChunkCache
from tiered.cold.chunks.reader import ColdReader
from tiered.cold.object_store import S3Address, parse_store_url
from tiered.cold.s3.store import S3Store
from tiered.errors import CorruptObject, StoreUnavailable
from tiered.formats import record_batch
from tiered.runtime import BlockingPool
from tiered.testing.faulty_s3 import FaultyS3, S3FaultKind

OFFSETS = 600


class Lab:
    """A segment in moto, and a reader that reaches it through the faults."""

    def __init__(self, faults: FaultyS3, directory: Path) -> None:
        self.faults = faults
        address = parse_store_url(store_url(faults.url, f"p-{uuid4()}"))
        assert isinstance(address, S3Address)
        self.store = S3Store(address, first_backoff_ms=1, max_backoff_ms=5, max_attempts=4)
        self._pool = BlockingPool("download", threads=4)
        self.cache = ChunkCache(directory / "cache", max_bytes=1 << 20, pool=self._pool)
        self.reader = ColdReader(self.store, self.cache, self._pool, read_ahead=NO_READ_AHEAD)
        self.stored: StoredSegment = store_segment(self.store, directory, range(OFFSETS))

    def run(self, test: Callable[[], Awaitable[None]]) -> None:
        try:
            run_with(self.reader, self._pool, test)
        finally:
            self.store.close()

    async def read(self, offset: int) -> bytes:
        found = await self.reader.read(place_of(self.stored.committed), offset=offset, max_bytes=1 << 20)
        return found.records.read()

    async def read_all(self) -> bytes:
        offset, log = 0, b""
        while offset < OFFSETS:
            part = await self.read(offset)
            log += part
            *_, (_, last) = record_batch.exact_batches(part, 0, len(part))
            offset = last.end_offset
        return log


@pytest.fixture
def lab(faults: FaultyS3, tmp_path: Path) -> Lab:
    return Lab(faults, tmp_path)


def test_bit_flipped_on_the_way_is_fetched_again(lab: Lab) -> None:
    async def test() -> None:
        lab.faults.inject(S3FaultKind.FLIP, method="GET")
        await lab.reader.tail(place_of(lab.stored.committed))
        lab.faults.inject(S3FaultKind.FLIP, method="GET")
        assert await lab.read_all() == lab.stored.log
        assert lab.reader.state.refetched == 2
        assert lab.reader.state.corrupt == 0

    lab.run(test)


def test_bits_that_flip_every_time_end_in_a_named_error(lab: Lab) -> None:
    async def test() -> None:
        await lab.read(0)
        lab.faults.inject(S3FaultKind.FLIP, method="GET", times=100)
        with pytest.raises(CorruptObject, match="topic orders partition 3 offsets 0 to 599, object segments/"):
            await lab.read(OFFSETS - 1)
        lab.faults.heal()
        assert await lab.read_all() == lab.stored.log

    lab.run(test)


def test_client_that_gives_up_finds_the_chunk_when_it_returns(lab: Lab) -> None:
    async def test() -> None:
        await lab.reader.tail(place_of(lab.stored.committed))
        lab.faults.inject(S3FaultKind.DELAY, method="GET", seconds=0.5)
        gets = lab.faults.count("GET")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(lab.read(0), timeout=0.1)
        async with asyncio.timeout(30):
            while lab.cache.state.held_bytes == 0 or lab.cache.loading_bytes > 0:
                await asyncio.sleep(0.01)
        assert lab.stored.log.startswith(await lab.read(0))
        assert lab.faults.count("GET") == gets + 1, "the slow download was the only one"

    lab.run(test)


def test_store_that_is_away_is_retriable_and_no_corruption(lab: Lab) -> None:
    async def test() -> None:
        lab.faults.inject(S3FaultKind.SERVER_ERROR, times=1000)
        with pytest.raises(StoreUnavailable):
            await lab.read(0)
        assert lab.reader.state.corrupt == 0
        lab.faults.heal()
        assert await lab.read_all() == lab.stored.log

    lab.run(test)


def test_random_faults_leave_every_byte_right(lab: Lab) -> None:
    async def test() -> None:
        lab.faults.misbehave(
            seed=11,
            probability=0.5,
            kinds=(
                S3FaultKind.SLOW_DOWN,
                S3FaultKind.RESET,
                S3FaultKind.TRUNCATE,
                S3FaultKind.WHOLE,
                S3FaultKind.WRONG_RANGE,
                S3FaultKind.SERVER_ERROR,
            ),
        )
        offset, log = 0, b""
        while offset < OFFSETS:
            try:
                part = await lab.read(offset)
            except StoreUnavailable:
                continue
            log += part
            *_, (_, last) = record_batch.exact_batches(part, 0, len(part))
            offset = last.end_offset
        assert log == lab.stored.log
        assert lab.store.state.retries > 0

    lab.run(test)
