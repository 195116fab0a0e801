"""Fetches from a read replica, and the codes that they end with."""

from typing import Any

from tests.clients.raw import RawConnection
from tests.components.read_replicas import ReplicaThread
from tests.unit.cold.stored_segments import PARTITION, TOPIC
from tiered.formats import record_batch

NONE, OUT_OF_RANGE, CORRUPT, UNKNOWN_TOPIC, STORAGE_ERROR, OFFSET_NOT_AVAILABLE = 0, 1, 2, 3, 56, 78


def fetch_code(replica: ReplicaThread, offset: int, **options: Any) -> int:
    with RawConnection(replica) as connection:
        return connection.fetch(TOPIC, offset, partition=PARTITION, **options).error_code


def read(replica: ReplicaThread, offset: int = 0, *, version: int = 11) -> bytes:
    """Every batch from `offset` on."""
    found = bytearray()
    with RawConnection(replica) as connection:
        while True:
            answer = connection.fetch(
                TOPIC, offset, partition=PARTITION, partition_max_bytes=20_000, version=version, isolation_level=1
            )
            assert answer.error_code == NONE, answer
            assert answer.last_stable_offset == answer.high_watermark
            if offset == answer.high_watermark:
                return bytes(found)
            data = bytes(answer.records or b"")  # type: ignore[arg-type]
            for position, header in record_batch.whole_batches(data, 0, len(data)):
                found += data[position : position + header.size_bytes]
                offset = header.end_offset
