"""Batches as producers that get their own timestamps wrong have written them."""

import struct
from pathlib import Path

from fastcrc import crc32

from tiered.formats.record_batch import whole_batches

WRONG = ["missing", "the first record's", "too early", "too late"]
"""What `claiming` may be given for the greatest timestamp."""


def claiming(batch: bytes | bytearray, wrong: str) -> bytearray:
    """The same batch of one header that claims another greatest timestamp, under a right CRC."""
    changed = bytearray(batch)
    base_ms, max_ms = struct.unpack_from(">qq", changed, 27)
    claims = {"missing": -1, "the first record's": base_ms, "too early": max_ms - 15, "too late": max_ms + 1000}
    struct.pack_into(">q", changed, 35, claims[wrong])
    struct.pack_into(">I", changed, 17, crc32.iscsi(bytes(changed[21:])))
    return changed


def broken(batch: bytes | bytearray) -> bytearray:
    """The same header before bytes that are no gzip, under a right CRC."""
    changed = bytearray(batch)
    (attributes,) = struct.unpack_from(">h", changed, 21)
    struct.pack_into(">h", changed, 21, attributes & ~7 | 1)
    changed[61:] = bytes(len(changed) - 61)
    struct.pack_into(">I", changed, 17, crc32.iscsi(bytes(changed[21:])))
    return changed


def break_stored(log_file: Path, number: int) -> None:
    """Replaces one batch of a served log by its `broken` form: older versions stored such batches."""
    data = bytearray(log_file.read_bytes())
    position, header = list(whole_batches(data, 0, len(data)))[number]
    with log_file.open("r+b") as file:
        file.seek(position)
        file.write(broken(data[position : position + header.size_bytes]))
