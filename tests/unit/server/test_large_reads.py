"""Large frames are read a few megabytes in a turn of the event loop, and whoever had to wait is read from first."""

import asyncio
from collections import Counter

import pytest

from tests.unit.server.echo import Echo, served
from tiered.server.kafka.transport import buffers
from tiered.server.kafka.transport.buffers import RECEIVED_A_TURN_BYTES, LargeReads

LARGE = 900 << 10


async def test_whoever_had_to_wait_is_read_from_in_the_next_turn() -> None:
    large_reads, reads = LargeReads(), Counter[int]()

    class Reader:
        def __init__(self, number: int) -> None:
            self.number = number

        def read(self) -> None:
            if large_reads.may_read(self.read):
                large_reads.took(RECEIVED_A_TURN_BYTES // 2)
                reads[self.number] += 1

    readers = [Reader(number) for number in range(5)]
    for _ in range(50):
        for reader in readers:  # As the loop does while all sockets have more.
            reader.read()
        await asyncio.sleep(0)
    assert max(reads.values()) < 2 * min(reads[number] for number in range(5)), "nobody is left out"


async def test_in_one_turn_of_the_loop_no_more_is_read_of_large_frames_and_all_of_them_arrive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(buffers, "RECEIVED_A_TURN_BYTES", 1)
    turn, reads_of_turn = 0, Counter[int]()

    class Counted(LargeReads):
        def took(self, size_bytes: int) -> None:
            reads_of_turn[turn] += 1
            super().took(size_bytes)

    counted = Counted()

    def sharing(group: asyncio.TaskGroup) -> Echo:
        echo = Echo(group)
        echo.large_reads = counted
        return echo

    async def count_turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    frames = [bytes([number]) * LARGE for number in (1, 2, 3)]
    async with served(sharing) as one, served(sharing) as other:
        counting = asyncio.create_task(count_turns())
        async with asyncio.timeout(20):
            await asyncio.gather(one.send(*frames), other.send(*frames), one.answers(3), other.answers(3))
        counting.cancel()
        assert one.echo.handled == other.echo.handled == frames
    assert reads_of_turn.total() > 2
    assert set(reads_of_turn.values()) == {1}
