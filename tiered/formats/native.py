"""The native kernel: finds `_decode`, loads it with ctypes and gives its structs and functions Python names.

Owns the binding and nothing of what the bytes mean. Without the library (no compiler at install time) `load` and
`kernel` answer None, and the pure decoder and validation take over. Must never import it as an extension module: it
has no PyInit.
"""

import ctypes
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import TYPE_CHECKING

from tiered.errors import CorruptBatch

if TYPE_CHECKING:
    import numpy as np

ABI_VERSION = 2
SPARE_BYTES = 32  # Padding of every data buffer beyond its capacity: short copies go in pieces of this size.
MIN_RECORD_BYTES = 7
REFUSED_RECORD_BYTES = 24
MAX_CAPACITY = 2**31 - 1 - SPARE_BYTES  # Arrow's binary columns count bytes in int32.

_byref = ctypes.byref
_from_buffer = ctypes.c_char.from_buffer

_NOT_TEXT = 7
_REASONS = {
    1: "its header is malformed (length, magic, offsets or counts)",
    2: "its CRC-32C does not match its bytes",
    3: "a record in it is malformed",
    4: "it claims more records than its bytes can hold",
    5: "it is too large for one Arrow batch: decode smaller pieces",
    6: "its records need more room than its bytes can explain",
}

# One row per batch, as `tiered_batch` in _decode.c has it. `payload` is an address.
BATCH_FIELDS = (
    "position",
    "size_bytes",
    "base_offset",
    "attributes",
    "base_timestamp_ms",
    "max_timestamp_ms",
    "last_offset_delta",
    "record_count",
    "producer_id",
    "skip",
    "payload",
    "payload_bytes",
)

_COUNTERS = (
    "rows",
    "rows_capacity",
    "key_bytes",
    "value_bytes",
    "data_capacity",
    "header_rows",
    "header_rows_capacity",
    "header_key_bytes",
    "header_value_bytes",
    "header_data_capacity",
    "key_nulls",
    "value_nulls",
    "header_list_nulls",
    "header_value_nulls",
)
_BUFFERS = (
    "offsets",
    "timestamps_us",
    "timestamp_types",
    "key_ends",
    "key_data",
    "key_validity",
    "value_ends",
    "value_data",
    "value_validity",
    "header_list_ends",
    "header_list_validity",
    "header_key_ends",
    "header_key_data",
    "header_value_ends",
    "header_value_data",
    "header_value_validity",
)
_WANTS = ("want_key", "want_value", "want_headers", "reserved")


class NotTextError(Exception):
    """A header's key is not UTF-8. Kafka allows it; the caller replaces what is wrong and decodes in Python."""


class Columns(ctypes.Structure):
    """`tiered_columns` in _decode.c: counters, addresses of buffers, and which columns are wanted."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in _COUNTERS),
        *((name, ctypes.c_void_p) for name in _BUFFERS),
        *((name, ctypes.c_int32) for name in _WANTS),
    )


class Decoder:
    """The loaded library. Its calls release the interpreter's lock and may run in several threads."""

    def __init__(self, path: Path) -> None:
        library = ctypes.CDLL(str(path))
        version = library.tiered_abi_version
        version.restype, version.argtypes = ctypes.c_int, ()
        if version() != ABI_VERSION:
            raise OSError(f"{path.name} was built from another _decode.c (version {version()}, not {ABI_VERSION})")
        self._crc32c = library.tiered_crc32c
        self._crc32c.restype = ctypes.c_uint32
        self._crc32c.argtypes = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_int)
        self._scan = library.tiered_scan
        self._scan.restype = ctypes.c_int64
        self._scan.argtypes = (
            ctypes.c_void_p,
            ctypes.c_int64,
            ctypes.c_int,
            ctypes.c_void_p,
            ctypes.c_int64,
            ctypes.POINTER(ctypes.c_int64),
        )
        self._decode = library.tiered_decode
        self._decode.restype = ctypes.c_int
        self._decode.argtypes = (
            ctypes.c_void_p,
            ctypes.c_int64,
            ctypes.c_int64,
            ctypes.c_int64,
            ctypes.POINTER(Columns),
            ctypes.POINTER(ctypes.c_int64),
        )
        self.path = path

    def crc32c(self, data: bytes, *, software: bool = False) -> int:
        """The CRC-32C of `data`; `software` keeps the processor's own instruction out."""
        return int(self._crc32c(data, len(data), int(software)))

    def scan(self, address: int, length: int, batches: "np.ndarray", *, check_crc: bool) -> tuple[int, int]:
        """How many whole batches begin at `address`, up to `len(batches)`, and how many bytes they take.

        Their rows are filled in. Raises `CorruptBatch` for the first bad one; a partial last one is left alone.
        """
        used = ctypes.c_int64(0)
        count = int(self._scan(address, length, int(check_crc), batches.ctypes.data, len(batches), ctypes.byref(used)))
        if count < 0:
            raise CorruptBatch(f"batch at position {used.value} is corrupt: {_REASONS[-count]}")
        return count, used.value

    def scan_rows(self, data: bytes, start: int, length: int, rows: bytearray) -> tuple[int, int]:
        """As `scan` with CRCs, of `data[start:start+length]`, and without numpy: `rows` takes as many rows of
        `BATCH_FIELDS` as fit, each field a native int64."""
        assert 0 <= start <= start + length <= len(data)
        used = ctypes.c_int64(0)
        address = ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value or 0
        room = (ctypes.c_char * len(rows)).from_buffer(rows)
        capacity = len(rows) // (8 * len(BATCH_FIELDS))
        count = int(self._scan(address + start, length, 1, ctypes.addressof(room), capacity, ctypes.byref(used)))
        if count < 0:
            raise CorruptBatch(f"batch at position {start + used.value} is corrupt: {_REASONS[-count]}")
        return count, used.value

    def decode(self, batches: "np.ndarray", columns: Columns, *, start_offset: int, end_offset: int) -> None:
        """Appends the records of `batches` with `start_offset <= offset < end_offset` to `columns`.

        Raises `CorruptBatch`, or `NotTextError`; the columns are then to be thrown away.
        """
        failed = ctypes.c_int64(0)
        reason = self._decode(
            batches.ctypes.data, len(batches), start_offset, end_offset, ctypes.byref(columns), ctypes.byref(failed)
        )
        if reason == _NOT_TEXT:
            raise NotTextError
        if reason != 0:
            offset = int(batches["base_offset"][failed.value])
            raise CorruptBatch(f"batch at base offset {offset} is corrupt: {_REASONS[reason]}")


