"""Codecs: the forms that other clients write, and bombs that must not go off."""

import gzip
import io
import os
import random
import struct
import tracemalloc
import zlib
from collections.abc import Callable

import cramjam
import pytest
import zstandard

from tiered.errors import CorruptBatch
from tiered.formats.compression import compress, decompress, decompressed, verify_lz4_frame

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
CODECS = [GZIP, SNAPPY, LZ4, ZSTD]
PLAIN = b"".join(b"%d green bottles hanging on the wall, " % n for n in range(20_000))
MAX = 4 << 20


def zstd_without_size(data: bytes) -> bytes:
    sink = io.BytesIO()
    with zstandard.ZstdCompressor().stream_writer(sink, closefd=False) as writer:
        writer.write(data)
    return sink.getvalue()


def xerial(*blocks: bytes) -> bytes:
    framed = b"".join(struct.pack(">i", len(block)) + block for block in blocks)
    return b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + framed


FOREIGN = [
    pytest.param(GZIP, gzip.compress(PLAIN), id="gzip with a file header"),
    pytest.param(GZIP, gzip.compress(PLAIN[:1000]) + gzip.compress(PLAIN[1000:]), id="gzip of two members"),
    pytest.param(SNAPPY, bytes(cramjam.snappy.compress_raw(PLAIN)), id="snappy raw, as librdkafka writes it"),
    pytest.param(SNAPPY, xerial(bytes(cramjam.snappy.compress_raw(PLAIN))), id="snappy framed in one block"),
    pytest.param(LZ4, bytes(cramjam.lz4.compress(PLAIN)), id="lz4 of linked blocks with checksums"),
    pytest.param(ZSTD, zstandard.compress(PLAIN), id="zstd with its size"),
    pytest.param(ZSTD, zstd_without_size(PLAIN), id="zstd without its size, as Java writes it"),
    pytest.param(ZSTD, zstandard.compress(PLAIN[:9]) + zstandard.compress(PLAIN[9:]), id="zstd of two frames"),
]


@pytest.mark.parametrize("code", [0, *CODECS])
@pytest.mark.parametrize("length", [0, 1, 100, 32 * 1024, 64 * 1024, 64 * 1024 + 1, len(PLAIN)])
def test_what_is_compressed_is_decompressed(code: int, length: int) -> None:
    for kind in (bytes, bytearray, memoryview):
        assert decompress(code, kind(compress(code, kind(PLAIN[:length]))), max_bytes=length) == PLAIN[:length]


def test_bytes_that_do_not_compress_survive() -> None:
    noise = bytes((n * n * 7919 + (n >> 3)) % 251 for n in range(200_000))
    for code in CODECS:
        assert decompress(code, compress(code, noise), max_bytes=len(noise)) == noise


@pytest.mark.parametrize(("code", "data"), FOREIGN)
def test_other_writers_forms_are_read(code: int, data: bytes) -> None:
    assert decompress(code, data, max_bytes=MAX) == PLAIN
    assert decompress(code, data, max_bytes=len(PLAIN)) == PLAIN
    with pytest.raises(CorruptBatch, match="within"):
        decompress(code, data, max_bytes=len(PLAIN) - 1)


