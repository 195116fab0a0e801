"""The coordinator of transactions: what is answered when, who is fenced, and what is kept of many. On a real
catalogue."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

import pytest
from sqlalchemy import Connection

from tests.unit.broker.groups.coordinators import topic
from tests.unit.broker.transactions.transacting import Transacting, transacting
from tiered.broker.partitions.topics import OFFSETS_TOPIC
from tiered.broker.transactions import coordinator, listing
from tiered.errors import (
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    InvalidRequest,
    InvalidTransactionTimeout,
    NotLeader,
    PolicyViolation,
    ProducerFenced,
    StaleProducerEpoch,
    TransactionAbortable,
    TransactionalIdNotFound,
)
from tiered.formats.control_record import MarkerType
from tiered.ids import TopicId, TopicPartition
from tiered.meta import transactions
from tiered.meta.group_offsets import WriteOutcome, WritingCoordinator
from tiered.meta.transactions import TransactionChange
from tiered.rules.security.authorization import EVERYTHING
from tiered.rules.transactions.transaction_state import (
    KEEPS_EPOCH,
    RAISES_EPOCH,
    PreparedTransaction,
    ProducerIdAndEpoch,
    TransactionState,
)

T = TypeVar("T")


@pytest.mark.parametrize(("commits", "kind"), [(True, MarkerType.COMMIT), (False, MarkerType.ABORT)])
@pytest.mark.parametrize(("protocol", "epoch"), [(KEEPS_EPOCH, 0), (RAISES_EPOCH, 1)])
async def test_a_transaction_begins_is_decided_and_gets_a_marker_in_each_of_its_partitions(
    made: Transacting, commits: bool, kind: MarkerType, protocol: int, epoch: int
) -> None:
    producer = await made.begun(protocol=protocol)
    told = await made.coordinator.end("payments", producer, commits=commits, protocol=protocol)
    assert told == ProducerIdAndEpoch(producer.producer_id, epoch)
    done = await made.until(TransactionState.COMPLETE_COMMIT if commits else TransactionState.COMPLETE_ABORT)
    assert (done.partitions, done.started_at_ms) == (frozenset(), None)
    assert {partition for _, partition in made.leaders.written} == set(made.partitions)
    tenure = made.groups.groups.slots.tenure(made.groups.groups.slot("payments"))
    for marker, _ in made.leaders.written:
        assert (marker.marker.type, marker.producer, marker.raises_epoch) == (kind, told, protocol == RAISES_EPOCH)
        assert marker.marker.coordinator_epoch == tenure
    await made.added("payments", told, protocol)


async def test_no_marker_is_written_before_the_decision_stands_in_sql(made: Transacting) -> None:
    producer = await made.begun()
    assert made.leaders.written == []
    ending = asyncio.create_task(made.coordinator.end("payments", producer, commits=True, protocol=KEEPS_EPOCH))
    seen = TransactionState.ONGOING
    while not made.leaders.written:
        found = await made.stored()
        assert found is not None
        if not made.leaders.written:
            seen = found.state
    assert (await made.stored()).state is not TransactionState.ONGOING, seen  # type: ignore[union-attr]
    await ending


async def test_until_the_last_marker_is_written_the_next_transaction_waits(made: Transacting) -> None:
    late = made.partitions[1]
    made.leaders.refuse[late] = NotLeader("another broker leads it now")
    producer = await made.begun()
    await made.coordinator.end("payments", producer, commits=True, protocol=KEEPS_EPOCH)
    await made.coordinator.end("payments", producer, commits=True, protocol=KEEPS_EPOCH)
    with pytest.raises(ConcurrentTransactions):
        await made.coordinator.add_partitions("payments", producer, made.partitions, protocol=KEEPS_EPOCH)
    with pytest.raises(ConcurrentTransactions):
        await made.coordinator.init_producer_id("payments", 60_000)
    del made.leaders.refuse[late]
    await made.until(TransactionState.COMPLETE_COMMIT)
    assert sorted(partition for _, partition in made.leaders.written) == sorted(made.partitions), "each once"


@pytest.mark.parametrize("protocol", [KEEPS_EPOCH, RAISES_EPOCH])
async def test_the_next_transaction_begins_at_once_when_the_last_one_is_complete(
    made: Transacting, protocol: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A producer that is told to come back does so after 20 ms, which was most of a transaction's time."""
    monkeypatch.setattr(coordinator, "ENDING_MS", 30_000.0)
    producer = await made.begun(protocol=protocol)
    for _ in range(5):
        producer = await made.coordinator.end("payments", producer, commits=True, protocol=protocol)
        await made.coordinator.add_partitions("payments", producer, made.partitions, protocol=protocol)
    await made.coordinator.end("payments", producer, commits=False, protocol=protocol)
    new = await made.coordinator.init_producer_id("payments", 60_000)
    assert new.producer_epoch > producer.producer_epoch


