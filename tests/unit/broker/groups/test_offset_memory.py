"""Offsets that the coordinator remembers are those that SQL has, whoever changes them (R12). On a real catalogue."""

import asyncio
import random
import tracemalloc
from collections.abc import AsyncIterator, Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Connection, text

from tests.contracts.stored_transactions import begin, decided
from tests.unit.broker.context import SetClock
from tests.unit.broker.groups.coordinators import Coordinating, coordinating
from tiered.broker.groups import offset_memory
from tiered.broker.groups.committed_offsets import OffsetEntry, OffsetRow, StableOffsets
from tiered.broker.groups.offset_memory import FoundOffsets, OffsetMemory
from tiered.broker.groups.values import Fence
from tiered.errors import CoordinatorNotAvailable, MetadataOutcomeUnknown, TieredError
from tiered.ids import TopicId, TopicPartition
from tiered.meta import coordinator_slots, group_offsets, transaction_offsets
from tiered.meta.coordinator_slots import TENURE_BITS
from tiered.meta.engine import Database
from tiered.rules.groups.remembered_offsets import ANSWERS_MS, SUCCESSOR_WAITS_MS
from tiered.rules.transactions.transaction_state import ProducerIdAndEpoch

T = TypeVar("T")
GROUPS = ("billing", "stock", "audit")


class _Unsure(Database):
    """A catalogue that counts reads, and whose next answer to a COMMIT can be lost."""

    reads = 0
    fate: str | None = None
    may_read = asyncio.Event()
    may_change = asyncio.Event()
    """What is late."""
    late: "list[asyncio.Task[object]]"

    async def read(self, fn: Callable[[Connection], T], *, deadline_ms: int | None = None) -> T:
        _Unsure.reads += 1
        await _Unsure.may_read.wait()
        return await super().read(fn, deadline_ms=deadline_ms)

    async def run(self, fn: Callable[[Connection], T], *, deadline_ms: int | None = None, ahead: bool = False) -> T:
        fate, _Unsure.fate = _Unsure.fate, None
        if fate == "late":
            _Unsure.late.append(asyncio.create_task(self._late(fn)))
            raise MetadataOutcomeUnknown("the answer is lost, and the change is on its way")
        value = await super().run(fn, deadline_ms=deadline_ms, ahead=ahead)
        if fate == "lost":
            raise MetadataOutcomeUnknown("the answer is lost")
        return value

    async def _late(self, fn: Callable[[Connection], T]) -> T:
        await _Unsure.may_change.wait()
        return await super().run(fn)


