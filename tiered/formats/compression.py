"""The four codecs of record batches: compress as Java's client does, decompress within a bound.

Owns what leaves and enters a batch's records section. Must never allocate for a size that hostile bytes
declare: what is allocated follows from bytes that are there and from the caller's bound.

Which call bounds what (each is tested with bombs):
- gzip: zlib's own `max_length`; further members are read on, as Java does.
- snappy: declares its length; it is held against the bound, and against what so few bytes can expand to,
  before anything is allocated. Raw, or in xerial's framing (Java writes 32 KiB blocks behind a 16-byte header).
- lz4 and zstd: cramjam's `decompress_into` stops at the end of the buffer that we give it, whatever the
  frame declares (python-zstandard's `max_output_size` is ignored when the frame declares a size, and
  cramjam's `decompress` has no bound). The buffer begins small and grows up to the bound.
"""

import struct
import zlib
from collections.abc import Callable
from typing import Final

import cramjam

from tiered.errors import CorruptBatch

Buffer = bytes | bytearray | memoryview

_GZIP, _SNAPPY, _LZ4, _ZSTD = 1, 2, 3, 4

_GZIP_WINDOW_BITS: Final = 31
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_SNAPPY_MAX_EXPANSION: Final = 32
"""A copy element makes at most 64 bytes out of 3, so 22 would do."""

# A frame as Java's client writes it: version 1, independent blocks (Java refuses linked ones, which is what
# cramjam's own frames have), no checksums (the batch has a CRC), blocks of 64 KiB; the last byte is the
# second byte of the xxHash-32 of the two before it.
_LZ4_FRAME_HEADER: Final = bytes.fromhex("04224d18604082")
_LZ4_BLOCK_BYTES: Final = 64 * 1024
_LZ4_STORED_BIT: Final = 0x80000000
_LZ4_END_MARK: Final = bytes(4)

_GZIP_PIECE_BYTES: Final = 16 * 1024
_FIRST_GUESS_BYTES: Final = 64 * 1024
_FIRST_GUESS_RATIO: Final = 6
_GROWTH: Final = 4
_U32_BIG = struct.Struct(">I")
_U32_LITTLE = struct.Struct("<I")


def compress(code: int, data: Buffer) -> bytes:
    """`data` in the codec `code` (0 to 4), in the form that every Kafka client reads."""
    match code:
        case 0:
            return bytes(data)
        case 1:
            encoder = zlib.compressobj(wbits=_GZIP_WINDOW_BITS)
            return encoder.compress(data) + encoder.flush()
        case 2:
            return _compress_snappy(memoryview(data))
        case 3:
            return _compress_lz4(memoryview(data))
        case 4:
            return bytes(cramjam.zstd.compress(data, level=3))
        case _:
            raise AssertionError(f"no codec has the code {code}")


def decompress(code: int, data: Buffer, *, max_bytes: int) -> bytes:
    """What was compressed, at most `max_bytes`; for code 0 a copy of `data`.

    Raises CorruptBatch for an unknown code, for bytes that are not wholly one valid stream of that codec,
    and for more than `max_bytes`. Memory: about twice the result, and never more than about twice the bound;
    zstd's window comes on top (its decoder refuses windows over 128 MiB).
    """
    try:
        match code:
            case 0:
                result = bytes(data) if len(data) <= max_bytes else None
            case 1:
                result = _decompress_gzip(data, max_bytes)
            case 2:
                result = _decompress_snappy(memoryview(data), max_bytes)
            case 3:
                result = _decompress_into(cramjam.lz4.decompress_into, data, max_bytes)
            case 4:
                result = _decompress_into(cramjam.zstd.decompress_into, data, max_bytes)
            case _:
                raise CorruptBatch(f"compression codec {code} is unknown")
    except (cramjam.DecompressionError, zlib.error) as error:
        raise CorruptBatch(f"the records do not decompress within {max_bytes} bytes (codec {code}): {error}") from None
    if result is None:
        raise CorruptBatch(f"the records do not decompress within {max_bytes} bytes (codec {code})")
    return result


