"""Elections, fencing and registrations in SQL, on SQLite and on PostgreSQL."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Connection, text, update

from tests.catalogue import NOW_MS, create_topic, elect, register, registration
from tiered.errors import CorruptMetadata, LostRace
from tiered.ids import InSyncReplica, TopicId, TopicPartition
from tiered.meta import brokers, changes, cluster, partitions, replica_sets, segments, topics
from tiered.meta.elections import Decide, Elected, change_replica_sets
from tiered.meta.engine import Database
from tiered.meta.partitions import PartitionRow
from tiered.meta.tables import partition
from tiered.rules.replication import elections
from tiered.rules.replication.replica_set import NO_LEADER, ReplicaSet, Standings

pytest_plugins = ["tests.meta_databases"]


def after_failure(row: PartitionRow, standings: Standings) -> ReplicaSet | None:
    return elections.after_failure(row.replica_set, standings, min_isr=2)


def fail(conn: Connection, *dead: InSyncReplica) -> Elected:
    """What the controller does with brokers that fell silent."""
    return change_replica_sets(conn, after_failure, fence=dead)


def failure(dead: InSyncReplica) -> Callable[[Connection], Elected]:
    return lambda conn: fail(conn, dead)


def member(database: Database, broker_id: int) -> InSyncReplica:
    (row,) = (row for row in database.run_sync(brokers.load_all) if row.broker_id == broker_id)
    return InSyncReplica(broker_id, row.broker_epoch)


@pytest.fixture
def three(database: Database) -> tuple[InSyncReplica, ...]:
    """Brokers 1 to 3, registered and in service."""
    database.run_sync(lambda conn: register(conn, 2))
    database.run_sync(lambda conn: register(conn, 3))
    return tuple(member(database, broker_id) for broker_id in (1, 2, 3))


def only_row(database: Database) -> PartitionRow:
    (row,) = database.run_sync(partitions.load_all)
    return row


# Change sets


def test_a_failure_fences_elects_and_tells_the_feed_in_one_change(
    database: Database, three: tuple[InSyncReplica, ...]
) -> None:
    database.run_sync(lambda conn: create_topic(conn, assignments=[(1, 2, 3), (2, 3, 1)]))
    before = database.run_sync(partitions.load_all)
    start = database.run_sync(lambda conn: changes.since(conn, 0)).number
    elected = database.run_sync(lambda conn: fail(conn, three[0]))
    first, second = database.run_sync(partitions.load_all)
    assert elected.changed == (first, second)
    assert elected.fenced == (three[0],)
    assert (first.leader, first.leader_epoch, first.partition_epoch, first.isr) == (2, 1, 1, three[1:])
    assert (second.leader, second.leader_epoch, second.partition_epoch) == (2, 0, 1)
    assert second.isr == tuple(each for each in before[1].isr if each != three[0])
    told = database.run_sync(lambda conn: changes.since(conn, start))
    assert told.number == elected.change_number == start + 1
    assert told.partitions == (first, second)
    assert [(row.broker_id, row.fenced) for row in told.brokers] == [(1, True)]


def test_what_a_row_holds_comes_back_as_it_was_written(database: Database, three: tuple[InSyncReplica, ...]) -> None:
    database.run_sync(lambda conn: create_topic(conn, assignments=[(1, 2)]))
    moved = ReplicaSet(
        leader=1,
        leader_epoch=0,
        isr=(three[1], three[0]),
        replicas=(3, 1, 2),
        adding_replicas=(3,),
        removing_replicas=(1, 2),
    )
    elected = database.run_sync(lambda conn: change_replica_sets(conn, lambda *_: moved))
    row = only_row(database)
    assert elected.changed == (row,)
    assert row.replica_set == moved
    assert (row.partition_epoch, row.log_start_offset, row.cold_end_offset) == (1, 0, 0)


@pytest.mark.usefixtures("three")
def test_nothing_is_written_where_nothing_is_decided(database: Database) -> None:
    database.run_sync(lambda conn: create_topic(conn, assignments=[(1, 2)] * 2))
    before = database.run_sync(partitions.load_all)
    decisions: tuple[Decide, ...] = (lambda row, _: None, lambda row, _: row.replica_set)
    for decide in decisions:
        elected = database.run_sync(partial(change_replica_sets, decide=decide))
        assert (elected.changed, elected.fenced) == ((), ())
    assert database.run_sync(partitions.load_all) == before


@pytest.mark.usefixtures("three")
def test_only_those_named_are_asked_about_and_none_of_deleted_topics(database: Database) -> None:
    kept = database.run_sync(lambda conn: create_topic(conn, "kept", assignments=[(1, 2)] * 3)).topic_id
    gone = database.run_sync(lambda conn: create_topic(conn, "gone", assignments=[(1, 2)])).topic_id
    database.run_sync(lambda conn: topics.delete_topic(conn, gone, now_ms=NOW_MS, purge_after_ms=NOW_MS))
    asked: list[tuple[UUID, int]] = []

    def decide(row: PartitionRow, _: Standings) -> None:
        asked.append((row.topic_id, row.partition))

    only = [TopicPartition(TopicId(kept), 1), TopicPartition(TopicId(gone), 0), TopicPartition(TopicId(uuid4()), 0)]
    database.run_sync(lambda conn: change_replica_sets(conn, decide, only=only))
    assert asked == [(kept, 1)]
    asked.clear()
    database.run_sync(lambda conn: change_replica_sets(conn, decide, only=()))
    assert asked == []
    database.run_sync(lambda conn: change_replica_sets(conn, decide))
    assert asked == [(kept, 0), (kept, 1), (kept, 2)]


@pytest.mark.parametrize("stale", [(1, 0), (1, 10**9), (9, 1)])
@pytest.mark.usefixtures("three")
def test_only_the_very_registration_that_was_named_is_fenced(database: Database, stale: tuple[int, int]) -> None:
    database.run_sync(lambda conn: create_topic(conn, assignments=[(1, 2, 3)]))
    before = only_row(database)
    elected = database.run_sync(lambda conn: fail(conn, InSyncReplica(*stale)))
    assert (elected.fenced, elected.changed) == ((), ())
    assert only_row(database) == before
    assert not any(row.fenced for row in database.run_sync(brokers.load_all))


def test_a_broker_that_registered_again_meanwhile_is_not_fenced_for_its_silence_before(
    database: Database, three: tuple[InSyncReplica, ...]
) -> None:
    database.run_sync(lambda conn: create_topic(conn, assignments=[(1, 2, 3)]))
    database.run_sync(lambda conn: registration(conn, 1, clean_epoch=three[0].broker_epoch))
    before = only_row(database)
    assert database.run_sync(lambda conn: fail(conn, three[0])).fenced == ()
    assert only_row(database) == before
    assert before.leader == 1


def test_what_a_rule_raises_leaves_nothing_behind(database: Database, three: tuple[InSyncReplica, ...]) -> None:
    database.run_sync(lambda conn: create_topic(conn, assignments=[(1, 2, 3)] * 3))
    before = database.run_sync(lambda conn: changes.since(conn, 0))

    def decide(row: PartitionRow, _: Standings) -> ReplicaSet:
        if row.partition == 2:
            raise LostRace("as planned")
        return replace(row.replica_set, leader=2, leader_epoch=1)

    with pytest.raises(LostRace, match="as planned"):
        database.run_sync(lambda conn: change_replica_sets(conn, decide, fence=three[:1]))
    assert database.run_sync(lambda conn: changes.since(conn, 0)) == before


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (lambda now: replace(now, leader=3, leader_epoch=1), "from the ISR"),
        (lambda now: replace(now, leader=2), "another leader needs another leader epoch"),
        (lambda now: replace(now, leader_epoch=2), "one by one"),
        (lambda now: replace(now, leader_epoch=-1), "one by one"),
        (lambda now: replace(now, isr=()), "stay in the ISR"),
        (lambda now: replace(now, replicas=(2,)), "only replicas"),
        (lambda now: replace(now, adding_replicas=(3,)), "among the replicas"),
        (
            lambda now: replace(now, leader=2, leader_epoch=1, isr=(now.isr[0], InSyncReplica(2, 7_777))),
            "current and in service",
        ),
    ],
)
@pytest.mark.usefixtures("three")
def test_a_broken_rule_is_stopped_before_it_breaks_a_log(
    database: Database, broken: Callable[[ReplicaSet], ReplicaSet], message: str
) -> None:
    database.run_sync(lambda conn: create_topic(conn, assignments=[(1, 2)]))
    before = only_row(database)
    with pytest.raises(AssertionError, match=message):
        database.run_sync(lambda conn: change_replica_sets(conn, lambda row, _: broken(row.replica_set)))
    assert only_row(database) == before


def test_a_row_that_is_at_another_epoch_is_never_overwritten(database: Database) -> None:
    """The condition of each update, alone: behind the feed's lock nobody can come in between."""
    topic_id = database.run_sync(create_topic).topic_id
    before = database.run_sync(lambda conn: partitions.load(conn, topic_id, 0))
    for epoch in (0, 2):
        wrong = replace(before, leader=NO_LEADER, partition_epoch=epoch)
        with pytest.raises(LostRace, match="1 of 1"):
            database.run_sync(partial(replica_sets.write, rows=[wrong]))
    assert database.run_sync(lambda conn: partitions.load(conn, topic_id, 0)) == before


