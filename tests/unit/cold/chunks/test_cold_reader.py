"""Reads of committed segments: exact bytes, or an error that names everything."""

import asyncio
import re
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.claimed_times import WRONG, claiming
from tests.unit.cold.forged_tables import Change, boundary_moved, forged, gap_made
from tests.unit.cold.reader_lab import Lab
from tests.unit.cold.stored_segments import StoredSegment, batches, place_of, store_segment
from tiered.cold.chunks import reader
from tiered.errors import CorruptObject, ObjectMissing, TieredError
from tiered.formats import record_batch
from tiered.formats.batch_times import UNPROVEN
from tiered.formats.segment_object import read_tail

NAMED = r"topic orders partition 3 offsets 0 to 399, object segments/\S+"


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def stored_in(lab: Lab, count: int = 400) -> StoredSegment:
    return store_segment(lab.store, lab.directory, range(1000, 1000 + count))


def batch_starts(log: bytes) -> dict[int, tuple[int, int]]:
    """By offset: position and size of the batch that holds it."""
    found: dict[int, tuple[int, int]] = {}
    for position, header in record_batch.exact_batches(log, 0, len(log)):
        for offset in range(header.base_offset, header.end_offset):
            found[offset] = (position, header.size_bytes)
    return found


def test_every_offset_is_answered_from_the_batch_that_holds_it(lab: Lab) -> None:
    stored = stored_in(lab)
    starts = batch_starts(stored.log)

    async def test() -> None:
        for offset in range(400):
            position, size_bytes = starts[offset]
            found = (await lab.read(stored, offset, max_bytes=1)).read()
            assert found == stored.log[position : position + size_bytes], "one whole batch, however small the bound"
            more = (await lab.read(stored, offset, max_bytes=5000)).read()
            assert len(more) <= 5000
            assert more == stored.log[position : position + len(more)]
            assert list(record_batch.exact_batches(more, 0, len(more)))

    lab.run(test)


@pytest.mark.parametrize("max_bytes", [1, 3000, 1 << 20])
def test_reading_on_from_each_answer_gives_the_log_byte_for_byte(lab: Lab, max_bytes: int) -> None:
    stored = stored_in(lab)

    async def test() -> None:
        offset, log = 0, b""
        while offset < 400:
            part = (await lab.read(stored, offset, max_bytes)).read()
            log += part
            *_, (_, last) = record_batch.exact_batches(part, 0, len(part))
            offset = last.end_offset
        assert log == stored.log
        assert lab.reader.state.tails_opened == 1
        tail = await lab.reader.tail(place_of(stored.committed))
        assert lab.cache.state.loads == len(tail.chunks) > 5

    lab.run(test)


