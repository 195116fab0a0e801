"""The markers that end transactions: control batches of one record, as Kafka writes them.

Owns their layout. Must never decide whether a marker may be written: `broker.partitions` does.

    key   := version i16 (0) | type i16 (0 abort, 1 commit)
    value := version i16 (0) | coordinator epoch i32
"""

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from tiered.errors import CorruptBatch
from tiered.formats import record_batch
from tiered.formats.record import Record
from tiered.formats.record_batch import BatchHeader, Buffer

_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")
_VERSION: Final = 0


class MarkerType(IntEnum):
    """Whether the producer's transaction is aborted or committed."""

    ABORT = 0
    COMMIT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionMarker:
    """What a marker says: the transaction's outcome, and in which epoch its coordinator was."""

    type: MarkerType
    coordinator_epoch: int

    @property
    def aborts(self) -> bool:
        return self.type is MarkerType.ABORT


def encode_marker(marker: TransactionMarker, *, producer_id: int, producer_epoch: int, timestamp_ms: int) -> bytearray:
    """The control batch that ends the producer's transaction, with offset 0: whoever appends it stamps its own."""
    record = Record(
        offset=0,
        timestamp_ms=timestamp_ms,
        key=_KEY.pack(_VERSION, marker.type),
        value=_VALUE.pack(_VERSION, marker.coordinator_epoch),
        headers=(),
    )
    return bytearray(
        record_batch.encode_batch(
            [record], producer_id=producer_id, producer_epoch=producer_epoch, transactional=True, control=True
        )
    )


def read_marker(buffer: Buffer, position: int, header: BatchHeader) -> TransactionMarker | None:
    """What the control batch at `position` says; None when it is one of another kind (a later Kafka's, Raft's).

    Fields that a later version adds at the end are passed over. Raises CorruptBatch.
    """
    assert header.is_control, "only control batches are markers"
    record = next(iter(record_batch.records(buffer, position)), None)
    if record is None:
        return None  # Compaction took the record and left its batch.
    if record.key is None or len(record.key) < _KEY.size:
        raise CorruptBatch(f"the control record at offset {header.base_offset} has no type")
    _, type_ = _KEY.unpack_from(record.key)
    if type_ not in (MarkerType.ABORT, MarkerType.COMMIT):
        return None
    if record.value is None or len(record.value) < _VALUE.size:
        raise CorruptBatch(f"the marker at offset {header.base_offset} has no coordinator epoch")
    _, coordinator_epoch = _VALUE.unpack_from(record.value)
    return TransactionMarker(type=MarkerType(type_), coordinator_epoch=coordinator_epoch)
