"""How many searches a broker runs at once, and what one reads of a partition, piece by piece."""

import asyncio
import gc
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from io import FileIO
from pathlib import Path
from typing import Any, cast

import pytest

from tests.support.partition_appends import append
from tests.support.transactions import end, write
from tests.unit.broker.context import SetClock
from tests.unit.broker.tiering.tiers import SEGMENTS, Tiers, tiers
from tiered.broker.people import record_search
from tiered.broker.people.record_reader import ReadCost, StoredRecord, UnfinishedBatch, Wanted
from tiered.broker.people.record_search import RecordSearches, Sought, Step
from tiered.broker.tiering.tier_reader import TierReader
from tiered.errors import PolicyViolation, Throttled
from tiered.formats import record_batch
from tiered.formats.control_record import MarkerType
from tiered.formats.offset_index import OffsetIndex
from tiered.formats.record_batch import Compression, Record, encode_batch
from tiered.hot.log import Log
from tiered.hot.lookup import Lookup
from tiered.hot.segment import LogSegment


def searches(most: int) -> RecordSearches:
    return RecordSearches(cast(TierReader, None), SetClock(), lambda: most)


async def test_no_more_searches_run_than_the_setting_says_parts_of_others_included() -> None:
    made = searches(2)
    async with made.place(is_part=False), made.place(is_part=True):
        with pytest.raises(Throttled, match=r"tiered\.http\.max\.searches"):
            async with made.place(is_part=False):
                pass
    assert made.running == 0
    async with made.place(is_part=False):
        assert made.running == 1


async def test_a_search_that_is_cancelled_gives_up_its_place_and_rests_in_its_turn() -> None:
    made, began = searches(1), asyncio.Event()

    async def visit() -> None:
        async with made.place(is_part=False) as turn:
            turn.worked_ms = 300.0
            began.set()
            await asyncio.sleep(30)

    async with asyncio.timeout(20):
        visiting = asyncio.ensure_future(visit())
        await began.wait()
        visiting.cancel()
        await asyncio.sleep(0)
        assert (made.running, visiting.done()) == (0, False)
        with pytest.raises(asyncio.CancelledError):
            await visiting


async def test_none_run_where_the_setting_is_zero() -> None:
    with pytest.raises(PolicyViolation, match=r"tiered\.http\.max\.searches"):
        async with searches(0).place(is_part=False):
            pass


# The pieces of one


def everything(wanted: Wanted | None = None, from_ms: int | None = None, max_records: int = 10**6) -> Sought:
    def rendered(stored: StoredRecord) -> bytes:
        return b"%d" % stored.record.offset

    return Sought(
        wanted=wanted,
        from_ms=from_ms,
        to_ms=None,
        max_records=max_records,
        committed_only=True,
        render=lambda _number: rendered,
    )


class Looking:
    """The searches of a broker whose topic `orders` is in `made`, and what each piece has cost."""

    def __init__(self, made: Tiers) -> None:
        self.costs: list[ReadCost] = []
        self._topic = made.topics.by_name("orders")
        self.tiers = TierReader(made.cold_reader, made.context.disk, made.context.counters)
        self.searches = RecordSearches(self.tiers, made.clock, lambda: 4)

    def steps(
        self, sought: Sought, numbers: Sequence[int] = (0,), positions: dict[int, int] | None = None
    ) -> AsyncGenerator[Step, None]:
        return self.searches.steps(self._topic, numbers, sought, positions or {}, self.costs.append)


@asynccontextmanager
async def looking(made: Tiers) -> AsyncIterator[Looking]:
    looks = Looking(made)
    try:
        yield looks
    finally:
        await asyncio.to_thread(looks.searches.close)


def large_batch(count: int) -> bytearray:
    records = [Record(offset=number, timestamp_ms=1, key=None, value=None) for number in range(count)]
    return bytearray(encode_batch(records, compression=Compression.ZSTD))


async def test_a_large_batch_is_unpacked_once_however_many_pieces_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PIECE_MS", "MAX_PIECE_MS"):
        monkeypatch.setattr(record_search, name, 0.0)
    unpacked, plain = 0, record_batch.records

    def records(*arguments: Any, **more: Any) -> Iterator[Record]:
        nonlocal unpacked
        unpacked += 1
        return plain(*arguments, **more)

    monkeypatch.setattr(record_batch, "records", records)
    async with tiers(tmp_path, partition_count=2) as made, looking(made) as looks:
        for partition in made.partitions:
            append(partition, large_batch(40))
        steps = [step async for step in looks.steps(everything(), (0, 1))]
        given = [(number, offset) for step in steps for number, offset, _ in step.records]
        assert sorted(given) == [(number, offset) for number in (0, 1) for offset in range(SEGMENTS + 1 + 40)]
        in_large = [number for number, offset in given if offset > SEGMENTS]
        assert in_large in ([0] * 40 + [1] * 40, [1] * 40 + [0] * 40), "one of them at a time is in memory"
        assert len(steps) > 80
        assert unpacked == 2 * (SEGMENTS + 1 + 1)
        assert sum(step.looked_records for step in steps) == len(given)


def unfinished_batches() -> int:
    return sum(isinstance(thing, UnfinishedBatch) and bool(thing) for thing in gc.get_objects())


