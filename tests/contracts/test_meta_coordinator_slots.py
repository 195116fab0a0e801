"""Who coordinates which groups, in SQL: how slots change hands, and that nobody writes for one that it lost."""

import asyncio
import threading
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from sqlalchemy import Connection

from tests.catalogue import NOW_MS, register
from tiered.errors import InvalidConfig, NotCoordinator
from tiered.meta import brokers, changes, cluster, coordinator_slots, group_offsets, groups, producer_ids
from tiered.meta.coordinator_slots import Moved, SlotRow
from tiered.meta.engine import Database
from tiered.meta.group_offsets import GroupCommit, OffsetEntry, WriteOutcome, WritingCoordinator
from tiered.meta.groups import GroupRow

if TYPE_CHECKING:
    from tests.postgres import PostgresDatabases

pytest_plugins = ["tests.meta_databases"]

SLOTS = 12
TOPIC = UUID(int=1)


def start(database: Database, broker_id: int, *, slot_count: int = SLOTS) -> int:
    """Broker `broker_id` registers and takes what nobody has; its epoch."""
    epoch = database.run_sync(lambda conn: register(conn, broker_id))
    database.run_sync(lambda conn: take(conn, broker_id, epoch, slot_count=slot_count))
    return epoch


def take(conn: Connection, broker_id: int, epoch: int, *, slot_count: int = SLOTS) -> Moved:
    return coordinator_slots.take_unheld(
        conn, broker_id=broker_id, broker_epoch=epoch, slot_count=slot_count, now_ms=NOW_MS
    )


def fence(database: Database, broker_id: int, epoch: int) -> None:
    database.run_sync(lambda conn: brokers.fence(conn, broker_id=broker_id, broker_epoch=epoch))


def balance(database: Database, *, may_disturb: bool = False, may_wait: bool = True) -> Moved:
    return database.run_sync(
        lambda conn: coordinator_slots.balance(
            conn, slot_count=SLOTS, now_ms=NOW_MS + 1, may_disturb=may_disturb, may_wait=may_wait
        )
    )


def hand_over(database: Database, broker_id: int, epoch: int) -> Moved:
    return database.run_sync(
        lambda conn: coordinator_slots.hand_over(
            conn, broker_id=broker_id, broker_epoch=epoch, slot_count=SLOTS, now_ms=NOW_MS + 1
        )
    )


def rows(database: Database) -> Mapping[int, SlotRow]:
    return database.run_sync(coordinator_slots.load_all)


def holders(database: Database) -> dict[int, int]:
    return {slot: row.broker_id for slot, row in rows(database).items()}


def change_number(database: Database) -> int:
    return database.run_sync(cluster.load).change_number


def coordinator(database: Database, broker_id: int, epoch: int, *, number: int = 1) -> WritingCoordinator:
    """What the broker knows of its slots now."""
    epochs = {slot: row.slot_epoch for slot, row in rows(database).items() if row.is_held_by(broker_id, epoch)}
    return WritingCoordinator(broker_id=broker_id, broker_epoch=epoch, slot_epochs=epochs, commit_number=number)


def commit(offset: int, *, slot: int = 0) -> GroupCommit:
    entry = OffsetEntry(topic_id=TOPIC, partition=0, offset=offset)
    return GroupCommit(group_id=f"g{slot}", slot=slot, generation=0, entries=(entry,), committed_at_ms=NOW_MS)


def write(
    database: Database, by: WritingCoordinator, *commits: GroupCommit, changed: tuple[GroupRow, ...] = ()
) -> WriteOutcome:
    return database.run_sync(lambda conn: group_offsets.write(conn, commits, changed, by))


def with_members(slot: int) -> GroupRow:
    return GroupRow(
        group_id=f"g{slot}", slot=slot, kind=groups.CLASSIC, protocol_type="consumer", generation=3, empty_since_ms=None
    )


def offset(database: Database, slot: int = 0) -> int:
    found = database.run_sync(lambda conn: group_offsets.load(conn, f"g{slot}", limit=9))
    return found[0].committed_offset if found else -1


