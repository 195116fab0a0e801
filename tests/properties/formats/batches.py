"""Strategies for records and logs, shared by the properties of the formats."""

from hypothesis import strategies as st

from tiered.formats.record_batch import Compression, Record, encode_batch

codecs = st.sampled_from(list(Compression))
timestamps = st.integers(min_value=0, max_value=2**45)
payloads = st.none() | st.binary(max_size=80) | st.sampled_from([b"", b"a" * 5000])
record_headers = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=12)), max_size=3).map(tuple)


@st.composite
def record_lists(draw: st.DrawFn, *, base_offset: int = 0, min_size: int = 1) -> list[Record]:
    """Records with consecutive offsets and times in any order."""
    contents = draw(st.lists(st.tuples(timestamps, payloads, payloads, record_headers), min_size=min_size, max_size=12))
    return [
        Record(offset=base_offset + index, timestamp_ms=timestamp_ms, key=key, value=value, headers=headers)
        for index, (timestamp_ms, key, value, headers) in enumerate(contents)
    ]


@st.composite
def segments(draw: st.DrawFn) -> list[tuple[bytes, list[Record]]]:
    """Consecutive batches of a segment with their records as readers see them."""
    base_offset = draw(st.integers(min_value=0, max_value=2**40))
    batches = []
    for _ in range(draw(st.integers(min_value=1, max_value=8))):
        records = draw(record_lists(base_offset=base_offset))
        log_append_time_ms = draw(st.none() | timestamps)
        data = encode_batch(
            records, base_offset=base_offset, compression=draw(codecs), log_append_time_ms=log_append_time_ms
        )
        if log_append_time_ms is not None:
            records = [
                Record(offset=r.offset, timestamp_ms=log_append_time_ms, key=r.key, value=r.value, headers=r.headers)
                for r in records
            ]
        batches.append((data, records))
        base_offset += len(records) + draw(st.integers(min_value=0, max_value=3))
    return batches


@st.composite
def mutations(draw: st.DrawFn, data: bytes) -> bytes:
    """`data` with bytes changed, cut, doubled or put in."""
    changed = bytearray(data)
    for _ in range(draw(st.integers(min_value=1, max_value=4))):
        at = draw(st.integers(min_value=0, max_value=max(len(changed) - 1, 0)))
        kind = draw(st.sampled_from(["set", "set", "set", "delete", "insert", "cut"]))
        if kind == "set" and changed:
            changed[at] = draw(st.integers(min_value=0, max_value=255))
        elif kind == "delete":
            del changed[at : at + draw(st.integers(min_value=1, max_value=8))]
        elif kind == "insert":
            changed[at:at] = draw(st.binary(min_size=1, max_size=12))
        elif kind == "cut":
            del changed[at:]
    return bytes(changed)
