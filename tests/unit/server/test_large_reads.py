"""Large frames are read a few megabytes in a turn of the event loop, and whoever had to wait is read from first."""

import asyncio
from collections import Counter

import pytest

from tests.unit.server.echo import Echo, served
from tiered.server.kafka.transport import buffers
from tiered.server.kafka.transport.buffers import CROWD, CROWDED_TURN_BYTES, RECEIVED_A_TURN_BYTES, LargeReads

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


async def test_where_many_send_large_frames_a_turn_takes_less_of_them_and_leaves_nobody_out() -> None:
    taken_bytes, reads = [0], Counter[int]()

    class Counted(LargeReads):
        def _begin_turn(self) -> None:
            taken_bytes.append(0)
            super()._begin_turn()

    large_reads = Counted()

    class Reader:
        def __init__(self, number: int) -> None:
            self.number = number

        def read(self) -> None:
            if large_reads.may_read(self.read):
                taken_bytes[-1] += CROWDED_TURN_BYTES
                large_reads.took(CROWDED_TURN_BYTES)
                reads[self.number] += 1

    readers = [Reader(number) for number in range(CROWD + 2)]
    for _ in range(100):
        for reader in readers:
            reader.read()
        await asyncio.sleep(0)
    assert taken_bytes[0] == RECEIVED_A_TURN_BYTES
    assert set(taken_bytes[5:]) == {CROWDED_TURN_BYTES}
    assert max(reads.values()) <= 2 * min(reads[number] for number in range(CROWD + 2))


async def test_in_one_turn_of_the_loop_no_more_is_read_of_large_frames_and_all_of_them_arrive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    most_bytes = 32 << 10
    monkeypatch.setattr(buffers, "RECEIVED_A_TURN_BYTES", most_bytes)
    turn, taken_bytes = 0, Counter[int]()

    class Counted(LargeReads):
        def took(self, size_bytes: int) -> None:
            taken_bytes[turn] += size_bytes
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
    assert taken_bytes.total() > LARGE
    assert max(taken_bytes.values()) < 2 * most_bytes
