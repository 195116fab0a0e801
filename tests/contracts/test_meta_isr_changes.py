"""The leader's compare-and-swap of its in-sync replicas (rules 1 and 7), on SQLite and on PostgreSQL."""

import asyncio
import threading
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Connection, text

from tests.catalogue import NOW_MS, change_isr, create_topic, elect, open_ready, register, registration
from tiered.errors import (
    CorruptMetadata,
    FencedLeaderEpoch,
    IneligibleReplica,
    LostRace,
    MetadataOutcomeUnknown,
    MetadataUnavailable,
    StaleBrokerEpoch,
    UnknownTopicOrPartition,
)
from tiered.ids import InSyncReplica
from tiered.meta import brokers, changes, partitions, topics
from tiered.meta.engine import Database
from tiered.meta.partitions import IsrChange, PartitionRow

if TYPE_CHECKING:
    from tests.postgres import PostgresServer

pytest_plugins = ["tests.meta_databases"]


class Led:
    """A partition of brokers 1 to 3 that broker 1 leads with 2 in sync, and how its leader changes that."""

    def __init__(self, database: Database) -> None:
        self.database = database
        database.run_sync(lambda conn: register(conn, 2))
        database.run_sync(lambda conn: register(conn, 3))
        self.members = tuple(self.member(each) for each in (1, 2, 3))
        self.topic_id = database.run_sync(lambda conn: create_topic(conn, assignments=[(1, 2, 3)])).topic_id
        database.run_sync(lambda conn: self.swap(conn, isr=self.members[:2]))

    def member(self, broker_id: int) -> InSyncReplica:
        (row,) = (row for row in self.database.run_sync(brokers.load_all) if row.broker_id == broker_id)
        return InSyncReplica(broker_id, row.broker_epoch)

    @property
    def row(self) -> PartitionRow:
        return self.database.run_sync(lambda conn: partitions.load(conn, self.topic_id, 0))

    def swap(self, conn: Connection, **others: Any) -> PartitionRow:
        """Everybody in sync, expected at the row's epochs, but for what `others` say."""
        now = partitions.load(conn, self.topic_id, 0)
        arguments: dict[str, Any] = {
            "topic_id": self.topic_id,
            "partition": 0,
            "broker_id": 1,
            "broker_epoch": self.members[0].broker_epoch,
            "leader_epoch": now.leader_epoch,
            "expected_partition_epoch": now.partition_epoch,
            "isr": self.members,
        }
        return change_isr(conn, **(arguments | others))

    def change(self, **others: Any) -> IsrChange:
        now = self.row
        change = IsrChange(
            topic_id=self.topic_id,
            partition=0,
            leader_epoch=now.leader_epoch,
            expected_partition_epoch=now.partition_epoch,
            isr=self.members,
        )
        return replace(change, **others)


@pytest.fixture
def led(database: Database) -> Led:
    return Led(database)


def test_a_leader_changes_its_isr_and_the_feed_tells(led: Led) -> None:
    before = led.row
    after = led.database.run_sync(led.swap)
    assert after == led.row
    assert (after.isr, after.partition_epoch) == (led.members, before.partition_epoch + 1)
    assert (after.leader, after.leader_epoch) == (before.leader, before.leader_epoch)
    told = led.database.run_sync(lambda conn: changes.since(conn, before.change_number))
    assert told.partitions == (after,)
    shrunk = led.database.run_sync(lambda conn: led.swap(conn, isr=led.members[:1]))
    assert shrunk.isr == led.members[:1]


# Each condition alone makes it fail


def refused(led: Led, error: type[Exception], match: str, **others: Any) -> None:
    before = led.database.run_sync(lambda conn: changes.since(conn, 0))
    with pytest.raises(error, match=match) as caught:
        led.database.run_sync(lambda conn: led.swap(conn, **others))
    assert type(caught.value) is error
    assert led.database.run_sync(lambda conn: changes.since(conn, 0)) == before, "nothing was changed"