async def test_a_batch_that_a_search_leaves_in_the_middle_is_no_garbage(tmp_path: Path) -> None:
    """Only a full collection would end it, and that waits for a quiet moment."""
    async with tiers(tmp_path) as made, looking(made) as looks:
        append(made.partition, large_batch(5000))
        gc.collect()
        gc.disable()
        try:
            seen: list[tuple[int, int, bytes]] = []
            steps = looks.steps(everything(max_records=10), positions={0: 2000})
            async for step in steps:
                seen += step.records
                if seen:
                    break
            assert (len(seen), unfinished_batches()) == (10, 1)
            await steps.aclose()
            async with asyncio.timeout(20):
                while unfinished_batches():  # The thread forgets its last call a moment after the call has ended.
                    await asyncio.sleep(0.01)
        finally:
            gc.enable()


async def test_a_search_goes_on_in_the_middle_of_a_large_batch(tmp_path: Path) -> None:
    async with tiers(tmp_path) as made, looking(made) as looks:
        append(made.partition, large_batch(5000))
        steps = [step async for step in looks.steps(everything(), positions={0: 4000})]
        assert [offset for step in steps for _, offset, _ in step.records] == list(range(4000, 5000 + SEGMENTS + 1))


async def test_pieces_end_also_where_no_record_may_be_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PIECE_MS", "MAX_PIECE_MS"):
        monkeypatch.setattr(record_search, name, 0.0)
    async with tiers(tmp_path, {"segment.bytes": "1000000"}) as made, looking(made) as looks:
        for sequence in range(20):
            write(made.partition, 7, sequence)
        end(made.partition, 7, MarkerType.ABORT)
        steps = [step async for step in looks.steps(everything(), positions={0: SEGMENTS + 1})]
        assert not any(step.records for step in steps)
        assert len(steps) == 1 + 20 + 1, "who waits sees it go on after each batch, and it rests in between"
        assert steps[-1].places[0].next_offset == made.partition.last_stable_offset
        assert all(cost.read_bytes > 0 for cost in looks.costs)


async def test_a_piece_that_is_cancelled_ends_with_its_thread_and_is_paid_for(tmp_path: Path) -> None:
    began, may_end = threading.Event(), threading.Event()

    def slow(_: Record) -> bool:
        began.set()
        return may_end.wait(30)

    async with tiers(tmp_path) as made, looking(made) as looks:
        steps = looks.steps(everything(slow))
        await anext(steps)
        piece = asyncio.ensure_future(anext(steps))
        await asyncio.to_thread(began.wait, 30)
        for _ in range(3):
            piece.cancel()
            await asyncio.wait({piece}, timeout=0.02)
        assert not piece.done(), "another search of the same principal would have a thread of its own"
        made.clock.waited_ms += 700
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await piece
        assert [cost.worked_ms >= 700 for cost in looks.costs] == [True]
        assert looks.searches.pending == 0


async def test_a_lookup_of_a_time_that_is_cancelled_ends_with_its_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, may_end = threading.Event(), threading.Event()
    async with tiers(tmp_path) as made, looking(made) as looks:
        plain = Log.offset_for_timestamp

        def slow(self: Log, timestamp_ms: int, end_offset: int) -> tuple[int, int] | None:
            began.set()
            may_end.wait(30)
            return plain(self, timestamp_ms, end_offset)

        monkeypatch.setattr(Log, "offset_for_timestamp", slow)
        first = asyncio.ensure_future(anext(looks.steps(everything(from_ms=1))))
        await asyncio.to_thread(began.wait, 30)
        first.cancel()
        await asyncio.wait({first}, timeout=0.05)
        assert not first.done()
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await first


async def test_a_disk_that_cannot_be_read_is_named_and_the_other_partitions_are_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with tiers(tmp_path, partition_count=2) as made, looking(made) as looks:
        broken, plain = str(made.partitions[0].log.directory), Lookup.opened

        def opened(self: Lookup, segment: LogSegment) -> tuple[FileIO, OffsetIndex]:
            if str(segment.path).startswith(broken):
                raise OSError(5, "Input/output error")
            return plain(self, segment)

        monkeypatch.setattr(Lookup, "opened", opened)
        for sought in (everything(from_ms=1), everything()):
            steps = [step async for step in looks.steps(sought, (0, 1))]
            (trouble,) = (trouble for step in steps for trouble in step.troubles)
            assert (trouble.partition, "orders-0 cannot be read from the broker's disk" in trouble.message) == (0, True)
            assert sum(len(step.records) for step in steps) == SEGMENTS + 1


async def test_a_search_that_was_to_go_on_above_the_end_of_a_log_says_so(tmp_path: Path) -> None:
    async with tiers(tmp_path) as made, looking(made) as looks:
        end_offset = made.partition.log.log_end_offset
        for position, troubles in ((end_offset, 0), (end_offset + 1, 1)):
            steps = [step async for step in looks.steps(everything(), positions={0: position})]
            assert [len(step.troubles) for step in steps] == [troubles]


async def test_what_cannot_be_read_any_more_is_not_called_looked_at(tmp_path: Path) -> None:
    async with tiers(tmp_path) as made, looking(made) as looks:
        steps = looks.steps(everything())
        await anext(steps)
        made.partition.high_watermark = 3  # As of a leader that lost its place to one whose log is shorter.
        last = [step async for step in steps][-1]
        assert last.places[0].next_offset == 3 < last.places[0].end_offset
        assert "up to offset 3" in last.troubles[0].message
