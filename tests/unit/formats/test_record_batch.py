"""Headers that are refused, stamps, and record sections that lie about themselves."""

import struct

import pytest

from tiered.errors import CorruptBatch
from tiered.formats import record_batch
from tiered.formats.record_batch import (
    HEADER_BYTES,
    MAGIC_POSITION,
    BatchHeader,
    Compression,
    Record,
    encode_batch,
    read_header,
    verify_crc,
)


def a_record(offset: int = 0, value: bytes | None = b"value") -> Record:
    return Record(offset=offset, timestamp_ms=1000, key=b"key", value=value, headers=(("h", b"1"),))


def with_body(body: bytes, *, count: int = 1, last_offset_delta: int = 0, code: int = 0) -> bytes:
    """A batch with a record section of our own making; its CRC is of no matter to `records`."""
    header = struct.pack(
        ">qiibIhiqqqhii", 0, 49 + len(body), -1, 2, 0, code, last_offset_delta, 1000, 1000, -1, -1, -1, count
    )
    return header + body


def decoded(data: bytes) -> list[Record]:
    return list(record_batch.records(data))


def test_a_header_alone_gives_the_size_of_a_batch_that_is_not_there_yet() -> None:
    data = encode_batch([a_record()])
    assert read_header(data[:HEADER_BYTES]).size_bytes == len(data)


def test_with_an_end_the_whole_batch_must_be_there() -> None:
    data = encode_batch([a_record()])
    assert read_header(data, 0, len(data)).size_bytes == len(data)
    with pytest.raises(CorruptBatch, match="claims"):
        read_header(data, 0, len(data) - 1)


@pytest.mark.parametrize("length", [0, 1, 16, 60])
def test_less_than_a_header_is_refused(length: int) -> None:
    with pytest.raises(CorruptBatch, match="fewer than a batch header"):
        read_header(encode_batch([a_record()])[:length])


@pytest.mark.parametrize("magic", [0, 1, 3, 255])
def test_another_magic_is_named_even_where_its_header_is_shorter(magic: int) -> None:
    data = bytearray(encode_batch([a_record()]))
    data[MAGIC_POSITION] = magic
    for part in (data, data[:34]):
        with pytest.raises(CorruptBatch, match="magic"):
            read_header(part)


@pytest.mark.parametrize("batch_length", [-(2**31), -1, 0, 48])
def test_a_length_smaller_than_a_header_is_refused(batch_length: int) -> None:
    data = bytearray(encode_batch([a_record()]))
    struct.pack_into(">i", data, 8, batch_length)
    with pytest.raises(CorruptBatch, match="fewer than a header"):
        read_header(data)


def test_a_negative_length_cannot_make_a_walk_stand_still() -> None:
    data = bytearray(encode_batch([a_record()]) * 2)
    struct.pack_into(">i", data, 8, -12)
    with pytest.raises(CorruptBatch):
        list(record_batch.whole_batches(data, 0, len(data)))
    with pytest.raises(CorruptBatch):
        list(record_batch.exact_batches(data, 0, len(data)))


def test_every_changed_byte_behind_the_crc_fails_it() -> None:
    data = encode_batch([a_record()])
    for at in range(17, len(data)):
        changed = bytearray(data)
        changed[at] ^= 0x40
        with pytest.raises(CorruptBatch, match="CRC"):
            verify_crc(changed, 0, len(changed))


def test_attributes_are_told_apart() -> None:
    plain = read_header(encode_batch([a_record()]))
    assert plain.attributes == 0
    assert (plain.is_transactional, plain.is_control, plain.is_log_append_time) == (False,) * 3
    assert plain.last_sequence == -1
    full = read_header(
        encode_batch(
            [a_record()],
            compression=Compression.LZ4,
            transactional=True,
            control=True,
            log_append_time_ms=5,
            producer_id=0,
            producer_epoch=0,
            base_sequence=2**31 - 1,
        )
    )
    assert full.is_transactional
    assert full.is_control
    assert full.is_log_append_time
    assert full.compression == 3
    assert full.max_timestamp_ms == 5


def test_sequences_wrap() -> None:
    records = [a_record(offset) for offset in range(3)]
    header = read_header(encode_batch(records, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2))
    assert header.last_sequence == 0


def test_a_header_is_a_plain_value() -> None:
    header = read_header(encode_batch([a_record(7)], base_offset=7))
    assert header == BatchHeader(**header._asdict())
    assert (header.last_offset, header.end_offset) == (7, 8)
    with pytest.raises(AttributeError):
        header.base_offset = 3  # type: ignore[misc]


def test_a_compacted_batch_keeps_its_last_offset() -> None:
    data = encode_batch([a_record(12), a_record(15)], base_offset=10, last_offset=19)
    header = read_header(data)
    assert (header.base_offset, header.last_offset, header.record_count) == (10, 19, 2)
    assert [record.offset for record in record_batch.records(data)] == [12, 15]
    empty = encode_batch([], base_offset=10, last_offset=19)
    assert decoded(empty) == []
    assert read_header(empty).last_offset == 19