def test_not_at_an_older_partition_epoch(led: Led) -> None:
    refused(led, LostRace, "partition epoch 1, not at 0", expected_partition_epoch=0)


def test_not_at_a_partition_epoch_that_sql_has_forgotten(led: Led) -> None:
    refused(led, CorruptMetadata, "lost committed changes", expected_partition_epoch=2)


def test_not_by_a_leader_of_an_older_epoch(led: Led) -> None:
    led.database.run_sync(lambda conn: elect(conn, led.topic_id, 1))
    refused(led, FencedLeaderEpoch, "another leader took over", leader_epoch=0)


def test_not_by_a_leader_of_an_epoch_that_sql_has_forgotten(led: Led) -> None:
    refused(led, CorruptMetadata, "lost committed changes", leader_epoch=1)


def test_not_by_anybody_but_the_leader(led: Led) -> None:
    refused(led, FencedLeaderEpoch, "led by broker 1", broker_id=2, broker_epoch=led.members[1].broker_epoch)


def test_not_by_a_process_that_was_replaced(led: Led) -> None:
    zombie = led.members[0]._replace(broker_epoch=led.members[0].broker_epoch - 1)
    refused(
        led, StaleBrokerEpoch, "not its current registration",
        broker_epoch=zombie.broker_epoch, isr=(zombie, *led.members[1:]),
    )  # fmt: skip


def test_not_by_a_leader_that_is_fenced(led: Led) -> None:
    led.database.run_sync(lambda conn: brokers.fence(conn, broker_id=1, broker_epoch=led.members[0].broker_epoch))
    refused(led, StaleBrokerEpoch, "fenced")


def test_not_with_a_new_member_that_is_fenced(led: Led) -> None:
    led.database.run_sync(lambda conn: brokers.fence(conn, broker_id=3, broker_epoch=led.members[2].broker_epoch))
    refused(led, IneligibleReplica, "broker 3")


def test_not_with_a_new_member_that_has_registered_again(led: Led) -> None:
    """It fetched up to the end, lost it in a power cut and restarted: what it fetched does not count any more."""
    led.database.run_sync(lambda conn: register(conn, 3))
    refused(led, IneligibleReplica, "broker 3")


def test_not_with_an_old_member_under_another_registration_than_it_joined_with(led: Led) -> None:
    unheard_of = InSyncReplica(2, 10**6)
    refused(led, IneligibleReplica, "broker 2", isr=(led.members[0], unheard_of))


def test_not_with_a_broker_that_was_unregistered(led: Led) -> None:
    led.database.run_sync(lambda conn: brokers.unregister(conn, broker_id=3))
    refused(led, IneligibleReplica, "broker 3")


def test_not_of_a_topic_that_was_deleted_or_never_was(led: Led) -> None:
    refused(led, UnknownTopicOrPartition, "partition 4", partition=4)
    refused(led, UnknownTopicOrPartition, "partition 0", topic_id=uuid4())
    led.database.run_sync(lambda conn: topics.delete_topic(conn, led.topic_id, now_ms=NOW_MS, purge_after_ms=NOW_MS))
    refused(led, FencedLeaderEpoch, "another leader took over", leader_epoch=0)


# What does not stand in the way


def test_a_dead_member_may_keep_its_place(led: Led) -> None:
    led.database.run_sync(lambda conn: register(conn, 2))
    after = led.database.run_sync(led.swap)
    assert after.isr == led.members


def test_a_dead_member_is_replaced_by_its_present_registration(led: Led) -> None:
    led.database.run_sync(lambda conn: register(conn, 2))
    now = (led.members[0], led.member(2))
    assert led.database.run_sync(lambda conn: led.swap(conn, isr=now)).isr == now


# An unknown outcome (rule 7)


def test_a_change_that_has_happened_is_answered_with_its_row(led: Led) -> None:
    expected = led.row.partition_epoch
    first = led.database.run_sync(led.swap)
    for _ in range(2):
        again = led.database.run_sync(lambda conn: led.swap(conn, expected_partition_epoch=expected))
        assert again == first == led.row


