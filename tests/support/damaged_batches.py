"""Batches that were changed and whose checksum says nothing of it."""

import struct

from fastcrc import crc32


def with_right_crc(whole: bytes, footer: bytes) -> bytes:
    """The object with another footer, which its trailer vouches for."""
    (footer_bytes,) = struct.unpack_from(">I", whole, len(whole) - 16)
    trailer = struct.pack(">II8s", len(footer), crc32.iscsi(footer), b"TIERED01")
    return whole[: len(whole) - 16 - footer_bytes] + footer + trailer