# Starting


def test_a_lone_broker_holds_every_slot_as_soon_as_it_has_started(database: Database) -> None:
    epoch = start(database, 1)
    assert [row.slot for row in rows(database).values() if row.is_held_by(1, epoch)] == list(range(SLOTS))


def test_a_broker_that_starts_takes_nothing_from_those_in_service(database: Database) -> None:
    start(database, 1)
    before, number = rows(database), change_number(database)
    start(database, 2)
    assert rows(database) == before
    assert change_number(database) == number + 1, "that of its registration alone"


def test_a_broker_that_was_killed_takes_its_own_slots_again_and_no_others(database: Database) -> None:
    start(database, 1)
    start(database, 2)
    balance(database)
    before = rows(database)
    epoch = start(database, 1)
    after = rows(database)
    assert {slot: row.broker_id for slot, row in before.items()} == {slot: row.broker_id for slot, row in after.items()}
    for slot, row in after.items():
        assert (row == before[slot]) is (row.broker_id == 2)
        assert row.broker_id == 2 or (row.broker_epoch == epoch and row.tenure > before[slot].tenure)


def test_the_slots_of_fenced_and_forgotten_brokers_are_taken_too(database: Database) -> None:
    first = start(database, 1)
    start(database, 2)
    start(database, 3)
    balance(database)
    fence(database, 1, first)
    database.run_sync(lambda conn: brokers.unregister(conn, broker_id=2))
    start(database, 4)
    assert Counter(holders(database).values()) == {3: 4, 4: 8}


def test_a_broker_that_is_not_in_service_itself_takes_nothing(database: Database) -> None:
    old = database.run_sync(lambda conn: register(conn, 1))
    database.run_sync(lambda conn: register(conn, 1))
    assert database.run_sync(lambda conn: take(conn, 1, old)).rows == ()
    assert rows(database) == {}


def test_brokers_with_another_number_of_slots_are_refused_while_others_serve(database: Database) -> None:
    start(database, 1)
    epoch = database.run_sync(lambda conn: register(conn, 2))
    before = rows(database)
    with pytest.raises(InvalidConfig, match=r"offsets\.topic\.num\.partitions is 7 here and 12 on broker 1"):
        database.run_sync(lambda conn: take(conn, 2, epoch, slot_count=7))
    assert rows(database) == before


@pytest.mark.parametrize("slot_count", [7, 20])
def test_a_lone_broker_may_change_the_number_of_slots(database: Database, slot_count: int) -> None:
    first = start(database, 1)
    write(database, coordinator(database, 1, first), changed=tuple(with_members(slot) for slot in range(SLOTS)))
    epoch = start(database, 1, slot_count=slot_count)
    assert [row.slot for row in rows(database).values() if row.is_held_by(1, epoch)] == list(range(slot_count))
    assert database.run_sync(groups.slots_with_members) == set(), "members are in nobody's memory"


# Balance


def test_slots_without_members_move_to_a_new_broker_at_once_and_others_when_they_may(database: Database) -> None:
    first = start(database, 1)
    busy = range(2, SLOTS)
    write(database, coordinator(database, 1, first), changed=tuple(with_members(slot) for slot in busy))
    start(database, 2)
    assert {row.slot for row in balance(database).rows} == {0, 1}
    number = change_number(database)
    assert balance(database) == Moved(change_number=None, rows=())
    assert change_number(database) == number, "nobody is woken for nothing"
    moved = balance(database, may_disturb=True)
    assert {row.slot for row in moved.rows} <= set(busy)
    assert Counter(holders(database).values()) == {1: 6, 2: 6}
    assert database.run_sync(groups.slots_with_members) == set(busy) - {row.slot for row in moved.rows}


