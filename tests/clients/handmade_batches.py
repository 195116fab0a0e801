"""Batches made by hand, one for each way in which what a client sends can be right, odd or wrong.

Owns how they are made: header fields, records and compressed bytes as given, with the right length and CRC unless a
case is about these. Says nothing of what becomes of one: Apache Kafka does.
"""

import gzip
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import cramjam
from fastcrc import crc32

from tiered.formats.compression import compress
from tiered.formats.record import append_varint

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
HOUR_MS = 3_600_000
YEAR_MS = 365 * 24 * HOUR_MS

# The kinds of topics, with what is set beside retention.ms=-1.
TOPICS: dict[str, dict[str, str]] = {
    "plain": {},
    "compacted": {"cleanup.policy": "compact"},
    "appended": {"message.timestamp.type": "LogAppendTime"},
    "bounded": {"message.timestamp.before.max.ms": str(HOUR_MS), "message.timestamp.after.max.ms": "600000"},
    "boundless": {"message.timestamp.after.max.ms": str(2**63 - 1)},
    "both": {"cleanup.policy": "compact", "message.timestamp.before.max.ms": str(HOUR_MS)},
    "small": {"max.message.bytes": "1000"},
    "slim": {"max.decompressed.message.bytes": "1000"},
    "to none": {"compression.type": "uncompressed"},
    **{f"to {name}": {"compression.type": name} for name in CODECS[1:]},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A batch, the kind of topic and the version of Produce it is sent with."""

    name: str
    data: bytes
    topic: str = "plain"
    version: int = 9


def varint(value: int) -> bytes:
    out = bytearray()
    append_varint(out, value)
    return bytes(out)


def field(content: bytes | None) -> bytes:
    return varint(-1) if content is None else varint(len(content)) + content


def record(
    offset_delta: int,
    *,
    ms: int = 0,
    key: bytes | None = b"k",
    value: bytes | None = b"value",
    headers: bytes = varint(0),
    attributes: int = 0,
    tail: bytes = b"",
    longer: int = 0,
) -> bytes:
    """`headers` is all behind the value; `longer` is added to the length that the record claims."""
    body = bytes([attributes]) + varint(ms) + varint(offset_delta) + field(key) + field(value) + headers + tail
    return varint(len(body) + longer) + body


def raw_record(*parts: bytes, longer: int = 0) -> bytes:
    """Its attributes, then the parts."""
    body = b"\0" + b"".join(parts)
    return varint(len(body) + longer) + body


class Maker:
    """Makes batches around one moment. `payload` is what stands behind the header."""

    def __init__(self, now_ms: int) -> None:
        self.base_ms = now_ms - 1_800_000

    def packed(
        self,
        payload: bytes,
        count: int = 3,
        codec: int = NONE,
        *,
        attributes: int = 0,
        last: int | None = None,
        base_ms: int | None = None,
        max_ms: int | None = None,
        producer: tuple[int, int, int] = (-1, -1, -1),
        base_offset: int = 0,
        leader_epoch: int = -1,
        magic: int = 2,
        longer: int = 0,
        wrong_crc: int = 0,
    ) -> bytes:
        base_ms = self.base_ms if base_ms is None else base_ms
        max_ms = base_ms if max_ms is None else max_ms
        last = count - 1 if last is None else last
        covered = struct.pack(">HiqqqhiI", codec | attributes, last, base_ms, max_ms, *producer, count & 0xFFFFFFFF)
        covered += payload
        crc = crc32.iscsi(covered) ^ wrong_crc
        return struct.pack(">qiibI", base_offset, len(covered) + 9 + longer, leader_epoch, magic, crc) + covered

    def plain(self, payload: bytes, count: int = 3, codec: int = NONE, **header: object) -> bytes:
        """The payload is compressed first."""
        return self.packed(compress(codec, payload), count, codec, **header)  # type: ignore[arg-type]

    def three(self, codec: int = NONE, times: tuple[int, int, int] = (0, 60_000, 120_000), **header: object) -> bytes:
        """Three records at these times from the first on, each with a key of its own."""
        return self.plain(records(times), 3, codec, **header)


def records(times: tuple[int, ...] = (0, 60_000, 120_000), key: bytes | None = b"k") -> bytes:
    keys = [None if key is None else key + b"%d" % at for at in range(len(times))]
    return b"".join(record(at, ms=ms, key=keys[at]) for at, ms in enumerate(times))


def cases(now_ms: int) -> list[Case]:
    """All of them. Their names are unlike each other."""
    made = Maker(now_ms)
    cases = [*_headers(made), *_frames(made), *_topics(made)]
    for codec, name in enumerate(CODECS):
        of_codec = (*timed(made, codec), *_counts(made, codec), *_records(made, codec))
        cases += [replace(case, name=f"{case.name}, {name}") for case in of_codec]
    assert len({case.name for case in cases}) == len(cases)
    return cases


def timed(made: Maker, codec: int) -> Iterator[Case]:
    """Three records with keys of their own and all kinds of times."""
    base_ms = made.base_ms
    last_ms = base_ms + 120_000

    def times(name: str, data: bytes, topic: str = "plain") -> Case:
        return Case(name=name, data=data, topic=topic)

    yield times("right", made.three(codec, max_ms=last_ms))
    yield times("maximum left out", made.three(codec, max_ms=-1))
    yield times("maximum of the first record", made.three(codec))
    yield times("maximum too late", made.three(codec, max_ms=last_ms + 300_000))
    yield times("maximum far beyond", made.three(codec, max_ms=2**63 - 1))
    yield times("maximum negative", made.three(codec, max_ms=-(2**62)))
    yield times("equal times", made.three(codec, (0, 0, 0)))
    yield times("unordered times", made.three(codec, (60_000, 120_000, -60_000)))
    yield times("greatest first", made.three(codec, (0, -60_000, -30_000)))
    yield times("no times", made.three(codec, (0, 0, 0), base_ms=-1))
    yield times("no times, maximum 0", made.three(codec, (0, 0, 0), base_ms=-1, max_ms=0))
    yield times("no time, then times", made.three(codec, (0, base_ms + 1, base_ms + 5), base_ms=-1))
    yield times("times, one without", made.three(codec, (0, -base_ms - 1, 5)))
    yield times("time 0", made.three(codec, (0, 0, 0), base_ms=0))
    yield times("negative times", made.three(codec, (0, 1, 2), base_ms=-500))
    yield times("negative and right times", made.three(codec, (0, base_ms, base_ms + 2), base_ms=-500))
    yield times("a year ahead", made.three(codec, (0, 1, YEAR_MS)))
    yield times("a year ahead where that is allowed", made.three(codec, (0, 1, YEAR_MS)), "boundless")
    yield times("all a year ahead", made.three(codec, base_ms=base_ms + YEAR_MS, max_ms=base_ms))
    yield times("delta leaves 64 bits", made.three(codec, (0, 1, 2**63 - 1)))
    yield times("delta leaves 64 bits downwards", made.three(codec, (0, 1, -(2**63)), base_ms=-500))


def _counts(made: Maker, codec: int) -> Iterator[Case]:
    three, one = records(), record(0)

    def count(name: str, data: bytes) -> Case:
        return Case(name=name, data=data)

    yield count("count 2, three records", made.plain(three, 2, codec))
    yield count("count 4, three records", made.plain(three, 4, codec))
    yield count("count 1000, three records", made.plain(three, 1000, codec))
    yield count("count and last offset differ", made.plain(three, 3, codec, last=5))
    yield count("last offset below the count", made.plain(three, 3, codec, last=1))
    yield count("count 0", made.plain(b"", 0, codec, last=0))
    yield count("count 0 and a record", made.plain(one, 0, codec, last=0))
    yield count("count -1", made.plain(one, -1, codec, last=0))
    yield count("last offset -1", made.plain(one, 1, codec, last=-1))
    yield count("no records", made.plain(b"", 1, codec))
    yield count("a byte behind the last record", made.plain(three + b"\0", 3, codec))
    yield count("much behind the last record", made.plain(three + b"x" * 100_000, 3, codec))
    yield count("last record cut off", made.plain(three[:-1], 3, codec))
    yield count("offsets 0, 0, 7", made.plain(record(0) + record(0) + record(7), 3, codec))
    yield count("offsets 2, 1, 0", made.plain(record(2) + record(1) + record(0), 3, codec))
    yield count("offsets from 1 on", made.plain(record(1) + record(2) + record(3), 3, codec))
    yield count("offsets -1, 0, 1", made.plain(record(-1) + record(0) + record(1), 3, codec))


def _records(made: Maker, codec: int) -> Iterator[Case]:
    def second(name: str, odd: bytes) -> Case:
        return Case(name=name, data=made.plain(record(0) + odd + record(2), 3, codec))

    def only(name: str, odd: bytes) -> Case:
        return Case(name=name, data=made.plain(odd, 1, codec))

    key, value, zero = field(b"k"), field(b"value"), varint(0)
    time_and_offset = varint(0) + varint(1)
    yield second("record attributes", record(1, attributes=0x7F))
    yield second("record attribute of gzip", record(1, attributes=1))
    yield second("null key and value", record(1, key=None, value=None))
    yield second("empty key and value", record(1, key=b"", value=b""))
    yield second("headers", record(1, headers=varint(2) + field(b"a") + field(b"1") + field(b"") + field(None)))
    yield second("header name twice", record(1, headers=varint(2) + (field(b"a") + field(b"1")) * 2))
    yield second("header name that is no UTF-8", record(1, headers=varint(1) + field(b"\xff\xfe") + field(b"1")))
    yield second("header name null", record(1, headers=varint(1) + field(None) + field(b"1")))
    yield second("header name of -2 bytes", record(1, headers=varint(1) + varint(-2) + field(b"1")))
    yield second("header value of -2 bytes", record(1, headers=varint(1) + field(b"a") + varint(-2)))
    yield second("header value beyond the record", record(1, headers=varint(1) + field(b"a") + varint(100)))
    yield only("header value beyond the batch", record(0, headers=varint(1) + field(b"a") + varint(10_000)))
    yield second("-1 headers", record(1, headers=varint(-1)))
    yield only("many more headers than bytes", record(0, headers=varint(2**31 - 1)))
    yield second("one header more than there are", record(1, headers=varint(2) + field(b"a") + field(b"1")))
    yield second("a byte behind the headers", record(1, tail=b"\0"))
    yield second("record longer than it is", record(1, longer=1))
    yield only("record longer than the batch", record(0, longer=50))
    yield only("record of 2 GiB", varint(2**31 - 1) + record(0)[1:])
    yield second("record shorter than it is", record(1, longer=-1))
    yield only("record of 0 bytes", varint(0) + record(0)[1:])
    yield only("record of -1 bytes", varint(-1) + record(0)[1:])
    yield second("key of -2 bytes", raw_record(time_and_offset, varint(-2), value, zero))
    yield second("value of -2 bytes", raw_record(time_and_offset, key, varint(-2), zero))
    yield second("key beyond the record", raw_record(time_and_offset, varint(100), value, zero))
    yield only("key beyond the batch", raw_record(zero, zero, varint(10_000), value, zero))
    yield only("value beyond the batch", raw_record(zero, zero, key, varint(10_000), zero))
    yield second("value of 2 GiB", raw_record(time_and_offset, key, varint(2**31 - 1), zero))
    yield second("offset in more bytes than needed", raw_record(zero, b"\x82\x80\x80\x00", key, value, zero))
    yield second("offset of six bytes", raw_record(zero, b"\x82\x80\x80\x80\x80\x00", key, value, zero))
    yield second("offset of 33 bits", raw_record(zero, b"\x82\x80\x80\x80\x10", key, value, zero))
    yield second("time in ten bytes", raw_record(b"\x80" * 9 + b"\0", varint(1), key, value, zero))
    yield second("time of eleven bytes", raw_record(b"\x80" * 10 + b"\0", varint(1), key, value, zero))
    yield second("time of 65 bits", raw_record(b"\x80" * 9 + b"\x02", varint(1), key, value, zero))


def _headers(made: Maker) -> Iterator[Case]:
    def header(name: str, data: bytes, version: int = 9) -> Case:
        return Case(name=name, data=data, version=version)

    three = records()
    yield header("magic 0", made.packed(three, magic=0))
    yield header("magic 1", made.packed(three, magic=1))
    yield header("magic 3", made.packed(three, magic=3))
    yield header("magic -1", made.packed(three, magic=-1))
    yield header("wrong CRC", made.packed(three, wrong_crc=1))
    yield header("wrong CRC of gzip", made.packed(compress(GZIP, three), 3, GZIP, wrong_crc=1))
    yield header("a byte less than the length says", made.packed(three, longer=1))
    yield header("a byte more than the length says", made.packed(three, longer=-1))
    yield header("length 0", made.packed(three)[:8] + bytes(4) + made.packed(three)[12:])
    yield header("length -1", made.packed(three)[:8] + b"\xff" * 4 + made.packed(three)[12:])
    yield header("length of 2 GiB", made.packed(three)[:8] + b"\x7f\xff\xff\xff" + made.packed(three)[12:])
    yield header("no bytes", b"")
    yield header("ten bytes", bytes(10))
    yield header("a header cut off", made.packed(three)[:60])
    yield header("a header alone", made.packed(b"", 1))
    yield header("two batches", made.packed(three) * 2)
    yield header("a batch and ten bytes", made.packed(three) + bytes(10))
    yield header("unused attributes", made.packed(three, attributes=0xFF80))
    yield header("control", made.packed(three, attributes=0x20))
    yield header(
        "a control record",
        made.packed(raw_record(varint(0), varint(0), field(bytes(4)), field(bytes(6)), varint(0)), 1, attributes=0x20),
    )
    yield header("delete horizon", made.packed(three, attributes=0x40))
    yield header("log append time", made.packed(three, attributes=0x08))
    yield header("log append time -1", made.packed(three, attributes=0x08, max_ms=-1))
    yield header("log append time in gzip", made.packed(compress(GZIP, three), 3, GZIP, attributes=0x08))
    for codec in (5, 6, 7):
        yield header(f"codec {codec}", made.packed(three, codec=codec))
    yield header("base offset 5", made.packed(three, base_offset=5))
    yield header("base offset -1", made.packed(three, base_offset=-1))
    yield header("leader epoch 5", made.packed(three, leader_epoch=5))
    yield header("zstd in Produce v6", made.three(ZSTD), 6)
    yield header("zstd in Produce v7", made.three(ZSTD), 7)
    yield header("lz4 in Produce v3", made.three(LZ4), 3)
    yield header("producer without a sequence", made.packed(three, producer=(7000, 0, -1)))
    yield header("producer with sequence -2", made.packed(three, producer=(7001, 0, -2)))
    yield header("producer without an epoch", made.packed(three, producer=(7002, -1, 0)))
    yield header("producer", made.packed(three, producer=(7003, 0, 0)))
    yield header("producer in the middle", made.packed(three, producer=(7004, 0, 5)))
    yield header("producer id -2", made.packed(three, producer=(-2, 0, 0)))
    yield header("sequence without a producer", made.packed(three, producer=(-1, 0, 0)))
    yield header("epoch without a producer", made.packed(three, producer=(-1, 3, -1)))
    yield header("transaction without a producer", made.packed(three, attributes=0x10))
    yield header("transaction without a transactional id", made.packed(three, attributes=0x10, producer=(7005, 0, 0)))


def _frames(made: Maker) -> Iterator[Case]:
    """Compressed bytes that are odd."""

    def frame(name: str, codec: int, payload: bytes, count: int = 3) -> Case:
        return Case(name=f"{name}, {CODECS[codec]}", data=made.packed(payload, count, codec))

    three = records()
    large = b"".join(record(at, value=b"v" * 40_000) for at in range(5))
    for codec in (GZIP, SNAPPY, LZ4, ZSTD):
        whole = compress(codec, three)
        yield frame("bytes that are none", codec, b"not compressed at all, but for some bytes")
        yield frame("records as they are", codec, three)
        yield frame("empty payload", codec, b"")
        yield frame("cut in the middle", codec, whole[: len(whole) // 2])
        yield frame("cut by a byte", codec, whole[:-1])
        yield frame("cut by eight bytes", codec, whole[:-8])
        yield frame("bytes behind it", codec, whole + b"and more than eight bytes")
        yield frame("a zero behind it", codec, whole + b"\0")
        yield frame("twice", codec, whole + whole)
        yield frame("twice, for six", codec, whole + compress(codec, b"".join(record(at) for at in (3, 4, 5))), 6)
        yield frame("in two parts", codec, compress(codec, three[:20]) + compress(codec, three[20:]))
        yield frame("in itself", codec, compress(codec, whole))
        yield frame("large", codec, compress(codec, large), 5)
        yield frame("large, cut off", codec, compress(codec, large)[:-20], 5)
        yield frame("many records", codec, compress(codec, b"".join(map(record, range(20_000)))), 20_000)
        yield frame("a bomb", codec, compress(codec, record(0, value=bytes(50_000_000))), 1)
    yield from _zlib_frames(frame, three)
    yield from _lz4_frames(frame, three)
    yield frame("raw", SNAPPY, bytes(cramjam.snappy.compress_raw(three)))
    xerial = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    block = bytes(cramjam.snappy.compress_raw(three))
    yield frame("xerial's header alone", SNAPPY, xerial)
    yield frame("a block that lies of its length", SNAPPY, xerial + struct.pack(">i", len(block) + 5) + block)
    yield frame("a block of -1 bytes", SNAPPY, xerial + struct.pack(">i", -1) + block)
    yield frame("a block of no bytes", SNAPPY, xerial + struct.pack(">i", 0))
    bomb = b"\xff\xff\xff\xff\x07" + block[1:]
    yield frame("a block that claims 2 GiB", SNAPPY, xerial + struct.pack(">i", len(bomb)) + bomb)
    yield frame("raw, claims 2 GiB", SNAPPY, bomb)
    yield frame(
        "another version of xerial's",
        SNAPPY,
        b"\x82SNAPPY\0" + struct.pack(">ii", 2, 2) + struct.pack(">i", len(block)) + block,
    )
    yield frame("Google's framing", SNAPPY, bytes(cramjam.snappy.compress(three)))
    yield from _zstd_frames(frame, three)


_Frame = Callable[[str, int, bytes], Case]


def _zlib_frames(frame: _Frame, three: bytes) -> Iterator[Case]:
    whole = gzip.compress(three)
    yield frame("wrong checksum", GZIP, whole[:-8] + bytes([whole[-8] ^ 1]) + whole[-7:])
    yield frame("wrong length", GZIP, whole[:-1] + b"\x01")
    yield frame("zlib's framing", GZIP, zlib.compress(three))
    yield frame("no framing", GZIP, zlib.compress(three)[2:-4])
    yield frame("with a file's name", GZIP, whole[:3] + b"\x08" + whole[4:10] + b"name\0" + whole[10:])


def _lz4_frames(frame: _Frame, three: bytes) -> Iterator[Case]:
    stored = struct.pack("<I", len(three) | 0x80000000) + three
    end = bytes(4)

    def lz4(flags: int, blocks: bytes, *, block_size: int = 0x40, more: bytes = b"", wrong: int = 0) -> bytes:
        described = bytes([flags, block_size]) + more
        return b"\x04\x22\x4d\x18" + described + bytes([_xxhash32(described) >> 8 & 0xFF ^ wrong]) + blocks

    yield frame("stored block", LZ4, lz4(0x60, stored + end))
    yield frame("no end mark", LZ4, lz4(0x60, stored))
    yield frame("linked blocks", LZ4, lz4(0x40, stored + end))
    yield frame("as lz4's own library has it", LZ4, bytes(cramjam.lz4.compress(three)))
    yield frame("wrong descriptor checksum", LZ4, lz4(0x60, stored + end, wrong=1))
    yield frame("content checksum", LZ4, lz4(0x64, stored + end + struct.pack("<I", _xxhash32(three))))
    yield frame("wrong content checksum", LZ4, lz4(0x64, stored + end + struct.pack("<I", _xxhash32(three) ^ 1)))
    yield frame("content checksum left out", LZ4, lz4(0x64, stored + end))
    checked = stored + struct.pack("<I", _xxhash32(three))
    yield frame("block checksum", LZ4, lz4(0x70, checked + end))
    yield frame("wrong block checksum", LZ4, lz4(0x70, stored + struct.pack("<I", _xxhash32(three) ^ 1) + end))
    yield frame("content size", LZ4, lz4(0x68, stored + end, more=struct.pack("<Q", len(three))))
    yield frame("wrong content size", LZ4, lz4(0x68, stored + end, more=struct.pack("<Q", len(three) + 1)))
    yield frame("dictionary", LZ4, lz4(0x61, stored + end, more=struct.pack("<I", 1)))
    yield frame("reserved bit", LZ4, lz4(0x62, stored + end))
    yield frame("version 2", LZ4, lz4(0xA0, stored + end))
    yield frame("blocks of 4 MiB", LZ4, lz4(0x60, stored + end, block_size=0x70))
    yield frame("block size 3", LZ4, lz4(0x60, stored + end, block_size=0x30))
    yield frame("block longer than allowed", LZ4, lz4(0x60, struct.pack("<I", 100_000 | 0x80000000) + three + end))
    yield frame("an end, then more", LZ4, lz4(0x60, end + stored + end))
    block = bytes(cramjam.lz4.compress_block(three, store_size=False))
    yield frame("legacy framing", LZ4, b"\x02\x21\x4c\x18" + struct.pack("<I", len(block)) + block)
    yield frame(
        "a skippable frame before it",
        LZ4,
        b"\x50\x2a\x4d\x18" + struct.pack("<I", 3) + b"abc" + lz4(0x60, stored + end),
    )


def _zstd_frames(frame: _Frame, three: bytes) -> Iterator[Case]:
    def zstd(descriptor: int, head: bytes, *, size: int | None = None) -> bytes:
        block = (len(three) if size is None else size) << 3 | 1
        return b"\x28\xb5\x2f\xfd" + bytes([descriptor]) + head + struct.pack("<I", block)[:3] + three

    def window(log: int) -> bytes:
        return bytes([(log - 10) << 3])

    yield frame("window of 1 MiB", ZSTD, zstd(0, window(20)))
    yield frame("window of 128 MiB", ZSTD, zstd(0, window(27)))
    yield frame("window of 144 MiB", ZSTD, zstd(0, bytes([(27 - 10) << 3 | 1])))
    yield frame("window of 256 MiB", ZSTD, zstd(0, window(28)))
    yield frame("window of 2 GiB", ZSTD, zstd(0, window(31)))
    yield frame("content size", ZSTD, zstd(0x20, bytes([len(three)])))
    yield frame("wrong content size", ZSTD, zstd(0x20, bytes([len(three) + 1])))
    yield frame("content size of 2 GiB", ZSTD, zstd(0xE0, struct.pack("<Q", 2**31)))
    yield frame("wrong checksum", ZSTD, zstd(0x04, window(20)) + b"abcd")
    yield frame("checksum left out", ZSTD, zstd(0x04, window(20)))
    yield frame("dictionary", ZSTD, zstd(0x01, window(20) + b"\x05"))
    yield frame(
        "a skippable frame first", ZSTD, b"\x50\x2a\x4d\x18" + struct.pack("<I", 3) + b"abc" + zstd(0, window(20))
    )
    yield frame(
        "a skippable frame last", ZSTD, zstd(0, window(20)) + b"\x50\x2a\x4d\x18" + struct.pack("<I", 3) + b"abc"
    )


def _xxhash32(data: bytes) -> int:
    """xxHash-32 with seed 0."""
    first, second, third, fourth, fifth = 2654435761, 2246822519, 3266489917, 668265263, 374761393
    mask = 0xFFFFFFFF

    def turned(value: int, bits: int) -> int:
        return (value << bits | value >> 32 - bits) & mask

    at, end = 0, len(data)
    total = fifth
    if end >= 16:
        lanes = [(first + second) & mask, second, 0, -first & mask]
        while at + 16 <= end:
            for lane, word in enumerate(struct.unpack_from("<4I", data, at)):
                lanes[lane] = turned((lanes[lane] + word * second) & mask, 13) * first & mask
            at += 16
        total = sum(turned(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True))
    total = (total + end) & mask
    while at + 4 <= end:
        total = turned((total + struct.unpack_from("<I", data, at)[0] * third) & mask, 17) * fourth & mask
        at += 4
    for byte in data[at:]:
        total = turned((total + byte * fifth) & mask, 11) * first & mask
    total = (total ^ total >> 15) * second & mask
    total = (total ^ total >> 13) * third & mask
    return total ^ total >> 16


def _topics(made: Maker) -> Iterator[Case]:
    """What depends on the topic's settings."""
    base_ms = made.base_ms
    keyless = record(0) + record(1, key=None) + record(2, key=b"c")
    for codec in (NONE, GZIP, ZSTD):
        name = CODECS[codec]
        yield Case(name=f"compacted, {name}", topic="compacted", data=made.three(codec, max_ms=-1))
        yield Case(
            name=f"compacted, unordered, {name}", topic="compacted", data=made.three(codec, (60_000, 120_000, 0))
        )
        yield Case(
            name=f"compacted, no times, {name}", topic="compacted", data=made.three(codec, (0, 0, 0), base_ms=-1)
        )
        yield Case(
            name=f"compacted, empty keys, {name}", topic="compacted", data=made.plain(record(0, key=b""), 1, codec)
        )
        yield Case(
            name=f"compacted, a record has no key, {name}", topic="compacted", data=made.plain(keyless, 3, codec)
        )
        no_keys = records(key=None)
        yield Case(name=f"compacted, no keys, {name}", topic="compacted", data=made.plain(no_keys, 3, codec))
        many = b"".join(record(at, key=None) for at in range(1000))
        yield Case(name=f"compacted, a thousand without, {name}", topic="compacted", data=made.plain(many, 1000, codec))
        both = record(0, key=None) + record(1, ms=-YEAR_MS) + record(2, ms=-YEAR_MS, key=None)
        yield Case(name=f"no key, and too old, {name}", topic="both", data=made.plain(both, 3, codec))
        yield Case(name=f"log append time, {name}", topic="appended", data=made.three(codec))
        yield Case(
            name=f"log append time, a year ahead, {name}", topic="appended", data=made.three(codec, (0, 1, YEAR_MS))
        )
        yield Case(
            name=f"log append time, no times, {name}", topic="appended", data=made.three(codec, (0, 0, 0), base_ms=-1)
        )
        yield Case(
            name=f"log append time, says so itself, {name}", topic="appended", data=made.three(codec, attributes=8)
        )
        yield Case(name=f"bounds, within, {name}", topic="bounded", data=made.three(codec))
        yield Case(name=f"bounds, one too old, {name}", topic="bounded", data=made.three(codec, (0, -HOUR_MS, 0)))
        yield Case(name=f"bounds, one too new, {name}", topic="bounded", data=made.three(codec, (0, HOUR_MS, 0)))
        yield Case(
            name=f"bounds, all too old, {name}", topic="bounded", data=made.three(codec, base_ms=base_ms - HOUR_MS)
        )
        yield Case(name=f"bounds, no times, {name}", topic="bounded", data=made.three(codec, (0, 0, 0), base_ms=-1))
        yield Case(
            name=f"bounds, negative times, {name}", topic="bounded", data=made.three(codec, (0, 0, 0), base_ms=-2)
        )
        yield Case(
            name=f"bounds, maximum too old, {name}", topic="bounded", data=made.three(codec, max_ms=base_ms - YEAR_MS)
        )
        yield Case(
            name=f"bounds, maximum too new, {name}", topic="bounded", data=made.three(codec, max_ms=base_ms + YEAR_MS)
        )
        ahead = made.three(codec, base_ms=base_ms + YEAR_MS, attributes=8)
        yield Case(name=f"bounds, log append time a year ahead, {name}", topic="bounded", data=ahead)
        large = record(0, value=b"v" * 2000)
        yield Case(name=f"more than max.message.bytes, {name}", topic="small", data=made.plain(large, 1, codec))
        yield Case(name=f"a record of 2000 bytes, {name}", topic="slim", data=made.plain(large, 1, codec))
        hundred = b"".join(record(at, value=b"v" * 900) for at in range(100))
        yield Case(name=f"a hundred records of 900 bytes, {name}", topic="slim", data=made.plain(hundred, 100, codec))
    for codec, name in enumerate(CODECS):
        for target in CODECS:
            yield Case(
                name=f"from {name} to {target}",
                topic=f"to {target}",
                data=made.three(codec, (60_000, 120_000, 0), max_ms=-1, producer=(7100 + codec, 0, 0)),
            )
        yield Case(name=f"from {name}, no times", topic="to lz4", data=made.three(codec, (0, 0, 0), base_ms=-1))
        yield Case(
            name=f"from {name}, offsets not dense",
            topic="to gzip",
            data=made.plain(record(0) + record(0) + record(7), 3, codec),
        )
        yield Case(
            name=f"from {name}, more records than counted", topic="to zstd", data=made.plain(records(), 2, codec)
        )
        odd = record(0) + record(1, headers=varint(1) + field(None) + field(b"1")) + record(2)
        yield Case(name=f"from {name}, header name null", topic="to snappy", data=made.plain(odd, 3, codec))
        short = record(0) + record(1, longer=-1) + record(2)
        yield Case(name=f"from {name}, record shorter than it is", topic="to none", data=made.plain(short, 3, codec))
