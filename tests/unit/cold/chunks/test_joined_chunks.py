"""Chunks that are at hand, right behind each other in one file, are one answer."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.cold.chunks.test_sequential_reads import LIMITS, read_on, rows_of, settled, stored_in
from tests.unit.cold.reader_lab import Lab
from tests.unit.cold.stored_segments import StoredSegment, place_of
from tiered.formats import record_batch
from tiered.formats.segment_object import AbortedIndexEntry

ALL = 1 << 20


@pytest.fixture(params=["in place", "copied"])
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> Lab:
    lab = Lab(tmp_path, read_ahead=LIMITS)
    lab.store.is_in_place = request.param == "in place"
    return lab


async def joined_on(lab: Lab, stored: StoredSegment, joined_bytes: int = ALL) -> list[bytes]:
    """The answers to a reader of the whole segment."""
    answers, offset = [], stored.committed.base_offset
    while offset < stored.committed.end_offset:
        answers.append((await lab.read(stored, offset, joined_bytes=joined_bytes)).read())
        *_, (_, last) = record_batch.exact_batches(answers[-1], 0, len(answers[-1]))
        offset = last.end_offset
        await settled(lab)
    return answers


def test_what_is_at_hand_goes_out_in_fewer_answers_and_byte_for_byte(lab: Lab) -> None:
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


def test_joined_chunks_stay_within_what_may_be_joined(lab: Lab) -> None:
    stored = stored_in(lab)

    async def test() -> None:
        rows = await rows_of(lab, stored)
        await read_on(lab, stored)
        two = rows[3].length + rows[4].length
        for joined_bytes in (0, two - 1):
            found = await lab.read(stored, rows[3].first_offset, joined_bytes=joined_bytes)
            assert found.length == rows[3].length
            assert (await lab.read(stored, rows[3].first_offset, two - 1, joined_bytes=ALL)).length == rows[3].length
        answers = await joined_on(lab, stored, two)
        longest = max(row.length for row in rows)
        assert longest < max(map(len, answers)) <= max(longest, two)

    lab.run(test)


def test_a_reader_of_joined_chunks_is_known_where_it_goes_on(lab: Lab) -> None:
    stored = stored_in(lab)

    async def test() -> None:
        rows = await rows_of(lab, stored)
        assert b"".join(await joined_on(lab, stored)) == stored.log
        first_of_all = [start for _, start, _ in lab.store.ranges]
        assert first_of_all == sorted(first_of_all), "each chunk once, in order"
        assert len(lab.store.ranges) < len(rows), "with requests for several"

    lab.run(test)


def test_transactions_that_were_aborted_in_any_of_the_joined_chunks_are_named(lab: Lab) -> None:
    stored = stored_in(lab)

    async def test() -> None:
        rows = await rows_of(lab, stored)
        await read_on(lab, stored)
        object_id = stored.committed.object_id
        tail, weight = lab.reader._tails[object_id]
        first, last = rows[1].first_offset, rows[1].last_offset
        entry = AbortedIndexEntry(producer_id=7, first_offset=first, last_offset=last, last_stable_offset=last + 1)
        lab.reader._tails[object_id] = (replace(tail, aborted=(entry,)), weight)
        for joined_bytes, expected in ((0, ()), (ALL, (entry,))):
            found = await lab.reader.read(
                place_of(stored.committed), offset=rows[0].first_offset, max_bytes=ALL, joined_bytes=joined_bytes
            )
            if found.records.length > rows[0].length or not joined_bytes:
                assert tuple(found.aborted) == expected
            else:
                assert not lab.store.is_in_place, "a file of its own has the first chunk"

    lab.run(test)