def test_the_slots_of_the_dead_move_whatever_members_their_groups_have(database: Database) -> None:
    first = start(database, 1)
    write(database, coordinator(database, 1, first), changed=tuple(with_members(slot) for slot in range(SLOTS)))
    start(database, 2)
    start(database, 3)
    fence(database, 1, first)
    moved = balance(database)
    assert Counter(holders(database).values()) == {2: 6, 3: 6}
    assert moved.rows == tuple(rows(database).values())
    assert {row.change_number for row in moved.rows} == {moved.change_number} == {change_number(database)}


def test_while_nobody_is_in_service_slots_stay_where_they_are(database: Database) -> None:
    epoch = start(database, 1)
    before = rows(database)
    fence(database, 1, epoch)
    assert balance(database).rows == ()
    assert rows(database) == before


def test_slots_that_moved_are_in_the_feed(database: Database) -> None:
    first = start(database, 1)
    number = change_number(database)
    start(database, 2)
    assert database.run_sync(lambda conn: changes.since(conn, number)).slots == ()
    moved = balance(database)
    assert database.run_sync(lambda conn: changes.since(conn, number)).slots == moved.rows
    by_now = change_number(database)
    database.run_sync(lambda conn: coordinator_slots.retake_own(conn, broker_id=1, broker_epoch=first))
    assert change_number(database) == by_now, "the holder is the same: others need not know"


def test_an_epoch_is_above_all_earlier_ones_of_all_slots(database: Database) -> None:
    highest = -1
    epoch = start(database, 1)
    for _ in range(5):
        for _ in range(3):
            database.run_sync(
                lambda conn, epoch=epoch: coordinator_slots.retake_own(conn, broker_id=1, broker_epoch=epoch)  # type: ignore[misc]
            )
        epoch = start(database, 1)
        epochs = [row.slot_epoch for row in rows(database).values()]
        assert min(epochs) > highest
        highest = max(epochs)


# Handing over


def test_a_broker_that_stops_gives_its_slots_to_the_others_evenly(database: Database) -> None:
    start(database, 1)
    second = start(database, 2)
    start(database, 3)
    balance(database)
    by = coordinator(database, 2, second)
    moved = hand_over(database, 2, second)
    assert {row.slot for row in moved.rows} == by.slot_epochs.keys()
    assert Counter(holders(database).values()) == {1: 6, 3: 6}
    assert all(
        isinstance(write(database, by, commit(1, slot=slot)).refused[0], NotCoordinator) for slot in by.slot_epochs
    )


def test_the_last_broker_that_stops_keeps_its_slots(database: Database) -> None:
    epoch = start(database, 1)
    before = rows(database)
    assert hand_over(database, 1, epoch) == Moved(change_number=None, rows=())
    assert rows(database) == before


def test_a_broker_that_was_replaced_hands_nothing_over(database: Database) -> None:
    old = start(database, 1)
    start(database, 2)
    balance(database)
    start(database, 1)
    before = rows(database)
    assert hand_over(database, 1, old).rows == ()
    assert rows(database) == before


# Several at once


async def test_brokers_that_start_and_balance_all_at_once_agree_in_the_end(two: Mapping[str, Database]) -> None:
    async def begin(database: Database, broker_id: int) -> None:
        epoch = await database.run(lambda conn: register(conn, broker_id))
        await database.run(lambda conn: take(conn, broker_id, epoch))
        for _ in range(5):
            await database.run(
                lambda conn: coordinator_slots.balance(conn, slot_count=SLOTS, now_ms=NOW_MS, may_disturb=True)
            )

    await asyncio.gather(*(begin(two["old" if each % 2 else "new"], each) for each in range(1, 5)))
    assert Counter(holders(two["new"]).values()) == {1: 3, 2: 3, 3: 3, 4: 3}


