"""The coordinator of transactions after a restart, a hand-over or an outage of SQL: nothing that was decided is lost,
and nothing is decided twice. On a real catalogue."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest
from sqlalchemy import Connection, update

from tests.unit.broker.groups.coordinators import coordinating
from tests.unit.broker.transactions.transacting import Transacting, start, transacting
from tiered.broker.transactions import coordinator
from tiered.errors import (
    CoordinatorLoading,
    CoordinatorNotAvailable,
    MetadataOutcomeUnknown,
    MetadataUnavailable,
    NotCoordinator,
    NotLeader,
    TransactionCoordinatorFenced,
)
from tiered.meta import coordinator_slots, producer_ids, transactions
from tiered.meta.coordinator_slots import TENURE_BITS, SlotRow, tenure_of
from tiered.meta.engine import Database
from tiered.meta.group_offsets import WriteOutcome
from tiered.meta.tables import coordinator_slot, transactional_producer
from tiered.meta.transactions import TransactionChange
from tiered.rules.transactions.transaction_state import (
    KEEPS_EPOCH,
    MAX_PRODUCER_EPOCH,
    RAISES_EPOCH,
    ProducerIdAndEpoch,
    Transaction,
    TransactionState,
)

T = TypeVar("T")
WAIT_S = 30.0


async def test_the_next_coordinator_carries_out_what_was_decided(tmp_path: Path) -> None:
    async with coordinating(tmp_path) as groups, asyncio.TaskGroup() as tasks:
        first = start(groups, tasks)
        first.leaders.refuse = dict.fromkeys(first.partitions, NotLeader("nobody leads it"))
        producer = await first.begun()
        opened = await first.begun("open")
        await first.coordinator.end("payments", producer, commits=True, protocol=KEEPS_EPOCH)
        await first.coordinator.stop()
        second = start(groups, tasks)
        await second.until(TransactionState.COMPLETE_COMMIT)
        assert {partition for _, partition in second.leaders.written} == set(first.partitions)
        await second.coordinator.end("open", opened, commits=False, protocol=KEEPS_EPOCH)
        await second.until(TransactionState.COMPLETE_ABORT, "open")
        await second.coordinator.stop()


async def test_the_next_coordinator_writes_markers_again_where_sql_has_not_heard_that_all_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator, "COMPLETE_AFTER_MS", 30_000.0)
    async with coordinating(tmp_path) as groups, asyncio.TaskGroup() as tasks:
        first = start(groups, tasks)
        producer = await first.begun()
        await first.coordinator.end("payments", producer, commits=True, protocol=KEEPS_EPOCH)
        while (await first.coordinator.describe("payments")).state is not TransactionState.COMPLETE_COMMIT:
            await asyncio.sleep(0.01)
        await first.coordinator.stop()
        assert (await first.stored()).state is TransactionState.PREPARE_COMMIT  # type: ignore[union-attr]
        second = start(groups, tasks)
        await second.added("payments", producer, KEEPS_EPOCH)
        assert {partition for _, partition in second.leaders.written} == set(first.partitions)
        await second.coordinator.stop()


async def test_a_transactional_id_that_nobody_can_read_holds_up_no_other(
    made: Transacting, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("a", "poison", "z")
    for name in names:
        await made.begun(name)
    plain, plain_load = transactions.load_named, transactions.load

    def load(conn: Connection, name: str) -> Transaction | None:
        return plain_load(conn, name) if load_named(conn, [name]) else None

    def load_named(conn: Connection, names: Collection[str], **others: bool) -> Mapping[str, Transaction]:
        if "poison" in names:
            raise ValueError("'many' is not a valid TransactionState")
        return plain(conn, names, **others)

    monkeypatch.setattr(transactions, "load_named", load_named)
    monkeypatch.setattr(transactions, "load", load)
    before = made.coordinator.open_count
    for name in names:
        made.coordinator._read_again(name, soon=True)
    counters = made.groups.context.counters
    async with asyncio.timeout(WAIT_S):
        while counters.failing_items.get("reading transactional ids") != 1 or made.coordinator.open_count != before - 1:
            await asyncio.sleep(0.01)


async def test_what_belongs_to_a_lost_slot_is_answered_by_its_new_holder_alone(made: Transacting) -> None:
    producer = await made.begun()
    groups = made.groups.groups
    slot = groups.slot("payments")
    epoch = groups.slots.epochs[slot] + (1 << TENURE_BITS)
    groups.slots_changed(
        [SlotRow(slot=slot, broker_id=9, broker_epoch=99, slot_epoch=epoch, change_number=epoch >> TENURE_BITS)]
    )
    with pytest.raises(NotCoordinator):
        await made.coordinator.end("payments", producer, commits=True, protocol=KEEPS_EPOCH)
    assert (await made.stored()).state is TransactionState.ONGOING  # type: ignore[union-attr]


async def test_a_person_is_not_told_that_nothing_is_open_by_a_coordinator_that_was_replaced_and_does_not_know(
    made: Transacting,
) -> None:
    await made.initialized()

    def begun_elsewhere(conn: Connection) -> None:
        conn.execute(update(transactional_producer).values(state=TransactionState.ONGOING.value))

    await made.coordinator.abort("payments")
    await made.groups.database.run(begun_elsewhere)
    with pytest.raises(NotCoordinator):
        await made.coordinator.abort("payments")


class _Flaky(Database):
    """A catalogue that goes away, before a change or after it; or only where producer ids are asked for."""

    away: str | None = None

    async def run(self, fn: Callable[[Connection], T], *, deadline_ms: int | None = None, ahead: bool = False) -> T:
        if _Flaky.away == "before" or (_Flaky.away == "producer ids" and fn is producer_ids.allocate_block):
            raise MetadataUnavailable("SQL is away")
        found = await super().run(fn, deadline_ms=deadline_ms, ahead=ahead)
        if _Flaky.away == "after":
            _Flaky.away = None
            raise MetadataOutcomeUnknown("the answer to COMMIT did not come")
        return found


@pytest.fixture
async def flaky(tmp_path: Path) -> AsyncIterator[Transacting]:
    """Nothing asks SQL by itself, and has the answer lost that a test means for its own request."""
    async with transacting(tmp_path, sql=_Flaky, look_ms=600_000.0) as found:
        yield found
    _Flaky.away = None


async def test_without_a_fresh_producer_id_a_producer_is_told_to_ask_again(flaky: Transacting) -> None:
    _Flaky.away = "producer ids"
    with pytest.raises(CoordinatorLoading):
        await flaky.coordinator.init_producer_id("payments", 60_000)
    _Flaky.away = None
    await flaky.coordinator.init_producer_id("payments", 60_000)


async def test_work_that_comes_again_and_again_takes_an_outage_of_sql_for_no_bug(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    often = {"transaction.remove.expired.transaction.cleanup.interval.ms": "10"}
    async with transacting(tmp_path, sql=_Flaky, look_ms=10.0, **often) as made:
        await made.begun()
        _Flaky.away = "before"
        caplog.clear()
        await asyncio.sleep(0.1)
        _Flaky.away = None
        assert "decided is not looked for" in caplog.text, "while SQL was away"
        assert [each.getMessage() for each in caplog.records if each.exc_info] == []


async def test_a_coordinator_without_transactions_does_not_ask_for_what_others_have_decided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def load_decided(_conn: Connection, slots: object) -> tuple[Transaction, ...]:
        asked.append(slots)
        return ()

    monkeypatch.setattr(transactions, "load_decided", load_decided)
    async with transacting(tmp_path, look_ms=10.0) as made:
        await asyncio.sleep(0.05)
        assert asked == []
        await made.begun()
        async with asyncio.timeout(5):
            while not asked:
                await asyncio.sleep(0.01)


async def test_while_sql_is_away_nothing_is_decided_and_nothing_is_lost(flaky: Transacting) -> None:
    producer = await flaky.begun()
    _Flaky.away = "before"
    for _ in range(2):
        with pytest.raises(CoordinatorNotAvailable):
            await flaky.coordinator.end("payments", producer, commits=True, protocol=KEEPS_EPOCH)
    _Flaky.away = None
    assert flaky.leaders.written == []
    await flaky.coordinator.end("payments", producer, commits=True, protocol=KEEPS_EPOCH)
    await flaky.until(TransactionState.COMPLETE_COMMIT)


async def test_what_sql_refused_together_is_written_in_smaller_parts(flaky: Transacting) -> None:
    producers = {f"id-{number}": await flaky.begun(f"id-{number}") for number in range(8)}
    commits = flaky.groups.groups.offsets.commits

    async def end_all() -> list[object]:
        ends = (flaky.coordinator.end(*each, commits=True, protocol=KEEPS_EPOCH) for each in producers.items())
        return list(await asyncio.gather(*ends, return_exceptions=True))

    _Flaky.away = "before"
    assert all(isinstance(each, CoordinatorNotAvailable) for each in await end_all())
    _Flaky.away = None
    for name in producers:
        await flaky.coordinator.describe(name)  # Read again by now: the ends come together.
    flaky.leaders.refuse = dict.fromkeys(flaky.partitions, NotLeader("nobody leads it"))
    before = commits._commit_number
    assert all(isinstance(each, ProducerIdAndEpoch) for each in await end_all())
    assert commits._commit_number - before >= 2


@pytest.mark.parametrize("retries", [True, False])
async def test_a_decision_whose_answer_was_lost_is_carried_out_whether_or_not_anybody_asks_again(
    flaky: Transacting, retries: bool
) -> None:
    producer = await flaky.begun()
    _Flaky.away = "after"
    with pytest.raises(CoordinatorNotAvailable):
        await flaky.coordinator.end("payments", producer, commits=True, protocol=KEEPS_EPOCH)
    if retries:
        await flaky.coordinator.end("payments", producer, commits=True, protocol=KEEPS_EPOCH)
    await flaky.until(TransactionState.COMPLETE_COMMIT)
    assert sorted(partition for _, partition in flaky.leaders.written) == sorted(flaky.partitions)


async def test_nothing_is_read_while_a_write_of_before_could_still_be_committed(flaky: Transacting) -> None:
    producer = await flaky.begun()
    _Flaky.away = "after"
    with pytest.raises(CoordinatorNotAvailable):
        await flaky.coordinator.end("payments", producer, commits=True, protocol=KEEPS_EPOCH)
    assert flaky.groups.groups.offsets.commits.outcome_unknown
    assert (await flaky.coordinator.describe("payments")).state is not TransactionState.ONGOING
    assert not flaky.groups.groups.offsets.commits.outcome_unknown, "the slots were taken again, which ends its right"


async def test_a_decision_whose_asker_went_away_before_it_was_written_is_carried_out(made: Transacting) -> None:
    """It waits behind others for SQL, and whoever asks meanwhile would read what was before it."""
    commits, sql_answers = made.groups.groups.offsets.commits, threading.Event()
    producer, other = await made.begun(), await made.initialized("other")
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(commits.in_turn(lambda conn, by: sql_answers.wait()))
        await asyncio.sleep(0.01)
        tasks.create_task(made.coordinator.add_partitions("other", other, made.partitions, protocol=KEEPS_EPOCH))
        await asyncio.sleep(0.01)
        ending = tasks.create_task(made.coordinator.end("payments", producer, commits=True, protocol=KEEPS_EPOCH))
        await asyncio.sleep(0.01)
        ending.cancel()
        asking = tasks.create_task(made.coordinator.describe("payments"))
        await asyncio.sleep(0.01)
        sql_answers.set()
        assert (await asking).state is not TransactionState.ONGOING
    await made.until(TransactionState.COMPLETE_COMMIT)


async def test_a_decision_that_waited_while_its_slot_went_away_and_came_back_counts_once_it_is_asked_for_again(
    made: Transacting,
) -> None:
    """Whoever held the slot meanwhile may have added partitions."""
    commits, came_back = made.groups.groups.offsets.commits, threading.Event()
    producer, other = await made.begun(), await made.initialized("other")
    later = await _came_back(made)
    assert later.slot != made.groups.groups.slot("other")

    def moved(conn: Connection) -> None:
        _put_slot(conn, later)
        came_back.wait()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(commits.in_turn(lambda conn, by: moved(conn)))
        await asyncio.sleep(0.01)
        tasks.create_task(made.coordinator.add_partitions("other", other, made.partitions, protocol=KEEPS_EPOCH))
        await asyncio.sleep(0.01)
        ending = asyncio.create_task(made.coordinator.end("payments", producer, commits=True, protocol=KEEPS_EPOCH))
        await asyncio.sleep(0.01)
        made.groups.groups.slots_changed([later])
        await asyncio.sleep(0.01)
        came_back.set()
    with pytest.raises(NotCoordinator):
        await ending
    assert (await made.stored()).state is TransactionState.ONGOING  # type: ignore[union-attr]
    await made.coordinator.end("payments", producer, commits=True, protocol=KEEPS_EPOCH)
    await made.until(TransactionState.COMPLETE_COMMIT)


async def _came_back(made: Transacting, transactional_id: str = "payments") -> SlotRow:
    """The slot as it is once it has gone to another broker and come back."""
    rows = await made.groups.database.run(coordinator_slots.load_all)
    row = rows[made.groups.groups.slot(transactional_id)]
    return replace(row, slot_epoch=row.slot_epoch + (2 << TENURE_BITS))


def _put_slot(conn: Connection, row: SlotRow) -> None:
    table = coordinator_slot
    conn.execute(update(table).where(table.c.slot == row.slot).values(slot_epoch=row.slot_epoch))


class _Interrupted(Database):
    """A catalogue with which something happens before the answer to one call comes: the first that `is_it(fn, answer)`.

    Tasks of the coordinator look at SQL at any time, so a call is chosen by what it is, not by its turn."""

    is_it: Callable[[object, object], bool]
    meanwhile: Callable[[], Awaitable[None]] | None = None

    async def run(self, fn: Callable[[Connection], T], *, deadline_ms: int | None = None, ahead: bool = False) -> T:
        answer = await super().run(fn, deadline_ms=deadline_ms, ahead=ahead)
        if (meanwhile := _Interrupted.meanwhile) is not None and _Interrupted.is_it(fn, answer):
            _Interrupted.meanwhile = None
            await meanwhile()
        return answer


async def test_a_decision_stands_whose_slot_went_away_and_came_back_before_the_answer(tmp_path: Path) -> None:
    async with transacting(tmp_path, sql=_Interrupted) as made:
        producer, later = await made.begun(), await _came_back(made)

        async def moved() -> None:
            await made.groups.database.run(lambda conn: _put_slot(conn, later))
            made.groups.groups.slots_changed([later])

        _Interrupted.is_it = lambda _, answer: isinstance(answer, WriteOutcome)
        _Interrupted.meanwhile = moved
        await made.coordinator.end("payments", producer, commits=True, protocol=KEEPS_EPOCH)
        await made.until(TransactionState.COMPLETE_COMMIT)
        assert {marker.marker.coordinator_epoch for marker, _ in made.leaders.written} == {later.tenure}


async def test_what_was_open_before_a_slot_went_away_is_not_decided_after_it_came_back(tmp_path: Path) -> None:
    """Another broker has added a partition, while this one fetched a producer id: it would get no marker."""
    async with transacting(tmp_path, sql=_Interrupted) as made:
        later, some = await _came_back(made), frozenset(made.partitions[:1])
        opened = Transaction(
            transactional_id="payments",
            producer_id=700,
            producer_epoch=MAX_PRODUCER_EPOCH - 1,
            timeout_ms=60_000,
            state=TransactionState.ONGOING,
            partitions=some,
            started_at_ms=0,
            changed_at_ms=0,
        )
        producer = opened.told
        commits = made.groups.groups.offsets.commits

        async def put(before: Transaction | None, after: Transaction, tenure: int) -> None:
            change = TransactionChange(slot=later.slot, tenure=tenure, before=before, after=after)
            written = await commits.in_turn(lambda conn, by: transactions.write(conn, [change], by))
            assert not written.refused

        await put(None, opened, tenure_of(made.groups.groups.slots.epochs[later.slot]))

        async def moved() -> None:
            await made.groups.database.run(lambda conn: _put_slot(conn, later))
            made.groups.groups.slots_changed([later])
            await put(opened, replace(opened, partitions=frozenset(made.partitions)), later.tenure)

        _Interrupted.is_it = lambda fn, _: fn is producer_ids.allocate_block
        _Interrupted.meanwhile = moved
        with pytest.raises(NotCoordinator):
            await made.coordinator.end("payments", producer, commits=True, protocol=RAISES_EPOCH)
        await made.coordinator.end("payments", producer, commits=True, protocol=RAISES_EPOCH)
        await made.until(TransactionState.COMPLETE_COMMIT)
        assert {partition for _, partition in made.leaders.written} == set(made.partitions)


async def test_a_completion_whose_answer_was_lost_is_read_again(flaky: Transacting) -> None:
    flaky.leaders.refuse = dict.fromkeys(flaky.partitions, NotLeader("nobody leads it"))
    producer = await flaky.begun()
    await flaky.coordinator.end("payments", producer, commits=False, protocol=KEEPS_EPOCH)
    _Flaky.away = "after"
    flaky.leaders.refuse = {}
    while _Flaky.away:
        await asyncio.sleep(0.01)
    await flaky.until(TransactionState.COMPLETE_ABORT)
    await flaky.coordinator.add_partitions(
        "payments", await flaky.initialized(), flaky.partitions, protocol=KEEPS_EPOCH
    )


async def test_what_a_leader_refuses_because_of_a_newer_coordinator_is_left_to_that_one(made: Transacting) -> None:
    made.leaders.refuse = dict.fromkeys(made.partitions, TransactionCoordinatorFenced("coordinator epoch 9 was here"))
    producer = await made.begun()
    await made.coordinator.end("payments", producer, commits=True, protocol=KEEPS_EPOCH)
    await asyncio.sleep(0.3)
    assert (await made.stored()).state is TransactionState.PREPARE_COMMIT  # type: ignore[union-attr]
    assert made.leaders.written == []
    assert made.coordinator.undelivered_count == len(made.partitions), "for as long as its slot is here"
    later = await _came_back(made)
    made.groups.groups.slots_changed([replace(later, broker_id=9)])
    assert made.coordinator.undelivered_count == 0
