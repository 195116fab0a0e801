"""Transactions in SQL: what may be written over what, and by whom, on both databases."""

from dataclasses import replace
from itertools import pairwise
from uuid import UUID

import pytest

from tests.catalogue import NOW_MS
from tests.contracts.stored_groups import later, take
from tiered.errors import (
    CoordinatorNotAvailable,
    InvalidProducerIdMapping,
    InvalidTransactionState,
    NotCoordinator,
    ProducerFenced,
)
from tiered.ids import TopicId, TopicPartition
from tiered.meta import transaction_offsets, transactions
from tiered.meta.coordinator_slots import tenure_of
from tiered.meta.engine import Database
from tiered.meta.group_offsets import OffsetEntry, WriteOutcome, WritingCoordinator
from tiered.meta.transaction_offsets import PendingCommit
from tiered.meta.transactions import TransactionChange
from tiered.rules.groups.coordinator_slot import coordinator_slot
from tiered.rules.security.authorization import NameScope
from tiered.rules.transactions.transaction_state import (
    PreparedTransaction,
    ProducerIdAndEpoch,
    Transaction,
    TransactionState,
    completed,
    ended,
    fenced,
    with_partitions,
)

pytest_plugins = ["tests.meta_databases"]

PARTITIONS = frozenset(TopicPartition(TopicId(UUID(int=1)), number) for number in range(3))


def fresh(name: str = "payments", producer_id: int = 7) -> Transaction:
    return Transaction(
        transactional_id=name,
        producer_id=producer_id,
        producer_epoch=0,
        timeout_ms=60_000,
        state=TransactionState.EMPTY,
        changed_at_ms=NOW_MS,
    )


def begun(now: Transaction) -> Transaction:
    return with_partitions(now, ProducerIdAndEpoch(now.producer_id, now.producer_epoch), PARTITIONS, now_ms=NOW_MS)


def decided(now: Transaction, *, commits: bool = True) -> Transaction:
    producer = ProducerIdAndEpoch(now.producer_id, now.producer_epoch)
    return ended(now, producer, commits=commits, now_ms=NOW_MS).after


def write(
    database: Database, by: WritingCoordinator, *steps: tuple[Transaction | None, Transaction], slot: int = 0
) -> WriteOutcome:
    tenure = tenure_of(by.slot_epochs[slot])
    made = [TransactionChange(slot=slot, tenure=tenure, before=before, after=after) for before, after in steps]
    return database.run_sync(lambda conn: transactions.write(conn, made, by))


def stored(database: Database, name: str = "payments") -> Transaction | None:
    return database.run_sync(lambda conn: transactions.load(conn, name))


def test_every_step_of_a_transaction_is_read_as_it_was_written(database: Database) -> None:
    by = take(database)
    steps: list[Transaction | None] = [None, fresh()]
    steps.append(replace(begun(fresh()), last_producer_epoch=3, previous_producer_id=6, next_producer_id=9, protocol=2))
    for step in (decided, lambda now: completed(now, now_ms=NOW_MS + 5), begun, lambda now: fenced(now, now_ms=NOW_MS)):
        assert steps[-1] is not None
        steps.append(step(steps[-1]))
    for before, after in pairwise(steps):
        assert after is not None
        assert not write(database, by, (before, after)).refused
        assert stored(database) == after


@pytest.mark.parametrize("numbers", [(0, 1, 2), (0, 1, 2, 3), (1, 3)])
def test_the_next_transaction_may_be_written_over_the_last_decision(
    database: Database, numbers: tuple[int, ...]
) -> None:
    """SQL need not hear in between that the last one is complete. The partitions are those of the next one alone."""
    by = take(database)
    partitions = frozenset(TopicPartition(TopicId(UUID(int=1)), number) for number in numbers)
    last = decided(begun(fresh()))
    after = with_partitions(completed(last, now_ms=NOW_MS), ProducerIdAndEpoch(7, 0), partitions, now_ms=NOW_MS + 1)
    for before, step in pairwise([None, fresh(), begun(fresh()), last, after]):
        assert step is not None
        assert not write(database, by, (before, step)).refused
    assert stored(database) == after


def test_many_are_written_at_once_each_with_its_own_partitions(database: Database) -> None:
    by = take(database)
    made = [fresh(f"id-{number:04}", number) for number in range(700)]
    assert not write(database, by, *((None, each) for each in made)).refused
    assert not write(database, by, *((each, begun(each)) for each in made)).refused
    assert stored(database, "id-0699") == begun(made[-1])
    listed = database.run_sync(lambda conn: transactions.load_some(conn, slots=[0, 1], after="id-0009", limit=3))
    assert [each.transactional_id for each in listed] == ["id-0010", "id-0011", "id-0012"]
    assert listed[0].partitions == PARTITIONS
    scope = NameScope(frozenset({"id-0003"}), ("id-069",))
    some = database.run_sync(lambda conn: transactions.load_some(conn, slots=[0], after="", limit=99, scope=scope))
    assert [each.transactional_id for each in some] == ["id-0003", *(f"id-069{number}" for number in range(10))]