async def test_two_controllers_at_once_do_no_harm(database: Database, three: tuple[InSyncReplica, ...]) -> None:
    await database.run(lambda conn: create_topic(conn, assignments=[(1, 2, 3)] * 20))
    results = await asyncio.gather(*(database.run(lambda conn: fail(conn, three[0])) for _ in range(6)))
    assert sorted(len(each.changed) for each in results) == [0, 0, 0, 0, 0, 20]
    assert sorted(len(each.fenced) for each in results) == [0, 0, 0, 0, 0, 1]
    for row in await database.run(partitions.load_all):
        assert (row.leader, row.leader_epoch, row.partition_epoch, row.isr) == (2, 1, 1, three[1:])


async def test_controllers_that_fence_different_brokers_leave_what_one_of_them_would(
    database: Database, three: tuple[InSyncReplica, ...]
) -> None:
    await database.run(lambda conn: create_topic(conn, assignments=[(1, 2, 3), (2, 3, 1), (3, 1, 2)]))
    await asyncio.gather(*(database.run(failure(dead)) for dead in three[:2]))
    for row in await database.run(partitions.load_all):
        assert row.leader == 3
        assert len(row.isr) == 2, "one of the dead keeps its place"
        assert three[2] in row.isr


def test_leader_epochs_only_ever_rise(database: Database, three: tuple[InSyncReplica, ...]) -> None:
    """R1 over a long life: no (partition, leader epoch) ever has two leaders."""
    database.run_sync(lambda conn: create_topic(conn, assignments=[(1, 2, 3)]))
    led: dict[int, int] = {}
    epochs = {each.broker_id: each.broker_epoch for each in three}
    last = only_row(database)
    for step in range(12):
        broker_id = 1 + step % 3
        if step % 4 == 3:
            made = database.run_sync(partial(registration, broker_id=broker_id, clean_epoch=epochs[broker_id]))
            epochs[broker_id] = made.broker_epoch
        else:
            dead = InSyncReplica(broker_id, epochs[broker_id])
            database.run_sync(failure(dead))
        row = only_row(database)
        assert row.leader_epoch >= last.leader_epoch
        assert row.partition_epoch >= last.partition_epoch
        assert led.setdefault(row.leader_epoch, row.leader) == row.leader
        last = row


