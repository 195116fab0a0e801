"""What a transactional producer may do next, and what its transaction then is (KIP-98, 360, 890).

Owns the table of states as pure functions: each takes the transaction as SQL has it and returns what SQL shall have,
or raises what the client is told. A transition counts once SQL has it (R10). Must never decide whether a marker may be
written: `broker.partitions` does.

Two protocols live side by side. In protocol 1 a producer keeps its epoch from one transaction to the next. In protocol
2 each end raises the epoch, so that nothing late of one transaction can reach the next (KIP-890).
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from tiered.errors import (
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    InvalidTransactionState,
    ProducerFenced,
    TransactionAbortable,
)
from tiered.ids import TopicPartition

MAX_PRODUCER_EPOCH: Final = 2**15 - 1
"""No client ever gets it: the marker that fences a producer of the epoch below has it."""
NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
KEEPS_EPOCH, RAISES_EPOCH = 1, 2
"""The two protocols, by the level of `transaction.version` that they came with."""


class TransactionState(Enum):
    """Kafka's names, as tools show them and SQL stores them."""

    EMPTY = "Empty"
    """Nothing was written yet under the producer's epoch."""
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    """Decided: from here on the commit is carried out, whatever happens."""
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    """Every partition has its marker."""
    COMPLETE_ABORT = "CompleteAbort"

    @property
    def is_decided(self) -> bool:
        """Between the decision and the last marker."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_idle(self) -> bool:
        """Nothing is open, nor decided and not carried out."""
        return self is not TransactionState.ONGOING and not self.is_decided


@dataclass(frozen=True, slots=True)
class ProducerIdAndEpoch:
    """Who a producer says it is."""

    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedTransaction:
    """An open transaction that its producer has left to be decided with others, complete as it is."""

    transactional_id: str
    producer: ProducerIdAndEpoch


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """A transactional id: its producer, and the transaction that it has open or had last.

    `partitions` has those that were added since the transaction began, and none once it is complete. `started_at_ms` is
    None while no transaction is open. `next_producer_id` takes over when the present transaction is complete.
    `last_producer_epoch` and `previous_producer_id` are those before the last change that the producer asked for: by
    them its retry is known.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    last_producer_epoch: int = NO_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    timeout_ms: int
    state: TransactionState
    protocol: int = KEEPS_EPOCH
    partitions: frozenset[TopicPartition] = frozenset()
    started_at_ms: int | None = None
    changed_at_ms: int

    @property
    def is_exhausted(self) -> bool:
        """The next epoch is the last one, so the producer gets a new id in place of it."""
        return self.producer_epoch >= MAX_PRODUCER_EPOCH - 1

    @property
    def told(self) -> ProducerIdAndEpoch:
        """What the producer goes on with: its id and epoch once the transaction is complete."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return ProducerIdAndEpoch(self.next_producer_id, 0)
        return ProducerIdAndEpoch(self.producer_id, self.producer_epoch)


@dataclass(frozen=True, slots=True)
class Initialized:
    """What InitProducerId leads to. With `ends_open` the producer that had a transaction open is fenced and that is
    aborted; whoever asked asks again when that is complete."""

    after: Transaction
    ends_open: bool = False


def initialized(
    now: Transaction | None,
    claimed: ProducerIdAndEpoch | None,
    *,
    transactional_id: str,
    timeout_ms: int,
    fresh_producer_id: int | None,
    now_ms: int,
) -> Initialized:
    """What becomes of the transactional id when a producer initializes it; `after is now` for a repeated request.

    `claimed` is what the producer says it is, None for a new one, which fences every other. `fresh_producer_id` must be
    given where `needs_producer_id`. Raises ConcurrentTransactions while a transaction is being ended, ProducerFenced
    when a newer producer has the transactional id.
    """
    if now is None:
        assert fresh_producer_id is not None
        return Initialized(
            Transaction(
                transactional_id=transactional_id,
                producer_id=fresh_producer_id,
                producer_epoch=0,
                timeout_ms=timeout_ms,
                state=TransactionState.EMPTY,
                changed_at_ms=now_ms,
            )
        )
    is_retry = claimed is not None and _asks_again(now, claimed)
    if claimed is not None and not is_retry and claimed != ProducerIdAndEpoch(now.producer_id, now.producer_epoch):
        raise _fenced(now)
    if now.state.is_decided:
        raise _concurrent(now)
    if now.state is TransactionState.ONGOING:
        return Initialized(fenced(now, now_ms=now_ms, keeps_claim=claimed is not None), ends_open=True)
    if is_retry and now.producer_epoch < MAX_PRODUCER_EPOCH:
        return Initialized(now)
    after = replace(now, state=TransactionState.EMPTY, timeout_ms=timeout_ms, changed_at_ms=now_ms)
    last_producer_epoch = NO_EPOCH if claimed is None else now.producer_epoch
    if now.is_exhausted:
        assert fresh_producer_id is not None
        return Initialized(
            replace(
                after,
                producer_id=fresh_producer_id,
                producer_epoch=0,
                previous_producer_id=now.producer_id,
                last_producer_epoch=last_producer_epoch,
            )
        )
    return Initialized(
        replace(
            after,
            producer_epoch=now.producer_epoch + 1,
            previous_producer_id=NO_PRODUCER_ID,
            last_producer_epoch=last_producer_epoch,
        )
    )


def needs_producer_id(now: Transaction | None) -> bool:
    """True when `initialized`, or `ended` in protocol 2, may give the producer another id."""
    return now is None or now.is_exhausted


def fenced(now: Transaction, *, now_ms: int, keeps_claim: bool = False) -> Transaction:
    """The open transaction, aborted by its coordinator: a time-out, a new producer, or a person decided so.

    The epoch rises first: whatever the producer sends from here on is refused. Only with `keeps_claim` may the producer
    that had it go on, with the raised one.
    """
    assert now.state is TransactionState.ONGOING, now.state
    assert now.producer_epoch < MAX_PRODUCER_EPOCH
    return replace(
        now,
        state=TransactionState.PREPARE_ABORT,
        producer_epoch=now.producer_epoch + 1,
        last_producer_epoch=now.producer_epoch if keeps_claim else NO_EPOCH,
        previous_producer_id=NO_PRODUCER_ID,
        changed_at_ms=now_ms,
    )


def time_out_ms(now: Transaction) -> int | None:
    """The last moment at which the transaction may be open, as its producer had asked for; None when none is."""
    if now.state is not TransactionState.ONGOING or now.started_at_ms is None:
        return None
    return now.started_at_ms + now.timeout_ms


def is_timed_out(now: Transaction, now_ms: int) -> bool:
    """True when the transaction has been open for longer than its producer had asked for."""
    last_ms = time_out_ms(now)
    return last_ms is not None and now_ms > last_ms


def until_time_out_ms(ends_ms: Iterable[int], now_ms: int, *, least_ms: float, most_ms: float) -> float:
    """How long from now the first of these moments comes, within these bounds."""
    return min(most_ms, max(least_ms, min(ends_ms, default=now_ms + most_ms) - now_ms))


def is_expired(now: Transaction, now_ms: int, expiration_ms: int) -> bool:
    """True when nobody has used the transactional id for so long that it may be forgotten."""
    return now.state.is_idle and now_ms - now.changed_at_ms >= expiration_ms


def with_partitions(
    now: Transaction | None,
    producer: ProducerIdAndEpoch,
    added: frozenset[TopicPartition],
    *,
    protocol: int = KEEPS_EPOCH,
    now_ms: int,
) -> Transaction:
    """The transaction with these partitions in it, begun if none was open; `now` itself when all are in it already.

    With no partitions it is only begun: offsets are to be sent with it. Raises InvalidProducerIdMapping,
    ProducerFenced, and ConcurrentTransactions while the last one is being ended.
    """
    now = _of_producer(now, producer)
    if now.state is TransactionState.ONGOING:
        return now if added <= now.partitions else replace(now, partitions=now.partitions | added, changed_at_ms=now_ms)
    return replace(
        now,
        state=TransactionState.ONGOING,
        partitions=added,
        protocol=protocol,
        started_at_ms=now_ms,
        changed_at_ms=now_ms,
        last_producer_epoch=NO_EPOCH,
        previous_producer_id=NO_PRODUCER_ID,
    )


def check_partition(now: Transaction | None, producer: ProducerIdAndEpoch, partition: TopicPartition) -> None:
    """Returns when the producer may write to the partition: it is in its open transaction (KIP-890).

    Raises InvalidProducerIdMapping, ProducerFenced, ConcurrentTransactions, and TransactionAbortable where the
    partition is in no open transaction.
    """
    now = _of_producer(now, producer)
    if now.state is not TransactionState.ONGOING or partition not in now.partitions:
        raise TransactionAbortable(
            f"partition {partition.partition} is in no open transaction of {now.transactional_id}: abort it and begin "
            "another"
        )


def check_ongoing(now: Transaction | None, producer: ProducerIdAndEpoch) -> None:
    """Returns while the producer has a transaction open.

    Raises InvalidProducerIdMapping, ProducerFenced, ConcurrentTransactions, InvalidTransactionState.
    """
    now = _of_producer(now, producer)
    if now.state is not TransactionState.ONGOING:
        raise InvalidTransactionState(
            f"{now.transactional_id} has no open transaction: begin one before offsets are sent with it"
        )


@dataclass(frozen=True, slots=True)
class Ending:
    """What EndTxn leads to: `after is before` when it was decided so already, and nothing is to be done again."""

    before: Transaction
    after: Transaction


def ended(
    now: Transaction | None,
    producer: ProducerIdAndEpoch,
    *,
    commits: bool,
    protocol: int = KEEPS_EPOCH,
    fresh_producer_id: int | None = None,
    now_ms: int,
) -> Ending:
    """What the end of a transaction, by its producer, leads to. The producer then goes on as `after.told`.

    A repeated request is answered as the first was. In protocol 2 the abort of what has not begun raises the epoch all
    the same: the producer does not know what has reached us. `fresh_producer_id` must be given in protocol 2 where
    `needs_producer_id`. Raises InvalidProducerIdMapping, ProducerFenced, ConcurrentTransactions (the transaction is
    being ended in the other way), InvalidTransactionState.
    """
    if now is None:
        raise _unknown(producer)
    if protocol == RAISES_EPOCH and _asks_again(now, producer):
        if commits is _committed(now) and now.state not in (TransactionState.EMPTY, TransactionState.ONGOING):
            return Ending(now, now)
        raise InvalidTransactionState(_not_open(now, commits))
    if protocol == RAISES_EPOCH and now.state.is_decided and producer == now.told:
        raise _concurrent(now)  # It is the end of the next transaction, which cannot have begun.
    if now.producer_id != producer.producer_id:
        raise _unknown(producer)
    if now.producer_epoch != producer.producer_epoch:
        raise _fenced(now)
    if now.state is TransactionState.ONGOING:
        return Ending(now, _decided(now, commits, protocol, fresh_producer_id, now_ms))
    if protocol == KEEPS_EPOCH and now.state is not TransactionState.EMPTY and commits is _committed(now):
        return Ending(now, now)
    if protocol == RAISES_EPOCH and not commits:
        decided = _decided(replace(now, partitions=frozenset()), commits, protocol, fresh_producer_id, now_ms)
        return Ending(now, completed(decided, now_ms=now_ms))
    raise InvalidTransactionState(_not_open(now, commits))


def completed(now: Transaction, *, now_ms: int) -> Transaction:
    """The transaction after its last marker: a new producer id takes its place now, where there is one."""
    assert now.state.is_decided, now.state
    commits = now.state is TransactionState.PREPARE_COMMIT
    after = replace(
        now,
        state=TransactionState.COMPLETE_COMMIT if commits else TransactionState.COMPLETE_ABORT,
        partitions=frozenset(),
        started_at_ms=None,
        changed_at_ms=now_ms,
    )
    if now.next_producer_id == NO_PRODUCER_ID:
        return after
    return replace(
        after,
        producer_id=now.next_producer_id,
        producer_epoch=0,
        previous_producer_id=now.producer_id,
        next_producer_id=NO_PRODUCER_ID,
    )


def _decided(now: Transaction, commits: bool, protocol: int, fresh_producer_id: int | None, now_ms: int) -> Transaction:
    after = replace(
        now,
        state=TransactionState.PREPARE_COMMIT if commits else TransactionState.PREPARE_ABORT,
        protocol=protocol,
        previous_producer_id=NO_PRODUCER_ID,
        changed_at_ms=now_ms,
    )
    if protocol == KEEPS_EPOCH:
        return after
    after = replace(after, producer_epoch=now.producer_epoch + 1, last_producer_epoch=now.producer_epoch)
    if not now.is_exhausted:
        return after
    assert fresh_producer_id is not None
    return replace(after, next_producer_id=fresh_producer_id)


def _asks_again(now: Transaction, producer: ProducerIdAndEpoch) -> bool:
    """The producer's id and epoch were the ones before the last change that it asked for: it asks again."""
    previous = now.producer_id if now.previous_producer_id == NO_PRODUCER_ID else now.previous_producer_id
    return producer == ProducerIdAndEpoch(previous, now.last_producer_epoch)