@dataclass(slots=True)
class Remembering:
    broker: Coordinating
    producers: int = 0
    open: list[int] = field(default_factory=list)

    @property
    def topic_id(self) -> TopicId:
        return self.broker.topics.by_name("orders").topic_id

    def fence(self, group_id: str = "billing") -> Fence:
        slot = self.broker.groups.slot(group_id)
        return Fence(group_id=group_id, slot=slot, tenure=self.broker.groups.slots.tenure(slot), generation=-1)

    def entry(self, offset: int, partition: int = 0) -> OffsetEntry:
        return OffsetEntry(
            topic_id=self.topic_id,
            partition=partition,
            offset=offset,
            leader_epoch=offset % 5,
            metadata=f"at\0{offset}",
        )

    async def commit(self, offset: int, partition: int = 0, *, group_id: str = "billing") -> None:
        await self.broker.groups.offsets.commit(self.fence(group_id), [self.entry(offset, partition)])

    async def send(self, offset: int, partition: int = 0, *, group_id: str = "billing") -> None:
        """With the transaction of a producer of its own, which stays open."""
        self.producers += 1
        await asyncio.to_thread(begin, self.broker.database, self.producers)
        self.open.append(self.producers)
        await self.broker.groups.offsets.submit_with_transaction(
            self.fence(group_id), [self.entry(offset, partition)],
            transactional_id=f"t{self.producers}", producer=ProducerIdAndEpoch(self.producers, 3),
        )  # fmt: skip

    async def decide(self, *, is_commit: bool) -> None:
        """As another broker does, which coordinates the transactions. This one is not told."""
        ended, self.open = tuple(self.open), []
        await self.broker.database.run(lambda conn: decided(conn, **{"committed" if is_commit else "aborted": ended}))

    async def told(self, group_id: str = "billing", wanted: Collection[TopicPartition] | None = None) -> StableOffsets:
        return await self.broker.groups.offsets.fetch_stable(group_id, wanted)

    async def stored(self, group_id: str = "billing") -> StableOffsets:
        def look(conn: Connection) -> tuple[tuple[OffsetRow, ...], frozenset[tuple[UUID, int]]]:
            return group_offsets.load(conn, group_id, limit=100), transaction_offsets.pending(conn, group_id, limit=100)

        rows, waiting = await Database.read(self.broker.database, look)
        return StableOffsets(
            offsets={TopicPartition(TopicId(row.topic_id), row.partition): row for row in rows},
            unstable=frozenset(TopicPartition(TopicId(topic_id), partition) for topic_id, partition in waiting),
        )

    async def goes_and_comes_back(self, offset: int) -> None:
        """Another broker has each slot for a moment and commits this offset for all. This one is not told of that."""
        tenure = text(f"UPDATE coordinator_slot SET slot_epoch = slot_epoch + {1 << TENURE_BITS}")
        await self.broker.database.run(lambda conn: conn.execute(tenure))
        self.wait(SUCCESSOR_WAITS_MS)
        commits = text(f"UPDATE group_offset SET committed_offset = {offset}")
        await self.broker.database.run(lambda conn: conn.execute(commits))

    async def comes_back(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Each slot was another broker's for a moment; time stands still."""
        monkeypatch.setattr(SetClock, "monotonic_ms", lambda clock: float(clock.waited_ms))
        object.__setattr__(self.broker.context, "is_alone", False)
        statement = text(f"UPDATE coordinator_slot SET slot_epoch = slot_epoch + {1 << TENURE_BITS}")
        await self.broker.database.run(lambda conn: conn.execute(statement))
        rows = await self.broker.database.run(coordinator_slots.load_all)
        self.broker.groups.slots_changed(rows.values())

    def wait(self, ms: float) -> None:
        clock = self.broker.context.clock
        assert isinstance(clock, SetClock)
        clock.waited_ms += int(ms)

    async def reads_of(self, group_id: str = "billing", wanted: Collection[TopicPartition] | None = None) -> int:
        """How often SQL is asked when somebody asks for the group's offsets."""
        before = _Unsure.reads
        await self.told(group_id, wanted)
        return _Unsure.reads - before


class _StandingClock(SetClock):
    """Its time passes when a test says so."""

    def elapsed_ms(self) -> float:
        return float(self.waited_ms)


async def _until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        await asyncio.sleep(0)


@pytest.fixture
async def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Remembering]:
    """Its memory's time passes when a test says so, or on a machine that is starved SQL would be asked more often."""
    _Unsure.reads, _Unsure.fate, _Unsure.late = 0, None, []
    _Unsure.may_read, _Unsure.may_change = asyncio.Event(), asyncio.Event()
    _Unsure.may_read.set()
    _Unsure.may_change.set()
    monkeypatch.setattr(SetClock, "elapsed_ms", lambda clock: float(clock.waited_ms))
    async with coordinating(tmp_path, sql=_Unsure) as broker:
        yield Remembering(broker)
        _Unsure.fate = None
        _Unsure.may_read.set()
        _Unsure.may_change.set()
        await asyncio.gather(*_Unsure.late, return_exceptions=True)


async def test_what_was_told_is_told_again_without_sql_until_the_groups_own_coordinator_changes_it(
    made: Remembering,
) -> None:
    await made.commit(5)
    key = TopicPartition(made.topic_id, 0)
    assert [await made.reads_of() for _ in range(3)] == [1, 0, 0]
    assert await made.reads_of(wanted=[key]) == 0, "of all topics it knows this one too"
    await made.commit(6)
    assert [await made.reads_of(wanted=[key]) for _ in range(3)] == [1, 0, 0]
    assert await made.reads_of() == 1, "it knows one topic, and is asked for all"
    await made.commit(7, group_id="stock")
    assert await made.reads_of() == 0
    assert [await made.reads_of("nobody") for _ in range(2)] == [1, 0], "that a group has none is known as well"
    assert await made.told() == await made.stored()


async def test_a_coordinator_that_lost_its_slot_and_does_not_know_it_asks_sql_before_its_successor_writes(
    made: Remembering,
) -> None:
    await made.commit(5)
    await made.told()
    statement = "UPDATE coordinator_slot SET broker_id = 7, broker_epoch = 77, slot_epoch = slot_epoch + 10000000"
    await made.broker.database.run(lambda conn: conn.execute(text(statement)))
    made.wait(SUCCESSOR_WAITS_MS)
    await made.broker.database.run(lambda conn: conn.execute(text("UPDATE group_offset SET committed_offset = 8")))
    assert [row.committed_offset for row in (await made.told()).offsets.values()] == [8]
    assert await made.reads_of() == 1, "and nothing about a slot that is another one's is remembered"


