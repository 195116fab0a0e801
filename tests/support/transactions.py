"""Batches of transactions and the markers that end them, as producers and coordinators have them written."""

from functools import cache

from tests.support.partition_appends import NOW_MS
from tiered.broker.partitions.partition import Appended, Partition
from tiered.broker.partitions.transactions import AskedMarker
from tiered.formats.control_record import MarkerType, TransactionMarker, encode_marker
from tiered.formats.record_batch import BatchHeader, Record, encode_batch, read_header
from tiered.rules.transactions.transaction_state import ProducerIdAndEpoch


def transactional_batch(
    producer_id: int, sequence: int = 0, *, epoch: int = 0, count: int = 1, is_transactional: bool = True
) -> bytearray:
    """As a transactional producer sends it."""
    records = [Record(offset=index, timestamp_ms=NOW_MS, key=None, value=b"v") for index in range(count)]
    return bytearray(
        encode_batch(
            records,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=is_transactional,
        )
    )


@cache
def transactional_header(producer_id: int, *, is_transactional: bool = True) -> BatchHeader:
    return read_header(transactional_batch(producer_id, is_transactional=is_transactional, count=2), 0)


@cache
def marker_header(producer_id: int) -> BatchHeader:
    marker = TransactionMarker(type=MarkerType.ABORT, coordinator_epoch=0)
    return read_header(encode_marker(marker, producer_id=producer_id, producer_epoch=0, timestamp_ms=NOW_MS), 0)


def write(
    partition: Partition,
    producer_id: int,
    sequence: int = 0,
    *,
    epoch: int = 0,
    is_transactional: bool = True,
    is_verified: bool = True,
) -> Appended:
    """One batch, after its coordinator was asked where that has to be."""
    verified = partition.begin_verification(producer_id, epoch) if is_verified else None
    data = memoryview(transactional_batch(producer_id, sequence, epoch=epoch, is_transactional=is_transactional))
    return partition.append(data, 0, len(data), acks=-1, now_ms=NOW_MS, verified=verified)


def end(
    partition: Partition,
    producer_id: int,
    kind: MarkerType,
    *,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    raises_epoch: bool = False,
) -> int | None:
    """The marker that ends the producer's transaction: its offset, None where it stands already."""
    marker = TransactionMarker(type=kind, coordinator_epoch=coordinator_epoch)
    return append_marker(partition, marker, ProducerIdAndEpoch(producer_id, epoch), raises_epoch=raises_epoch)


def append_marker(
    partition: Partition,
    marker: TransactionMarker,
    producer: ProducerIdAndEpoch,
    *,
    raises_epoch: bool = False,
    now_ms: int = NOW_MS,
) -> int | None:
    """Its offset; None where it stands already. Raises why it is refused."""
    offset = partition.log.log_end_offset
    asked = AskedMarker.of(marker, producer, raises_epoch=raises_epoch, now_ms=now_ms)
    for error in partition.append_markers([asked], now_ms=now_ms).values():
        raise error
    return None if partition.log.log_end_offset == offset else offset
