"""The checks of a produced batch before it is stored: by its header alone, except where a topic is compacted.

Owns those checks and the names of codecs. Must never look at a value, nor know a partition's state.
"""

from collections.abc import Sequence

from tiered.config import TopicConfig
from tiered.errors import (
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    UnsupportedCompression,
)
from tiered.formats import batch_filter, record_batch
from tiered.formats.record import MIN_RECORD_BYTES
from tiered.formats.record_batch import DEFAULT_MAX_DECOMPRESSED_BYTES, BatchHeader, Compression

_ZSTD = int(Compression.ZSTD)
_CODES = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
"""What `compression.type` may be, besides `producer`, which keeps the client's codec."""
MAX_NAMED_RECORDS = 10_000
"""Of one batch: a compressed one may have millions that are refused."""


class RecordsWithoutKey(InvalidRecord):
    """Records of a batch for a compacted topic have no key: those at these places in it."""

    def __init__(self, message: str, *, places: Sequence[int]) -> None:
        super().__init__(message)
        self.places = places


def checked_header(buffer: memoryview, position: int, end: int, config: TopicConfig, name: str) -> BatchHeader:
    """The header of the one batch in `buffer[position:end]`, whose bytes are whole and right.

    Raises InvalidRecord, MessageTooLarge, UnsupportedCompression and CorruptBatch.
    """
    if end - position >= record_batch.MIN_BATCH_BYTES and buffer[position + record_batch.MAGIC_POSITION] != 2:
        raise InvalidRecord(f"{name}: only record batches of magic 2 are stored; upgrade the client")
    header = record_batch.read_header(buffer, position, end)
    _check_shape(header, end - position, config, name)
    record_batch.verify_crc(buffer, position, header.size_bytes)
    return header


def _check_shape(header: BatchHeader, size_bytes: int, config: TopicConfig, name: str) -> None:
    if header.size_bytes != size_bytes:
        raise InvalidRecord(f"{name}: a produce request carries exactly one batch for each partition")
    if size_bytes > config.max_message_bytes:
        raise MessageTooLarge(
            f"{name}: a batch of {size_bytes} bytes exceeds max.message.bytes={config.max_message_bytes}"
        )
    if header.record_count <= 0 or header.last_offset_delta != header.record_count - 1:
        raise InvalidRecord(f"{name}: the batch's record count contradicts its last offset delta")
    # A batch that claims millions of records takes their offsets, and has readers ask for them for ever.
    body_bytes = DEFAULT_MAX_DECOMPRESSED_BYTES if header.compression else size_bytes - record_batch.HEADER_BYTES
    if header.record_count > body_bytes // MIN_RECORD_BYTES:
        raise InvalidRecord(f"{name}: {header.record_count} records do not fit into a batch of {size_bytes} bytes")
    if header.is_control:
        raise InvalidRecord(f"{name}: clients may not write control batches")
    if header.is_transactional and header.producer_id < 0:
        raise InvalidRecord(f"{name}: a batch of a transaction needs a producer id")
    if header.compression > _ZSTD:
        raise UnsupportedCompression(f"{name}: compression codec {header.compression} is unknown")
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise InvalidRecord(f"{name}: an idempotent batch needs a producer epoch and a sequence")


def check_timestamps(header: BatchHeader, config: TopicConfig, now_ms: int, name: str) -> None:
    """Returns when the batch's times are what the topic allows. Raises InvalidTimestamp."""
    if config.is_log_append_time:
        return
    if header.max_timestamp_ms > now_ms + config.message_timestamp_after_max_ms:
        raise InvalidTimestamp(
            f"{name}: timestamp {header.max_timestamp_ms} is too far ahead (message.timestamp.after.max.ms)"
        )
    earliest = now_ms - config.message_timestamp_before_max_ms
    if 0 <= header.base_timestamp_ms < earliest:
        raise InvalidTimestamp(
            f"{name}: timestamp {header.base_timestamp_ms} is too old (message.timestamp.before.max.ms)"
        )


def check_keys(buffer: memoryview, position: int, header: BatchHeader, name: str) -> None:
    """Returns when every record of a batch for a compacted topic has a key. Raises RecordsWithoutKey, CorruptBatch."""
    data = buffer[position : position + header.size_bytes]
    keyless: list[int] = []
    count = 0
    for index, record in enumerate(batch_filter.keyed_records(data)):
        if record.key is None:
            count += 1
            if count <= MAX_NAMED_RECORDS:
                keyless.append(index)
    if keyless:
        raise RecordsWithoutKey(
            f"{name}: record {keyless[0]} of the batch has no key, and {count} of {header.record_count} have "
            "none. The topic is compacted (cleanup.policy): give every record a key",
            places=keyless,
        )


def foreign_codec(attributes: int, config: TopicConfig) -> int | None:
    """The codec that a batch with these attributes has to be given; None when it may stay as it is."""
    wanted = _CODES.get(config.compression_type)
    return None if wanted is None or wanted == attributes & 7 else wanted


def recompressed(
    buffer: memoryview, position: int, header: BatchHeader, code: int
) -> tuple[memoryview, int, int, BatchHeader]:
    """The same records in the topic's own codec: buffer, position and end, and their new header."""
    data = memoryview(record_batch.recompressed(buffer[: position + header.size_bytes], position, code))
    return data, 0, len(data), record_batch.read_header(data, 0)
