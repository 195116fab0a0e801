"""A batch is looked at before it is stored: its shape, its times, its keys, and whose codec it has."""

from dataclasses import replace

import pytest

from tests.support.partition_appends import NOW_MS, batch, keyed
from tiered.broker.partitions import batch_checks
from tiered.broker.partitions.batch_checks import RecordsOutOfTime, RecordsWithoutKey, ValidatedBatch, limits_of
from tiered.config import TopicConfig
from tiered.config.limits import LimitSettings
from tiered.errors import (
    CorruptBatch,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    TieredError,
)
from tiered.formats.batch_validation import MAX_REFUSED_RECORDS
from tiered.formats.record_batch import BatchHeader, Compression, Record, encode_batch

ONE = [Record(offset=0, timestamp_ms=NOW_MS, key=None, value=b"v")]


def validated(data: bytes, config: TopicConfig = TopicConfig(), now_ms: int = NOW_MS) -> ValidatedBatch:  # noqa: B008 - frozen
    buffer, limits = memoryview(bytearray(data)), limits_of(config)
    header = batch_checks.valid_header(buffer, 0, len(data), limits, now_ms, "orders-0")
    assert header is not None
    return ValidatedBatch(buffer, 0, len(data), header, limits)


def checked(data: bytes, config: TopicConfig = TopicConfig(), now_ms: int = NOW_MS) -> BatchHeader:  # noqa: B008 - frozen
    return validated(data, config, now_ms).header


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        (bytes(batch("v") * 2), InvalidRecord, "exactly one batch"),
        (encode_batch(ONE, last_offset=5), InvalidRecord, "contradicts"),
        (b"\0" * 7 + b"\x05" + encode_batch(ONE)[8:], InvalidRecord, "base offset is 5"),
        (encode_batch(ONE, control=True, transactional=True), InvalidRecord, "control"),
        (encode_batch(ONE, transactional=True), InvalidRecord, "needs a producer id"),
        (encode_batch(ONE, producer_id=7), InvalidRecord, "needs a producer epoch"),
        (bytes(batch("v"))[:-1] + b"\xff", CorruptBatch, "CRC"),
        (bytes(batch("v"))[:16] + b"\x01" + bytes(batch("v"))[17:], InvalidRecord, "magic 2"),
        (bytes(batch("v" * 2_000_000)), MessageTooLarge, "max.message.bytes"),
    ],
    ids=["two", "count", "base-offset", "control", "transactional", "no-epoch", "crc", "magic", "size"],
)
def test_a_batch_that_may_not_be_stored_is_refused_in_words(data: bytes, error: type[TieredError], words: str) -> None:
    with pytest.raises(error, match=words):
        checked(data)


def test_times_are_refused_beyond_the_topics_bounds_unless_the_broker_sets_them() -> None:
    times = [NOW_MS, NOW_MS + 7, -1, NOW_MS - 7]
    data = encode_batch([replace(ONE[0], offset=at, timestamp_ms=time_ms) for at, time_ms in enumerate(times)])
    assert checked(data).max_timestamp_ms == NOW_MS + 7
    with pytest.raises(
        RecordsOutOfTime, match=r"1 of 4 are: .* 7 ms ahead .* message.timestamp.after.max.ms=5"
    ) as raised:
        checked(data, TopicConfig(message_timestamp_after_max_ms=5))
    assert isinstance(raised.value, InvalidTimestamp)
    assert [place for place, _ in raised.value.records] == [1]
    config = TopicConfig(message_timestamp_before_max_ms=5, message_timestamp_after_max_ms=7)
    with pytest.raises(RecordsOutOfTime, match=r"record 3 .* 7 ms behind .* message.timestamp.before.max.ms=5"):
        checked(data, config)
    assert checked(data, replace(config, message_timestamp_type="LogAppendTime")).record_count == 4


def test_records_without_a_key_are_named_by_their_places_but_not_by_the_million() -> None:
    compacted = TopicConfig(cleanup_policy=("compact",))
    assert checked(bytes(keyed("k", "v")), compacted).record_count == 1
    keys = [b"k", None, b"k", *[None] * MAX_REFUSED_RECORDS]
    records = [Record(offset=at, timestamp_ms=0, key=key, value=b"") for at, key in enumerate(keys)]
    for codec in (Compression.NONE, Compression.LZ4):
        data = encode_batch(records, compression=codec)
        assert checked(data).record_count == len(keys)
        with pytest.raises(RecordsWithoutKey, match="record 1 of the batch is refused, and 10001 of 10003") as raised:
            checked(data, compacted)
        assert [place for place, _ in raised.value.records[:2]] == [1, 3]
        assert len(raised.value.records) == MAX_REFUSED_RECORDS


def test_a_batch_gets_the_topics_codec_only_where_it_has_another() -> None:
    config = TopicConfig(compression_type="lz4")
    assert batch_checks.foreign_codec(Compression.LZ4, config) is None
    assert batch_checks.foreign_codec(Compression.ZSTD, TopicConfig()) is None
    code = batch_checks.foreign_codec(Compression.ZSTD, config)
    assert code == Compression.LZ4
    after = batch_checks.recompressed(validated(encode_batch(ONE, compression=Compression.ZSTD)), code)
    assert checked(bytes(after.buffer[after.position : after.end])) == after.header
    assert (after.header.compression, after.header.record_count) == (Compression.LZ4, 1)


def test_requests_that_wait_for_validation_leave_room_for_others_to_arrive() -> None:
    """A receive buffer that waits is at most twice as large as its request."""
    waiting_bytes = 2 * (batch_checks.REQUESTS_BYTES + batch_checks.MAX_WAITING_BYTES)
    assert waiting_bytes < LimitSettings().queued_max_request_bytes