def test_a_change_that_has_happened_is_answered_even_when_its_new_member_is_gone_again(led: Led) -> None:
    expected = led.row.partition_epoch
    first = led.database.run_sync(led.swap)
    led.database.run_sync(lambda conn: register(conn, 3))
    assert led.database.run_sync(lambda conn: led.swap(conn, expected_partition_epoch=expected)).isr == first.isr


def test_another_change_at_the_same_epoch_settles_one_way_or_the_other(led: Led) -> None:
    expected, settling = led.row.partition_epoch, led.row.isr
    led.database.run_sync(led.swap)  # it has happened
    refused(led, LostRace, "wait for the change feed", expected_partition_epoch=expected, isr=settling)
    expected, settling = led.row.partition_epoch, led.row.isr
    led.database.run_sync(lambda conn: led.swap(conn, isr=settling))  # it has not, and never will
    refused(led, LostRace, "partition epoch", expected_partition_epoch=expected, isr=led.members[:1])


def test_a_change_that_was_sent_before_an_election_fails_after_it(led: Led) -> None:
    late = led.change()
    leader = led.members[0]
    led.database.run_sync(lambda conn: elect(conn, led.topic_id, 2))
    led.database.run_sync(lambda conn: elect(conn, led.topic_id, 1))  # back, in another epoch
    (answer,) = led.database.run_sync(
        lambda conn: partitions.change_isrs(conn, broker_id=1, broker_epoch=leader.broker_epoch, changes=[late])
    )
    assert isinstance(answer, FencedLeaderEpoch)
    assert led.row.isr == led.members[:2]


async def test_of_many_changes_at_the_same_epoch_one_happens(led: Led) -> None:
    expected = led.row.partition_epoch
    wanted = [led.members, led.members[:1], (led.members[0], led.members[2])] * 3
    results = await asyncio.gather(
        *(led.database.run(partial(led.swap, isr=isr, expected_partition_epoch=expected)) for isr in wanted),
        return_exceptions=True,
    )
    rows = [each for each in results if isinstance(each, PartitionRow)]
    assert all(isinstance(each, LostRace) for each in results if each not in rows)
    assert set(rows) == {led.row}
    assert len(rows) == 3, "those that wanted the same"
    assert led.row.partition_epoch == expected + 1


# Many at once


def test_each_of_many_changes_stands_for_itself(led: Led) -> None:
    topic = led.database.run_sync(lambda conn: create_topic(conn, "many", assignments=[(1, 2, 3), (2, 3, 1), (1, 3)]))
    rows = [led.database.run_sync(partial(partitions.load, topic_id=topic.topic_id, number=n)) for n in range(3)]
    one = led.members[:1]
    asked = [led.change(topic_id=topic.topic_id, partition=n, expected_partition_epoch=0, isr=one) for n in range(3)]
    asked.append(led.change(expected_partition_epoch=0, isr=one))
    asked.append(led.change(partition=9, isr=one))
    answers = led.database.run_sync(
        lambda conn: partitions.change_isrs(conn, broker_id=1, broker_epoch=one[0].broker_epoch, changes=asked)
    )
    assert [type(each) for each in answers] == [
        PartitionRow, FencedLeaderEpoch, PartitionRow, LostRace, UnknownTopicOrPartition,
    ]  # fmt: skip
    now = [led.database.run_sync(partial(partitions.load, topic_id=topic.topic_id, number=n)) for n in range(3)]
    assert (answers[0], rows[1], answers[2]) == tuple(now)
    assert now[0].isr == now[2].isr == one


def test_ten_thousand_changes_are_one_transaction(led: Led) -> None:
    topic_id = led.database.run_sync(lambda conn: create_topic(conn, "many", assignments=[(1, 2)] * 10_000)).topic_id
    one = led.change(topic_id=topic_id, expected_partition_epoch=0, isr=led.members[:1])
    asked = [replace(one, partition=n) for n in range(10_000)]
    answers = led.database.run_sync(
        lambda conn: partitions.change_isrs(conn, broker_id=1, broker_epoch=led.members[0].broker_epoch, changes=asked),
        deadline_ms=8_000,
    )
    assert {type(each) for each in answers} == {PartitionRow}
    assert len({each.change_number for each in answers if isinstance(each, PartitionRow)}) == 1


