"""A batch is looked at before it is stored: its shape, its times, its keys, and whose codec it has."""

from dataclasses import replace

import pytest

from tests.support.partition_appends import NOW_MS, batch, keyed
from tiered.broker.partitions import batch_checks
from tiered.broker.partitions.batch_checks import MAX_NAMED_RECORDS, RecordsWithoutKey, checked_header
from tiered.config import TopicConfig
from tiered.errors import (
    CorruptBatch,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    TieredError,
)
from tiered.formats.record_batch import BatchHeader, Compression, Record, encode_batch, read_header

ONE = [Record(offset=0, timestamp_ms=NOW_MS, key=None, value=b"v")]


def checked(data: bytes, config: TopicConfig = TopicConfig()) -> BatchHeader:  # noqa: B008 - frozen
    return checked_header(memoryview(data), 0, len(data), config, "orders-0")


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        (bytes(batch("v") * 2), InvalidRecord, "exactly one batch"),
        (encode_batch(ONE, last_offset=5), InvalidRecord, "contradicts"),
        (encode_batch(ONE, control=True, transactional=True), InvalidRecord, "control"),
        (encode_batch(ONE, transactional=True), InvalidRecord, "needs a producer id"),
        (encode_batch(ONE, producer_id=7), InvalidRecord, "needs a producer epoch"),
        (bytes(batch("v"))[:-1] + b"\xff", CorruptBatch, "CRC"),
        (bytes(batch("v"))[:16] + b"\x01" + bytes(batch("v"))[17:], InvalidRecord, "magic 2"),
        (bytes(batch("v" * 2_000_000)), MessageTooLarge, "max.message.bytes"),
    ],
    ids=["two", "count", "control", "transactional", "no-epoch", "crc", "magic", "size"],
)
def test_a_batch_that_may_not_be_stored_is_refused_in_words(data: bytes, error: type[TieredError], words: str) -> None:
    with pytest.raises(error, match=words):
        checked(data)


def test_a_batch_that_claims_more_records_than_fit_into_it_is_refused_and_the_fullest_is_not() -> None:
    small = [Record(offset=number, timestamp_ms=0, key=None, value=None) for number in range(2)]
    assert checked(encode_batch(small)).record_count == 2
    data = bytearray(encode_batch(ONE))
    data[23:27] = (999).to_bytes(4, "big")  # last offset delta
    data[57:61] = (1000).to_bytes(4, "big")  # record count
    with pytest.raises(InvalidRecord, match="1000 records do not fit"):
        checked(bytes(data))


def test_times_are_refused_beyond_the_topics_bounds_unless_the_broker_sets_them() -> None:
    header, config = read_header(batch("v"), 0), TopicConfig(message_timestamp_after_max_ms=5)
    batch_checks.check_timestamps(header, config, NOW_MS - 5, "orders-0")
    with pytest.raises(InvalidTimestamp, match="too far ahead"):
        batch_checks.check_timestamps(header, config, NOW_MS - 6, "orders-0")
    config = TopicConfig(message_timestamp_before_max_ms=5)
    with pytest.raises(InvalidTimestamp, match="too old"):
        batch_checks.check_timestamps(header, config, NOW_MS + 6, "orders-0")
    config = replace(config, message_timestamp_type="LogAppendTime")
    batch_checks.check_timestamps(header, config, NOW_MS + 6, "orders-0")


def test_records_without_a_key_are_named_by_their_places_but_not_by_the_million() -> None:
    good = keyed("k", "v")
    batch_checks.check_keys(memoryview(good), 0, read_header(good, 0), "orders-0")
    keys = [b"k", None, b"k", *[None] * MAX_NAMED_RECORDS]
    records = [Record(offset=at, timestamp_ms=0, key=key, value=b"") for at, key in enumerate(keys)]
    data = encode_batch(records, compression=Compression.LZ4)
    with pytest.raises(RecordsWithoutKey, match="record 1 of the batch has no key, and 10001 of 10003") as raised:
        batch_checks.check_keys(memoryview(data), 0, read_header(data, 0), "orders-0")
    assert list(raised.value.places[:2]) == [1, 3]
    assert len(raised.value.places) == MAX_NAMED_RECORDS


def test_a_batch_gets_the_topics_codec_only_where_it_has_another() -> None:
    config = TopicConfig(compression_type="lz4")
    assert batch_checks.foreign_codec(Compression.LZ4, config) is None
    assert batch_checks.foreign_codec(Compression.ZSTD, TopicConfig()) is None
    code = batch_checks.foreign_codec(Compression.ZSTD, config)
    assert code == Compression.LZ4
    data = encode_batch(ONE, compression=Compression.ZSTD)
    after, start, end, header = batch_checks.recompressed(memoryview(data), 0, read_header(data, 0), code)
    assert checked(bytes(after[start:end])) == header
    assert (header.compression, header.record_count) == (Compression.LZ4, 1)