# Ten thousand partitions


@pytest.mark.alone  # The database ends a transaction that waits for ten seconds, as one beside busy workers may.
def test_ten_thousand_partitions_fail_over_in_a_moment(database: Database, three: tuple[InSyncReplica, ...]) -> None:
    """The design asks for less than a second, a quiet machine takes half; the deadline leaves room for a busy one."""
    spread = [(1, 2, 3), (2, 3, 1), (3, 1, 2)]
    database.run_sync(lambda conn: create_topic(conn, assignments=[spread[each % 3] for each in range(10_000)]))
    seconds = []
    for dead in three[:2]:
        began = time.perf_counter()
        elected = database.run_sync(failure(dead), deadline_ms=8_000)
        seconds.append(time.perf_counter() - began)
        assert elected.fenced == (dead,)
        assert len(elected.changed) == (10_000 if dead == three[0] else 6_667)
    print(f"\n{database.dialect}: {[round(each, 2) for each in seconds]} s for 10,000 partitions")
    rows = database.run_sync(partitions.load_all)
    assert {row.leader for row in rows} == {3}


def test_a_restart_takes_up_ten_thousand_partitions_in_a_moment(database: Database) -> None:
    database.run_sync(lambda conn: create_topic(conn, assignments=[(1,)] * 10_000))
    began = time.perf_counter()
    made = database.run_sync(lambda conn: registration(conn, 1), deadline_ms=8_000)
    print(f"\n{database.dialect}: {time.perf_counter() - began:.2f} s for the registration of 10,000 partitions")
    assert len(made.changed) == 10_000
    assert {(row.leader, row.leader_epoch) for row in database.run_sync(partitions.load_all)} == {(1, 1)}


