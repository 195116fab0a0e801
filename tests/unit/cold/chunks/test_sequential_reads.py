"""Reading on in order: neighbouring chunks in one request, ahead of the reader, and each checked by itself."""

import asyncio
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from pathlib import Path
from uuid import uuid4

import pytest

from tests.unit.cold.reader_lab import Lab
from tests.unit.cold.stored_segments import StoredSegment, place_of, store_segment
from tiered.cold.chunks.reader import REMEMBERED_READERS, SequentialReaders
from tiered.errors import CorruptObject, ObjectMissing
from tiered.formats import record_batch
from tiered.formats.chunk_table import ChunkRow
from tiered.formats.segment_object import AbortedIndexEntry
from tiered.rules.pacing.read_ahead import DEFAULT_LIMITS, ReadAheadLimits

COUNT = 1000
LIMITS = ReadAheadLimits(request_bytes=30_000, ahead_bytes=60_000)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path, read_ahead=LIMITS)


def stored_in(lab: Lab, base_offset: int = 0, *, after: StoredSegment | None = None) -> StoredSegment:
    previous = "0" * 64 if after is None else after.committed.root_sha256
    return store_segment(lab.store, lab.directory, range(COUNT), base_offset=base_offset, previous_root_sha256=previous)


async def rows_of(lab: Lab, stored: StoredSegment) -> tuple[ChunkRow, ...]:
    found = (await lab.reader.tail(place_of(stored.committed))).chunks
    lab.store.ranges.clear()
    return tuple(found)


def asked(lab: Lab, rows: tuple[ChunkRow, ...]) -> list[list[int]]:
    """The chunks that each request asked for."""
    return [
        [index for index, row in enumerate(rows) if start <= row.position < start + length]
        for _, start, length in lab.store.ranges
    ]


