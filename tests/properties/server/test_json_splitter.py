"""JSON objects are found in a stream wherever it is cut."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiered.errors import InvalidRequest
from tiered.server.http.messages.json_stream import JsonSplitter

_VALUES = st.recursive(
    st.none() | st.integers() | st.text(st.sampled_from('{}"\\ua\n é😀'), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
_OBJECTS = st.dictionaries(st.text(st.sampled_from('{}"\\k'), max_size=4), _VALUES, max_size=4)


@given(st.lists(st.tuples(_OBJECTS, st.booleans(), st.sampled_from([b"", b" ", b"\r\n\t"])), max_size=5), st.data())
def test_however_a_stream_is_cut_the_same_objects_come_out(
    written: list[tuple[dict[str, object], bool, bytes]], data: st.DataObject
) -> None:
    stream = b"".join(json.dumps(value, ensure_ascii=ascii_only).encode() + gap for value, ascii_only, gap in written)
    splitter = JsonSplitter(1 << 20)
    found: list[bytes] = []
    at = 0
    while at < len(stream):
        length = data.draw(st.integers(1, max(1, len(stream) - at)))
        found += splitter.feed(stream[at : at + length])
        at += length
    splitter.end()
    assert [json.loads(each) for each in found] == [value for value, _, _ in written]


@given(_OBJECTS)
def test_byte_by_byte_is_no_different(value: dict[str, object]) -> None:
    splitter = JsonSplitter(1 << 20)
    stream = json.dumps(value).encode()
    found = [whole for byte in stream for whole in splitter.feed(bytes([byte]))]
    assert found == [stream]


@given(st.binary(max_size=200))
def test_hostile_bytes_end_in_objects_or_in_an_error(stream: bytes) -> None:
    splitter = JsonSplitter(100)
    try:
        for whole in splitter.feed(stream):
            assert whole.startswith(b"{")
            assert whole.endswith(b"}")
        splitter.end()
    except InvalidRequest:
        pass


def test_an_object_that_never_ends_is_refused_at_the_limit() -> None:
    splitter = JsonSplitter(1000)
    with pytest.raises(InvalidRequest, match="1000 bytes"):
        for _ in range(100):
            splitter.feed(b'{"a": ' * 10)


def test_every_byte_is_looked_at_once_however_small_the_pieces_are() -> None:
    """A large object in small pieces: were each piece to look at all before it, this would take minutes."""
    splitter = JsonSplitter(8 << 20)
    stream = b'{"value": "' + b"x" * (4 << 20) + b'"}'
    found = [whole for at in range(0, len(stream), 64) for whole in splitter.feed(stream[at : at + 64])]
    assert found == [stream]
