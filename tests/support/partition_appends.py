"""What a partition is given, and what it then has: for tests that hold the partition itself."""

from tiered.broker.partitions.partition import Appended, Partition
from tiered.formats.record_batch import Record, encode_batch, whole_batches
from tiered.runtime import SystemClock

NOW_MS = SystemClock().now_ms()


def batch(*values: str, producer_id: int = -1, sequence: int = -1) -> bytearray:
    """One batch as a producer sends it."""
    records = [
        Record(offset=index, timestamp_ms=NOW_MS, key=None, value=value.encode()) for index, value in enumerate(values)
    ]
    epoch = 0 if producer_id >= 0 else -1
    return bytearray(encode_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence))


def keyed(key: str, value: str | None) -> bytearray:
    """One record of a compacted topic; without a value it is a tombstone."""
    data = None if value is None else value.encode()
    return bytearray(encode_batch([Record(offset=0, timestamp_ms=NOW_MS, key=key.encode(), value=data)]))


def append(partition: Partition, data: bytearray, *, acks: int = -1) -> Appended:
    return partition.append(memoryview(data), 0, len(data), acks=acks, now_ms=NOW_MS)


def bytes_of(partition: Partition) -> bytes:
    """Everything that the replica has on its disk."""
    out = b""
    offset = partition.log.local_log_start_offset
    while offset < partition.log.log_end_offset:
        found = partition.log.read(offset, 1 << 20, end_offset=partition.log.log_end_offset)
        assert found is not None
        data = found.read()
        out += data
        offset = _end_of(data)
    return out


def _end_of(data: bytes) -> int:
    return [header.end_offset for _, header in whole_batches(data, 0, len(data))][-1]
