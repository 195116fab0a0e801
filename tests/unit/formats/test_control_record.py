"""Markers of transactions: the bytes that Kafka's clients expect, and what is made of others."""

import pytest

from tiered.errors import CorruptBatch
from tiered.formats import record_batch
from tiered.formats.control_record import MarkerType, TransactionMarker, encode_marker, read_marker
from tiered.formats.record import Record


def control_batch(key: bytes | None, value: bytes | None) -> bytes:
    record = Record(offset=0, timestamp_ms=5, key=key, value=value)
    return record_batch.encode_batch([record], producer_id=7, producer_epoch=2, transactional=True, control=True)


@pytest.mark.parametrize("kind", MarkerType)
def test_a_marker_is_read_as_it_was_written(kind: MarkerType) -> None:
    marker = TransactionMarker(type=kind, coordinator_epoch=2**31 - 1)
    batch = encode_marker(marker, producer_id=7, producer_epoch=2, timestamp_ms=5)
    header = record_batch.read_header(batch)
    assert read_marker(batch, 0, header) == marker
    record_batch.verify_crc(batch, 0, len(batch))
    assert (header.is_control, header.is_transactional, header.producer_id, header.producer_epoch) == (True, True, 7, 2)
    assert (header.record_count, header.base_sequence, header.max_timestamp_ms) == (1, -1, 5)


def test_a_marker_has_the_key_and_the_value_of_kafkas() -> None:
    batch = encode_marker(
        TransactionMarker(type=MarkerType.COMMIT, coordinator_epoch=258),
        producer_id=7,
        producer_epoch=2,
        timestamp_ms=5,
    )
    (record,) = record_batch.records(batch)
    assert (record.key, record.value) == (b"\0\0\0\1", b"\0\0\0\0\1\2")


def test_each_partition_has_a_marker_of_its_own_to_stamp() -> None:
    marker = TransactionMarker(type=MarkerType.COMMIT, coordinator_epoch=1)
    first = encode_marker(marker, producer_id=7, producer_epoch=2, timestamp_ms=5)
    second = encode_marker(marker, producer_id=7, producer_epoch=2, timestamp_ms=5)
    record_batch.stamp_offsets(memoryview(first), 0, 100, 3)
    assert record_batch.read_header(first).base_offset == 100
    assert record_batch.read_header(second).base_offset == 0


def test_fields_that_a_later_version_adds_are_passed_over() -> None:
    batch = control_batch(b"\0\1\0\0more", b"\0\1\0\0\0\x09more")
    assert read_marker(batch, 0, record_batch.read_header(batch)) == TransactionMarker(
        type=MarkerType.ABORT, coordinator_epoch=9
    )


def test_control_records_of_another_kind_and_emptied_batches_are_no_markers() -> None:
    other = control_batch(b"\0\0\0\2", b"leader change")
    assert read_marker(other, 0, record_batch.read_header(other)) is None
    empty = record_batch.encode_batch(
        [], last_offset=0, producer_id=7, producer_epoch=2, transactional=True, control=True
    )
    assert read_marker(empty, 0, record_batch.read_header(empty)) is None


@pytest.mark.parametrize(
    ("key", "value"), [(None, b"\0" * 6), (b"\0\0\0", b"\0" * 6), (b"\0\0\0\1", None), (b"\0\0\0\1", b"\0" * 5)]
)
def test_a_marker_that_is_cut_short_is_corrupt(key: bytes | None, value: bytes | None) -> None:
    batch = control_batch(key, value)
    with pytest.raises(CorruptBatch):
        read_marker(batch, 0, record_batch.read_header(batch))
