"""Hostile bytes in compressed batches: both decoders give the same rows or refuse, and neither takes memory at will."""

import os
import random
import struct
import time
import tracemalloc

import fastcrc
import pytest

from tiered.errors import CorruptBatch
from tiered.formats.arrow import ALL_COLUMNS, decode_chunk
from tiered.formats.record_batch import Compression, Record, encode_batch

MAX_PLAIN_BYTES = 1 << 20
# The result, the decompressor's buffer that grew to it, and the columns that were made of it.
MOST_BYTES = 16 * MAX_PLAIN_BYTES
_HEADER_BYTES, _CRC_AT, _CRC_COVERS_FROM = 61, 17, 21


def sealed(batch: bytearray) -> bytes:
    """The batch with its length and its CRC as they should be: what is hostile is behind them."""
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">I", batch, _CRC_AT, fastcrc.crc32.iscsi(bytes(batch[_CRC_COVERS_FROM:])))
    return bytes(batch)


def seed_batch(random_: random.Random) -> bytearray:
    records = [
        Record(
            offset=at,
            timestamp_ms=1_700_000_000_000 + at,
            key=None if at % 3 == 0 else random_.randbytes(at % 20),
            value=bytes([at % 256]) * random_.choice((0, 10, 3000)),
            headers=(("größe", None), ("", b"x")) if at % 5 == 0 else (),
        )
        for at in range(random_.randrange(1, 60))
    ]
    return bytearray(encode_batch(records, compression=random_.choice(list(Compression)[1:])))


def mutated(batch: bytearray, random_: random.Random) -> bytearray:
    for _ in range(random_.randrange(1, 5)):
        at = random_.randrange(_HEADER_BYTES, len(batch)) if random_.random() < 0.8 else random_.randrange(57, 61)
        match random_.randrange(5):
            case 0:
                batch[at] ^= 1 << random_.randrange(8)
            case 1:
                batch[at] = random_.choice((0, 1, 0x7F, 0x80, 0xFF))
            case 2:
                del batch[max(_HEADER_BYTES, at) : max(_HEADER_BYTES, at) + random_.randrange(1, 30)]
                if len(batch) <= _HEADER_BYTES + 1:
                    batch += random_.randbytes(8)
            case 3:
                batch += batch[max(_HEADER_BYTES, at) :] * random_.randrange(1, 4)
            case _:
                # The same bytes as those of another codec.
                batch[22] = batch[22] & ~7 | random_.randrange(8)
    return batch


def rows_of(chunk: bytes, *, pure: bool) -> list[dict[str, object]] | None:
    found: list[dict[str, object]] = []
    try:
        for batch in decode_chunk(
            chunk,
            topic="t",
            partition=0,
            columns=ALL_COLUMNS,
            pure=pure,
            max_decompressed_bytes=MAX_PLAIN_BYTES,
        ):
            found += [row | {"timestamp": None} for row in batch.cast(_plain(batch.schema)).to_pylist()]
    except CorruptBatch:
        return None
    return found


def _plain(schema: object) -> object:
    """Times as numbers: hostile ones are beyond what Python's datetime holds."""
    import pyarrow as pa

    assert isinstance(schema, pa.Schema)
    at = schema.get_field_index("timestamp")
    return schema.set(at, pa.field("timestamp", pa.int64()))


def run(seed: int, runs: int) -> tuple[int, int]:
    random_ = random.Random(seed)
    accepted = refused = 0
    # What is imported at first use is no batch's doing.
    known = bytes(seed_batch(random.Random(seed)))
    rows_of(known, pure=False)
    rows_of(known, pure=True)
    tracemalloc.start()
    try:
        for _ in range(runs):
            chunk = sealed(mutated(seed_batch(random_), random_))
            native, pure = rows_of(chunk, pure=False), rows_of(chunk, pure=True)
            assert native == pure, f"seed {seed}: {chunk.hex()}"
            accepted, refused = accepted + (native is not None), refused + (native is None)
        assert tracemalloc.get_traced_memory()[1] < MOST_BYTES, f"seed {seed}"
    finally:
        tracemalloc.stop()
    return accepted, refused


def test_mutated_compressed_batches_are_refused_or_read_alike_within_their_bound() -> None:
    accepted, refused = run(seed=1, runs=300)
    assert refused
    assert accepted


@pytest.mark.fuzz
def test_mutated_compressed_batches_for_long() -> None:
    deadline = time.monotonic() + 60 * float(os.environ.get("TIERED_FUZZ_MINUTES", "10"))
    seed = int.from_bytes(os.urandom(4), "big")
    while time.monotonic() < deadline:
        run(seed, 1000)
        seed += 1
