"""Offsets that wait for their transaction in SQL: who may write them, and what the decision makes of them."""

from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from tests.catalogue import HOUR_MS, NOW_MS, create_topic
from tests.contracts.stored_groups import TOPIC, commit, later, offsets, take, write
from tests.contracts.stored_transactions import PRODUCER, begin, decide, pend, pending_commit, waiting
from tiered.errors import (
    ConcurrentTransactions,
    CoordinatorNotAvailable,
    IllegalGeneration,
    InvalidProducerIdMapping,
    InvalidTransactionState,
    NotCoordinator,
    ProducerFenced,
    TieredError,
)
from tiered.meta import coordinator_slots, group_offsets, groups, topics, transaction_offsets
from tiered.meta.engine import Database
from tiered.meta.group_offsets import OffsetEntry
from tiered.meta.groups import GroupRow
from tiered.meta.transaction_offsets import PendingCommit
from tiered.rules.transactions.transaction_state import ProducerIdAndEpoch, TransactionState

pytest_plugins = ["tests.meta_databases"]

OTHER = PRODUCER + 1


def pended(database: Database) -> dict[tuple[int, int], int]:
    """(partition, producer id) -> offset"""
    query = text("SELECT partition, producer_id, committed_offset FROM transaction_offset")
    rows = database.run_sync(lambda conn: conn.execute(query).all())
    return {(row[0], row[1]): row[2] for row in rows}


def test_an_offset_in_a_transaction_is_not_the_groups_until_it_is_committed(database: Database) -> None:
    by = take(database)
    begin(database)
    assert pend(database, by, pending_commit(7), pending_commit(9, partition=1)).refused == {}
    assert (offsets(database), waiting(database)) == ({}, {0, 1})
    decide(database, committed=(PRODUCER,))
    assert (offsets(database), waiting(database)) == ({0: 7, 1: 9}, set())
    row, _ = database.run_sync(lambda conn: group_offsets.load(conn, "billing", limit=10))
    assert (row.topic_id, row.metadata, row.committed_at_ms, row.leader_epoch) == (TOPIC, "at 7", NOW_MS + 7, -1)


def test_an_aborted_transactions_offsets_are_gone_and_nobody_elses(database: Database) -> None:
    by = take(database)
    begin(database)
    begin(database, OTHER)
    write(database, by, commit(5))
    pend(database, later(by, number=2), pending_commit(7), pending_commit(9, producer_id=OTHER, partition=1))
    decide(database, aborted=(PRODUCER,))
    assert (offsets(database), waiting(database)) == ({0: 5}, {1})


def test_one_decision_is_about_many_transactions_and_groups(database: Database) -> None:
    by = take(database)
    ids = range(PRODUCER, PRODUCER + 300)
    for producer_id in ids:
        begin(database, producer_id)
    batch = [pending_commit(each, producer_id=each, group=f"g{each}", slot=each % 4) for each in ids]
    assert pend(database, by, *batch).refused == {}
    decide(database, committed=tuple(ids[::2]), aborted=tuple(ids[1::2]))
    for each in ids[:6]:
        assert offsets(database, f"g{each}") == ({0: each} if each % 2 == 0 else {})
        assert waiting(database, f"g{each}") == set()


def test_a_transaction_takes_no_more_offsets_than_its_end_can_decide(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction_offsets, "MAX_OF_TRANSACTION", 3)
    by = take(database)
    begin(database)
    begin(database, OTHER)
    assert pend(database, by, *(pending_commit(1, partition=number) for number in range(2))).refused == {}
    more = [pending_commit(1, partition=2), pending_commit(1, partition=3), pending_commit(1, producer_id=OTHER)]
    refused = pend(database, later(by, number=2), *more).refused
    assert {number: type(error) for number, error in refused.items()} == {1: InvalidTransactionState}
    assert pended(database).keys() == {(0, PRODUCER), (1, PRODUCER), (2, PRODUCER), (0, OTHER)}


def test_of_two_offsets_that_one_transaction_sends_for_a_partition_the_later_one_counts(database: Database) -> None:
    by = take(database)
    begin(database)
    pend(database, by, pending_commit(9), pending_commit(4))
    pend(database, later(by, number=2), pending_commit(3))
    assert pended(database) == {(0, PRODUCER): 3}
    with pytest.raises(NotCoordinator, match="newer coordinator"):
        pend(database, by, pending_commit(8), pending_commit(8, partition=1))
    assert pended(database) == {(0, PRODUCER): 3}, "all of an old batch or nothing"


def test_what_the_group_committed_after_the_offset_was_sent_stays(database: Database) -> None:
    by = take(database)
    begin(database)
    pend(database, by, pending_commit(7), pending_commit(8, partition=1))
    write(database, later(by, number=2), commit(3))
    decide(database, committed=(PRODUCER,))
    assert offsets(database) == {0: 3, 1: 8}


