"""The four codecs of record batches: compress as Java's client does, decompress within a bound.

Owns what leaves and enters a batch's records section. Must never allocate for a size that hostile bytes
declare: what is allocated follows from bytes that are there and from the caller's bound.

Which call bounds what (each is tested with bombs):
- gzip: zlib's own `max_length`, a slice at a time; further members are read on, other bytes behind one are not,
  both as Java does.
- snappy: declares its length; it is held against the bound, and against what so few bytes can expand to,
  before anything is allocated. Raw, or in xerial's framing (Java writes 32 KiB blocks behind a 16-byte header).
- lz4 and zstd: cramjam's `decompress_into` stops at the end of the buffer that we give it, whatever the
  frame declares (python-zstandard's `max_output_size` is ignored when the frame declares a size, and
  cramjam's `decompress` has no bound). The buffer begins small; the second one is the bound.
"""

import mmap
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import cramjam

from tiered.errors import CorruptBatch

Buffer = bytes | bytearray | memoryview

_GZIP, _SNAPPY, _LZ4, _ZSTD = 1, 2, 3, 4

_GZIP_WINDOW_BITS: Final = 31
_GZIP_MAGIC: Final = b"\x1f\x8b\x08"
_GZIP_HEADER_AND_TRAILER_BYTES: Final = 18
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
_LZ4_MAGIC: Final = _LZ4_FRAME_HEADER[:4]
_LZ4_MIN_FRAME_BYTES: Final = len(_LZ4_FRAME_HEADER) + len(_LZ4_END_MARK)
_LZ4_READABLE_MASK: Final = 0b11100011
"""Of the flags: version, independent blocks, reserved, dictionary."""
_LZ4_READABLE: Final = 0b01100000
_LZ4_BLOCK_CHECKSUM_BIT: Final = 0b00010000
_LZ4_CONTENT_SIZE_BIT: Final = 0b00001000
_LZ4_CONTENT_CHECKSUM_BIT: Final = 0b00000100
_LZ4_PLAIN_FRAMES: Final = {
    bytes.fromhex("04224d18604082"): 64 << 10,
    bytes.fromhex("04224d186050fb"): 256 << 10,
    bytes.fromhex("04224d18606051"): 1 << 20,
    bytes.fromhex("04224d18607073"): 4 << 20,
}
"""Frame headers that Kafka's clients write, with the maximum size of a block. Blocks are independent; the frame has no
content size and no checksums."""
_LZ4_MAX_BLOCKS: Final = 1024
"""Every block costs a step in Python. A frame of more blocks, as only hostile clients send, is decompressed by one
call."""

_GZIP_PIECE_BYTES: Final = 16 * 1024
_FIRST_GUESS_BYTES: Final = 64 * 1024
_FIRST_GUESS_RATIO: Final = 6
_LARGE_BYTES: Final = 1 << 20
"""From here on memory comes as pages, see `_Room`."""
_GZIP_SLICE_BYTES: Final = 128 * 1024
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
    """The decompressed bytes, at most `max_bytes`; for code 0 a copy of `data`.

    Raises CorruptBatch for an unknown code, for bytes that are not wholly one valid stream of that codec (but behind
    gzip), and for more than `max_bytes`. Memory: about twice the result, and never more than about twice the bound;
    zstd's window comes on top (its decoder refuses windows over 128 MiB, as Kafka's does).
    """
    with decompressed(code, data, max_bytes=max_bytes) as plain:
        return bytes(plain)


@contextmanager
def decompressed(code: int, data: Buffer, *, max_bytes: int, scratch: bytearray | None = None) -> Iterator[memoryview]:
    """The result of `decompress`, and its errors, in memory that goes with the block; for code 0 `data` itself.

    What fits into `scratch` is written there: memory that was used before costs nothing, fresh pages four times as much
    as to fill them. For threads beside the event loop: the interpreter's lock is held for no more than a slice of it at
    a time.
    """
    if code == 0:
        if len(data) > max_bytes:
            raise _beyond(code, max_bytes)
        yield memoryview(data)
        return
    if code not in _DECODERS:
        raise CorruptBatch(f"compression codec {code} is unknown")
    room = _Room(max_bytes, scratch)
    try:
        try:
            length = _DECODERS[code](memoryview(data), room)
        except (cramjam.DecompressionError, zlib.error) as error:
            raise CorruptBatch(f"{_beyond(code, max_bytes)}: {error}") from None
        if length is None:
            raise _beyond(code, max_bytes)
        with room.view[:length] as plain:
            yield plain
    finally:
        room.close()


def _beyond(code: int, max_bytes: int) -> CorruptBatch:
    return CorruptBatch(f"the records do not decompress within {max_bytes} bytes (codec {code})")