async def test_a_producer_that_goes_on_at_once_has_two_transitions_written_for_each_transaction(
    made: Transacting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator, "COMPLETE_AFTER_MS", 30_000.0)
    written: list[TransactionState] = []
    plain = transactions.write

    def write(conn: Connection, changes: Sequence[TransactionChange], by: WritingCoordinator) -> WriteOutcome:
        written.extend(each.after.state for each in changes)
        return plain(conn, changes, by)

    monkeypatch.setattr(transactions, "write", write)
    producer = await made.initialized()
    for _ in range(3):
        await made.added("payments", producer, KEEPS_EPOCH)
        await made.coordinator.end("payments", producer, commits=True, protocol=KEEPS_EPOCH)
    assert written == [TransactionState.EMPTY, *[TransactionState.ONGOING, TransactionState.PREPARE_COMMIT] * 3]


async def test_what_is_refused_for_long_is_tried_less_often(made: Transacting) -> None:
    """Thousands of transactions may wait for one leader."""
    made.leaders.refuse = dict.fromkeys(made.partitions, NotLeader("nobody leads it now"))
    producer = await made.begun()
    await made.coordinator.end("payments", producer, commits=True, protocol=KEEPS_EPOCH)
    await asyncio.sleep(1.2)
    assert 2 <= made.leaders.asked <= 6
    made.leaders.refuse.clear()
    await made.until(TransactionState.COMPLETE_COMMIT)


async def test_a_new_producer_fences_the_old_one_and_aborts_what_it_had_open(made: Transacting) -> None:
    old = await made.begun()
    made.leaders.refuse = dict.fromkeys(made.partitions, NotLeader("nobody leads it now"))
    with pytest.raises(ConcurrentTransactions):
        await made.coordinator.init_producer_id("payments", 60_000)
    for commits in (True, False):
        with pytest.raises(ProducerFenced):
            await made.coordinator.end("payments", old, commits=commits, protocol=KEEPS_EPOCH)
    made.leaders.refuse.clear()
    new = await made.initialized()
    assert (new.producer_id, new.producer_epoch) == (old.producer_id, old.producer_epoch + 2)
    assert {(each.marker.type, each.producer.producer_epoch) for each, _ in made.leaders.written} == {
        (MarkerType.ABORT, old.producer_epoch + 1)
    }
    with pytest.raises(ProducerFenced):
        await made.coordinator.add_partitions("payments", old, made.partitions, protocol=KEEPS_EPOCH)


@pytest.mark.parametrize("claims", [False, True])
async def test_who_fences_a_producer_is_not_told_to_come_back_where_its_abort_is_quick(
    made: Transacting, monkeypatch: pytest.MonkeyPatch, claims: bool
) -> None:
    """Java's admin clients before 3.8 took that for a failure of what they had done (KAFKA-16570)."""
    monkeypatch.setattr(coordinator, "ENDING_MS", 30_000.0)
    old = await made.begun()
    new = await made.coordinator.init_producer_id("payments", 1, old if claims else None)
    assert new.producer_id == old.producer_id
    assert new.producer_epoch > old.producer_epoch
    assert len(made.leaders.written) == len(made.partitions), "all markers of the abort"
    with pytest.raises(ProducerFenced):
        await made.coordinator.end("payments", old, commits=True, protocol=KEEPS_EPOCH)


async def test_a_leader_may_ask_whether_a_partition_is_in_the_transaction(made: Transacting) -> None:
    producer = await made.initialized()
    first, second, _ = made.partitions
    await made.coordinator.add_partitions("payments", producer, [first], protocol=KEEPS_EPOCH)
    found = await made.coordinator.check_partitions("payments", producer, [first, second])
    assert found[first] is None
    assert isinstance(found[second], TransactionAbortable)
    older = ProducerIdAndEpoch(producer.producer_id, producer.producer_epoch - 1)
    assert isinstance((await made.coordinator.check_partitions("payments", older, [first]))[first], ProducerFenced)
    unknown = await made.coordinator.check_partitions("nobody", producer, [first])
    assert isinstance(unknown[first], InvalidProducerIdMapping)


