"""The batches that an idempotent producer may append next, and those it has appended (KIP-98, KIP-360).

Owns the decision and the next state, as values. Pure: `broker.partitions.partition` keeps one entry per producer,
the log writes them into snapshots.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tiered.errors import OutOfOrderSequence, StaleProducerEpoch
from tiered.formats.producer_snapshot import ProducerBatch, ProducerEntry
from tiered.formats.record_batch import BatchHeader

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
    at sequence 0. Sequences continue at 0 after 2^31 - 1. Control batches carry no sequence.

    Raises StaleProducerEpoch when a newer instance of the producer has written, OutOfOrderSequence when
    batches between the last one and this one are missing (or it is a duplicate older than the last five).
    """
    assert header.has_producer, "only batches of idempotent producers are checked"
    if entry is None:
        return ACCEPT
    if header.producer_epoch < entry.producer_epoch:
        raise StaleProducerEpoch(
            f"producer {header.producer_id} epoch {header.producer_epoch} is over, epoch {entry.producer_epoch} "
            "has written here; close this producer"
        )
    if header.is_control:
        return ACCEPT
    if header.producer_epoch > entry.producer_epoch:
        expected = 0
    else:
        last_sequence = header.last_sequence
        for batch in entry.batches:
            if batch.base_sequence == header.base_sequence and batch.last_sequence == last_sequence:
                return Duplicate(
                    base_offset=batch.base_offset, last_offset=batch.last_offset, timestamp_ms=batch.timestamp_ms
                )
        expected = next_sequence(entry)
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


def apply(entry: ProducerEntry | None, header: BatchHeader, base_offset: int) -> ProducerEntry:
    """The producer's state after its batch was appended at `base_offset`. Checks nothing: recovery replays with it.

    A control batch (the end of a transaction) closes the open transaction and leaves the sequences of its
    epoch as they are; the first of a new epoch forgets the old epoch's batches.
    """
    assert header.has_producer, "only batches of idempotent producers have state"
    batches: tuple[ProducerBatch, ...] = ()
    transaction_first_offset: int | None = None
    coordinator_epoch = -1
    if entry is not None:
        transaction_first_offset = entry.current_transaction_first_offset
        coordinator_epoch = entry.coordinator_epoch
        if entry.producer_epoch == header.producer_epoch:
            batches = entry.batches
    if header.is_control:
        transaction_first_offset = None
    else:
        appended = ProducerBatch(
            base_sequence=header.base_sequence,
            last_sequence=header.last_sequence,
            base_offset=base_offset,
            last_offset=base_offset + header.last_offset_delta,
            timestamp_ms=header.max_timestamp_ms,
        )
        batches = (*batches[-(MAX_BATCHES - 1) :], appended)
        if header.is_transactional and transaction_first_offset is None:
            transaction_first_offset = base_offset
    return ProducerEntry(
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        batches=batches,
        current_transaction_first_offset=transaction_first_offset,
        coordinator_epoch=coordinator_epoch,
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