def test_an_offset_that_was_sent_after_the_groups_last_commit_takes_its_place(database: Database) -> None:
    by = take(database)
    begin(database)
    write(database, by, commit(9))
    pend(database, later(by, number=2), pending_commit(4))
    decide(database, committed=(PRODUCER,))
    assert offsets(database) == {0: 4}


@pytest.mark.parametrize("first", [PRODUCER, OTHER])
def test_of_two_transactions_that_are_committed_at_once_the_one_that_sent_last_counts(
    database: Database, first: int
) -> None:
    by = take(database)
    second = PRODUCER + OTHER - first
    begin(database, first)
    begin(database, second)
    pend(database, by, pending_commit(7, producer_id=first))
    pend(database, later(by, number=2), pending_commit(6, producer_id=second))
    decide(database, committed=(PRODUCER, OTHER))
    assert offsets(database) == {0: 6}


@pytest.mark.parametrize(
    ("state", "sent", "refused"),
    [
        (TransactionState.ONGOING, {"transactional_id": "unknown"}, InvalidProducerIdMapping),
        (TransactionState.ONGOING, {"producer_epoch": 2}, ProducerFenced),
        (TransactionState.ONGOING, {"producer_epoch": 4}, ProducerFenced),
        (TransactionState.EMPTY, {}, InvalidTransactionState),
        (TransactionState.PREPARE_COMMIT, {}, ConcurrentTransactions),
        (TransactionState.PREPARE_ABORT, {}, ConcurrentTransactions),
        (TransactionState.COMPLETE_COMMIT, {}, InvalidTransactionState),
        (TransactionState.COMPLETE_ABORT, {}, InvalidTransactionState),
    ],
)
def test_an_offset_of_no_open_transaction_is_refused_and_the_rest_of_its_batch_is_not(
    database: Database, state: TransactionState, sent: dict[str, str | int], refused: type[TieredError]
) -> None:
    by = take(database)
    begin(database, OTHER)
    begin(database, state=state)
    bad = pending_commit(1, group="new", **sent)  # type: ignore[arg-type]
    outcome = pend(database, by, bad, pending_commit(2, producer_id=OTHER))
    assert {number: type(error) for number, error in outcome.refused.items()} == {0: refused}
    assert pended(database) == {(0, OTHER): 2}
    assert database.run_sync(lambda conn: groups.load(conn, "new")) is None


def test_another_producers_id_under_the_same_transactional_id_is_refused(database: Database) -> None:
    by = take(database)
    begin(database)
    other = pending_commit(1, producer_id=OTHER, transactional_id=f"t{PRODUCER}")
    assert isinstance(pend(database, by, other).refused[0], InvalidProducerIdMapping)


def test_a_coordinator_whose_slot_was_taken_writes_no_offset_in_a_transaction(database: Database) -> None:
    old = take(database)
    begin(database)
    take(database, broker_id=2)
    assert isinstance(pend(database, old, pending_commit(1)).refused[0], NotCoordinator)
    assert waiting(database) == set()


def test_after_the_slots_were_taken_again_an_old_write_of_a_transactions_offset_is_refused(database: Database) -> None:
    by = take(database)
    begin(database)
    database.run_sync(lambda conn: coordinator_slots.retake_own(conn, broker_id=1, broker_epoch=by.broker_epoch))
    assert isinstance(pend(database, by, pending_commit(1)).refused[0], CoordinatorNotAvailable)
    assert waiting(database) == set()


def test_an_older_generation_sends_no_offset_with_a_transaction(database: Database) -> None:
    by = take(database)
    begin(database)
    pend(database, by, pending_commit(1, generation=2))
    refused = pend(
        database,
        later(by, number=2),
        pending_commit(2, generation=1),
        pending_commit(3, generation=2, partition=1),
        pending_commit(4, generation=-1, partition=2),
    ).refused
    assert {number: type(error) for number, error in refused.items()} == {0: IllegalGeneration}
    assert pended(database) == {(0, PRODUCER): 1, (1, PRODUCER): 3, (2, PRODUCER): 4}


def test_a_group_that_sql_hears_of_first_by_a_transaction_has_a_row(database: Database) -> None:
    by = take(database)
    begin(database)
    pend(database, by, pending_commit(1, generation=4, slot=2))
    stored = database.run_sync(lambda conn: groups.load(conn, "billing"))
    assert stored is not None
    assert (stored.slot, stored.generation, stored.protocol_type) == (2, 4, "")