async def test_what_is_known_without_waiting_is_what_sql_has_while_nobody_changes_it(made: Transacting) -> None:
    assert made.coordinator.at_rest("payments") is None
    producer = await made.begun()
    assert made.coordinator.at_rest("payments") == await made.stored()
    ending = asyncio.create_task(made.coordinator.end("payments", producer, commits=True, protocol=KEEPS_EPOCH))
    await asyncio.sleep(0)
    assert made.coordinator.at_rest("payments") is None
    await ending
    known = made.coordinator.at_rest("payments")
    assert known is not None
    assert known.state in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)


async def test_a_partition_that_was_deleted_and_one_with_a_newer_epoch_need_no_marker(made: Transacting) -> None:
    made.leaders.refuse[made.partitions[0]] = StaleProducerEpoch("epoch 9 has written here")
    producer = await made.begun()
    gone = TopicPartition(made.partitions[0].topic_id, 99)
    await made.coordinator.add_partitions("payments", producer, [gone], protocol=KEEPS_EPOCH)
    made.leaders.refuse[gone] = NotLeader("never asked")
    topic = made.groups.topics.by_name("orders")
    await made.coordinator.end("payments", producer, commits=True, protocol=KEEPS_EPOCH)
    await asyncio.sleep(0.05)
    made.groups.topics.remove(topic)
    made.groups.image.remove_topic(topic.topic_id)
    await made.until(TransactionState.COMPLETE_COMMIT)


async def test_a_topic_that_the_feed_has_not_brought_yet_is_not_taken_for_deleted(made: Transacting) -> None:
    """A slot that came by this broker's own hand may be ahead of the feed."""
    brought, made.groups.image.change_number = made.groups.image.change_number, 0
    producer = await made.initialized()
    new = TopicPartition(TopicId(uuid4()), 0)
    await made.coordinator.add_partitions("payments", producer, [new], protocol=KEEPS_EPOCH)
    await made.coordinator.end("payments", producer, commits=True, protocol=KEEPS_EPOCH)
    await asyncio.sleep(0.3)
    assert (await made.stored()).state is TransactionState.PREPARE_COMMIT  # type: ignore[union-attr]
    made.groups.image.change_number = brought
    await made.until(TransactionState.COMPLETE_COMMIT)


async def test_a_slot_of_groups_that_is_not_there_any_more_needs_no_marker(made: Transacting) -> None:
    """`offsets.topic.num.partitions` is less than when the group's offsets joined the transaction."""
    offsets = replace(topic(OFFSETS_TOPIC, uuid4()), is_internal=True)
    made.groups.topics.put(offsets)
    producer = await made.initialized()
    gone = TopicPartition(offsets.topic_id, offsets.partition_count)
    await made.coordinator.add_partitions("payments", producer, [gone], protocol=KEEPS_EPOCH)
    await made.coordinator.end("payments", producer, commits=True, protocol=KEEPS_EPOCH)
    await made.until(TransactionState.COMPLETE_COMMIT)


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
async def test_a_time_out_beyond_the_brokers_is_refused(made: Transacting, timeout_ms: int) -> None:
    with pytest.raises(InvalidTransactionTimeout, match=r"transaction\.max\.timeout\.ms"):
        await made.coordinator.init_producer_id("payments", timeout_ms)


@pytest.mark.parametrize("name", ["", "a\0b", "x" * 70_000])
async def test_a_transactional_id_that_sql_would_not_take_is_refused(made: Transacting, name: str) -> None:
    with pytest.raises(InvalidRequest):
        await made.coordinator.init_producer_id(name, 60_000)


async def test_a_transaction_that_is_open_for_too_long_is_aborted_and_its_producer_fenced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with transacting(tmp_path, transaction_abort_timed_out_transaction_cleanup_interval_ms="20") as made:
        producer = await made.coordinator.init_producer_id("payments", 60_000, client="app-1 at 10.0.0.7")
        await made.coordinator.add_partitions("payments", producer, made.partitions, protocol=KEEPS_EPOCH)
        await asyncio.sleep(0.1)
        assert (await made.stored()).state is TransactionState.ONGOING  # type: ignore[union-attr]
        clock = made.groups.context.clock
        clock.set_by_ms += 60_001  # type: ignore[attr-defined]
        await made.until(TransactionState.COMPLETE_ABORT)
        with pytest.raises(ProducerFenced):
            await made.coordinator.end("payments", producer, commits=True, protocol=KEEPS_EPOCH)
        assert made.groups.context.counters.transactions == {"committed": 0, "aborted": 0, "timed_out": 1}
        whose = f"payments (producer {producer.producer_id}, epoch 0, client app-1 at 10.0.0.7) is aborted"
        assert whose in caplog.text
        assert (
            f"on {len(made.partitions)} partitions, and transaction.timeout.ms of the producer is 60000" in caplog.text
        )