def _decompress_gzip(data: Buffer, max_bytes: int) -> bytes | None:
    """Fed in small pieces, because zlib copies what follows a member: many tiny members must not cost a square."""
    view = memoryview(data)
    decoder = zlib.decompressobj(wbits=_GZIP_WINDOW_BITS)
    parts: list[bytes] = []
    total = 0
    at = 0
    while True:
        piece = view[at : at + _GZIP_PIECE_BYTES]
        part = decoder.decompress(piece, max_bytes - total + 1)
        total += len(part)
        if total > max_bytes:
            return None
        parts.append(part)
        at += len(piece) - len(decoder.unused_data)
        if decoder.eof:
            if at == len(view):
                return b"".join(parts)
            decoder = zlib.decompressobj(wbits=_GZIP_WINDOW_BITS)
        elif at == len(view):
            raise CorruptBatch("the gzip stream is cut off")


def _compress_snappy(data: memoryview) -> bytes:
    parts = [_XERIAL_HEADER]
    for at in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[at : at + _XERIAL_BLOCK_BYTES]))
        parts += (_U32_BIG.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(data: memoryview, max_bytes: int) -> bytes | None:
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _decompress_snappy_block(data, max_bytes)
    if len(data) < len(_XERIAL_HEADER):
        raise CorruptBatch("the snappy stream is cut off in its header")
    parts: list[bytes] = []
    at = len(_XERIAL_HEADER)
    while at < len(data):
        if len(data) - at < _U32_BIG.size:
            raise CorruptBatch("the snappy stream is cut off before a block")
        (length,) = _U32_BIG.unpack_from(data, at)
        at += _U32_BIG.size
        if length > len(data) - at:
            raise CorruptBatch(f"a snappy block claims {length} bytes, {len(data) - at} are left")
        part = _decompress_snappy_block(data[at : at + length], max_bytes)
        if part is None:
            return None
        max_bytes -= len(part)
        parts.append(part)
        at += length
    return b"".join(parts)


def _decompress_snappy_block(block: memoryview, max_bytes: int) -> bytes | None:
    declared = cramjam.snappy.decompress_raw_len(block)
    if declared > max_bytes:
        return None
    if declared > len(block) * _SNAPPY_MAX_EXPANSION:
        raise CorruptBatch(f"a snappy block of {len(block)} bytes cannot hold the {declared} that it declares")
    return bytes(cramjam.snappy.decompress_raw(block))


def _compress_lz4(data: memoryview) -> bytes:
    parts = [_LZ4_FRAME_HEADER]
    for at in range(0, len(data), _LZ4_BLOCK_BYTES):
        block = data[at : at + _LZ4_BLOCK_BYTES]
        packed = bytes(cramjam.lz4.compress_block(block, store_size=False))
        if len(packed) < len(block):
            parts += (_U32_LITTLE.pack(len(packed)), packed)
        else:
            parts += (_U32_LITTLE.pack(len(block) | _LZ4_STORED_BIT), bytes(block))
    parts.append(_LZ4_END_MARK)
    return b"".join(parts)


def _decompress_into(decode: Callable[[Buffer, bytearray], int], data: Buffer, max_bytes: int) -> bytes | None:
    """The decoders do not tell a full buffer from bad bytes (but in words that may change): larger until it fits."""
    capacity = min(max_bytes, max(_FIRST_GUESS_BYTES, _FIRST_GUESS_RATIO * len(data)))
    while True:
        output = bytearray(capacity)
        try:
            length = decode(data, output)
        except cramjam.DecompressionError:
            if capacity >= max_bytes:
                raise
            capacity = min(max_bytes, capacity * _GROWTH)
            continue
        return bytes(memoryview(output)[:length])
