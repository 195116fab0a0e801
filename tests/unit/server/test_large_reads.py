"""Large frames are read a little in a turn of the event loop, and their owners take turns."""

import asyncio
from collections import Counter

import pytest

from tests.unit.server.echo import Echo, served
from tiered.server.kafka.transport import buffers
from tiered.server.kafka.transport.buffers import (
    CROWD,
    CROWDED_TURN_BYTES,
    OTHERS_WEIGHT,
    RECEIVED_A_TURN_BYTES,
    LargeReads,
)

LARGE = 900 << 10


class Reader:
    """A connection whose socket always has more, of which a turn takes `takes_bytes`."""

    def __init__(self, large_reads: LargeReads, owner: str, takes_bytes: int) -> None:
        self._large_reads = large_reads
        self._owner = owner
        self._takes_bytes = takes_bytes
        self._waits = False
        self.reads = 0

    def on_readable(self) -> None:
        if self._large_reads.may_read and not self._waits:
            self._read()
        elif not self._waits:
            self._waits = True
            self._large_reads.wait(self._owner, self._read_in_turn, has_begun=False)

    def _read_in_turn(self) -> None:
        self._read()
        self._large_reads.wait(self._owner, self._read_in_turn, has_begun=True)

    def _read(self) -> None:
        self._large_reads.took(self._takes_bytes)
        self.reads += 1


async def test_owners_take_turns_however_many_connections_they_have() -> None:
    large_reads = LargeReads()
    many = [Reader(large_reads, "many", RECEIVED_A_TURN_BYTES // 2) for _ in range(5)]
    few = [Reader(large_reads, owner, RECEIVED_A_TURN_BYTES // 2) for owner in ("one", "other")]
    for _ in range(60):
        for reader in (*many, *few):  # As the loop does while all sockets have more.
            reader.on_readable()
        await asyncio.sleep(0)
    reads = [sum(reader.reads for reader in many), *(reader.reads for reader in few)]
    assert max(reads) <= min(reads) + 3, "a third for each"
    assert sorted(reader.reads for reader in many)[-2] <= 2, "of one owner a frame is read to its end before the next"


async def test_where_many_send_large_frames_a_turn_takes_less_of_them_and_leaves_no_owner_out() -> None:
    taken_bytes = [0]

    class Counted(LargeReads):
        def _begin_turn(self) -> None:
            taken_bytes.append(0)
            super()._begin_turn()

        def took(self, size_bytes: int) -> None:
            taken_bytes[-1] += size_bytes
            super().took(size_bytes)

    large_reads = Counted()
    readers = [Reader(large_reads, f"owner-{number}", CROWDED_TURN_BYTES) for number in range(CROWD + 2)]
    for _ in range(100):
        for reader in readers:
            reader.on_readable()
        await asyncio.sleep(0)
    assert taken_bytes[0] == RECEIVED_A_TURN_BYTES
    assert set(taken_bytes[5:]) == {CROWDED_TURN_BYTES}
    reads = [reader.reads for reader in readers]
    assert max(reads) <= 2 * min(reads)


@pytest.mark.parametrize(("api_key", "weight"), [(b"\0\0", 1), (b"\0\3", OTHERS_WEIGHT)])
async def test_in_one_turn_of_the_loop_no_more_is_read_of_large_frames_and_all_of_them_arrive(
    monkeypatch: pytest.MonkeyPatch, api_key: bytes, weight: int
) -> None:
    """A turn receives up to the bound where the request is Produce, and an eighth of it where it is another one."""
    most_bytes = 128 << 10
    monkeypatch.setattr(buffers, "RECEIVED_A_TURN_BYTES", most_bytes)
    turn, received_bytes = 0, Counter[int]()

    class Counted(LargeReads):
        def took(self, size_bytes: int) -> None:
            received_bytes[turn] += size_bytes // weight
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

    frames = [api_key + bytes([number]) * LARGE for number in (1, 2, 3)]
    async with served(sharing) as one, served(sharing) as other:
        counting = asyncio.create_task(count_turns())
        async with asyncio.timeout(20):
            await asyncio.gather(one.send(*frames), other.send(*frames), one.answers(3), other.answers(3))
        counting.cancel()
        assert one.echo.handled == other.echo.handled == frames
    assert received_bytes.total() > LARGE
    assert max(received_bytes.values()) < 2 * most_bytes // weight
