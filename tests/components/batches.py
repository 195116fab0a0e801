"""Record batches as clients build them, and as hostile clients do."""

import struct
from collections.abc import Sequence

from fastcrc import crc32

from tiered.formats.compression import compress, decompress
from tiered.formats.record_batch import HEADER_BYTES, Compression, Record, encode_batch, read_header

FIRST_MS = 1_700_000_000_000


def batch(
    values: Sequence[bytes] = (b"value",),
    *,
    compression: Compression = Compression.NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    first_ms: int = FIRST_MS,
    transactional: bool = False,
    control: bool = False,
) -> bytes:
    """One batch of records with these values, a second apart."""
    records = [
        Record(offset=index, timestamp_ms=first_ms + 1000 * index, key=None, value=value)
        for index, value in enumerate(values)
    ]
    return encode_batch(
        records,
        compression=compression,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        transactional=transactional,
        control=control,
    )


def patched(data: bytes, position: int, piece: bytes) -> bytes:
    """`data` with `piece` at `position` and the CRC made right again."""
    changed = bytearray(data)
    changed[position : position + len(piece)] = piece
    struct.pack_into(">I", changed, 17, crc32.iscsi(bytes(changed[21:])))
    return bytes(changed)


def with_records(data: bytes, body: bytes, *, packed: bytes | None = None) -> bytes:
    """`data` with other bytes in the place of its records: `body` in the batch's codec, or `packed` as it is."""
    payload = compress(read_header(data).compression, body) if packed is None else packed
    head = bytearray(data[:HEADER_BYTES])
    struct.pack_into(">i", head, 8, HEADER_BYTES - 12 + len(payload))
    return patched(bytes(head) + payload, 0, b"")


def records_of(data: bytes) -> bytes:
    """The records section, decompressed."""
    return decompress(read_header(data).compression, data[HEADER_BYTES:], max_bytes=1 << 24)