async def test_a_broker_that_hangs_in_a_write_holds_up_that_slot_and_no_election(two: Mapping[str, Database]) -> None:
    first = start(two["old"], 1)
    start(two["new"], 2)
    by = coordinator(two["old"], 1, first)
    written, release = threading.Event(), threading.Event()

    def hang(conn: Connection) -> WriteOutcome:
        result = group_offsets.write(conn, [commit(7, slot=3)], [], by)
        written.set()
        assert release.wait(10)
        return result

    hanging = asyncio.create_task(two["old"].run(hang))
    await asyncio.to_thread(written.wait, 10)
    await asyncio.to_thread(fence, two["new"], 1, first)
    moved = await asyncio.to_thread(balance, two["new"], may_wait=False)
    assert {row.slot for row in moved.rows} == set(range(SLOTS)) - {3}
    assert moved.has_waiting
    waiting = asyncio.create_task(asyncio.to_thread(balance, two["new"]))
    # Whoever waits for the slot does not have the lock that every change of the cluster needs.
    async with asyncio.timeout(5):
        for broker_id in (4, 5, 6):
            await two["new"].run(lambda conn, broker_id=broker_id: register(conn, broker_id))  # type: ignore[misc]
    assert not waiting.done()
    release.set()
    assert (await hanging).refused == {}
    assert {row.slot for row in (await waiting).rows} >= {3}
    assert offset(two["new"], 3) == 7, "what was written before is there when the slot has changed hands"
    refused = write(two["old"], by, commit(8, slot=3)).refused
    assert isinstance(refused[0], NotCoordinator)
    assert offset(two["new"], 3) == 7


async def test_a_coordinator_that_was_frozen_in_a_write_can_commit_nothing_when_it_wakes(
    postgres_databases: "PostgresDatabases", ready_postgres: str
) -> None:
    """The server ends its transaction, so that somebody else can go on; what it had written never was."""
    url = postgres_databases.create(template=ready_postgres)
    zombie, other = Database.open(url, deadline_ms=1_000), Database.open(url)
    try:
        first = start(zombie, 1)
        start(other, 2)
        by = coordinator(zombie, 1, first)
        write(zombie, by, *(commit(5, slot=slot) for slot in range(SLOTS)))
        later = coordinator(zombie, 1, first, number=2)
        frozen, thawed = threading.Event(), threading.Event()

        def freeze(conn: Connection) -> WriteOutcome:
            result = group_offsets.write(conn, [commit(6, slot=slot) for slot in range(SLOTS)], [], later)
            frozen.set()
            assert thawed.wait(20)
            return result

        writing = asyncio.create_task(asyncio.to_thread(_outcome, zombie, freeze))
        await asyncio.to_thread(frozen.wait, 10)
        await asyncio.to_thread(fence, other, 1, first)
        moved = await asyncio.to_thread(balance, other)
        assert {row.slot for row in moved.rows} == set(range(SLOTS))
        assert [offset(other, slot) for slot in range(SLOTS)] == [5] * SLOTS
        ours = coordinator(other, 2, rows(other)[0].broker_epoch)
        write(other, ours, *(commit(9, slot=slot) for slot in range(SLOTS)))
        thawed.set()
        assert await writing is not None, "its connection is gone"
        refused = write(zombie, later, *(commit(6, slot=slot) for slot in range(SLOTS))).refused
        assert all(isinstance(refused[slot], NotCoordinator) for slot in range(SLOTS))
        assert [offset(other, slot) for slot in range(SLOTS)] == [9] * SLOTS
    finally:
        zombie.close_sync()
        other.close_sync()
        postgres_databases.drop(url)


def _outcome(database: Database, fn) -> Exception | None:  # type: ignore[no-untyped-def]
    """As a broker that was suspended: its own deadline does not run while it sleeps."""
    try:
        database.run_sync(fn, deadline_ms=30_000)
    except Exception as error:
        return error
    return None


async def test_brokers_that_ask_for_producer_ids_at_once_get_blocks_of_their_own(two: Mapping[str, Database]) -> None:
    asked = [two["old" if each % 2 else "new"].run(producer_ids.allocate_block) for each in range(40)]
    blocks = sorted(await asyncio.gather(*asked), key=lambda block: block.start)
    assert all(before.stop <= after.start for before, after in pairwise(blocks))
    assert len({block.start for block in blocks}) == 40