@pytest.mark.parametrize("wrong", [{"producer_id": 8}, {"producer_epoch": 1}, {"state": TransactionState.ONGOING}])
def test_a_transition_that_begins_with_something_else_than_what_is_stored_is_refused(
    database: Database, wrong: dict[str, object]
) -> None:
    by = take(database)
    other = fresh("other", 8)
    write(database, by, (None, fresh()), (None, other))
    before = replace(fresh(), **wrong)  # type: ignore[arg-type]
    outcome = write(database, by, (before, replace(fresh(), producer_epoch=5)), (other, begun(other)))
    assert {number: type(error) for number, error in outcome.refused.items()} == {0: NotCoordinator}
    assert (stored(database), stored(database, "other")) == (fresh(), begun(other))
    for absent in ((None, replace(fresh(), producer_epoch=5)), (fresh("new"), begun(fresh("new")))):
        assert write(database, by, absent).refused


def test_a_coordinator_whose_slot_was_taken_can_decide_nothing_more(database: Database) -> None:
    zombie = take(database)
    write(database, zombie, (None, fresh()))
    write(database, zombie, (fresh(), begun(fresh())))
    by = take(database, broker_id=2)
    outcome = write(database, zombie, (begun(fresh()), decided(begun(fresh()))))
    assert isinstance(outcome.refused[0], NotCoordinator)
    assert stored(database) == begun(fresh())
    assert not write(database, by, (begun(fresh()), decided(begun(fresh()), commits=False))).refused


def test_what_was_read_before_a_slot_went_away_and_came_back_is_no_ground_for_a_transition(database: Database) -> None:
    """Another holder has added partitions meanwhile, which changes neither the producer nor the state: a decision about
    those that were known before would leave the others open for ever."""
    by = take(database)
    known = replace(begun(fresh()), partitions=frozenset(sorted(PARTITIONS)[:1]))
    write(database, by, (None, known))
    write(database, take(database, broker_id=2), (known, begun(fresh())))
    back = take(database)
    stale = TransactionChange(slot=0, tenure=tenure_of(by.slot_epochs[0]), before=known, after=decided(known))
    outcome = database.run_sync(lambda conn: transactions.write(conn, [stale], back))
    assert isinstance(outcome.refused[0], NotCoordinator)
    assert stored(database) == begun(fresh())


def test_an_epoch_of_the_slot_that_this_broker_has_yet_to_learn_is_told_apart(database: Database) -> None:
    by = take(database)
    old = replace(by, slot_epochs={slot: epoch - 1 for slot, epoch in by.slot_epochs.items()})
    assert isinstance(write(database, old, (None, fresh())).refused[0], CoordinatorNotAvailable)


def test_what_is_open_or_decided_is_found_by_its_slot(database: Database) -> None:
    by = take(database)
    kinds = {
        "empty": fresh("empty"),
        "open": begun(fresh("open")),
        "commits": decided(begun(fresh("commits"))),
        "aborts": decided(begun(fresh("aborts")), commits=False),
        "complete": completed(decided(begun(fresh("complete"))), now_ms=NOW_MS),
    }
    write(database, by, *((None, each) for each in kinds.values()))
    write(database, by, (None, begun(fresh("elsewhere"))), slot=1)
    found = database.run_sync(lambda conn: transactions.load_open(conn, [0, 2]))
    assert found == (kinds["aborts"], kinds["commits"], kinds["open"])

    def some(after: str) -> tuple[Transaction, ...]:
        return database.run_sync(
            lambda conn: transactions.load_some(conn, slots=[0, 2], after=after, limit=2, open_only=True)
        )

    assert (some(""), some("commits")) == (found[:2], found[2:])
    assert database.run_sync(lambda conn: transactions.load_decided(conn, [0, 2])) == found[:2]


def test_only_what_is_idle_for_long_enough_expires_and_only_in_slots_that_are_held(database: Database) -> None:
    by = take(database)
    old, recent = fresh("old"), replace(fresh("recent"), changed_at_ms=NOW_MS + 1)
    write(database, by, (None, old), (None, recent), (None, begun(fresh("open"))))
    write(database, by, (None, fresh("elsewhere")), slot=1)

    def expire(writer: WritingCoordinator) -> tuple[str, ...]:
        return database.run_sync(
            lambda conn: transactions.remove_expired(conn, slots=[0], before_ms=NOW_MS, limit=10, by=writer)
        )

    assert expire(replace(by, slot_epochs={})) == ()
    assert expire(by) == ("old",)
    assert [stored(database, name) is None for name in ("old", "recent", "open", "elsewhere")] == [True, *[False] * 3]