# Registrations


def test_a_clean_restart_keeps_its_place_everywhere(database: Database, three: tuple[InSyncReplica, ...]) -> None:
    database.run_sync(lambda conn: create_topic(conn, assignments=[(1, 2, 3), (2, 1, 3), (3, 2)]))
    made = database.run_sync(lambda conn: registration(conn, 1, clean_epoch=three[0].broker_epoch))
    assert made.was_clean
    assert (made.previous_epoch, made.change_number) == (three[0].broker_epoch, made.broker_epoch)
    led, followed, others = database.run_sync(partitions.load_all)
    renewed = InSyncReplica(1, made.broker_epoch)
    assert (led.leader, led.leader_epoch, led.isr) == (1, 1, (renewed, *three[1:]))
    assert (followed.leader, followed.leader_epoch) == (2, 0)
    assert renewed in followed.isr
    assert others.partition_epoch == 0
    assert made.changed == (led, followed)


@pytest.mark.parametrize("clean_epoch", [None, 0, 10**9])
def test_a_restart_that_lost_something_leads_nothing_that_others_can(
    database: Database, three: tuple[InSyncReplica, ...], clean_epoch: int | None
) -> None:
    database.run_sync(lambda conn: create_topic(conn, assignments=[(1, 2, 3), (1,)]))
    made = database.run_sync(lambda conn: registration(conn, 1, clean_epoch=clean_epoch))
    assert not made.was_clean
    shared, alone = database.run_sync(partitions.load_all)
    assert (shared.leader, shared.leader_epoch, shared.isr) == (2, 1, three)
    assert (alone.leader, alone.leader_epoch, alone.isr) == (1, 1, (InSyncReplica(1, made.broker_epoch),))


def test_a_repeated_registration_of_one_process_goes_on_as_it_began(
    database: Database, three: tuple[InSyncReplica, ...]
) -> None:
    """The answer to the first try was lost: its marker still names the registration before."""
    database.run_sync(lambda conn: create_topic(conn, assignments=[(1, 2, 3)]))
    process, another = uuid4(), uuid4()
    epoch = three[0].broker_epoch
    for _ in range(3):
        made = database.run_sync(lambda conn: registration(conn, 1, clean_epoch=epoch, incarnation_id=process))
        assert made.was_clean
        assert only_row(database).replica_set.member(1) == InSyncReplica(1, made.broker_epoch)
    assert only_row(database).leader == 1
    other = database.run_sync(lambda conn: registration(conn, 1, clean_epoch=epoch, incarnation_id=another))
    assert not other.was_clean
    assert only_row(database).leader == 2


def test_a_repeated_registration_does_not_make_whole_what_was_lost(
    database: Database, three: tuple[InSyncReplica, ...]
) -> None:
    database.run_sync(lambda conn: create_topic(conn, assignments=[(2, 1, 3)]))
    process = uuid4()
    for _ in range(2):
        database.run_sync(lambda conn: registration(conn, 1, clean_epoch=None, incarnation_id=process))
        assert only_row(database).replica_set.member(1) == three[0], "its old entry only keeps a place"


def test_a_new_broker_changes_no_partition(database: Database) -> None:
    database.run_sync(create_topic)
    made = database.run_sync(lambda conn: registration(conn, 2))
    assert (made.changed, made.previous_epoch, made.was_clean) == ((), None, False)


def test_partitions_that_nobody_led_are_led_by_whoever_returns(
    database: Database, three: tuple[InSyncReplica, ...]
) -> None:
    database.run_sync(lambda conn: create_topic(conn, assignments=[(1, 2, 3)]))
    database.run_sync(lambda conn: fail(conn, *three))
    assert (only_row(database).leader, only_row(database).isr) == (NO_LEADER, three)
    database.run_sync(lambda conn: registration(conn, 3, clean_epoch=three[2].broker_epoch))
    assert (only_row(database).leader, only_row(database).leader_epoch) == (3, 2)