async def test_an_answer_that_says_whose_the_slots_are_renews_all_that_is_remembered(made: Remembering) -> None:
    await made.commit(5)
    await made.commit(6, group_id="stock")
    assert [await made.reads_of("billing"), await made.reads_of("stock")] == [1, 1]
    made.wait(ANSWERS_MS)
    assert [await made.reads_of("billing"), await made.reads_of("stock")] == [1, 0]


async def test_what_was_read_in_an_earlier_tenure_is_not_renewed(made: Remembering) -> None:
    await made.commit(5)
    await made.told()
    await made.goes_and_comes_back(8)
    assert await made.reads_of("stock") == 1
    assert [row.committed_offset for row in (await made.told()).offsets.values()] == [8]


def test_an_answer_counts_from_before_sql_was_asked() -> None:
    clock = _StandingClock()
    memory = OffsetMemory(clock, lambda _: 3)
    with memory.reading() as reading:
        clock.waited_ms += int(ANSWERS_MS) - 1
    memory.heard(reading, {3: 7})
    memory.keep(reading, "billing", FoundOffsets(), None)
    assert memory.answer("billing", None) == FoundOffsets()
    clock.waited_ms += 1
    assert memory.answer("billing", None) is None


async def test_offsets_that_wait_are_asked_for_each_time_and_what_becomes_of_them_is_told(made: Remembering) -> None:
    await made.commit(5)
    await made.told()
    await made.send(8)
    assert (await made.told()).unstable == {TopicPartition(made.topic_id, 0)}
    await made.decide(is_commit=True)
    assert [row.committed_offset for row in (await made.told()).offsets.values()] == [8]


def test_what_is_read_while_it_is_changed_is_not_remembered() -> None:
    memory = OffsetMemory(_StandingClock(), lambda _: 3)
    with memory.reading() as before:
        memory.changing({"billing"})
    with memory.reading() as meanwhile:
        memory.settled()
    with memory.reading() as after:
        pass
    for reading, remembers in ((before, False), (meanwhile, False), (after, True)):
        memory.heard(reading, {3: 7})
        memory.keep(reading, "billing", FoundOffsets(), None)
        assert (memory.answer("billing", None) is not None) is remembers
        memory.keep(reading, "stock", FoundOffsets(), None)
        assert memory.answer("stock", None) is not None
    memory.changing(None)
    assert (memory.answer("billing", None), memory.answer("stock", None)) == (None, None)


def test_memory_is_bounded_and_what_was_not_used_for_longest_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_memory, "MAX_BYTES", 3 * (offset_memory.GROUP_BYTES + offset_memory.CHAR_BYTES))
    memory = OffsetMemory(_StandingClock(), lambda _: 3)
    with memory.reading() as reading:
        pass
    memory.heard(reading, {3: 7})
    for group_id in "abcde":
        memory.keep(reading, group_id, FoundOffsets(), None)
        memory.answer("a", None)
    assert [each for each in "abcde" if memory.answer(each, None) is not None] == ["a", "d", "e"]
    row = OffsetRow(
        topic_id=UUID(int=1), partition=0, committed_offset=5, leader_epoch=-1, metadata="", committed_at_ms=0
    )
    topic_id = TopicId(row.topic_id)
    rows = {TopicPartition(topic_id, number): row for number in range(offset_memory.MAX_ROWS_OF_GROUP + 1)}
    memory.keep(reading, "f", FoundOffsets(rows=rows), None)
    assert memory.answer("f", None) is None


