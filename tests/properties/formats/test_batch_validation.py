"""The kernel and its pure twin look at the same bytes and say the same, whatever the bytes are; and what both take is
what every reader can read.
"""

import os
import random
import struct
from collections import Counter

import pytest
from fastcrc import crc32

from tiered.errors import CorruptBatch
from tiered.formats import native, record_batch
from tiered.formats.batch_validation import BatchLimits, NativeExaminer, PureExaminer, Reason, RefusedBatch, validate
from tiered.formats.compression import compress, decompress
from tiered.formats.record_batch import HEADER_BYTES, BatchHeader, Compression, Record, encode_batch, read_header

NOW_MS = 1_700_000_000_000
MUTATED_BATCHES = int(os.environ.get("TIERED_MUTATED_BATCHES", "20000"))
LIMITS = (
    BatchLimits(max_message_bytes=1 << 20, max_plain_bytes=1 << 20),
    BatchLimits(
        max_message_bytes=1 << 20, max_plain_bytes=1 << 20, needs_keys=True, before_max_ms=5000, after_max_ms=5000
    ),
    BatchLimits(max_message_bytes=400, max_plain_record_bytes=120, max_plain_bytes=500, sets_time=True),
)
BYTES = (0x40, 0x20, 0x00, 0x01, 0x02, 0x7F, 0x80, 0x81, 0xFE, 0xFF, 0x0E, 0x10, 0x1C)


def a_batch(chance: random.Random) -> bytes:
    records = [
        Record(
            offset=at,
            timestamp_ms=NOW_MS + chance.choice((0, at, -at * 1000, 7000, -7000, -NOW_MS - 1)),
            key=chance.choice((None, b"", b"key")),
            value=chance.choice((None, b"value" * chance.randrange(30))),
            headers=chance.choice(((), (), (("name", b"1"), ("größe", None)))),
        )
        for at in range(chance.randrange(1, 9))
    ]
    is_idempotent = chance.random() < 0.2
    return encode_batch(
        records,
        compression=chance.choice(list(Compression)),
        producer_id=7 if is_idempotent else -1,
        producer_epoch=0 if is_idempotent else -1,
        base_sequence=0 if is_idempotent else -1,
        transactional=is_idempotent and chance.random() < 0.5,
        log_append_time_ms=NOW_MS if chance.random() < 0.02 else None,
    )


def mutated(batch: bytes, chance: random.Random) -> bytearray:
    """The batch with a few bytes changed, cut or put in: in its header, its records as they are stored, or its records
    before they were compressed. Mostly with the right length and CRC, so that the change is found by who looks."""
    header = read_header(batch)
    head, body = bytearray(batch[:HEADER_BYTES]), bytearray(batch[HEADER_BYTES:])
    where = chance.random()
    if where < 0.25:
        place = chance.choice((7, 22, chance.randrange(16, HEADER_BYTES)))
        head[place] = chance.choice((*BYTES, chance.randrange(256)))
    elif where < 0.8:
        plain = bytearray(decompress(header.compression, body, max_bytes=1 << 20))
        change(plain, chance)
        body = bytearray(compress(header.compression, plain))
    else:
        change(body, chance)
    data = head + body
    if chance.random() < 0.95:
        struct.pack_into(">i", data, 8, len(data) - 12)
        struct.pack_into(">I", data, 17, crc32.iscsi(bytes(data[21:])))
    if chance.random() < 0.02:
        del data[chance.randrange(len(data)) :]
    return data


def change(data: bytearray, chance: random.Random) -> None:
    for _ in range(chance.randrange(4)):
        at = chance.randrange(len(data) + 1)
        match chance.randrange(5):
            case 0 | 1:
                data[at : at + 1] = bytes([chance.choice(BYTES)])
            case 2:
                data[at : at + 1] = bytes([chance.randrange(256)])
            case 3:
                del data[at : at + chance.randrange(1, 9)]
            case _:
                data[at:at] = bytes(0x80 | chance.randrange(256) for _ in range(chance.randrange(1, 11)))


def validated(data: bytearray, limits: BatchLimits, *, pure: bool) -> tuple[BatchHeader | RefusedBatch | None, bytes]:
    """The verdict, and the bytes as it leaves them."""
    kernel = native.kernel(keeps_lock=True)
    assert kernel is not None, "no native kernel: install a C compiler"
    examiner = PureExaminer() if pure else NativeExaminer(kernel)
    buffer = bytearray(b"before") + data + b"after"
    verdict = validate(examiner, buffer, 6, 6 + len(data), limits, NOW_MS)
    return verdict, bytes(buffer)