@pytest.mark.parametrize(
    ("column", "value"),
    [("isr", [[4, 1]]), ("isr", []), ("isr", {"1": 2}), ("replicas", ["one"]), ("adding_replicas", [9])],
)
def test_a_row_that_no_broker_writes_stops_neither_elections_nor_the_feed(
    database: Database, three: tuple[InSyncReplica, ...], column: str, value: object
) -> None:
    topic_id = database.run_sync(lambda conn: create_topic(conn, assignments=[(1, 2, 3), (1, 2, 3)])).topic_id
    before = database.run_sync(lambda conn: cluster.load(conn).change_number)

    def write_by_hand(conn: Connection) -> None:
        change = {column: value, "change_number": cluster.take_number(conn)}
        conn.execute(update(partition).where(partition.c.partition == 0).values(change))

    database.run_sync(write_by_hand)
    elected = database.run_sync(lambda conn: fail(conn, three[0]))
    assert [(row.partition, row.leader) for row in elected.changed] == [(1, 2)]
    bad, good = database.run_sync(lambda conn: changes.since(conn, before)).partitions
    assert (bad.partition, bad.leader, good.leader, good.fault) == (0, NO_LEADER, 2, "")
    assert "none that a broker writes" in bad.fault
    with pytest.raises(CorruptMetadata, match="put it right in the metadata store"):
        database.run_sync(lambda conn: partitions.load(conn, topic_id, 0))
    assert database.run_sync(lambda conn: segments.load_committed(conn, replica=1)) == ()


# The feed


@pytest.mark.usefixtures("three")
async def test_a_reader_that_polls_sees_every_epoch_of_every_partition_in_order(database: Database) -> None:
    """A lower number never commits later: what was read is never followed by something older."""
    topic_ids = [(await database.run(partial(create_topic, name=f"t{n}", assignments=[(1, 2, 3)]))).topic_id
                 for n in range(4)]  # fmt: skip
    rounds = 8
    seen: dict[UUID, int] = {}
    wanted = dict.fromkeys(topic_ids, rounds)

    async def poll() -> None:
        last = 0
        while seen != wanted:
            found = await database.read(lambda conn: changes.since(conn, last))  # noqa: B023 - awaited at once
            assert found.number >= last
            for row in found.partitions:
                assert last < row.change_number <= found.number
                assert row.leader_epoch >= seen.get(row.topic_id, 0)
                seen[row.topic_id] = row.leader_epoch
            last = found.number

    async def write(topic_id: UUID) -> None:
        for turn in range(rounds):
            await database.run(partial(elect, topic_id=topic_id, leader=1 + turn % 3))

    await asyncio.gather(poll(), *map(write, topic_ids))


def test_the_feed_tells_who_is_registered_and_who_holds_a_slot(database: Database) -> None:
    start = database.run_sync(lambda conn: changes.since(conn, 0))
    assert start.broker_ids == frozenset({1})
    database.run_sync(lambda conn: register(conn, 2))
    database.run_sync(lambda conn: brokers.unregister(conn, broker_id=1))
    now = database.run_sync(lambda conn: changes.since(conn, start.number))
    assert (now.broker_ids, [row.broker_id for row in now.brokers]) == (frozenset({2}), [2])
    quiet = database.run_sync(lambda conn: changes.since(conn, now.number))
    assert (quiet.broker_ids, quiet.slots) == (None, ())

    def give(conn: Connection) -> None:
        number = now.number + 1
        conn.execute(text("UPDATE cluster SET change_number = :number"), {"number": number})
        row = {"slot": 7, "broker_id": 2, "broker_epoch": 3, "slot_epoch": 4, "change_number": number}
        names = ", ".join(row)
        values = ", ".join(f":{name}" for name in row)
        conn.execute(text(f"INSERT INTO coordinator_slot ({names}) VALUES ({values})"), row)

    database.run_sync(give)
    told = database.run_sync(lambda conn: changes.since(conn, now.number))
    assert [(row.slot, row.broker_id, row.slot_epoch) for row in told.slots] == [(7, 2, 4)]