async def test_all_that_are_late_are_aborted_at_one_look_and_some_of_them_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """500 at a look, every ten seconds, kept the readers of others waiting for minutes behind 4,000."""
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(coordinator, "ABORTED_AT_ONCE", 2)
    monkeypatch.setattr(coordinator, "MAX_TOLD", 3)
    names = [f"id-{number}" for number in range(7)]
    async with transacting(tmp_path, transaction_abort_timed_out_transaction_cleanup_interval_ms="300") as made:
        for name in names:
            await made.begun(name)
        made.groups.context.clock.set_by_ms += 60_001  # type: ignore[attr-defined]
        for name in names:
            await made.until(TransactionState.COMPLETE_ABORT, name)
        assert made.groups.context.counters.transactions["timed_out"] == 7
    assert caplog.text.count("is aborted and its producer fenced") == 3
    assert "4 more transactions were open for too long" in caplog.text


async def test_what_was_decided_is_counted_once_and_what_is_open_or_waits_for_markers_too(made: Transacting) -> None:
    counted, late = made.groups.context.counters.transactions, made.partitions[1]
    producer = await made.begun()
    assert (made.coordinator.open_count, made.coordinator.undelivered_count) == (1, 0)
    assert [each.transactional_id for each in made.coordinator.open_transactions()] == ["payments"]
    made.leaders.refuse[late] = NotLeader("another broker leads it now")
    for _ in range(2):
        await made.coordinator.end("payments", producer, commits=True, protocol=KEEPS_EPOCH)
    await asyncio.sleep(0.05)
    assert (made.coordinator.open_count, made.coordinator.undelivered_count) == (1, 1)
    made.leaders.refuse.clear()
    await made.until(TransactionState.COMPLETE_COMMIT)
    assert counted == {"committed": 1, "aborted": 0, "timed_out": 0}
    await made.begun()
    await made.coordinator.abort("payments")
    await made.until(TransactionState.COMPLETE_ABORT)
    assert made.coordinator.undelivered_count == 0
    await made.begun()
    await made.initialized()
    assert counted == {"committed": 1, "aborted": 2, "timed_out": 0}
    assert made.coordinator.open_transactions() == []


async def test_a_transactional_id_that_nobody_uses_is_forgotten_in_the_end(tmp_path: Path) -> None:
    async with transacting(
        tmp_path,
        transaction_remove_expired_transaction_cleanup_interval_ms="20",
        transactional_id_expiration_ms="10000",
    ) as made:
        producer = await made.initialized()
        await made.begun("busy")
        await asyncio.sleep(0.1)
        assert await made.stored() is not None
        made.groups.context.clock.set_by_ms += 10_001  # type: ignore[attr-defined]
        async with asyncio.timeout(5):
            while await made.stored() is not None:
                await asyncio.sleep(0.01)
        assert (await made.stored("busy")).state is TransactionState.ONGOING  # type: ignore[union-attr]
        with pytest.raises(InvalidProducerIdMapping):
            await made.coordinator.add_partitions("payments", producer, made.partitions, protocol=KEEPS_EPOCH)
        with pytest.raises(TransactionalIdNotFound):
            await made.coordinator.describe("payments")


async def test_a_person_can_abort_what_hangs(made: Transacting) -> None:
    producer = await made.begun()
    await made.coordinator.abort("payments")
    await made.until(TransactionState.COMPLETE_ABORT)
    await made.coordinator.abort("payments")
    with pytest.raises(ProducerFenced):
        await made.coordinator.end("payments", producer, commits=True, protocol=KEEPS_EPOCH)
    with pytest.raises(TransactionalIdNotFound):
        await made.coordinator.abort("nobody")


async def listed(made: Transacting) -> list[str]:
    return [each.transactional_id async for each in made.coordinator.list_transactions(EVERYTHING, lambda each: True)]