class Kernel:
    """What validates produced batches; `Reason` in batch_validation.py names its answers."""

    def __init__(self, path: Path, *, keeps_lock: bool) -> None:
        """With `keeps_lock` a call keeps the interpreter's lock: for the event loop, which would have to wait for it
        after each call. Without it other threads run meanwhile."""
        library = ctypes.PyDLL(str(path)) if keeps_lock else ctypes.CDLL(str(path))
        self._validate = library.tiered_validate
        self._validate.restype = ctypes.c_int
        self._validate.argtypes = (
            ctypes.c_void_p,
            ctypes.c_int64,
            ctypes.c_int64,
            ctypes.c_char_p,
            ctypes.c_void_p,
        )
        self._validate_records = library.tiered_validate_records
        self._validate_records.restype = ctypes.c_int
        self._validate_records.argtypes = (*self._validate.argtypes, ctypes.c_void_p, ctypes.c_int64)

    def validate(
        self, buffer: bytearray | memoryview, position: int, length: int, now_ms: int, limits: bytes, verdict: int
    ) -> int:
        """Of the one batch in these bytes, which are writable memory. `limits` is a packed `tiered_limits`, `verdict`
        the address of a `tiered_verdict`."""
        address = _byref(_from_buffer(buffer, position)) if length > 0 else None
        reason: int = self._validate(address, length, now_ms, limits, verdict)
        return reason

    def validate_records(
        self, body: bytearray | memoryview, now_ms: int, limits: bytes, verdict: int, refused: bytearray
    ) -> int:
        """Of decompressed records. `refused` takes as many packed `tiered_refused_record` as fit."""
        body_address = _byref(_from_buffer(body)) if len(body) else None
        refused_address = _byref(_from_buffer(refused)) if refused else None
        capacity = len(refused) // REFUSED_RECORD_BYTES
        reason: int = self._validate_records(
            body_address, len(body), now_ms, limits, verdict, refused_address, capacity
        )
        return reason


def address_of(memory: bytearray) -> int:
    """Where `memory` is, as long as it lives and keeps its size."""
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


@cache
def kernel(*, keeps_lock: bool) -> Kernel | None:
    """The native validation, or None where it was not built."""
    decoder = load()
    return None if decoder is None else Kernel(decoder.path, keeps_lock=keeps_lock)


@cache
def load() -> Decoder | None:
    """The native decoder, or None where it was not built. Looked for once per process."""
    return load_from(Path(__file__).parent)


def load_from(folder: Path) -> Decoder | None:
    """The decoder in `folder`; None when there is none, or none that this machine and these sources can use."""
    for suffix in EXTENSION_SUFFIXES:
        path = folder / f"_decode{suffix}"
        if path.exists():
            try:
                return Decoder(path)
            except (OSError, AttributeError):
                continue  # Built for another machine or from other sources: the pure decoder is right, if slower.
    return None


@cache
def batch_dtype() -> "np.dtype":
    """The numpy type of one `tiered_batch` row."""
    import numpy as np

    return np.dtype([(name, "u8" if name == "payload" else "i8") for name in BATCH_FIELDS])