def test_a_header_key_that_is_no_utf8_keeps_its_bytes() -> None:
    broken = b"\x06k\xff\x00"[:3]
    body = b"\x18\x00\x00\x00\x01\x01\x02" + b"\x06" + broken[1:] + b"x" + b"\x02v"
    body = bytes([2 * (len(body) - 1)]) + body[1:]
    (record,) = decoded(with_body(body))
    assert record.headers == (("k\udcffx", b"v"),)
    assert decoded(encode_batch([record])) == [record]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x0c\x00\x00\x00\x01\x01",  # ends before the header count
        b"\x0e\x00\x00\x00\x01\x01\x00",  # the record claims a byte more than there is
        b"\x0c\x00\x00\x00\x01\x01\x00\x00",  # a byte behind the last record
        b"\x0e\x00\x00\x00\x01\x01\x00\x00",  # a byte within the record, behind its end
        b"\x01\x00\x00\x00\x01\x01\x00",  # a negative length of the record
        b"\x0c\x00\x00\x00\x03\x01\x00",  # a key of length -2
        b"\x0c\x00\x00\x00\xfe\x01\x00",  # a key longer than everything
        b"\x0c\x00\x00\x00\x01\x01\x01",  # -1 headers
        b"\x0c\x00\x00\x00\x01\x01\x02",  # a header that is not there
        b"\x10\x00\x00\x00\x01\x01\x02\x01\x01",  # a header without a key
        b"\x0c\x00\x00\x02\x01\x01\x00",  # an offset behind the batch's last
        b"\x0c\x00\x00\x01\x01\x01\x00",  # a negative offset delta
        b"\xff" * 20,
        b"\x80" * 20,
        b"\x20\x00" + b"\xff" * 9 + b"\x7f" + b"\x00\x01\x01\x00",  # a varint of 70 bits
        b"\x1e\x00" + b"\xfe" + b"\xff" * 8 + b"\x01" + b"\x00\x01\x01\x00",  # a timestamp beyond 64 bits
    ],
)
def test_a_record_section_that_is_not_exactly_its_records_is_refused(body: bytes) -> None:
    with pytest.raises(CorruptBatch):
        decoded(with_body(body))


def test_the_smallest_record_is_accepted() -> None:
    assert decoded(with_body(b"\x0c\x00\x00\x00\x01\x01\x00")) == [
        Record(offset=0, timestamp_ms=1000, key=None, value=None)
    ]


@pytest.mark.parametrize("count", [-1, 2, 2**31 - 1])
def test_a_count_that_the_bytes_cannot_hold_is_refused_before_any_record(count: int) -> None:
    with pytest.raises(CorruptBatch, match="do not fit"):
        next(record_batch.records(with_body(b"\x0c\x00\x00\x00\x01\x01\x00", count=count, last_offset_delta=9)))


def test_a_header_count_that_the_bytes_cannot_hold_is_refused() -> None:
    with pytest.raises(CorruptBatch, match="headers do not fit"):
        decoded(with_body(b"\x14\x00\x00\x00\x01\x01\xfe\xff\xff\xff\x0f"[:11]))


def test_offsets_that_do_not_rise_are_refused() -> None:
    one = b"\x0c\x00\x00\x00\x01\x01\x00"
    with pytest.raises(CorruptBatch, match="offset delta"):
        decoded(with_body(one + one, count=2, last_offset_delta=1))


@pytest.mark.parametrize("code", [5, 6, 7])
def test_a_codec_that_does_not_exist_is_refused(code: int) -> None:
    with pytest.raises(CorruptBatch, match="unknown"):
        decoded(with_body(b"\x0c\x00\x00\x00\x01\x01\x00", code=code))


def test_times_that_cannot_be_told_relative_to_each_other_are_not_written() -> None:
    earliest = Record(offset=0, timestamp_ms=-(2**63), key=None, value=None)
    latest = Record(offset=1, timestamp_ms=2**63 - 1, key=None, value=None)
    middle = Record(offset=1, timestamp_ms=-1, key=None, value=None)
    with pytest.raises(CorruptBatch, match="too far apart"):
        encode_batch([earliest, latest])
    assert decoded(encode_batch([earliest, middle])) == [earliest, middle]


def test_records_below_an_offset_are_passed_over_whether_offsets_are_missing_or_not() -> None:
    for step in (1, 3):
        records = [Record(offset=step * number, timestamp_ms=1, key=None, value=b"v") for number in range(50)]
        data = encode_batch(records)
        for start_offset in range(50 * step + 2):
            left = list(record_batch.records(data, start_offset=start_offset))
            assert left == [record for record in records if record.offset >= start_offset]


def test_passing_over_records_can_be_ended_and_believes_no_length() -> None:
    def refuse() -> None:
        raise InterruptedError

    data = encode_batch([a_record(offset) for offset in range(3000)])
    with pytest.raises(InterruptedError):
        list(record_batch.records(data, start_offset=2000, look=refuse))
    for length in (b"\x01", b"\xff\xff\x7f"):
        body = length + bytes(20)
        with pytest.raises(CorruptBatch):
            list(record_batch.records(with_body(body, count=2, last_offset_delta=1), start_offset=1))