class _Room:
    """Where a decoder writes: little at first, the whole bound when that does not do.

    The whole bound is pages that the kernel gives when they are written to. Memory of Python's own would be zeroed, or
    copied, in one piece under the interpreter's lock: a tenth of a second for 64 MiB, in which nobody is answered.
    """

    def __init__(self, max_bytes: int, scratch: bytearray | None) -> None:
        self.max_bytes = max_bytes
        self._scratch = scratch
        self._pages: mmap.mmap | None = None
        self.view = memoryview(b"")

    def small(self, size_bytes: int) -> memoryview | None:
        """What may do, a first guess being `size_bytes`; None when nothing small would."""
        if self._scratch is not None:
            self.view = memoryview(self._scratch)[: self.max_bytes]
        elif size_bytes <= _LARGE_BYTES:
            self.view = memoryview(bytearray(min(self.max_bytes, size_bytes)))
        else:
            return None
        return self.view

    def whole(self) -> memoryview:
        if self._pages is None:
            self._pages = mmap.mmap(-1, max(1, self.max_bytes))
            self.view = memoryview(self._pages)[: self.max_bytes]
        return self.view

    def fresh(self, size_bytes: int) -> memoryview:
        """For a decoder that knows how much it needs."""
        small = self.small(size_bytes)
        return self.whole() if small is None or len(small) < size_bytes else small

    def close(self) -> None:
        self.view.release()
        if self._pages is not None:
            with suppress(BufferError):  # Who failed may still hold a slice; then they go with that.
                self._pages.close()


def _decompress_gzip(data: memoryview, room: _Room) -> int | None:
    """Fed in small pieces, because zlib copies what follows a member: many tiny members must not cost a square.
    What comes out is taken in slices, for each is copied under the interpreter's lock."""
    output = room.small(_FIRST_GUESS_BYTES if len(data) <= _GZIP_PIECE_BYTES else _LARGE_BYTES + 1) or room.whole()
    decoder = zlib.decompressobj(wbits=_GZIP_WINDOW_BITS)
    total = 0
    at = 0
    while True:
        piece: Buffer = data[at : at + _GZIP_PIECE_BYTES]
        at += len(piece)
        while True:
            part = decoder.decompress(piece, _GZIP_SLICE_BYTES)
            if total + len(part) > len(output):
                if len(output) == room.max_bytes:
                    return None
                begun = output
                output = room.whole()
                output[:total] = begun[:total]
            output[total : total + len(part)] = part
            total += len(part)
            piece = decoder.unconsumed_tail
            if decoder.eof or (not piece and len(part) < _GZIP_SLICE_BYTES):
                break
        at -= len(decoder.unused_data)
        if decoder.eof:
            if not _begins_gzip_member(data[at:]):
                return total
            decoder = zlib.decompressobj(wbits=_GZIP_WINDOW_BITS)
        elif at == len(data):
            raise CorruptBatch("the gzip stream is cut off")


def _begins_gzip_member(rest: memoryview) -> bool:
    """Whether what follows a member is another one. If not, it counts for nothing, as in Java's GZIPInputStream: other
    bytes, and so few that no member's trailer fits behind a header."""
    return len(rest) > _GZIP_HEADER_AND_TRAILER_BYTES and bytes(rest[: len(_GZIP_MAGIC)]) == _GZIP_MAGIC


