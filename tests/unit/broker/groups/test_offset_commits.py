"""The one writer of group rows: what is gathered, what waits for whom, and what its bounds are. On a real catalogue."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Collection
from pathlib import Path
from typing import Any, TypeVar

import pytest
from sqlalchemy import Connection, text

from tests.catalogue import NOW_MS, register
from tests.unit.broker.groups.coordinators import Coordinating, coordinating
from tiered.broker.groups import commit_writer
from tiered.broker.groups.commit_writer import MAX_WAITING_ENTRIES
from tiered.broker.groups.committed_offsets import MAX_ENTRIES, OffsetEntry
from tiered.broker.groups.offset_expiry import OffsetExpiry
from tiered.broker.groups.values import Fence, GroupKind
from tiered.errors import (
    CoordinatorNotAvailable,
    InvalidRequest,
    MetadataOutcomeUnknown,
    MetadataUnavailable,
    NotCoordinator,
)
from tiered.ids import TopicId, TopicPartition
from tiered.meta import brokers, coordinator_slots, group_offsets, groups
from tiered.meta.coordinator_slots import TENURE_BITS, SlotRow
from tiered.meta.engine import Database
from tiered.meta.group_offsets import WriteOutcome, WritingCoordinator
from tiered.meta.groups import GroupRow
from tiered.rules.security.authorization import EVERYTHING, NOTHING, NameScope

LINGER_MS = 300
T = TypeVar("T")


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Coordinating]:
    """It gathers commits for so long that all of a test's are in one batch."""
    async with coordinating(tmp_path, tiered_offset_commit_linger_ms=str(LINGER_MS)) as made:
        yield made


def topic_id(broker: Coordinating) -> TopicId:
    return broker.topics.by_name("orders").topic_id


def fence(broker: Coordinating, group_id: str = "billing") -> Fence:
    slot = broker.groups.slot(group_id)
    return Fence(group_id=group_id, slot=slot, tenure=broker.groups.slots.tenure(slot), generation=0)


def entry(broker: Coordinating, offset: int, *, partition: int = 0) -> OffsetEntry:
    return OffsetEntry(topic_id=topic_id(broker), partition=partition, offset=offset)


async def committed(broker: Coordinating, group_id: str = "billing") -> int:
    found = await broker.groups.offsets.fetch(group_id)
    return found[TopicPartition(topic_id(broker), 0)].committed_offset if found else -1


async def scalar(broker: Coordinating, statement: str) -> object:
    return await broker.database.run(lambda conn: conn.execute(text(statement)).scalar_one())


async def commit_soon(broker: Coordinating, offset: int, group_id: str = "billing") -> "asyncio.Task[None]":
    """A commit that waits for its batch."""
    commit = broker.groups.offsets.commit(fence(broker, group_id), [entry(broker, offset)])
    task = asyncio.create_task(commit)
    await asyncio.sleep(0)
    assert not task.done()
    return task


async def test_commits_of_many_groups_share_one_transaction(broker: Coordinating) -> None:
    # All of them begin in one turn of the loop: a hundred turns of a busy machine may take longer than the batch waits.
    commit = broker.groups.offsets.commit
    await asyncio.gather(
        *(commit(fence(broker, f"group-{number}"), [entry(broker, number)]) for number in range(100)),
    )
    assert await scalar(broker, "SELECT count(*) FROM group_offset") == 100
    assert await scalar(broker, "SELECT count(DISTINCT commit_number) FROM group_offset") == 1


async def test_who_commits_alone_waits_for_nobody_and_after_several_at_once_others_are_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(_: OffsetExpiry) -> None:
        """Or else it has what waits written before it looks."""

    monkeypatch.setattr(commit_writer, "LINGER_MS", 60_000.0)
    monkeypatch.setattr(OffsetExpiry, "expire", nothing)
    async with coordinating(tmp_path) as broker:
        commit = broker.groups.offsets.commit
        for offset in range(3):
            await commit(fence(broker), [entry(broker, offset)])
        submit = broker.groups.offsets.submit
        await asyncio.gather(*(submit(fence(broker, name), [entry(broker, 3)]) for name in ("one", "other")))
        waiting = [await commit_soon(broker, 4), await commit_soon(broker, 5, "one")]
        await asyncio.wait(waiting, timeout=0.1)
        assert not any(each.done() for each in waiting)
    await asyncio.gather(*waiting)