def test_plain_commits_and_those_of_transactions_are_written_together_and_refused_each_for_itself(
    database: Database,
) -> None:
    by = take(database)
    begin(database)
    row = GroupRow(group_id="billing", slot=0, kind=groups.CLASSIC, protocol_type="", generation=2, empty_since_ms=None)
    batch = [
        commit(1, generation=1),
        pending_commit(2, generation=1, partition=1),
        commit(3, slot=99, partition=2),
        pending_commit(4, producer_epoch=9, partition=3),
        commit(5, partition=4, group="other", slot=1),
        pending_commit(6, slot=99, partition=5),
    ]

    def write_all(number: int) -> dict[int, type[TieredError]]:
        writer = later(by, number=number)
        outcome = database.run_sync(lambda conn: transaction_offsets.write(conn, batch, [row], writer))
        return {place: type(error) for place, error in outcome.refused.items()}

    assert write_all(1) == {2: NotCoordinator, 3: ProducerFenced, 5: NotCoordinator}, "generation 1 ended after them"
    assert (offsets(database), offsets(database, "other"), pended(database)) == ({0: 1}, {4: 5}, {(1, PRODUCER): 2})
    assert write_all(2) == {
        0: IllegalGeneration,
        1: IllegalGeneration,
        2: NotCoordinator,
        3: ProducerFenced,
        5: NotCoordinator,
    }


def test_what_waits_is_told_by_topic_or_all_and_never_more_than_asked_for(database: Database) -> None:
    by = take(database)
    begin(database)
    begin(database, OTHER)
    other = uuid4()
    entries = tuple(OffsetEntry(topic_id=TOPIC, partition=number, offset=number) for number in range(20))
    for number, producer_id in enumerate((PRODUCER, OTHER), 1):
        sent = PendingCommit(
            group_id="billing",
            slot=0,
            generation=0,
            entries=(*entries, OffsetEntry(topic_id=other, partition=0, offset=1)),
            committed_at_ms=NOW_MS,
            transactional_id=f"t{producer_id}",
            producer=ProducerIdAndEpoch(producer_id, 3),
        )
        assert pend(database, later(by, number=number), sent).refused == {}

    def count(topic_ids: set[UUID] | None, limit: int) -> int:
        question = lambda conn: transaction_offsets.pending(conn, "billing", topic_ids=topic_ids, limit=limit)  # noqa: E731
        return len(database.run_sync(question))

    assert [count(None, 100), count(None, 5), count({other}, 100), count(set(), 100)] == [21, 5, 1, 0]


def test_a_deleted_group_gets_nothing_back_by_a_transaction_that_is_committed_later(database: Database) -> None:
    by = take(database)
    begin(database)
    pend(database, by, pending_commit(1), pending_commit(2, group="other"))
    assert database.run_sync(lambda conn: groups.remove(conn, "billing"))
    decide(database, committed=(PRODUCER,))
    assert (offsets(database), offsets(database, "other")) == ({}, {0: 2})


def test_a_deleted_offset_does_not_come_back_by_a_transaction_that_is_committed_later(database: Database) -> None:
    by = take(database)
    begin(database)
    begin(database, OTHER)
    pend(database, by, pending_commit(1), pending_commit(2, partition=1), pending_commit(3, producer_id=OTHER))
    database.run_sync(lambda conn: group_offsets.remove(conn, "billing", [(TOPIC, 0), (TOPIC, 9)]))
    decide(database, committed=(PRODUCER, OTHER))
    assert offsets(database) == {1: 2}


def test_a_deleted_topics_offsets_wait_no_more(database: Database) -> None:
    by = take(database)
    begin(database)
    topic_id = database.run_sync(create_topic).topic_id
    sent = PendingCommit(
        group_id="billing",
        slot=0,
        generation=0,
        entries=tuple(OffsetEntry(topic_id=each, partition=0, offset=5) for each in (topic_id, TOPIC)),
        committed_at_ms=NOW_MS,
        transactional_id=f"t{PRODUCER}",
        producer=ProducerIdAndEpoch(PRODUCER, 3),
    )
    pend(database, by, sent)
    database.run_sync(lambda conn: topics.delete_topic(conn, topic_id, now_ms=NOW_MS, purge_after_ms=NOW_MS))
    decide(database, committed=(PRODUCER,))
    (left,) = database.run_sync(lambda conn: group_offsets.load(conn, "billing", limit=10))
    assert left.topic_id == TOPIC


def test_neither_an_offset_expires_for_which_another_waits_nor_the_row_of_its_group(database: Database) -> None:
    by = take(database)
    begin(database)
    row = GroupRow(
        group_id="idle", slot=0, kind=groups.CLASSIC, protocol_type="consumer", generation=0, empty_since_ms=1
    )
    write(database, by, commit(0), commit(0, partition=1), changed=(row,))
    pend(database, later(by, number=2), pending_commit(0), pending_commit(0, group="idle"))
    before_ms = NOW_MS + HOUR_MS
    names = ["billing", "idle"]
    database.run_sync(lambda conn: group_offsets.remove_old(conn, [("billing", TOPIC)], before_ms=before_ms))
    assert offsets(database) == {0: 0}
    expire = lambda conn: groups.remove_without_offsets(conn, names, empty_before_ms=before_ms)  # noqa: E731
    assert database.run_sync(expire) == ()
    decide(database, aborted=(PRODUCER,))
    assert database.run_sync(expire) == ("idle",)