def test_flipped_byte_of_the_batches_is_named_and_never_served(lab: Lab) -> None:
    stored = stored_in(lab)
    lab.flip(stored, len(stored.log) // 2)

    async def test() -> None:
        served, refused = 0, 0
        messages: set[str] = set()
        starts = batch_starts(stored.log)
        for offset in range(400):
            try:
                found = (await lab.read(stored, offset)).read()
            except CorruptObject as error:
                messages.add(str(error))
                refused += 1
            else:
                position, _ = starts[offset]
                assert found == stored.log[position : position + len(found)]
                served += 1
        (message,) = messages
        assert re.match(NAMED, message)
        assert "CRC-64" in message
        assert served > 300, "the other chunks are whole"
        assert lab.reader.state.corrupt == refused
        assert lab.cache.state.failures == refused, "a corrupt chunk is not kept"

    lab.run(test)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(where=st.floats(0, 1, exclude_max=True))
def test_no_flipped_byte_anywhere_changes_what_is_served(
    tmp_path_factory: pytest.TempPathFactory, where: float
) -> None:
    lab = Lab(tmp_path_factory.mktemp("flip"))
    stored = stored_in(lab, 60)
    lab.flip(stored, int(where * stored.committed.size_bytes))
    starts = batch_starts(stored.log)
    named: list[bool] = []

    async def test() -> None:
        for offset in range(0, 60, 7):
            try:
                found = (await lab.read(stored, offset)).read()
            except CorruptObject as error:
                named.append("topic orders partition 3 offsets 0 to 59, object segments/" in str(error))
            else:
                position, _ = starts[offset]
                assert found == stored.log[position : position + len(found)]

    lab.run(test)
    assert all(named)


@pytest.mark.parametrize("cut_bytes", [1, 16, 400, 20_000])
def test_truncated_object_is_named(lab: Lab, cut_bytes: int) -> None:
    stored = stored_in(lab)
    path = lab.object_path(stored)
    path.write_bytes(path.read_bytes()[:-cut_bytes])

    async def test() -> None:
        with pytest.raises(CorruptObject, match=NAMED):
            await lab.read(stored, 0)

    lab.run(test)


def test_missing_object_is_named(lab: Lab) -> None:
    stored = stored_in(lab)
    lab.store.delete(stored.committed.object_key)

    async def test() -> None:
        with pytest.raises(ObjectMissing, match=NAMED):
            await lab.read(stored, 0)
        with pytest.raises(ObjectMissing, match=NAMED):
            await lab.at_time(stored, 1000)
        assert lab.reader.state.missing == 2

    lab.run(test)


def test_swapped_object_is_named(lab: Lab) -> None:
    stored = stored_in(lab)
    batches.cache_clear()  # The same offsets with other bytes.
    other = stored_in(lab)
    swapped = replace(
        stored,
        committed=replace(
            stored.committed,
            object_key=other.committed.object_key,
            size_bytes=other.committed.size_bytes,
            log_bytes=other.committed.log_bytes,
        ),
    )

    async def test() -> None:
        with pytest.raises(CorruptObject, match="the object holds another segment"):
            await lab.read(swapped, 0)

    lab.run(test)


@pytest.mark.parametrize(
    "changes",
    [
        {"object_key": "../../../etc/passwd"},
        {"object_key": "checkpoints/cluster.json"},
        {"object_key": "segments/\0"},
        {"object_key": "x" * 1_000_000},
        {"size_bytes": 2**62},
        {"size_bytes": -1},
        {"size_bytes": 2**62, "log_bytes": 2**62 - 1},
        {"log_bytes": -(2**62)},
        {"end_offset": 2**62},
        {"record_count": -1, "root_sha256": "no hash"},
    ],
    ids="-".join,
)
def test_a_row_that_somebody_wrote_by_hand_gives_no_record_and_an_error(lab: Lab, changes: dict[str, Any]) -> None:
    stored = stored_in(lab)
    forged_row = replace(stored, committed=replace(stored.committed, **changes))

    async def test() -> None:
        with pytest.raises(TieredError):
            await lab.read(forged_row, 0)

    lab.run(test)


def test_object_out_of_its_chain_is_named(lab: Lab) -> None:
    stored = stored_in(lab)
    other_chain = replace(stored, committed=replace(stored.committed, previous_root_sha256="ab" * 32))

    async def test() -> None:
        with pytest.raises(CorruptObject, match="follows another segment"):
            await lab.read(other_chain, 0)

    lab.run(test)


def test_restored_object_is_served_again(lab: Lab) -> None:
    stored = stored_in(lab)
    path = lab.object_path(stored)
    good = path.read_bytes()
    lab.flip(stored, 10)

    async def test() -> None:
        with pytest.raises(CorruptObject):
            await lab.read(stored, 0)
        path.write_bytes(good)
        assert (await lab.read(stored, 0)).read() == stored.log[: (await lab.read(stored, 0)).length]

    lab.run(test)


def test_open_tails_are_bounded(tmp_path: Path) -> None:
    lab = Lab(tmp_path, open_tail_bytes=1)
    segments = [stored_in(lab, 30) for _ in range(3)]

    async def test() -> None:
        for _ in range(2):
            for stored in segments:
                await lab.read(stored, 0)
                await lab.read(stored, 29)
        assert lab.reader.state.tails_opened == 6

    lab.run(test)


def test_tails_that_are_larger_than_their_room_are_opened_one_at_a_time(tmp_path: Path) -> None:
    lab = Lab(tmp_path, open_tail_bytes=1)
    segments = [stored_in(lab, 30) for _ in range(3)]

    async def test() -> None:
        lab.store.ranges.clear()
        lab.store.gate.clear()
        reads = [asyncio.ensure_future(lab.read(stored, 0)) for stored in segments]
        await asyncio.sleep(0.05)
        assert len(lab.store.ranges) == 1
        lab.store.gate.set()
        await asyncio.gather(*reads)
        assert lab.reader.state.tails_opened == 3

    lab.run(test)


def test_parallel_readers_open_an_object_once(lab: Lab) -> None:
    stored = stored_in(lab)

    async def test() -> None:
        found = await asyncio.gather(*(lab.read(stored, 0) for _ in range(20)))
        assert len({each.read() for each in found}) == 1
        assert lab.reader.state.tails_opened == 1
        assert lab.cache.state.loads == 1

    lab.run(test)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    timestamps=st.lists(st.integers(0, 50), min_size=1, max_size=60),
    asked=st.integers(-1, 52),
    start_offset=st.integers(0, 70),
)
def test_first_offset_at_a_time_is_that_of_a_scan(
    tmp_path_factory: pytest.TempPathFactory, timestamps: list[int], asked: int, start_offset: int
) -> None:
    lab = Lab(tmp_path_factory.mktemp("time"))
    stored = store_segment(lab.store, lab.directory, timestamps, records_per_batch=4, value_bytes=10, chunk_bytes=300)
    expected = next(
        (
            (offset, timestamp_ms)
            for offset, timestamp_ms in enumerate(timestamps)
            if timestamp_ms >= asked and offset >= start_offset
        ),
        None,
    )

    async def test() -> None:
        assert await lab.at_time(stored, asked, start_offset) == expected

    lab.run(test)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    timestamps=st.lists(st.integers(-1, 50), min_size=1, max_size=60),
    wrong=st.sampled_from(WRONG),
    is_old=st.booleans(),
    start_offset=st.integers(0, 70),
)
def test_times_are_those_of_the_records_whatever_headers_claim(
    tmp_path_factory: pytest.TempPathFactory, timestamps: list[int], wrong: str, is_old: bool, start_offset: int
) -> None:
    lab = Lab(tmp_path_factory.mktemp("time"))
    stored = store_segment(
        lab.store,
        lab.directory,
        timestamps,
        records_per_batch=4,
        value_bytes=10,
        chunk_bytes=300,
        written=partial(claiming, wrong=wrong),
        times_proven_from=UNPROVEN,
        is_old=is_old,
    )
    assert stored.committed.may_hold(50) or max(timestamps) < 50
    left = [(offset, ms) for offset, ms in enumerate(timestamps) if offset >= start_offset]
    greatest = max((each for each in left if each[1] >= 0), key=lambda each: (each[1], -each[0]), default=None)

    async def test() -> None:
        place = place_of(stored.committed)
        for _ in range(2):
            for asked in (-1, 0, 10, 49, 50, 51):
                expected = next((each for each in left if each[1] >= asked), None)
                assert await lab.at_time(stored, asked, start_offset) == expected
            assert await lab.reader.greatest_timestamp(place, start_offset=start_offset, best=None) == greatest

    lab.run(test)


