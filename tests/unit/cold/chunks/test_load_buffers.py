"""Memory for loads: lent again, to one at a time, and a bounded part of it is kept."""

from pathlib import Path

import pytest

from tests.unit.cold.cached_chunks import OBJECT, Loads, content, with_cache
from tiered.cold.chunks.buffers import BUFFER_BYTES, KEPT, LoadBuffers
from tiered.cold.chunks.cache import ChunkCache
from tiered.errors import StoreUnavailable


def test_what_was_given_back_is_lent_again_and_never_to_two_at_once() -> None:
    buffers = LoadBuffers()
    first, second = buffers.lend(1000), buffers.lend(2000)
    first[:], second[:] = b"1" * 1000, b"2" * 2000
    assert bytes(first) == b"1" * 1000, "they are apart"
    buffers.give_back(first)
    third = buffers.lend(3000)
    assert len(third) == 3000
    assert third.obj is first.obj
    assert third.obj is not second.obj


def test_no_more_is_kept_than_may_be_however_much_was_lent() -> None:
    buffers = LoadBuffers()
    larger = buffers.lend(BUFFER_BYTES + 1)
    lent = [buffers.lend(BUFFER_BYTES) for _ in range(KEPT + 3)]
    for each in (larger, *lent):
        buffers.give_back(each)
    again = [buffers.lend(1).obj for _ in range(KEPT + 3)]
    assert sum(any(each is buffer.obj for buffer in lent) for each in again) == KEPT
    assert all(each is not larger.obj for each in again)


def test_loads_share_memory_one_after_the_other_and_one_that_failed_keeps_its_own(tmp_path: Path) -> None:
    async def test(cache: ChunkCache, loads: Loads) -> None:
        one = await cache.loading(loads.run((OBJECT, 0), (1000, 1100)))
        loads.fail = StoreUnavailable("away")
        with pytest.raises(StoreUnavailable):
            await cache.loading(loads.run((OBJECT, 2), (900, 800)))
        loads.fail = None
        other = await cache.loading(loads.run((OBJECT, 4), (700, 600)))
        assert (one.read(), other.read()) == (content((OBJECT, 0), 1000), content((OBJECT, 4), 700))
        first, failed, third = [buffer.obj for buffer in loads.buffers]
        assert failed is first, "it had been given back"
        assert third is not failed, "a load that failed may still write"

    with_cache(tmp_path, test)