@pytest.mark.parametrize(("code", "data"), FOREIGN)
def test_a_cut_stream_is_refused(code: int, data: bytes) -> None:
    for length in {0, 1, 7, 15, len(data) // 2, len(data) - 1}:
        with pytest.raises(CorruptBatch):
            decompress(code, data[:length], max_bytes=MAX)


@pytest.mark.parametrize(("code", "data"), [each for each in FOREIGN if each.values[0] != GZIP])
def test_bytes_behind_the_stream_are_refused(code: int, data: bytes) -> None:
    with pytest.raises(CorruptBatch):
        decompress(code, data + b"trailing", max_bytes=MAX)


def test_lz4_frames_are_such_as_java_and_librdkafka_read() -> None:
    frame = compress(LZ4, PLAIN)
    assert frame[:4] == bytes.fromhex("04224d18")
    assert frame[4] == 0x60, "version 1, independent blocks (Java refuses linked ones), no checksums"
    assert frame[5] == 0x40, "blocks of 64 KiB"
    assert frame[-4:] == bytes(4)
    assert bytes(cramjam.lz4.decompress(frame)) == PLAIN, "the checksum of the frame's header is checked here"


def lz4_frame(data: bytes, **options: bool) -> bytes:
    compressor = cramjam.lz4.Compressor(**options)
    compressor.compress(data)
    return bytes(compressor.finish())


def test_what_java_cannot_read_of_lz4_is_no_frame_for_a_producer() -> None:
    frame = compress(LZ4, PLAIN)
    with_checksum = lz4_frame(PLAIN, block_linked=False, content_checksum=True)
    for readable in (frame, with_checksum, lz4_frame(b"", block_linked=False)):
        verify_lz4_frame(memoryview(readable))
    skippable = b"\x50\x2a\x4d\x18" + struct.pack("<I", 3) + b"abc"
    needs_dictionary = frame[:4] + b"\x61" + frame[5:]
    for other in (
        *(lz4_frame(PLAIN, block_linked=True), needs_dictionary, skippable + frame),
        *(frame + frame, frame + b"\0", frame[:-1], with_checksum[:-1], frame[:10], b""),
    ):
        with pytest.raises(CorruptBatch, match="lz4 frame"):
            verify_lz4_frame(memoryview(other))


@pytest.mark.parametrize("block_bytes", [64 << 10, 256 << 10])
def test_lz4_frames_that_are_decompressed_block_by_block_are_read_as_the_whole_frame_is(block_bytes: int) -> None:
    """Whatever is wrong with one of them."""
    stored, packed = os.urandom(1000), bytes(cramjam.lz4.compress_block(PLAIN[:block_bytes], store_size=False))
    header = bytes.fromhex("04224d18" + {64 << 10: "604082", 256 << 10: "6050fb"}[block_bytes])
    frame = bytearray(header + struct.pack("<I", len(packed)) + packed)
    frame += struct.pack("<I", len(stored) | 1 << 31) + stored + bytes(4)
    assert decompress(LZ4, frame, max_bytes=MAX) == PLAIN[:block_bytes] + stored
    places = [*range(20), *range(11 + len(packed), 18 + len(packed)), *range(len(frame) - 5, len(frame))]
    for place in [*places, *random.Random(1).sample(range(len(frame)), 300)]:
        mutated = frame[:]
        mutated[place] ^= 1 << (place % 8)
        assert _outcome(lambda m=mutated: bytes(cramjam.lz4.decompress(m))) == _outcome(  # type: ignore[misc]
            lambda m=mutated: decompress(LZ4, m, max_bytes=MAX)  # type: ignore[misc]
        ), place


def test_lz4_frames_of_a_hundred_thousand_tiny_blocks_are_decompressed_without_a_step_for_each() -> None:
    block = struct.pack("<I", 1 | 1 << 31) + b"x"
    frame = bytes.fromhex("04224d18604082") + block * 100_000 + bytes(4)
    tracemalloc.start()
    try:
        assert decompress(LZ4, frame, max_bytes=MAX) == b"x" * 100_000
        assert tracemalloc.get_traced_memory()[1] < 2 << 20
    finally:
        tracemalloc.stop()


def _outcome(decode: Callable[[], bytes]) -> bytes | None:
    """None where it refuses the bytes."""
    try:
        return decode()
    except (CorruptBatch, cramjam.DecompressionError):
        return None


def test_snappy_is_framed_as_java_frames_it() -> None:
    framed = compress(SNAPPY, PLAIN)
    assert framed[:16] == b"\x82SNAPPY\x00" + bytes.fromhex("0000000100000001")
    (length,) = struct.unpack_from(">i", framed, 16)
    assert bytes(cramjam.snappy.decompress_raw(framed[20 : 20 + length])) == PLAIN[: 32 * 1024]


ZEROS = bytes(16 << 20)
BOMBS = [
    pytest.param(GZIP, gzip.compress(ZEROS, 9), id="gzip"),
    pytest.param(SNAPPY, bytes(cramjam.snappy.compress_raw(ZEROS)), id="snappy"),
    pytest.param(SNAPPY, xerial(*[bytes(cramjam.snappy.compress_raw(ZEROS[: 1 << 20]))] * 16), id="snappy framed"),
    pytest.param(SNAPPY, b"\xff\xff\xff\xff\x0f" + b"\0" * 40, id="snappy that declares 4 GiB"),
    pytest.param(SNAPPY, b"\xff\xff\x3f" + b"\0" * 40, id="snappy that declares 1 MiB in 43 bytes"),
    pytest.param(LZ4, bytes(cramjam.lz4.compress(ZEROS)), id="lz4"),
    pytest.param(ZSTD, zstandard.compress(ZEROS), id="zstd with its size"),
    pytest.param(ZSTD, zstd_without_size(ZEROS), id="zstd without its size"),
    pytest.param(ZSTD, zstandard.compress(ZEROS[: 1 << 20]) * 16, id="zstd of many frames"),
]


@pytest.mark.parametrize("code", [GZIP, SNAPPY, LZ4, ZSTD])
def test_what_is_large_is_not_in_memory_of_pythons_own(code: int) -> None:
    """That is zeroed and copied in one piece, under the interpreter's lock: nobody else is answered meanwhile."""
    packed = compress(code, ZEROS)
    tracemalloc.start()
    try:
        with decompressed(code, packed, max_bytes=len(ZEROS)) as plain:
            assert (len(plain), plain[0], plain[-1]) == (len(ZEROS), 0, 0)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 2 << 20


@pytest.mark.parametrize(("code", "bomb"), BOMBS)
def test_a_bomb_is_refused_within_the_bound(code: int, bomb: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(CorruptBatch):
            decompress(code, bomb, max_bytes=1 << 20)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 3 << 20


def test_many_tiny_gzip_members_are_read() -> None:
    members = gzip.compress(b"x") * 5000
    assert decompress(GZIP, members, max_bytes=5000) == b"x" * 5000
    with pytest.raises(CorruptBatch):
        decompress(GZIP, members, max_bytes=4999)


_MEMBER = gzip.compress(PLAIN)


@pytest.mark.parametrize(
    "rest",
    [b"\0", bytes(64), b"\x1f\x8b", _MEMBER[:5], _MEMBER[:18], b"\x1f\x8b\x09" + bytes(30), b"garbage" * 20_000],
    ids=lambda rest: f"{len(rest)} bytes",
)
def test_bytes_behind_gzip_count_for_nothing_as_in_java(rest: bytes) -> None:
    for whole in (_MEMBER, compress(GZIP, PLAIN[:5]) + compress(GZIP, PLAIN[5:])):
        assert decompress(GZIP, whole + rest, max_bytes=len(PLAIN)) == PLAIN


@pytest.mark.parametrize(
    "rest",
    [_MEMBER[:20], _MEMBER[:-8] + bytes(8), _MEMBER[:10] + b"\xff" * 40, _MEMBER[:-1]],
    ids=lambda rest: f"{len(rest)} bytes",
)
def test_a_further_gzip_member_that_is_broken_is_refused_as_in_java(rest: bytes) -> None:
    with pytest.raises(CorruptBatch):
        decompress(GZIP, _MEMBER + rest, max_bytes=MAX)


@pytest.mark.parametrize(("window", "is_taken"), [(17 << 3, True), (17 << 3 | 1, False), (18 << 3, False)])
def test_zstd_windows_of_more_than_128_mib_are_refused_as_in_kafka(window: int, is_taken: bool) -> None:
    """The least window above it is 144 MiB. The frame itself is small."""
    last_stored_block = struct.pack("<I", 5 << 3 | 1)[:3] + b"hello"
    frame = struct.pack("<I2B", 0xFD2FB528, 0, window) + last_stored_block
    if is_taken:
        assert decompress(ZSTD, frame, max_bytes=MAX) == b"hello"
    else:
        with pytest.raises(CorruptBatch, match="too much memory"):
            decompress(ZSTD, frame, max_bytes=MAX)


def test_a_zlib_stream_is_no_gzip() -> None:
    with pytest.raises(CorruptBatch):
        decompress(GZIP, zlib.compress(PLAIN), max_bytes=MAX)


@pytest.mark.parametrize("code", [-1, 5, 6, 7, 99])
def test_an_unknown_codec_is_refused(code: int) -> None:
    with pytest.raises(CorruptBatch, match="unknown"):
        decompress(code, b"", max_bytes=MAX)


def test_plain_records_are_bounded_too() -> None:
    with pytest.raises(CorruptBatch, match="within"):
        decompress(0, PLAIN, max_bytes=100)
