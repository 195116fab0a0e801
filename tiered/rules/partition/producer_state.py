"""The batches that a producer may append next, and those it has appended (KIP-98, KIP-360, KIP-890).

Owns the decision and the next state, as values. Pure: `broker.partitions.partition` keeps one entry per producer,
the log writes them into snapshots.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tiered.errors import (
    InvalidRequest,
    InvalidTransactionState,
    OutOfOrderSequence,
    StaleProducerEpoch,
    TransactionCoordinatorFenced,
)
from tiered.formats.control_record import TransactionMarker
from tiered.formats.producer_snapshot import ProducerBatch, ProducerEntry
from tiered.formats.record_batch import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader
from tiered.rules.transactions.transaction_state import ProducerIdAndEpoch

MAX_BATCHES = 5
"""How many of a producer's last batches are remembered: as many as a client has in flight at most."""

_SEQUENCES = 2**31


@dataclass(frozen=True, slots=True)
class Accept:
    """The batch is the producer's next one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicate:
    """The batch is in the log already, at these offsets: answer with them and append nothing."""

    base_offset: int
    last_offset: int
    timestamp_ms: int


ACCEPT = Accept()


def check(entry: ProducerEntry | None, header: BatchHeader) -> Accept | Duplicate:
    """Whether the batch is the next of its producer, or one that was appended before.

    A producer that is not known here may begin anywhere (its state may have expired). A new epoch begins
    at sequence 0. Sequences continue at 0 after 2^31 - 1. No control batch comes here, for no client may send one.

    Raises StaleProducerEpoch when a newer instance of the producer has written, OutOfOrderSequence when
    batches between the last one and this one are missing (or it is a duplicate older than the last five).
    """
    assert header.producer_id >= 0, "only batches of idempotent producers are checked"
    if entry is None:
        return ACCEPT
    if header.producer_epoch < entry.producer_epoch:
        raise StaleProducerEpoch(
            f"producer {header.producer_id} epoch {header.producer_epoch} is over, epoch {entry.producer_epoch} "
            "has written here; close this producer"
        )
    base_sequence = header.base_sequence
    if header.producer_epoch > entry.producer_epoch:
        expected = 0
    else:
        expected = next_sequence(entry)
        if base_sequence == expected:
            return ACCEPT
        last_sequence = header.last_sequence
        for batch in entry.batches:
            if batch.base_sequence == header.base_sequence and batch.last_sequence == last_sequence:
                return Duplicate(
                    base_offset=batch.base_offset, last_offset=batch.last_offset, timestamp_ms=batch.timestamp_ms
                )
    if header.base_sequence != expected:
        raise OutOfOrderSequence(
            f"producer {header.producer_id} epoch {header.producer_epoch}: sequence {header.base_sequence} came "
            f"where {expected} was expected; a batch before it is missing"
        )
    return ACCEPT


def next_sequence(entry: ProducerEntry) -> int:
    """The sequence that the producer's next batch in the same epoch begins with, 0 to 2^31 - 1."""
    if not entry.batches:
        return 0
    return (entry.batches[-1].last_sequence + 1) % _SEQUENCES


def has_open_transaction(entry: ProducerEntry | None, producer_epoch: int) -> bool:
    """Whether the producer has one open here in this epoch: then its coordinator has no need to be asked."""
    return (
        entry is not None
        and entry.current_transaction_first_offset is not None
        and entry.producer_epoch == producer_epoch
    )


def check_transaction(entry: ProducerEntry | None, header: BatchHeader, *, is_verified: bool) -> None:
    """Returns when the batch may stand where the producer's transaction is now.

    The first batch of a transaction needs its coordinator's word that the transaction is ongoing (`is_verified`): a
    late one would open a transaction that nobody ends. Raises InvalidTransactionState.
    """
    if header.is_transactional:
        if not is_verified and not has_open_transaction(entry, header.producer_epoch):
            raise InvalidTransactionState(
                f"producer {header.producer_id} epoch {header.producer_epoch} has no transaction here that its "
                "coordinator vouches for; abort it and begin another"
            )
    elif entry is not None and entry.current_transaction_first_offset is not None:
        raise InvalidTransactionState(
            f"producer {header.producer_id} has a transaction open here since offset "
            f"{entry.current_transaction_first_offset}, and this batch is not of it; end the transaction first"
        )


def check_marker(marker: TransactionMarker, producer: ProducerIdAndEpoch, *, newest_tenure: int) -> None:
    """Returns when somebody may have sent the marker who knows of what it ends.

    An administrator names the coordinator epoch that is on record, or 0. One above `newest_tenure`, the highest of all
    coordinators, would keep the marker out by which the transaction is really decided. Raises InvalidRequest.
    """
    if producer.producer_id < 0 or producer.producer_epoch < 0:
        raise InvalidRequest(f"no producer has the id {producer.producer_id} and the epoch {producer.producer_epoch}")
    if not -1 <= marker.coordinator_epoch <= newest_tenure:
        raise InvalidRequest(
            f"no coordinator has had the epoch {marker.coordinator_epoch}, the newest one has {newest_tenure}: take "
            "what describing the partition's producers tells, or 0"
        )