# PostgreSQL alone: statements that hang


async def settled(led: Led, expected: int, isr: tuple[InSyncReplica, ...]) -> PartitionRow | LostRace:
    """What a leader does about an unknown outcome: the same swap again and again, until one is answered."""
    while True:
        try:
            return await led.database.run(
                lambda conn: led.swap(conn, isr=isr, expected_partition_epoch=expected), deadline_ms=1_000
            )
        except LostRace as error:
            return error
        except MetadataUnavailable:
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("is_the_same", [True, False])
async def test_a_commit_that_hangs_is_settled_by_a_change_and_never_by_a_read(
    postgres_url: str, postgres_server: "PostgresServer", is_the_same: bool
) -> None:
    database = open_ready(postgres_url)
    led = Led(database)
    expected, before = led.row.partition_epoch, led.row
    frozen: list[int] = []

    def swap_and_freeze(conn: Connection) -> None:
        led.swap(conn)
        frozen.append(conn.execute(text("SELECT pg_backend_pid()")).scalar_one())
        postgres_server.freeze(frozen[0])

    with pytest.raises(MetadataOutcomeUnknown):
        await database.run(swap_and_freeze, deadline_ms=300)
    try:
        assert led.row == before, "a read shows nothing of it, and proves nothing"
        isr = led.members if is_the_same else before.isr
        settling = asyncio.create_task(settled(led, expected, isr))
        await asyncio.sleep(0.5)
        assert not settling.done(), "nobody knows yet"
    finally:
        postgres_server.thaw(frozen[0])
    answer = await asyncio.wait_for(settling, 20)
    # The COMMIT was on its way and happened when the server woke: the change is in the row, and the leader knows.
    assert led.row.isr == led.members
    assert led.row.partition_epoch == expected + 1
    assert (answer == led.row) if is_the_same else isinstance(answer, LostRace)
    await database.close()


async def test_a_change_that_waited_for_a_lock_until_its_deadline_never_happens(postgres_url: str) -> None:
    database, other = open_ready(postgres_url), Database.open(postgres_url)
    led = Led(database)
    before = led.row
    entered, release = threading.Event(), threading.Event()

    def hold(conn: Connection) -> None:
        conn.execute(text("UPDATE cluster SET change_number = change_number"))
        entered.set()
        release.wait(10)

    holder = asyncio.create_task(other.run(hold))
    await asyncio.to_thread(entered.wait, 10)
    with pytest.raises(MetadataUnavailable) as caught:
        await database.run(led.swap, deadline_ms=300)
    assert not isinstance(caught.value, MetadataOutcomeUnknown)
    release.set()
    await holder
    # A change of something else, behind whatever is still waiting on the server: then nothing is.
    await database.run(lambda conn: registration(conn, 3))
    assert led.row == before
    await database.close()
    await other.close()


async def test_a_client_that_hangs_in_a_change_is_cut_off_before_others_give_up(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tiered.meta.postgres_session.MAX_IDLE_IN_CHANGE_MS", 300)
    stopped, database = Database.open(postgres_url), open_ready(postgres_url)
    entered, woken = threading.Event(), threading.Event()

    def change_and_hang(conn: Connection) -> UUID:
        topic_id = create_topic(conn, "never").topic_id
        entered.set()
        woken.wait(20)  # as a process does that was stopped
        return topic_id

    async def hang() -> None:
        with pytest.raises(MetadataUnavailable):
            await stopped.run(change_and_hang)

    hanging = asyncio.create_task(hang())
    await asyncio.to_thread(entered.wait, 10)
    await database.run(lambda conn: create_topic(conn, "orders"), deadline_ms=5_000)
    assert not woken.is_set()
    woken.set()
    await hanging
    assert [row.name for row in await database.run(topics.load_all)] == ["orders"]
    await database.close()
    await stopped.close()