async def test_reading_waits_for_the_groups_commits_that_are_on_their_way(broker: Coordinating) -> None:
    """Or else whoever takes over a partition would begin before its last owner's commit."""
    on_its_way = await commit_soon(broker, 5)
    assert await committed(broker) == 5
    await on_its_way


async def test_a_commit_outlives_the_client_that_went_away(broker: Coordinating) -> None:
    task = await commit_soon(broker, 5)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert await committed(broker) == 5


async def test_deleting_comes_after_the_commits_before_it(broker: Coordinating) -> None:
    task = await commit_soon(broker, 5)
    await broker.groups.offsets.delete("billing", [TopicPartition(topic_id(broker), 0)])
    await task
    assert await committed(broker) == -1


async def test_what_waits_at_a_stop_is_written(broker: Coordinating) -> None:
    task = await commit_soon(broker, 5)
    broker.groups.offsets.note_group(
        "other", kind=GroupKind.CLASSIC, protocol_type="consumer", generation=7, is_empty=True
    )
    await broker.groups.stop()
    await task
    assert await scalar(broker, "SELECT committed_offset FROM group_offset") == 5
    assert await scalar(broker, "SELECT generation FROM consumer_group WHERE group_id = 'other'") == 7


async def test_more_commits_than_memory_is_meant_for_are_told_to_come_again(broker: Coordinating) -> None:
    many = [entry(broker, 1)] * MAX_ENTRIES
    with pytest.raises(InvalidRequest):
        await broker.groups.offsets.commit(fence(broker), [*many, entry(broker, 1)])
    tasks = []
    for _ in range(MAX_WAITING_ENTRIES // MAX_ENTRIES):
        tasks.append(asyncio.create_task(broker.groups.offsets.commit(fence(broker), many)))
        await asyncio.sleep(0)
    with pytest.raises(CoordinatorNotAvailable, match="too many"):
        await broker.groups.offsets.commit(fence(broker, "other"), [entry(broker, 1)])
    await asyncio.gather(*tasks)
    await broker.groups.offsets.commit(fence(broker, "other"), [entry(broker, 9)])
    assert await committed(broker, "other") == 9


def note(broker: Coordinating, generation: int) -> None:
    broker.groups.offsets.note_group(
        "billing", kind=GroupKind.CONSUMER, protocol_type="consumer", generation=generation, is_empty=False
    )


async def test_a_generation_on_its_way_to_sql_is_what_loading_finds(broker: Coordinating) -> None:
    slot = broker.groups.slot("billing")
    expected = GroupRow(
        group_id="billing", slot=slot, kind="consumer", protocol_type="consumer", generation=4, empty_since_ms=None
    )
    note(broker, 3)
    note(broker, 4)
    assert await broker.groups.offsets.load_group("billing") == expected
    async with asyncio.timeout(10):
        while await scalar(broker, "SELECT count(*) FROM consumer_group") == 0:
            await asyncio.sleep(0.01)
    assert await broker.groups.offsets.load_group("billing") == expected
    assert [row async for row in broker.groups.offsets.list_groups(EVERYTHING)] == [expected]


async def test_a_list_for_who_may_see_no_group_costs_no_sql(
    broker: Coordinating, monkeypatch: pytest.MonkeyPatch
) -> None:
    scopes, load = list[object](), groups.load_some

    def noted(conn: Connection, **options: Any) -> Any:
        scopes.append(options.get("scope"))  # The expiry of offsets reads all groups, without one.
        return load(conn, **options)

    monkeypatch.setattr(groups, "load_some", noted)
    await broker.groups.offsets.commit(fence(broker, "billing"), [entry(broker, 1)])
    assert [group async for group in broker.groups.list_groups(NOTHING)] == []
    assert set(scopes) <= {None}
    some = NameScope(frozenset(), ("bill",))
    assert [group.group_id async for group in broker.groups.list_groups(some)] == ["billing"]
    assert some in scopes


class _Away(Database):
    """A catalogue that cannot be reached while `is_away`, and counts who tries."""

    is_away = False
    tries = 0

    async def run(self, fn: Callable[[Connection], T], *, deadline_ms: int | None = None, ahead: bool = False) -> T:
        if not _Away.is_away:
            return await super().run(fn, deadline_ms=deadline_ms, ahead=ahead)
        _Away.tries += 1
        raise MetadataUnavailable("SQL is away")


async def test_while_sql_is_away_states_that_changed_often_are_tried_no_more_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each change is tried at once. If each of these had a next try of its own, they would never become fewer."""
    monkeypatch.setattr(commit_writer, "RETRY_MS", 50.0)
    async with coordinating(tmp_path, sql=_Away, tiered_offset_commit_linger_ms="0") as broker:
        _Away.is_away = True
        for generation in range(20):
            note(broker, generation)
            tries = _Away.tries
            while _Away.tries == tries:
                await asyncio.sleep(0.002)
        tries, began_ms = _Away.tries, broker.context.clock.monotonic_ms()
        await asyncio.sleep(0.5)
        _Away.is_away = False
        assert _Away.tries - tries <= (broker.context.clock.monotonic_ms() - began_ms) / 50 + 1
        async with asyncio.timeout(20):
            while await scalar(broker, "SELECT max(generation) FROM consumer_group") != 19:
                await asyncio.sleep(0.01)
    assert [each.getMessage().split(":")[0] for each in caplog.records if "groups" in each.getMessage()] == [
        "the states of groups are not stored yet", "the states of groups are stored again"
    ]  # fmt: skip


async def test_a_deleted_group_does_not_come_back_with_a_state_that_was_due(broker: Coordinating) -> None:
    note(broker, 3)
    await broker.groups.offsets.delete_group("billing")
    await broker.groups.offsets.commit(fence(broker, "other"), [entry(broker, 1)])
    assert await broker.groups.offsets.load_group("billing") is None


def take_over(conn: Connection, old: Coordinating) -> None:
    """Broker 2 takes the place of one that is thought to be dead."""
    brokers.fence(conn, broker_id=old.broker_id, broker_epoch=old.broker_epoch)
    epoch = register(conn, 2)
    coordinator_slots.take_unheld(conn, broker_id=2, broker_epoch=epoch, slot_count=50, now_ms=NOW_MS)


async def test_a_broker_whose_slots_were_taken_commits_and_deletes_nothing_more(broker: Coordinating) -> None:
    await broker.groups.offsets.commit(fence(broker), [entry(broker, 5)])
    await broker.database.run(lambda conn: take_over(conn, broker))
    with pytest.raises(NotCoordinator):
        await broker.groups.offsets.commit(fence(broker), [entry(broker, 6)])
    with pytest.raises(NotCoordinator):
        await broker.groups.offsets.delete_group("billing")
    assert await committed(broker) == 5


async def test_a_broker_that_lost_track_of_its_slots_epoch_learns_it_and_goes_on(broker: Coordinating) -> None:
    statement = text("UPDATE coordinator_slot SET slot_epoch = slot_epoch + 1")
    await broker.database.run(lambda conn: conn.execute(statement))
    with pytest.raises(CoordinatorNotAvailable):
        await broker.groups.offsets.commit(fence(broker), [entry(broker, 5)])
    await broker.groups.offsets.commit(fence(broker), [entry(broker, 6)])
    assert await committed(broker) == 6
    await broker.database.run(lambda conn: conn.execute(statement))
    with pytest.raises(CoordinatorNotAvailable):
        await broker.groups.offsets.delete_group("billing")
    await broker.groups.offsets.delete_group("billing")
    assert await committed(broker) == -1


# Others that write for the slots


async def test_what_runs_in_turn_has_a_number_above_every_write_before_it(broker: Coordinating) -> None:
    commits = broker.groups.offsets.commits
    numbers = [await commits.in_turn(lambda _conn, by: by.commit_number)]
    await broker.groups.offsets.commit(fence(broker), [entry(broker, 5)])
    numbers.append(await commits.in_turn(lambda _conn, by: by.commit_number))
    assert numbers[1] == numbers[0] + 2, "the commit in between had one too"
    assert await commits.in_turn(lambda _conn, by: by.slot_epochs) == broker.groups.slots.epochs


async def test_what_runs_in_turn_runs_alone(broker: Coordinating) -> None:
    commits = broker.groups.offsets.commits
    began, release = threading.Event(), threading.Event()

    def slowly(_conn: Connection, by: WritingCoordinator) -> int:
        began.set()
        assert release.wait(10)
        return by.commit_number

    first = asyncio.create_task(commits.in_turn(slowly))
    await asyncio.to_thread(began.wait, 10)
    second = asyncio.create_task(commits.in_turn(lambda _conn, by: by.commit_number))
    await asyncio.sleep(0.05)
    assert not second.done()
    release.set()
    assert await second == await first + 1


async def test_what_runs_in_turn_after_an_unknown_outcome_has_the_slots_taken_again(broker: Coordinating) -> None:
    commits = broker.groups.offsets.commits
    before = dict(broker.groups.slots.epochs)

    def lose(_conn: Connection, _by: WritingCoordinator) -> None:
        raise MetadataOutcomeUnknown("no answer to COMMIT")

    with pytest.raises(CoordinatorNotAvailable):
        await commits.in_turn(lose)
    after = await commits.in_turn(lambda _conn, by: by.slot_epochs)
    assert after == {slot: epoch + 1 for slot, epoch in before.items()} == broker.groups.slots.epochs


async def test_what_ran_in_turn_under_an_epoch_that_is_over_learns_the_new_one(broker: Coordinating) -> None:
    commits = broker.groups.offsets.commits
    statement = text("UPDATE coordinator_slot SET slot_epoch = slot_epoch + 1")
    await broker.database.run(lambda conn: conn.execute(statement))

    def write(conn: Connection, by: WritingCoordinator) -> WriteOutcome:
        return WriteOutcome(refused=group_offsets.hold(conn, [0], by))

    assert isinstance((await commits.in_turn(write)).refused[0], CoordinatorNotAvailable)
    assert not (await commits.in_turn(write)).refused


# Slots that change hands


def rows(broker: Coordinating, *, broker_id: int, later: int, slots: Collection[int] | None = None) -> list[SlotRow]:
    """What the feed would say when these slots (None: all) have a holder of so many tenures later."""
    epoch = broker.broker_epoch if broker_id == broker.broker_id else 99
    return [
        SlotRow(
            slot=slot,
            broker_id=broker_id,
            broker_epoch=epoch,
            slot_epoch=slot_epoch + (later << TENURE_BITS),
            change_number=99,
        )
        for slot, slot_epoch in broker.groups.slots.epochs.items()
        if slots is None or slot in slots
    ]


async def test_commits_that_wait_while_their_slot_goes_hear_it_at_once_and_others_are_written(
    broker: Coordinating,
) -> None:
    assert broker.groups.slot("billing") != broker.groups.slot("other")
    gone, stays = await commit_soon(broker, 5), await commit_soon(broker, 6, "other")
    broker.groups.offsets.note_group(
        "billing", kind=GroupKind.CLASSIC, protocol_type="consumer", generation=7, is_empty=False
    )
    broker.groups.slots_changed(rows(broker, broker_id=2, later=1, slots={broker.groups.slot("billing")}))
    with pytest.raises(NotCoordinator):
        await gone
    assert not stays.done()
    await stays
    assert await committed(broker, "other") == 6
    assert await scalar(broker, "SELECT count(*) FROM consumer_group WHERE group_id = 'billing'") == 0


async def test_a_commit_let_in_before_its_slot_was_away_is_refused_when_it_is_back(
    broker: Coordinating,
) -> None:
    """Somebody else may have had the group meanwhile, and have given the partition to another member."""
    allowed = fence(broker)
    broker.groups.slots_changed(rows(broker, broker_id=1, later=2))
    with pytest.raises(NotCoordinator):
        await broker.groups.offsets.commit(allowed, [entry(broker, 5)])
    assert fence(broker) != allowed


async def test_what_waits_is_written_before_the_slots_are_handed_over(broker: Coordinating) -> None:
    await broker.database.run(lambda conn: register(conn, 2))
    waiting = await commit_soon(broker, 5)
    number = await broker.groups.hand_over()
    await waiting
    assert await committed(broker) == 5
    assert await scalar(broker, "SELECT min(broker_id) FROM coordinator_slot") == 2
    assert number == await scalar(broker, "SELECT max(change_number) FROM coordinator_slot")
    with pytest.raises(NotCoordinator):
        await broker.groups.offsets.commit(fence(broker), [entry(broker, 6)])


async def test_a_lone_broker_hands_nothing_over(broker: Coordinating) -> None:
    assert await broker.groups.hand_over() is None
    await broker.groups.offsets.commit(fence(broker), [entry(broker, 6)])