def test_every_transactional_id_gets_its_slot_among_another_number(database: Database) -> None:
    by = take(database)
    names = [f"id-{number}" for number in range(50)]
    write(database, by, *((None, fresh(name)) for name in names))
    take(database, slot_count=7)
    for slot in range(7):
        found = {each.transactional_id for each in _of_slot(database, slot)}
        assert found == {name for name in names if coordinator_slot(name, 7) == slot}


def _of_slot(database: Database, slot: int) -> tuple[Transaction, ...]:
    return database.run_sync(lambda conn: transactions.load_some(conn, slots=[slot], after="", limit=99))


def test_a_later_commit_number_is_no_reason_to_refuse(database: Database) -> None:
    by = take(database)
    write(database, later(by, number=9), (None, fresh()))
    assert not write(database, by, (fresh(), begun(fresh()))).refused


# Many at once


def together(database: Database, *open_: Transaction, key: str | None = "batch 7") -> bool:
    prepared = [
        PreparedTransaction(
            transactional_id=each.transactional_id,
            producer=ProducerIdAndEpoch(each.producer_id, each.producer_epoch),
        )
        for each in open_
    ]
    return database.run_sync(
        lambda conn: transactions.decide_together(conn, prepared, commit_key=key, now_ms=NOW_MS + 1)
    )


def opened(database: Database, count: int) -> list[Transaction]:
    """In different slots."""
    by = take(database)
    made = [begun(fresh(f"task-{number:04}", 100 + number)) for number in range(count)]
    for slot in range(4):
        write(database, by, *((None, each) for each in made[slot::4]), slot=slot)
    return made


def states(database: Database, names: list[Transaction]) -> set[TransactionState]:
    found = [stored(database, each.transactional_id) for each in names]
    return {each.state for each in found if each is not None}


def test_many_transactions_of_many_slots_are_committed_in_one_step_and_once_under_a_key(database: Database) -> None:
    made = opened(database, 600)
    assert together(database, *made)
    assert states(database, made) == {TransactionState.PREPARE_COMMIT}
    after = stored(database, made[0].transactional_id)
    assert after is not None
    assert (after.producer_epoch, after.partitions) == (made[0].producer_epoch + 1, PARTITIONS)
    assert not together(database, *made), "what is committed stays so"
    assert states(database, made) == {TransactionState.PREPARE_COMMIT}


def test_what_comes_again_under_a_used_key_is_aborted(database: Database) -> None:
    made = opened(database, 4)
    assert together(database, *made[:2])
    assert not together(database, *made[2:])
    assert states(database, made[:2]) == {TransactionState.PREPARE_COMMIT}
    assert states(database, made[2:]) == {TransactionState.PREPARE_ABORT}
    assert together(database, key="batch 8"), "nothing is something, too"


def test_where_one_cannot_be_committed_none_is_and_the_key_is_free(database: Database) -> None:
    made = opened(database, 3)
    for bad in (replace(made[2], producer_epoch=9), replace(made[2], transactional_id="nobody"), fresh("empty", 300)):
        with pytest.raises((ProducerFenced, InvalidProducerIdMapping, InvalidTransactionState)):
            together(database, *made[:2], bad)
    assert states(database, made) == {TransactionState.ONGOING}
    assert together(database, *made)


def test_what_one_step_cannot_decide_is_not_begun(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would take SQL longer than it may, again and again."""
    made = opened(database, 2)
    by = take(database)
    for each in made:
        commits = [
            PendingCommit(
                group_id="billing",
                slot=0,
                generation=-1,
                entries=(OffsetEntry(topic_id=UUID(int=1), partition=0, offset=5),),
                committed_at_ms=NOW_MS,
                transactional_id=each.transactional_id,
                producer=each.told,
            )
        ]
        database.run_sync(lambda conn, commits=commits: transaction_offsets.pend(conn, commits, by))  # type: ignore[misc]
    monkeypatch.setattr(transaction_offsets, "MAX_OF_TRANSACTION", 1)
    with pytest.raises(InvalidTransactionState, match="2 offsets"):
        together(database, *made)
    assert states(database, made) == {TransactionState.ONGOING}
    assert together(database, *made[:1])


def test_without_a_key_what_is_open_of_them_is_aborted(database: Database) -> None:
    made = opened(database, 3)
    assert not together(database, *made[:2], replace(made[2], producer_epoch=9), fresh("nobody", 5), key=None)
    assert states(database, made[:2]) == {TransactionState.PREPARE_ABORT}
    assert states(database, made[2:]) == {TransactionState.ONGOING}


def test_keys_are_forgotten_in_the_end(database: Database) -> None:
    assert together(database)
    database.run_sync(lambda conn: transactions.remove_old_commits(conn, before_ms=NOW_MS + 1))
    assert not together(database)
    database.run_sync(lambda conn: transactions.remove_old_commits(conn, before_ms=NOW_MS + 2))
    assert together(database)