async def test_many_producers_end_their_transactions_beside_each_other(made: Transacting) -> None:
    names = [f"id-{number}" for number in range(60)]

    async def loop(name: str) -> None:
        producer = await made.begun(name, protocol=RAISES_EPOCH)
        for number in range(4):
            await made.added(name, producer, RAISES_EPOCH)
            producer = await made.coordinator.end(name, producer, commits=bool(number % 2), protocol=RAISES_EPOCH)

    await asyncio.gather(*map(loop, names))
    for name in names:
        await made.until(TransactionState.COMPLETE_COMMIT, name)
    assert len(made.leaders.written) == len(names) * 4 * len(made.partitions)
    assert await listed(made) == sorted(names)
    assert made.coordinator.open_count == 0


async def test_a_list_is_read_in_pages_and_is_whole_or_refused(
    made: Transacting, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"id-{number}" for number in range(5)]
    for name in names:
        await made.initialized(name)
    monkeypatch.setattr(listing, "LISTED_AT_ONCE", 2)
    monkeypatch.setattr(listing, "MAX_LISTED", 5)
    assert await listed(made) == names
    monkeypatch.setattr(listing, "MAX_LISTED", 4)
    with pytest.raises(PolicyViolation):
        await listed(made)
    some = made.coordinator.list_transactions(EVERYTHING, lambda each: each.transactional_id > "id-0")
    assert [each.transactional_id async for each in some] == names[1:]


# Many at once


def prepared(transactional_id: str, producer: ProducerIdAndEpoch) -> PreparedTransaction:
    return PreparedTransaction(transactional_id=transactional_id, producer=producer)


async def test_transactions_that_are_committed_together_get_all_of_their_markers(made: Transacting) -> None:
    tasks = [prepared(f"task-{number}", await made.begun(f"task-{number}")) for number in range(3)]
    assert await made.coordinator.decide_together(tasks, commit_key="batch 7")
    for each in tasks:
        await made.until(TransactionState.COMPLETE_COMMIT, each.transactional_id)
    assert len(made.leaders.written) == len(tasks) * len(made.partitions)
    assert not await made.coordinator.decide_together(tasks, commit_key="batch 7")
    again = prepared("again", await made.begun("again"))
    assert not await made.coordinator.decide_together([again], commit_key="batch 7")
    await made.until(TransactionState.COMPLETE_ABORT, "again")


async def test_what_another_broker_has_decided_is_carried_out_here(made: Transacting) -> None:
    task = prepared("task", await made.begun("task"))
    await made.groups.database.run(
        lambda conn: transactions.decide_together(conn, [task], commit_key="batch 7", now_ms=0)
    )
    await made.until(TransactionState.COMPLETE_COMMIT, "task")
    assert {partition for _, partition in made.leaders.written} == set(made.partitions)


async def test_what_sql_has_no_place_for_is_refused_before_it_is_asked(made: Transacting) -> None:
    task = prepared("task", await made.begun("task"))
    for names, key in (
        ([task, prepared("a\0b", task.producer)], "batch 7"),
        ([task], "batch\0"),
        ([task], "流" * 667),
    ):
        with pytest.raises(InvalidRequest):
            await made.coordinator.decide_together(names, commit_key=key)
    assert await made.coordinator.decide_together([task], commit_key="batch 7")


async def test_transactions_that_were_committed_together_are_read_together(made: Transacting) -> None:
    tasks = [prepared(f"task-{number}", await made.begun(f"task-{number}")) for number in range(50)]
    made.leaders.refuse = dict.fromkeys(made.partitions, NotLeader("nobody leads it"))
    commits = made.groups.groups.offsets.commits
    before = commits._commit_number
    assert await made.coordinator.decide_together(tasks, commit_key="batch 7")
    while made.coordinator.undelivered_count < len(tasks) * len(made.partitions):
        await asyncio.sleep(0.01)
    assert commits._commit_number - before < len(tasks)


async def test_questions_about_ids_that_nobody_has_take_no_turn_of_the_writer(made: Transacting) -> None:
    """Commits of offsets and decisions take turns, and anybody may ask."""
    async with made.groups.groups.offsets.commits._turn, asyncio.timeout(30):
        await asyncio.gather(*(_not_there(made, f"nobody-{number}") for number in range(100)))


async def _not_there(made: Transacting, name: str) -> None:
    with pytest.raises(TransactionalIdNotFound):
        await made.coordinator.describe(name)


async def test_each_transactional_id_is_named_once(made: Transacting) -> None:
    task = prepared("task", await made.begun("task"))
    with pytest.raises(InvalidRequest):
        await made.coordinator.decide_together([task, task], commit_key="batch 7")