@pytest.mark.parametrize(("chars", "topics"), [(20, 100), (2_000, 0)])
def test_all_that_is_remembered_of_a_group_counts(chars: int, topics: int) -> None:
    """Its name and the topics it was asked for too: those of groups that nobody has heard of are kept as well."""
    memory = OffsetMemory(_StandingClock(), lambda _: 3)
    topic_ids = {uuid4() for _ in range(topics)}
    with memory.reading() as reading:
        pass
    memory.heard(reading, {3: 7})
    tracemalloc.start()
    try:
        for number in range(200):
            memory.keep(reading, f"{number}".ljust(chars), FoundOffsets(), topic_ids)
        assert tracemalloc.get_traced_memory()[0] < memory._size_bytes
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("what", ["commit", "delete"])
async def test_a_coordinator_changes_nothing_in_a_slot_before_its_last_holder_has_stopped_answering(
    made: Remembering, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    await made.commit(5)
    await made.comes_back(monkeypatch)
    offsets, keys = made.broker.groups.offsets, [TopicPartition(made.topic_id, 0)]
    change = asyncio.create_task(made.commit(6) if what == "commit" else offsets.delete("billing", keys))
    made.wait(SUCCESSOR_WAITS_MS - 1)
    await asyncio.wait([change], timeout=1.1 * SUCCESSOR_WAITS_MS / 1000.0)
    assert not change.done()
    assert [row.committed_offset for row in (await made.stored()).offsets.values()] == [5]
    made.wait(1)
    await change
    found = [row.committed_offset for row in (await made.told()).offsets.values()]
    assert found == ([6] if what == "commit" else [])


async def test_transitions_of_transactions_do_not_wait_for_the_last_holder_of_a_slot(
    made: Remembering, monkeypatch: pytest.MonkeyPatch
) -> None:
    await made.commit(5)
    await made.comes_back(monkeypatch)
    change = asyncio.create_task(made.commit(6))
    await asyncio.sleep(0.02)
    async with asyncio.timeout(5):
        assert await made.broker.groups.offsets.commits.in_turn(lambda conn, by: "done") == "done"
    assert not change.done()
    made.wait(SUCCESSOR_WAITS_MS)
    await change


async def test_what_is_read_before_an_unknown_outcome_is_settled_is_not_remembered(made: Remembering) -> None:
    await made.commit(5)
    keys = [TopicPartition(made.topic_id, 0)]
    _Unsure.may_read.clear()
    reads = _Unsure.reads
    held = asyncio.create_task(made.told("stock", keys))
    await _until(lambda: _Unsure.reads > reads)
    asked_before = asyncio.create_task(made.told("billing", keys))
    await _until(lambda: bool(made.broker.groups.offsets._reader._waiting))
    _Unsure.fate = "late"
    _Unsure.may_change.clear()
    with pytest.raises(CoordinatorNotAvailable):
        await made.commit(6)
    _Unsure.may_read.set()
    assert [row.committed_offset for row in (await asked_before).offsets.values()] == [5]
    _Unsure.may_change.set()
    await asyncio.gather(held, *_Unsure.late)
    assert [row.committed_offset for row in (await made.told("billing", keys)).offsets.values()] == [6]


@pytest.mark.parametrize("seed", range(2))
async def test_whatever_happens_a_client_is_told_what_sql_has(made: Remembering, seed: int) -> None:
    """Commits, transactions and their ends, deletions, answers of SQL that are lost, and changes that come late."""
    rng = random.Random(seed)
    offsets = made.broker.groups.offsets
    before = _Unsure.reads
    asked = 0
    for number in range(60):
        group_id, partition = rng.choice(GROUPS), rng.randrange(3)
        key = TopicPartition(made.topic_id, partition)
        _Unsure.fate = rng.choice([None, None, None, "lost", "late"])
        what = rng.choice(
            ("commit", "commit", "ask", "ask", "send", "decide", "delete", "delete group", "wait", "lose")
        )
        asking = [asyncio.create_task(made.told(rng.choice(GROUPS))) for _ in range(rng.randrange(3))]
        try:
            if what == "commit":
                await made.commit(number, partition, group_id=group_id)
            elif what == "send":
                _Unsure.fate = None
                await made.send(number, partition, group_id=group_id)
            elif what == "decide":
                _Unsure.fate = None
                await made.decide(is_commit=rng.random() < 0.7)
            elif what == "delete":
                await offsets.delete(group_id, [key])
            elif what == "delete group":
                await offsets.delete_group(group_id)
            elif what == "lose":
                _Unsure.fate = None
                await asyncio.gather(*asking, return_exceptions=True)
                await made.goes_and_comes_back(number)
            elif what == "wait":
                made.wait(rng.choice((ANSWERS_MS / 2, ANSWERS_MS)))
        except TieredError:
            pass
        await asyncio.gather(*asking, return_exceptions=True)
        _Unsure.fate = None
        if rng.random() < 0.5:
            continue  # What is on its way meets the next step.
        for each in GROUPS:
            for wanted in (None, [key], None):
                asked += 1
                told, stored = await made.told(each, wanted), await made.stored(each)
                chosen = stored.offsets if wanted is None else {k: v for k, v in stored.offsets.items() if k in wanted}
                assert told.offsets == chosen, f"step {number}, {what}: {each}"
                assert told.unstable == stored.unstable
    assert _Unsure.reads - before < asked, "or else nothing is remembered"