async def until(claim: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not claim():
            await asyncio.sleep(0.001)


async def settled(lab: Lab) -> None:
    await until(lambda: lab.cache.loading_chunks == 0)


async def begun_in_order(lab: Lab, stored: StoredSegment, count: int) -> tuple[ChunkRow, ...]:
    """The chunks, of which a reader has asked for so many, one after another."""
    rows = await rows_of(lab, stored)
    for row in rows[:count]:
        await lab.read(stored, row.first_offset)
        await settled(lab)
    return rows


async def read_on(lab: Lab, stored: StoredSegment, offset: int = 0, *, max_bytes: int = 1 << 20) -> bytes:
    log = b""
    while offset < stored.committed.end_offset:
        part = (await lab.read(stored, offset, max_bytes)).read()
        log += part
        *_, (_, last) = record_batch.exact_batches(part, 0, len(part))
        offset = last.end_offset
        await settled(lab)
    return log


def test_a_reader_in_order_gets_neighbours_with_ever_larger_requests(lab: Lab) -> None:
    stored = stored_in(lab)

    async def test() -> None:
        rows = await rows_of(lab, stored)
        assert await read_on(lab, stored) == stored.log
        found = asked(lab, rows)
        assert list(chain(*found)) == list(range(len(rows))), "every chunk once"
        assert [len(each) for each in found[:6]] == [1, 1, 2, 4, 4, 4]
        assert max(len(each) for each in found) == 4

    lab.run(test)


@pytest.mark.parametrize("max_bytes", [1, 3000])
def test_reading_on_within_a_chunk_asks_for_nothing_twice(lab: Lab, max_bytes: int) -> None:
    stored = stored_in(lab)

    async def test() -> None:
        rows = await rows_of(lab, stored)
        assert await read_on(lab, stored, max_bytes=max_bytes) == stored.log
        assert sorted(chain(*asked(lab, rows))) == list(range(len(rows)))

    lab.run(test)


def test_a_reader_at_random_places_costs_its_chunk_and_the_next(lab: Lab) -> None:
    stored = stored_in(lab)

    async def test() -> None:
        rows = await rows_of(lab, stored)
        for index in (4, 1, 7):
            await lab.read(stored, rows[index].first_offset)
            await settled(lab)
        assert sorted(asked(lab, rows)) == [[1], [2], [4], [5], [7], [8]]

    lab.run(test)


def test_two_readers_of_one_segment_are_each_read_ahead(lab: Lab) -> None:
    stored = stored_in(lab)

    async def test() -> None:
        rows = await rows_of(lab, stored)
        for step in range(2):
            for start in (0, len(rows) - 3):
                await lab.read(stored, rows[start + step].first_offset)
                await settled(lab)
        for index in (2, len(rows) - 1):
            assert lab.cache.held((stored.committed.object_id, index)) is not None

    lab.run(test)


def test_who_comes_while_the_request_is_on_its_way_shares_it(lab: Lab) -> None:
    stored = stored_in(lab)

    async def test() -> None:
        rows = await begun_in_order(lab, stored, 2)
        lab.store.gate.clear()
        reads = [asyncio.ensure_future(lab.read(stored, rows[index].first_offset)) for index in (3, 4, 5, 5, 4)]
        await asyncio.sleep(0)
        reads[0].cancel()
        lab.store.gate.set()
        for read, index in list(zip(reads, (3, 4, 5, 5, 4), strict=True))[1:]:
            row = rows[index]
            assert (await read).read() == stored.log[row.position : row.position + row.length]
        await settled(lab)
        wanted = list(chain(*asked(lab, rows)))
        assert sorted(wanted) == sorted(set(wanted)), "nothing was asked for twice"

    lab.run(test)


def test_a_corrupt_chunk_among_neighbours_is_named_and_the_others_are_served(lab: Lab) -> None:
    stored = stored_in(lab)

    async def test() -> None:
        rows = await rows_of(lab, stored)
        bad = rows[4]
        lab.flip(stored, bad.position + 10)
        for index, row in enumerate(rows):
            if index == 4:
                with pytest.raises(CorruptObject) as error:
                    await lab.read(stored, row.first_offset)
                assert re.match(r"topic orders partition 3 offsets 0 to 999, object segments/\S+:", str(error.value))
                assert f"offsets {bad.first_offset} to {bad.last_offset}" in str(error.value)
            else:
                found = (await lab.read(stored, row.first_offset)).read()
                assert found == stored.log[row.position : row.position + row.length]
            await settled(lab)
        assert any(4 in each and len(each) > 1 for each in asked(lab, rows)), "it came with neighbours"
        assert lab.reader.state.corrupt >= 1
        assert lab.reader.state.refetched == 0

    lab.run(test)


def test_a_bit_flipped_on_the_way_costs_one_more_request_for_that_chunk_alone(lab: Lab) -> None:
    stored = stored_in(lab)

    async def test() -> None:
        rows = await begun_in_order(lab, stored, 1)
        lab.store.flip_next = rows[2].length + 5
        await lab.read(stored, rows[1].first_offset)
        await settled(lab)
        assert asked(lab, rows) == [[0], [1], [2, 3], [3]]
        assert await read_on(lab, stored) == stored.log
        assert (lab.reader.state.refetched, lab.reader.state.corrupt) == (1, 0)

    lab.run(test)


def test_an_object_cut_within_a_request_is_served_up_to_the_cut(lab: Lab) -> None:
    stored = stored_in(lab)

    async def test() -> None:
        rows = await begun_in_order(lab, stored, 1)
        path = lab.object_path(stored)
        path.write_bytes(path.read_bytes()[: rows[3].position + 7])
        for index in (1, 2):
            row = rows[index]
            found = (await lab.read(stored, row.first_offset)).read()
            assert found == stored.log[row.position : row.position + row.length]
            await settled(lab)
        assert [2, 3] in asked(lab, rows)
        with pytest.raises(CorruptObject, match="topic orders partition 3"):
            await lab.read(stored, rows[3].first_offset)

    lab.run(test)


def test_an_object_that_went_away_is_named_after_one_request(lab: Lab) -> None:
    stored = stored_in(lab)

    async def test() -> None:
        rows = await begun_in_order(lab, stored, 2)
        lab.store.delete(stored.committed.object_key)
        lab.store.ranges.clear()
        await lab.read(stored, rows[2].first_offset)
        await settled(lab)
        assert asked(lab, rows) == [[4, 5, 6, 7]], "not each of them once more"
        with pytest.raises(ObjectMissing, match="topic orders partition 3 offsets 0 to 999"):
            await lab.read(stored, rows[4].first_offset)

    lab.run(test)


def test_reading_ahead_goes_on_in_the_next_segment(lab: Lab) -> None:
    first = stored_in(lab)
    second = stored_in(lab, COUNT, after=first)

    async def test() -> None:
        rows = await rows_of(lab, first)
        for row in rows:
            await lab.read(first, row.first_offset, following=second.committed)
            await settled(lab)
        # Its tail first; what is read then asks for its chunks.
        await until(lambda: lab.reader.state.tails_opened == 2)
        await lab.read(first, rows[-1].first_offset, following=second.committed)
        await settled(lab)
        assert lab.cache.has((second.committed.object_id, 0))
        before = len(lab.store.ranges)
        assert (await lab.read(second, COUNT)).read() == second.log[: (await lab.read(second, COUNT)).length]
        await settled(lab)
        assert all(length > 8192 for _, _, length in lab.store.ranges[before:]), "it goes on as fast as it was"

    lab.run(test)


def test_only_so_many_readers_are_remembered() -> None:
    readers = SequentialReaders(DEFAULT_LIMITS)
    for number in range(2 * REMEMBERED_READERS):
        readers.moved(str(uuid4()), 0, first_offset=number, last_offset=number, chunk_bytes=1, waited=True)
    assert len(readers) == REMEMBERED_READERS


# Chunks that are at hand, right behind each other in one file, are one answer


@pytest.fixture(params=["in place", "copied"])
def either_lab(request: pytest.FixtureRequest, tmp_path: Path) -> Lab:
    """One whose objects are files for readers, or not."""
    lab = Lab(tmp_path, read_ahead=LIMITS)
    lab.store.is_in_place = request.param == "in place"
    return lab


async def joined_on(lab: Lab, stored: StoredSegment, joined_bytes: int = 1 << 20) -> list[bytes]:
    """The answers to a reader of the whole segment."""
    answers, offset = [], stored.committed.base_offset
    while offset < stored.committed.end_offset:
        answers.append((await lab.read(stored, offset, joined_bytes=joined_bytes)).read())
        *_, (_, last) = record_batch.exact_batches(answers[-1], 0, len(answers[-1]))
        offset = last.end_offset
        await settled(lab)
    return answers


def test_what_is_at_hand_goes_out_in_fewer_answers_and_byte_for_byte(either_lab: Lab) -> None:
    lab = either_lab
    stored = stored_in(lab)

    async def test() -> None:
        rows = await rows_of(lab, stored)
        assert await read_on(lab, stored) == stored.log
        hits = lab.cache.state.hits
        answers = await joined_on(lab, stored)
        assert b"".join(answers) == stored.log
        assert len(answers) == 1 if lab.store.is_in_place else len(answers) < len(rows) // 2
        assert lab.cache.state.hits == hits + len(rows)
        assert lab.cache.state.unread_bytes == 0

    lab.run(test)


def test_joined_chunks_stay_within_what_may_be_joined(either_lab: Lab) -> None:
    lab = either_lab
    stored = stored_in(lab)

    async def test() -> None:
        rows = await rows_of(lab, stored)
        await read_on(lab, stored)
        two = rows[3].length + rows[4].length
        for max_bytes, joined_bytes in ((1 << 20, 0), (1 << 20, two - 1), (two - 1, 1 << 20)):
            found = await lab.read(stored, rows[3].first_offset, max_bytes, joined_bytes=joined_bytes)
            assert found.length == rows[3].length
        answers = await joined_on(lab, stored, two)
        longest = max(row.length for row in rows)
        assert longest < max(map(len, answers)) <= max(longest, two)

    lab.run(test)


def test_a_reader_of_joined_chunks_is_known_where_it_goes_on(either_lab: Lab) -> None:
    lab = either_lab
    stored = stored_in(lab)

    async def test() -> None:
        rows = await rows_of(lab, stored)
        assert b"".join(await joined_on(lab, stored)) == stored.log
        first_of_all = [start for _, start, _ in lab.store.ranges]
        assert first_of_all == sorted(first_of_all), "each chunk once, in order"
        assert len(lab.store.ranges) < len(rows), "with requests for several"

    lab.run(test)


def test_transactions_that_were_aborted_in_any_of_the_joined_chunks_are_named(either_lab: Lab) -> None:
    lab = either_lab
    stored = stored_in(lab)

    async def test() -> None:
        rows = await rows_of(lab, stored)
        await read_on(lab, stored)
        object_id = stored.committed.object_id
        tail, weight = lab.reader._tails[object_id]
        first, last = rows[1].first_offset, rows[1].last_offset
        entry = AbortedIndexEntry(producer_id=7, first_offset=first, last_offset=last, last_stable_offset=last + 1)
        lab.reader._tails[object_id] = (replace(tail, aborted=(entry,)), weight)
        for joined_bytes, expected in ((0, ()), (1 << 20, (entry,))):
            found = await lab.reader.read(
                place_of(stored.committed), offset=rows[0].first_offset, max_bytes=1 << 20, joined_bytes=joined_bytes
            )
            if found.records.length > rows[0].length or not joined_bytes:
                assert tuple(found.aborted) == expected
            else:
                assert not lab.store.is_in_place, "a file of its own has the first chunk"

    lab.run(test)
