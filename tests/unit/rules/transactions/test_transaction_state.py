"""The table of a transactional id's states: who may do what next, and what a repeated request is told."""

from dataclasses import replace
from uuid import UUID

import pytest

from tiered.errors import (
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    InvalidTransactionState,
    ProducerFenced,
    TransactionAbortable,
)
from tiered.ids import TopicId, TopicPartition
from tiered.rules.transactions import transaction_state
from tiered.rules.transactions.transaction_state import (
    KEEPS_EPOCH,
    MAX_PRODUCER_EPOCH,
    RAISES_EPOCH,
    Initialized,
    ProducerIdAndEpoch,
    Transaction,
    TransactionState,
    ended,
    with_partitions,
)

FIRST = TopicPartition(TopicId(UUID(int=1)), 0)
SECOND = TopicPartition(TopicId(UUID(int=1)), 1)
FRESH = 900
NEARLY_EXHAUSTED = MAX_PRODUCER_EPOCH - 1
OPEN, EMPTY = TransactionState.ONGOING, TransactionState.EMPTY
DECIDED = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
COMPLETE = (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


def transaction(state: TransactionState = OPEN, epoch: int = 4, **changes: object) -> Transaction:
    is_open = state is OPEN or state.is_decided
    return replace(
        Transaction(
            transactional_id="payments",
            producer_id=7,
            producer_epoch=epoch,
            timeout_ms=60_000,
            state=state,
            partitions=frozenset({FIRST}) if is_open else frozenset(),
            started_at_ms=1_000 if is_open else None,
            changed_at_ms=1_000,
        ),
        **changes,  # type: ignore[arg-type]
    )


def by(epoch: int = 4, producer_id: int = 7) -> ProducerIdAndEpoch:
    return ProducerIdAndEpoch(producer_id, epoch)


def initialized(now: Transaction | None, claimed: ProducerIdAndEpoch | None = None) -> Initialized:
    return transaction_state.initialized(
        now, claimed, transactional_id="payments", timeout_ms=30_000, fresh_producer_id=FRESH, now_ms=2_000
    )


def end(
    now: Transaction | None, *, commits: bool, protocol: int, producer: ProducerIdAndEpoch | None = None
) -> Transaction:
    found = ended(now, producer or by(), commits=commits, protocol=protocol, fresh_producer_id=FRESH, now_ms=3_000)
    return found.after


# InitProducerId


def test_an_unknown_id_begins_at_epoch_0_with_a_fresh_producer_id() -> None:
    after = initialized(None).after
    assert (after.producer_id, after.producer_epoch, after.state) == (FRESH, 0, EMPTY)
    assert initialized(None, by(3)).after == after


@pytest.mark.parametrize("state", [EMPTY, *COMPLETE])
def test_a_new_producer_raises_the_epoch_and_keeps_the_id(state: TransactionState) -> None:
    after = initialized(transaction(state)).after
    assert (after.producer_id, after.producer_epoch, after.state, after.timeout_ms) == (7, 5, EMPTY, 30_000)
    with pytest.raises(ProducerFenced):
        with_partitions(after, by(4), frozenset({FIRST}), now_ms=2_000)


def test_an_epoch_that_is_used_up_gets_a_fresh_producer_id() -> None:
    now = transaction(EMPTY, NEARLY_EXHAUSTED)
    assert transaction_state.needs_producer_id(now)
    after = initialized(now, by(NEARLY_EXHAUSTED)).after
    assert (after.producer_id, after.producer_epoch) == (FRESH, 0)
    assert initialized(after, by(NEARLY_EXHAUSTED)).after is after, "the retry of the same producer"
    with pytest.raises(ProducerFenced):
        initialized(initialized(now).after, by(NEARLY_EXHAUSTED))


@pytest.mark.parametrize("claimed", [None, by(4)])
def test_an_open_transaction_is_aborted_under_a_raised_epoch_before_anything_else(
    claimed: ProducerIdAndEpoch | None,
) -> None:
    found = initialized(transaction(), claimed)
    assert found.ends_open
    assert (found.after.state, found.after.producer_epoch) == (TransactionState.PREPARE_ABORT, 5)
    assert found.after.partitions == {FIRST}
    with pytest.raises(ConcurrentTransactions):
        initialized(found.after, claimed)
    done = transaction_state.completed(found.after, now_ms=2_500)
    assert initialized(done, claimed).after.producer_epoch == (6 if claimed is None else 5)


def test_a_retry_is_answered_with_what_the_first_request_led_to() -> None:
    after = initialized(transaction(EMPTY), by(4)).after
    assert after.producer_epoch == 5
    assert initialized(after, by(4)).after is after


@pytest.mark.parametrize("state", TransactionState)
@pytest.mark.parametrize("claimed", [by(3), by(5), by(4, producer_id=8)])
def test_a_producer_that_was_replaced_can_change_nothing(state: TransactionState, claimed: ProducerIdAndEpoch) -> None:
    now = transaction(state)
    with pytest.raises(ProducerFenced):
        initialized(now, claimed)


def test_the_highest_epoch_is_given_to_nobody() -> None:
    found = initialized(transaction(OPEN, NEARLY_EXHAUSTED), by(NEARLY_EXHAUSTED))
    assert found.after.producer_epoch == MAX_PRODUCER_EPOCH
    done = transaction_state.completed(found.after, now_ms=2_500)
    after = initialized(done, by(NEARLY_EXHAUSTED)).after
    assert (after.producer_id, after.producer_epoch) == (FRESH, 0)


# Partitions


@pytest.mark.parametrize("state", [EMPTY, *COMPLETE])
def test_the_first_partition_begins_a_transaction(state: TransactionState) -> None:
    after = with_partitions(transaction(state), by(), frozenset({FIRST}), protocol=RAISES_EPOCH, now_ms=2_000)
    assert (after.state, after.partitions, after.started_at_ms, after.protocol) == (
        OPEN,
        frozenset({FIRST}),
        2_000,
        RAISES_EPOCH,
    )


def test_further_partitions_join_it_and_known_ones_change_nothing() -> None:
    now = transaction()
    after = with_partitions(now, by(), frozenset({FIRST, SECOND}), now_ms=2_000)
    assert (after.partitions, after.started_at_ms) == (frozenset({FIRST, SECOND}), 1_000)
    assert with_partitions(after, by(), frozenset({SECOND}), now_ms=3_000) is after


@pytest.mark.parametrize("state", DECIDED)
def test_nothing_joins_a_transaction_that_is_being_ended(state: TransactionState) -> None:
    with pytest.raises(ConcurrentTransactions):
        with_partitions(transaction(state), by(), frozenset({SECOND}), now_ms=2_000)
    renamed = transaction(state, next_producer_id=FRESH)
    with pytest.raises(ConcurrentTransactions):
        with_partitions(renamed, by(0, producer_id=FRESH), frozenset({SECOND}), now_ms=2_000)


def test_only_the_present_producer_adds_partitions() -> None:
    for now in (None, transaction(producer_id=8)):
        with pytest.raises(InvalidProducerIdMapping):
            with_partitions(now, by(), frozenset({FIRST}), now_ms=2_000)
    for epoch in (3, 5):
        with pytest.raises(ProducerFenced):
            with_partitions(transaction(), by(epoch), frozenset({FIRST}), now_ms=2_000)


def test_a_producer_may_write_to_the_partitions_of_its_open_transaction_alone() -> None:
    transaction_state.check_partition(transaction(), by(), FIRST)
    for now, partition in ((transaction(), SECOND), (transaction(EMPTY), FIRST), (transaction(COMPLETE[0]), FIRST)):
        with pytest.raises(TransactionAbortable):
            transaction_state.check_partition(now, by(), partition)
    for state in DECIDED:
        with pytest.raises(ConcurrentTransactions):
            transaction_state.check_partition(transaction(state), by(), FIRST)


def test_offsets_are_sent_with_an_open_transaction_of_the_present_producer_alone() -> None:
    transaction_state.check_ongoing(transaction(), by())
    refused = [
        (None, InvalidProducerIdMapping),
        (transaction(producer_id=8), InvalidProducerIdMapping),
        (transaction(epoch=5), ProducerFenced),
        *((transaction(state), ConcurrentTransactions) for state in DECIDED),
        *((transaction(state), InvalidTransactionState) for state in (EMPTY, *COMPLETE)),
    ]
    for now, error in refused:
        with pytest.raises(error):
            transaction_state.check_ongoing(now, by())


# EndTxn


@pytest.mark.parametrize(
    ("commits", "decided", "complete"), [(True, DECIDED[0], COMPLETE[0]), (False, DECIDED[1], COMPLETE[1])]
)
@pytest.mark.parametrize(("protocol", "epoch"), [(KEEPS_EPOCH, 4), (RAISES_EPOCH, 5)])
def test_an_end_is_decided_and_then_carried_out(
    commits: bool, decided: TransactionState, complete: TransactionState, protocol: int, epoch: int
) -> None:
    after = end(transaction(), commits=commits, protocol=protocol)
    assert (after.state, after.producer_epoch, after.partitions) == (decided, epoch, frozenset({FIRST}))
    assert after.told == by(epoch)
    done = transaction_state.completed(after, now_ms=4_000)
    assert (done.state, done.told, done.partitions, done.started_at_ms) == (complete, by(epoch), frozenset(), None)


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("protocol", [KEEPS_EPOCH, RAISES_EPOCH])
@pytest.mark.parametrize("epoch", [4, NEARLY_EXHAUSTED])
def test_a_repeated_end_is_answered_as_the_first_was_and_the_contrary_is_refused(
    commits: bool, protocol: int, epoch: int
) -> None:
    after = end(transaction(OPEN, epoch), commits=commits, protocol=protocol, producer=by(epoch))
    for now in (after, transaction_state.completed(after, now_ms=4_000)):
        assert end(now, commits=commits, protocol=protocol, producer=by(epoch)) is now
        assert now.told == after.told
        with pytest.raises(InvalidTransactionState):
            end(now, commits=not commits, protocol=protocol, producer=by(epoch))


def test_where_the_epoch_is_used_up_the_next_transaction_has_a_fresh_producer_id() -> None:
    after = end(transaction(OPEN, NEARLY_EXHAUSTED), commits=True, protocol=RAISES_EPOCH, producer=by(NEARLY_EXHAUSTED))
    assert (after.producer_id, after.producer_epoch) == (7, MAX_PRODUCER_EPOCH), "as the markers have it"
    assert after.told == by(0, producer_id=FRESH)
    done = transaction_state.completed(after, now_ms=4_000)
    assert (done.producer_id, done.producer_epoch, done.next_producer_id) == (FRESH, 0, -1)
    begun = with_partitions(done, done.told, frozenset({SECOND}), protocol=RAISES_EPOCH, now_ms=5_000)
    with pytest.raises(InvalidProducerIdMapping):
        end(begun, commits=True, protocol=RAISES_EPOCH, producer=by(NEARLY_EXHAUSTED))


def test_in_protocol_2_a_late_end_never_ends_the_next_transaction() -> None:
    done = transaction_state.completed(end(transaction(), commits=False, protocol=RAISES_EPOCH), now_ms=4_000)
    begun = with_partitions(done, by(5), frozenset({SECOND}), protocol=RAISES_EPOCH, now_ms=5_000)
    for commits in (True, False):
        with pytest.raises(ProducerFenced):
            end(begun, commits=commits, protocol=RAISES_EPOCH, producer=by(4))


@pytest.mark.parametrize("state", [EMPTY, *COMPLETE])
def test_in_protocol_2_an_abort_of_what_has_not_begun_raises_the_epoch(state: TransactionState) -> None:
    after = end(transaction(state), commits=False, protocol=RAISES_EPOCH)
    assert (after.state, after.producer_epoch) == (COMPLETE[1], 5)
    assert end(after, commits=False, protocol=RAISES_EPOCH) is after, "the retry"
    with pytest.raises(InvalidTransactionState):
        end(transaction(state), commits=True, protocol=RAISES_EPOCH)


@pytest.mark.parametrize("state", DECIDED)
def test_in_protocol_2_the_end_of_the_next_transaction_waits_for_the_last_ones(state: TransactionState) -> None:
    with pytest.raises(ConcurrentTransactions):
        end(transaction(state), commits=False, protocol=RAISES_EPOCH)
    with pytest.raises(ConcurrentTransactions):
        end(
            transaction(state, next_producer_id=FRESH),
            commits=False, protocol=RAISES_EPOCH, producer=by(0, producer_id=FRESH),
        )  # fmt: skip


def test_in_protocol_1_nothing_that_is_not_open_can_be_ended() -> None:
    for commits in (True, False):
        with pytest.raises(InvalidTransactionState):
            end(transaction(EMPTY), commits=commits, protocol=KEEPS_EPOCH)
    with pytest.raises(InvalidTransactionState):
        end(transaction(COMPLETE[0]), commits=False, protocol=KEEPS_EPOCH)


def test_only_the_present_producer_ends_a_transaction() -> None:
    for protocol in (KEEPS_EPOCH, RAISES_EPOCH):
        for now in (None, transaction(producer_id=8)):
            with pytest.raises(InvalidProducerIdMapping):
                end(now, commits=True, protocol=protocol)
        for epoch in (3, 5):
            with pytest.raises(ProducerFenced):
                end(transaction(), commits=True, protocol=protocol, producer=by(epoch))


# The coordinator's own


def test_whoever_is_fenced_can_neither_write_nor_commit_nor_come_back() -> None:
    after = transaction_state.fenced(transaction(), now_ms=70_000)
    assert (after.state, after.producer_epoch, after.partitions) == (DECIDED[1], 5, frozenset({FIRST}))
    done = transaction_state.completed(after, now_ms=71_000)
    for now in (after, done):
        for protocol in (KEEPS_EPOCH, RAISES_EPOCH):
            with pytest.raises(ProducerFenced):
                end(now, commits=True, protocol=protocol)
        with pytest.raises(ProducerFenced):
            initialized(now, by(4))


def test_only_what_is_open_times_out() -> None:
    assert transaction_state.is_timed_out(transaction(), 61_001)
    assert not transaction_state.is_timed_out(transaction(), 61_000)
    for state in (EMPTY, *DECIDED, *COMPLETE):
        assert not transaction_state.is_timed_out(transaction(state, started_at_ms=1_000), 10**12)


def test_the_next_look_is_when_the_first_times_out_within_its_bounds() -> None:
    def until(*ends_ms: int, now_ms: int = 11_000) -> float:
        return transaction_state.until_time_out_ms(ends_ms, now_ms, least_ms=1_000, most_ms=60_000)

    assert until() == 60_000
    assert until(61_000) == 50_000
    assert until(61_000, 21_000) == 10_000
    assert until(61_000, 21_000, now_ms=20_500) == until(21_000, now_ms=99_000) == 1_000


def test_only_what_is_idle_expires() -> None:
    for state in (EMPTY, *COMPLETE):
        assert transaction_state.is_expired(transaction(state), 11_000, 10_000)
        assert not transaction_state.is_expired(transaction(state), 10_999, 10_000)
    for state in (OPEN, *DECIDED):
        assert not transaction_state.is_expired(transaction(state), 10**12, 10_000)