def _compress_snappy(data: memoryview) -> bytes:
    parts = [_XERIAL_HEADER]
    for at in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[at : at + _XERIAL_BLOCK_BYTES]))
        parts += (_U32_BIG.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(data: memoryview, room: _Room) -> int | None:
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        declared = _declared_length(data)
        return None if declared > room.max_bytes else _snappy_block(data, room.fresh(declared), declared)
    if len(data) < len(_XERIAL_HEADER):
        raise CorruptBatch("the snappy stream is cut off in its header")
    blocks: list[tuple[memoryview, int]] = []
    total = 0
    at = len(_XERIAL_HEADER)
    while at < len(data):
        if len(data) - at < _U32_BIG.size:
            raise CorruptBatch("the snappy stream is cut off before a block")
        (length,) = _U32_BIG.unpack_from(data, at)
        at += _U32_BIG.size
        if length > len(data) - at:
            raise CorruptBatch(f"a snappy block claims {length} bytes, {len(data) - at} are left")
        block = data[at : at + length]
        blocks.append((block, _declared_length(block)))
        total += blocks[-1][1]
        if total > room.max_bytes:
            return None
        at += length
    output = room.fresh(total)
    at = 0
    for block, declared in blocks:
        at += _snappy_block(block, output[at : at + declared], declared)
    return total


def _declared_length(block: memoryview) -> int:
    declared: int = cramjam.snappy.decompress_raw_len(block)
    if declared > len(block) * _SNAPPY_MAX_EXPANSION:
        raise CorruptBatch(f"a snappy block of {len(block)} bytes cannot hold the {declared} that it declares")
    return declared


def _snappy_block(block: memoryview, output: memoryview, declared: int) -> int:
    length: int = cramjam.snappy.decompress_raw_into(block, output)
    if length != declared:
        raise CorruptBatch(f"a snappy block of {declared} bytes has {length}")
    return length


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


def verify_lz4_frame(data: memoryview) -> None:
    """Raises CorruptBatch for a frame that our decoder reads and Java's clients do not.

    They read one frame, of independent blocks, without a dictionary, and nothing behind its end mark.
    """
    if len(data) < _LZ4_MIN_FRAME_BYTES or data[:4] != _LZ4_MAGIC:
        raise CorruptBatch("the lz4 frame does not begin with its magic number")
    flags = data[4]
    if flags & _LZ4_READABLE_MASK != _LZ4_READABLE:
        raise CorruptBatch(f"an lz4 frame of linked blocks, or with a dictionary (flags {flags:#x})")
    at = 15 if flags & _LZ4_CONTENT_SIZE_BIT else 7
    checksum_bytes = 4 if flags & _LZ4_BLOCK_CHECKSUM_BIT else 0
    while at + 4 <= len(data):
        (size_bytes,) = _U32_LITTLE.unpack_from(data, at)
        at += 4
        if size_bytes == 0:
            break
        at += (size_bytes & ~_LZ4_STORED_BIT) + checksum_bytes
    if at + (4 if flags & _LZ4_CONTENT_CHECKSUM_BIT else 0) != len(data):
        raise CorruptBatch("the lz4 frame ends before, or behind, the bytes of its batch")


def _decompress_lz4(data: memoryview, room: _Room) -> int:
    block_bytes = _LZ4_PLAIN_FRAMES.get(bytes(data[: len(_LZ4_FRAME_HEADER)]), 0)
    blocks = _lz4_blocks(data, block_bytes)
    if blocks is None:
        return _decompress_into(cramjam.lz4.decompress_into, data, room)
    return _decompress_into(lambda _, output: _decompress_lz4_blocks(blocks, block_bytes, output), data, room)


def _lz4_blocks(data: memoryview, block_bytes: int) -> list[tuple[memoryview, bool]] | None:
    """(block, whether it is stored uncompressed) for all blocks. None unless `data` is exactly one plain frame."""
    blocks: list[tuple[memoryview, bool]] = []
    at, last = len(_LZ4_FRAME_HEADER), len(data) - len(_LZ4_END_MARK)
    while at < last:
        (size_bytes,) = _U32_LITTLE.unpack_from(data, at)
        at += 4
        length = size_bytes & ~_LZ4_STORED_BIT
        if not 0 < length <= min(block_bytes, last - at) or len(blocks) == _LZ4_MAX_BLOCKS:
            return None
        blocks.append((data[at : at + length], bool(size_bytes & _LZ4_STORED_BIT)))
        at += length
    return blocks if blocks and data[at:] == _LZ4_END_MARK else None


def _decompress_lz4_blocks(blocks: list[tuple[memoryview, bool]], block_bytes: int, output: memoryview) -> int:
    """The length of the decompressed blocks in `output`. The frame's decoder copies through two buffers and takes up to
    twice as long."""
    total = 0
    for block, is_stored in blocks:
        room = output[total : total + block_bytes]
        if not is_stored:
            total += cramjam.lz4.decompress_block_into(block, room, output_len=len(room))
        elif len(block) > len(room):
            raise cramjam.DecompressionError("there is no room for a stored block")
        else:
            room[: len(block)] = block
            total += len(block)
    return total


def _decompress_zstd(data: memoryview, room: _Room) -> int:
    return _decompress_into(cramjam.zstd.decompress_into, data, room)


def _decompress_into(decode: Callable[[Buffer, memoryview], int], data: memoryview, room: _Room) -> int:
    """The decoders do not tell a full buffer from bad bytes (but in words that may change): more room, then."""
    small = room.small(max(_FIRST_GUESS_BYTES, _FIRST_GUESS_RATIO * len(data)))
    if small is not None:
        try:
            return decode(data, small)
        except cramjam.DecompressionError:
            if len(room.view) >= room.max_bytes:
                raise
    return decode(data, room.whole())


_DECODERS: Final[dict[int, Callable[[memoryview, _Room], int | None]]] = {
    _GZIP: _decompress_gzip,
    _SNAPPY: _decompress_snappy,
    _LZ4: _decompress_lz4,
    _ZSTD: _decompress_zstd,
}