def test_a_chunk_of_an_old_object_is_looked_into_once(lab: Lab) -> None:
    stored = store_segment(lab.store, lab.directory, range(400), is_old=True)

    async def test() -> None:
        assert await lab.at_time(stored, 1_000) is None
        before = replace(lab.cache.state)
        assert before.loads > 1
        assert await lab.at_time(stored, 1_001) is None
        assert lab.cache.state == before, "no chunk was asked for"

    lab.run(test)


@pytest.mark.parametrize(
    "change",
    [partial(boundary_moved, number=0, offsets=-5), partial(gap_made, number=0, offsets=5)],
    ids=["boundary moved", "gap"],
)
def test_a_table_with_other_offsets_leaves_no_record_out(lab: Lab, change: Change) -> None:
    """The hashes of the chunks are right, and so is their root: who may write to the bucket can have readers go on
    behind records that are there."""
    stored = stored_in(lab)
    key = stored.committed.object_key
    data, _ = lab.store.get(key, max_bytes=1 << 20)
    second = read_tail(data, len(data)).chunks[1].first_offset
    lab.store.delete(key)
    lab.store.put(key, forged(data, change))

    async def test() -> None:
        for offset in range(second - 5, second):
            with pytest.raises(CorruptObject, match=NAMED):
                await lab.read(stored, offset, max_bytes=1 << 20)

    lab.run(test)


def test_no_read_waits_for_a_lookup_by_time_and_one_that_is_cancelled_leaves_no_thread(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = stored_in(lab)
    began, may_end = threading.Event(), threading.Event()

    def slow(*_: object) -> None:
        began.set()
        may_end.wait(30)

    monkeypatch.setattr(reader, "_first_at", slow)

    async def test() -> None:
        lookups = [asyncio.ensure_future(lab.at_time(stored, 1200)) for _ in range(3)]
        await asyncio.to_thread(began.wait, 30)
        async with asyncio.timeout(20):
            assert (await lab.read(stored, 399, max_bytes=1)).length > 0
        for lookup in lookups:
            lookup.cancel()
        await asyncio.wait(lookups, timeout=0.05)
        assert sorted(lookup.done() for lookup in lookups) == [False, True, True], "what had not begun never does"
        may_end.set()
        await asyncio.wait(lookups)
        assert all(lookup.cancelled() for lookup in lookups)

    lab.run(test)