def test_the_kernel_and_its_twin_give_the_same_verdicts_and_readers_can_read_what_they_take() -> None:
    chance = random.Random(MUTATED_BATCHES)  # The same each time; another number tries others.
    verdicts: Counter[str] = Counter()
    for number in range(MUTATED_BATCHES):
        data = mutated(a_batch(chance), chance)
        limits = chance.choice(LIMITS)
        verdict, after = validated(data, limits, pure=False)
        assert (verdict, after) == validated(data, limits, pure=True), f"batch {number}: {data.hex()}"
        assert after[:6] == b"before"
        assert after[6 + len(data) :] == b"after"
        if isinstance(verdict, RefusedBatch):
            verdicts[verdict.reason.name] += 1
            continue
        assert verdict is not None
        verdicts["TAKEN"] += 1
        stored = after[6 : 6 + len(data)]
        assert read_header(stored) == verdict
        record_batch.verify_crc(stored, 0, len(stored))
        records = list(record_batch.records(stored))
        assert [record.offset for record in records] == list(range(verdict.base_offset, verdict.end_offset))
        if not limits.sets_time:
            assert verdict.max_timestamp_ms == max(-1, *(record.timestamp_ms for record in records))
    assert set(verdicts) == {"TAKEN", *(reason.name for reason in Reason)}, f"some kinds never came: {verdicts}"


@pytest.mark.parametrize("pure", [False, True])
def test_too_much_for_the_callers_thread_is_left_to_another_and_more_than_the_topic_allows_is_refused(
    pure: bool,
) -> None:
    kernel = native.kernel(keeps_lock=False)
    assert kernel is not None
    examiner = PureExaminer() if pure else NativeExaminer(kernel)
    records = [Record(offset=0, timestamp_ms=NOW_MS, key=None, value=bytes(100_000))]
    for codec in list(Compression)[1:]:
        data = bytearray(encode_batch(records, compression=codec))
        limits = BatchLimits(max_message_bytes=1 << 20, max_plain_bytes=200_000)
        assert validate(examiner, data, 0, len(data), limits, NOW_MS, max_plain_bytes=50_000) is None
        assert validate(examiner, data, 0, len(data), limits, NOW_MS) == read_header(data)
        limits = BatchLimits(max_message_bytes=1 << 20, max_plain_bytes=50_000)
        refused = validate(examiner, data, 0, len(data), limits, NOW_MS, max_plain_bytes=50_000)
        assert isinstance(refused, RefusedBatch)
        assert refused.reason == Reason.COMPRESSION


def test_a_batch_whose_header_names_no_time_gets_that_of_its_records() -> None:
    """sarama up to 1.45 leaves it at -1; others name that of the first record, or a later one."""
    records = [Record(offset=at, timestamp_ms=NOW_MS + at, key=None, value=b"v") for at in range(3)]
    for codec in Compression:
        right = encode_batch(records, compression=codec)
        for wrong_ms in (-1, NOW_MS, NOW_MS + 9, 0, 2**63 - 1, -(2**63)):
            data = bytearray(right)
            struct.pack_into(">q", data, 35, wrong_ms)
            struct.pack_into(">I", data, 17, crc32.iscsi(bytes(data[21:])))
            verdict, after = validated(data, LIMITS[0], pure=False)
            assert after[6:-5] == right
            assert verdict == read_header(right)


def test_what_is_taken_is_never_what_a_reader_refuses() -> None:
    """The look is at least as strict as those who read: compaction, export and Spark meet no batch that they refuse."""
    records = [Record(offset=at, timestamp_ms=NOW_MS, key=b"k", value=b"v") for at in range(3)]
    body = bytearray(encode_batch(records)[HEADER_BYTES:])
    for at in range(len(body)):
        for value in range(256):
            data = bytearray(encode_batch(records))
            data[HEADER_BYTES + at] = value
            struct.pack_into(">I", data, 17, crc32.iscsi(bytes(data[21:])))
            verdict = validate(PureExaminer(), data, 0, len(data), LIMITS[0], NOW_MS)
            if isinstance(verdict, BatchHeader):
                assert len(list(record_batch.records(data))) == 3
            else:
                assert isinstance(verdict, RefusedBatch)


def test_an_unreadable_batch_is_one_that_is_refused() -> None:
    """The converse for what matters: wherever a reader ends with an error, the look had refused."""
    chance = random.Random(7)
    for _ in range(2000):
        data = mutated(a_batch(chance), chance)
        try:
            list(record_batch.records(bytes(data)))
        except CorruptBatch:
            verdict, _ = validated(data, LIMITS[0], pure=False)
            assert isinstance(verdict, RefusedBatch), data.hex()