def _of_producer(now: Transaction | None, producer: ProducerIdAndEpoch) -> Transaction:
    """The transaction where it is the producer's and may be written to."""
    if now is None:
        raise _unknown(producer)
    if now.state.is_decided and producer == now.told:
        raise _concurrent(now)
    if now.producer_id != producer.producer_id:
        raise _unknown(producer)
    if now.producer_epoch != producer.producer_epoch:
        raise _fenced(now)
    if now.state.is_decided:
        raise _concurrent(now)
    return now


def _committed(now: Transaction) -> bool:
    return now.state in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)


def _unknown(producer: ProducerIdAndEpoch) -> InvalidProducerIdMapping:
    return InvalidProducerIdMapping(
        f"producer id {producer.producer_id} does not belong to this transactional id: it expired, or another producer "
        "has it; close this producer and make a new one"
    )


def _fenced(now: Transaction) -> ProducerFenced:
    return ProducerFenced(
        f"transactional id {now.transactional_id} is at epoch {now.producer_epoch}: a newer producer has it, or the "
        "transaction timed out; close this producer"
    )


def _concurrent(now: Transaction) -> ConcurrentTransactions:
    return ConcurrentTransactions(f"the last transaction of {now.transactional_id} is being ended; retry in a moment")


def _not_open(now: Transaction, commits: bool) -> str:
    verb = "commit" if commits else "abort"
    return f"transactional id {now.transactional_id} has nothing to {verb}: its transaction is {now.state.value}"