def must_append_marker(
    entry: ProducerEntry | None, marker: TransactionMarker, producer: ProducerIdAndEpoch, *, raises_epoch: bool
) -> bool:
    """Whether the marker has to be appended; False when it stands already, and nothing is open that it could end.

    With `raises_epoch` every marker has an epoch of its own, above that of the transaction it ends: one of an epoch
    that has an open transaction was meant for an earlier one (X7). Without it the coordinator's epoch has to be on
    record, also where nothing is open, or a coordinator of before could still end what begins later.

    Raises TransactionCoordinatorFenced, StaleProducerEpoch.
    """
    if entry is None:
        return True
    if marker.coordinator_epoch < entry.coordinator_epoch:
        raise TransactionCoordinatorFenced(
            f"a marker for producer {producer.producer_id} is of coordinator epoch {marker.coordinator_epoch}, and one "
            f"of epoch {entry.coordinator_epoch} has written here"
        )
    is_open = entry.current_transaction_first_offset is not None
    if producer.producer_epoch < entry.producer_epoch or (
        raises_epoch and producer.producer_epoch == entry.producer_epoch and is_open
    ):
        raise StaleProducerEpoch(
            f"a marker for producer {producer.producer_id} epoch {producer.producer_epoch} ends nothing here, where "
            f"the producer is in epoch {entry.producer_epoch}"
        )
    return (
        is_open
        or producer.producer_epoch > entry.producer_epoch
        or (not raises_epoch and marker.coordinator_epoch > entry.coordinator_epoch)
    )


def without_transactions(entries: Iterable[ProducerEntry]) -> tuple[ProducerEntry, ...]:
    """The producers of a log that goes on after what an object holds. Objects are made below the last stable offset:
    whatever was open at an object's end has ended since."""
    return tuple(
        entry
        if entry.current_transaction_first_offset is None
        else entry._replace(current_transaction_first_offset=None)
        for entry in entries
    )


def apply(
    entry: ProducerEntry | None, header: BatchHeader, base_offset: int, marker: TransactionMarker | None = None
) -> ProducerEntry:
    """The producer's state after its batch was appended at `base_offset`. Checks nothing: recovery replays with it.

    A control batch (the end of a transaction, of which `marker` is what it says) closes the open transaction and leaves
    the sequences of its epoch as they are; the first of a new epoch forgets the old epoch's batches.
    """
    assert header.producer_id >= 0, "only batches of idempotent producers have state"
    batches: tuple[ProducerBatch, ...] = ()
    transaction_first_offset: int | None = None
    coordinator_epoch = -1
    if entry is not None:
        transaction_first_offset = entry.current_transaction_first_offset
        coordinator_epoch = entry.coordinator_epoch
        if entry.producer_epoch == header.producer_epoch:
            batches = entry.batches
    attributes = header.attributes
    if attributes & CONTROL_BIT:
        transaction_first_offset = None
        if marker is not None:
            coordinator_epoch = marker.coordinator_epoch
    else:
        last_offset = base_offset + header.last_offset_delta
        appended = ProducerBatch(
            header.base_sequence, header.last_sequence, base_offset, last_offset, header.max_timestamp_ms
        )
        batches = (*batches[-(MAX_BATCHES - 1) :], appended)
        if attributes & TRANSACTIONAL_BIT and transaction_first_offset is None:
            transaction_first_offset = base_offset
    return ProducerEntry(
        header.producer_id, header.producer_epoch, batches, transaction_first_offset, coordinator_epoch
    )


def is_expired(entry: ProducerEntry, *, last_append_ms: int, now_ms: int, expiration_ms: int) -> bool:
    """True when the producer may be forgotten: no open transaction, and silent for `expiration_ms`.

    `last_append_ms` is when its last batch arrived by the broker's clock (after a restart, the start), not
    the batch's timestamp: a producer that replays old records must not be forgotten between two batches.
    """
    return entry.current_transaction_first_offset is None and now_ms - last_append_ms >= expiration_ms


def most_each(counts: Sequence[int], limit: int) -> int:
    """How many each partition may keep, so that all of them keep `limit` at the most, where `counts` is what they have.

    Ids are the clients' choice, and each costs half a KiB. A partition with few loses none: ids that a client makes up
    in one topic must not cost another topic its producers. The largest number that will do, and 1 at the least: the
    last producer of a partition is the one that writes.
    """
    left = limit
    ordered = sorted(counts)
    for position, count in enumerate(ordered):
        share = left // (len(ordered) - position)
        if count > share:
            return max(1, share)
        left -= count
    return max(ordered, default=1)
