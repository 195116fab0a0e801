"""Record batches become Arrow record batches with the columns of Spark's Kafka source.

Owns that schema and the choice between the native decoder and the pure one; both accept and refuse the same
bytes and give equal columns. Needs pyarrow and numpy (the `spark` extra), which load with the first call.
Must never hold more than one Arrow batch: results come as an iterator, each about `batch_bytes` large.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from tiered.errors import CorruptBatch, Invalid
from tiered.formats import native
from tiered.formats.aborted_ranges import AbortedRange, AbortedRanges
from tiered.formats.compression import decompress
from tiered.formats.record_batch import BatchHeader, Record, exact_batches, records, verify_crc

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

Buffer = bytes | bytearray | memoryview

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
HEADERS_COLUMN = "headers"
ALL_COLUMNS = (*COLUMNS, HEADERS_COLUMN)

DEFAULT_BATCH_BYTES = 4 << 20  # The size that Spark takes fastest: at 64 MiB it is half as fast.
MAX_DECOMPRESSED_BYTES = 64 << 20
MAX_OFFSET = 2**63 - 1

_SCAN_ROWS = 8192
_CODEC_MASK = 0x07
_TRANSACTIONAL = 1 << 4
_CONTROL = 1 << 5
_MOST_MS = (2**63 - 1) // 1000


@cache
def arrow_schema(columns: tuple[str, ...] = COLUMNS) -> "pa.Schema":
    """The Arrow schema of `columns`, exactly as Spark expects it. Raises `Invalid` for an unknown column."""
    import pyarrow as pa

    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    types = {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestampType": pa.int32(),
        HEADERS_COLUMN: pa.list_(pa.field("element", header)),
    }
    unknown = [name for name in columns if name not in types]
    if unknown:
        raise Invalid(f"no column {unknown[0]!r}: there are {', '.join(ALL_COLUMNS)}")
    return pa.schema([(name, types[name]) for name in columns])


def decode_chunk(
    buffer: Buffer,
    *,
    topic: str,
    partition: int,
    start_offset: int = 0,
    end_offset: int = MAX_OFFSET,
    columns: Sequence[str] = COLUMNS,
    aborted: Sequence[AbortedRange] = (),
    pure: bool = False,
    batch_bytes: int = DEFAULT_BATCH_BYTES,
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
) -> Iterator["pa.RecordBatch"]:
    """The records of `buffer` with `start_offset <= offset < end_offset`, in order, as non-empty Arrow batches.

    `buffer` holds whole record batches and nothing else. Control batches and those in `aborted` are left out.
    An Arrow batch grows until its records take `batch_bytes` decompressed; a larger record batch stays whole,
    up to `max_decompressed_bytes`. Raises `CorruptBatch` on the first byte out of place: everything that was
    given before it is right. `pure` keeps the native decoder out.
    """
    wanted = _Wanted(
        topic=topic,
        partition=partition,
        start_offset=max(0, start_offset),
        end_offset=min(end_offset, MAX_OFFSET),
        columns=tuple(columns),
        aborted=AbortedRanges(aborted),
        batch_bytes=batch_bytes,
        max_decompressed_bytes=min(max_decompressed_bytes, native.MAX_CAPACITY),
    )
    arrow_schema(wanted.columns)
    decoder = None if pure else native.load()
    if decoder is None:
        return _decode_pure(buffer, wanted)
    return _decode_native(decoder, buffer, wanted)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    topic: str
    partition: int
    start_offset: int
    end_offset: int
    columns: tuple[str, ...]
    aborted: AbortedRanges
    batch_bytes: int
    max_decompressed_bytes: int


def to_timestamp_us(timestamp_ms: int) -> int:
    """`timestamp_ms` in microseconds; what 64 bits cannot hold becomes the nearest that they can."""
    return max(-_MOST_MS, min(_MOST_MS, timestamp_ms)) * 1000


# Native


def _decode_native(decoder: native.Decoder, buffer: Buffer, wanted: _Wanted) -> Iterator["pa.RecordBatch"]:
    import numpy as np

    source = np.frombuffer(buffer, np.uint8)
    view = memoryview(buffer)
    address, position = source.ctypes.data, 0
    rows = np.empty(min(len(source) // 61 + 1, _SCAN_ROWS), native.batch_dtype())
    while position < len(source):
        try:
            count, used = decoder.scan(address + position, len(source) - position, rows, check_crc=True)
        except CorruptBatch as error:
            raise CorruptBatch(f"{error} (in a piece that begins at position {position})") from error
        if count == 0:
            raise CorruptBatch(f"batch at position {position} is cut off: {len(source) - position} bytes are left")
        batches = _select(rows[:count], wanted)
        piece = view[position:]
        for group, _kept_alive in _groups(batches, piece, wanted):
            try:
                decoded = _build(decoder, group, wanted)
            except native.NotTextError:
                yield from _decode_pure(_joined(piece, group), wanted)
                continue
            if decoded is not None:
                yield decoded
        position += used


def _joined(piece: memoryview, group: "np.ndarray") -> bytes:
    """The batches of `group` as they are, one after another."""
    return b"".join(piece[row["position"] : row["position"] + row["size_bytes"]] for row in group)


def _select(rows: "np.ndarray", wanted: _Wanted) -> "np.ndarray":
    """The batches that hold a wanted record, in memory of their own."""
    base, attributes = rows["base_offset"], rows["attributes"]
    keep = (base < wanted.end_offset) & (base + rows["last_offset_delta"] >= wanted.start_offset)
    keep &= (attributes & _CONTROL) == 0
    if wanted.aborted and (attributes & _TRANSACTIONAL).any():
        for row in (keep & ((attributes & _TRANSACTIONAL) != 0)).nonzero()[0].tolist():
            keep[row] = not wanted.aborted.hold(int(rows["producer_id"][row]), int(base[row]))
    selected: np.ndarray = rows[keep]
    return selected


def _groups(
    batches: "np.ndarray", view: memoryview, wanted: _Wanted
) -> Iterator[tuple["np.ndarray", list["np.ndarray"]]]:
    """Runs of batches of about `batch_bytes`, payloads decompressed, with what keeps their memory alive."""
    import numpy as np

    codes = batches["attributes"] & _CODEC_MASK
    plain_bytes = int(batches["payload_bytes"][codes == 0].max(initial=0))
    if plain_bytes > wanted.max_decompressed_bytes:
        raise CorruptBatch(f"records of {plain_bytes} bytes are more than {wanted.max_decompressed_bytes}")
    if not codes.any():
        sizes = np.cumsum(batches["payload_bytes"])
        first = 0
        while first < len(batches):
            before = int(sizes[first - 1]) if first else 0
            last = max(first + 1, int(np.searchsorted(sizes, before + wanted.batch_bytes, side="right")))
            yield batches[first:last], []
            first = last
        return
    first, total = 0, 0
    alive: list[np.ndarray] = []
    for index in range(len(batches)):
        code, size = int(codes[index]), int(batches["payload_bytes"][index])
        if code:
            start = int(batches["position"][index]) + 61
            payload = decompress(code, view[start : start + size], max_bytes=wanted.max_decompressed_bytes)
            plain = np.frombuffer(payload, np.uint8)
            size = len(plain)
            if total and total + size > wanted.batch_bytes:
                yield batches[first:index], alive
                first, total, alive = index, 0, []
            alive.append(plain)
            batches["payload"][index], batches["payload_bytes"][index] = plain.ctypes.data, size
        elif total and total + size > wanted.batch_bytes:
            yield batches[first:index], alive
            first, total, alive = index, 0, []
        total += size
    if first < len(batches):
        yield batches[first:], alive


@dataclass(slots=True)
class _BuffersState:
    """The numpy arrays that one native call fills, by their name in `native.Columns`."""

    columns: native.Columns
    arrays: dict[str, "np.ndarray"] = field(default_factory=dict)

    def give(self, name: str, array: "np.ndarray") -> None:
        self.arrays[name] = array
        setattr(self.columns, name, array.ctypes.data)

    def give_binary(self, name: str, rows: int, data_bytes: int, *, nullable: bool = True) -> None:
        import numpy as np

        ends = np.empty(rows + 1, np.int32)
        ends[0] = 0
        self.give(f"{name}_ends", ends)
        self.give(f"{name}_data", np.empty(data_bytes + native.SPARE_BYTES, np.uint8))
        if nullable:
            self.give(f"{name}_validity", np.zeros(rows // 8 + 1, np.uint8))


def _build(decoder: native.Decoder, group: "np.ndarray", wanted: _Wanted) -> "pa.RecordBatch | None":
    """The wanted records of `group` as one Arrow batch; None when there are none. Raises `CorruptBatch`."""
    import numpy as np

    total = int(group["payload_bytes"].sum())
    # A count that its bytes cannot hold is refused by the decoder; here it must not decide how much is allocated.
    rows = int(np.minimum(group["record_count"], group["payload_bytes"] // native.MIN_RECORD_BYTES).sum())
    columns = native.Columns()
    buffers = _BuffersState(columns)
    columns.rows_capacity, columns.data_capacity = rows, total
    buffers.give("offsets", np.empty(rows, np.int64))
    buffers.give("timestamps_us", np.empty(rows, np.int64))
    buffers.give("timestamp_types", np.empty(rows, np.int32))
    if "key" in wanted.columns:
        columns.want_key = 1
        buffers.give_binary("key", rows, total)
    if "value" in wanted.columns:
        columns.want_value = 1
        buffers.give_binary("value", rows, total)
    if HEADERS_COLUMN in wanted.columns:
        columns.want_headers = 1
        columns.header_rows_capacity = total // 2
        columns.header_data_capacity = total
        list_ends = np.empty(rows + 1, np.int32)
        list_ends[0] = 0
        buffers.give("header_list_ends", list_ends)
        buffers.give("header_list_validity", np.zeros(rows // 8 + 1, np.uint8))
        buffers.give_binary("header_key", total // 2, total, nullable=False)
        buffers.give_binary("header_value", total // 2, total)
    decoder.decode(group, columns, start_offset=wanted.start_offset, end_offset=wanted.end_offset)
    return _assemble(buffers, wanted) if columns.rows else None


def _assemble(buffers: _BuffersState, wanted: _Wanted) -> "pa.RecordBatch":
    import pyarrow as pa

    columns, arrays = buffers.columns, buffers.arrays
    rows = columns.rows
    schema = arrow_schema(wanted.columns)

    def fixed(name: str, kind: "pa.DataType") -> "pa.Array":
        return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(arrays[name][:rows])])

    def binary(name: str, kind: "pa.DataType", length: int, data_bytes: int, nulls: int) -> "pa.Array":
        validity = pa.py_buffer(arrays[f"{name}_validity"]) if nulls else None
        ends, data = arrays[f"{name}_ends"][: length + 1], arrays[f"{name}_data"][:data_bytes]
        return pa.Array.from_buffers(kind, length, [validity, pa.py_buffer(ends), pa.py_buffer(data)], nulls)

    made: list[Any] = []
    for column in schema:
        match column.name:
            case "key":
                made.append(binary("key", column.type, rows, columns.key_bytes, columns.key_nulls))
            case "value":
                made.append(binary("value", column.type, rows, columns.value_bytes, columns.value_nulls))
            case "offset":
                made.append(fixed("offsets", column.type))
            case "timestamp":
                made.append(fixed("timestamps_us", column.type))
            case "timestampType":
                made.append(fixed("timestamp_types", column.type))
            case "headers":
                count = columns.header_rows
                keys = binary("header_key", pa.string(), count, columns.header_key_bytes, 0)
                nulls = columns.header_value_nulls
                values = binary("header_value", pa.binary(), count, columns.header_value_bytes, nulls)
                entries = pa.StructArray.from_arrays([keys, values], fields=list(column.type.value_type))
                nulls = columns.header_list_nulls
                validity = pa.py_buffer(arrays["header_list_validity"]) if nulls else None
                ends = pa.py_buffer(arrays["header_list_ends"][: rows + 1])
                made.append(pa.Array.from_buffers(column.type, rows, [validity, ends], nulls, children=[entries]))
            case name:
                made.append(_constant(name, rows, wanted))
    return pa.RecordBatch.from_arrays(made, schema=schema)


def _constant(name: str, rows: int, wanted: _Wanted) -> "pa.Array":
    """The column `topic` or `partition`: one value, `rows` times."""
    import numpy as np
    import pyarrow as pa

    if name == "partition":
        return pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(np.full(rows, wanted.partition, np.int32))])
    assert name == "topic"
    topic = wanted.topic.encode()
    ends = np.arange(rows + 1, dtype=np.int32) * np.int32(len(topic))
    return pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(ends), pa.py_buffer(topic * rows)])


# Pure


def _decode_pure(buffer: Buffer, wanted: _Wanted) -> Iterator["pa.RecordBatch"]:
    view = memoryview(buffer)
    group: list[tuple[Record, int]] = []
    group_bytes = 0
    for position, header in exact_batches(view, 0, len(view)):
        verify_crc(view, position, header.size_bytes)
        _check_header(header)
        if not _is_wanted(header, wanted):
            continue
        for record in records(view, position, max_decompressed_bytes=wanted.max_decompressed_bytes):
            if wanted.start_offset <= record.offset < wanted.end_offset:
                group.append((record, int(header.is_log_append_time)))
                group_bytes += native.MIN_RECORD_BYTES + len(record.key or b"") + len(record.value or b"")
        if group_bytes >= wanted.batch_bytes:
            yield _assemble_pure(group, wanted)
            group, group_bytes = [], 0
    if group:
        yield _assemble_pure(group, wanted)


def _check_header(header: BatchHeader) -> None:
    """The header fields that the native decoder refuses, even of a batch that no reader wants."""
    counts = min(header.base_offset, header.last_offset_delta, header.record_count)
    if counts < 0 or header.end_offset > MAX_OFFSET:
        raise CorruptBatch(f"batch at base offset {header.base_offset} is corrupt: its offsets or counts are malformed")


def _is_wanted(header: BatchHeader, wanted: _Wanted) -> bool:
    if header.is_control or header.base_offset >= wanted.end_offset or header.last_offset < wanted.start_offset:
        return False
    return not (header.is_transactional and wanted.aborted.hold(header.producer_id, header.base_offset))


def _assemble_pure(group: list[tuple[Record, int]], wanted: _Wanted) -> "pa.RecordBatch":
    import pyarrow as pa

    made: list[Any] = []
    for column in arrow_schema(wanted.columns):
        values: list[Any]
        match column.name:
            case "key":
                values = [record.key for record, _ in group]
            case "value":
                values = [record.value for record, _ in group]
            case "offset":
                values = [record.offset for record, _ in group]
            case "timestamp":
                values = [to_timestamp_us(record.timestamp_ms) for record, _ in group]
            case "timestampType":
                values = [kind for _, kind in group]
            case "headers":
                values = [
                    [{"key": _text(name), "value": value} for name, value in record.headers] or None
                    for record, _ in group
                ]
            case name:
                made.append(_constant(name, len(group), wanted))
                continue
        made.append(pa.array(values, column.type))
    return pa.RecordBatch.from_arrays(made, schema=arrow_schema(wanted.columns))


def _text(name: str) -> str:
    """A header's key as text: what is not UTF-8 becomes U+FFFD, as in Java's client."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
