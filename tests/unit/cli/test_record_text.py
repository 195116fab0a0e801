"""A line becomes a record and a record becomes its line again."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiered.cli.failure import UsageError
from tiered.cli.record_text import LineFormat, header_of, json_line_of, separator_bytes
from tiered.formats.record_batch import Record

LINES = st.binary(max_size=60).filter(lambda line: b"\n" not in line)


def record_of(line: bytes, line_format: LineFormat) -> Record:
    return line_format.record_of(line, offset=0, timestamp_ms=5)


def test_a_line_is_a_value_without_a_key() -> None:
    record = record_of(b"a:b", LineFormat())
    assert (record.key, record.value) == (None, b"a:b")


def test_the_first_separator_ends_the_key() -> None:
    record = record_of(b"a:b:c", LineFormat(key_separator=b":"))
    assert (record.key, record.value) == (b"a", b"b:c")


def test_a_line_without_the_separator_has_no_key() -> None:
    assert record_of(b"abc", LineFormat(key_separator=b":")).key is None


def test_an_empty_key_is_a_key_and_an_empty_value_a_value() -> None:
    record = record_of(b":", LineFormat(key_separator=b":"))
    assert (record.key, record.value) == (b"", b"")


def test_the_word_for_null_is_null_in_key_and_value() -> None:
    line_format = LineFormat(key_separator=b":", null=b"NULL")
    record = record_of(b"NULL:NULL", line_format)
    assert (record.key, record.value) == (None, None)
    assert line_format.line_of(record) == b"NULL:NULL\n"


@given(LINES)
def test_a_line_comes_back_as_it_was(line: bytes) -> None:
    for line_format in (LineFormat(), LineFormat(null=b"-")):
        assert line_format.line_of(record_of(line, line_format)) == line + b"\n"


@given(LINES, LINES)
def test_a_line_with_its_key_comes_back_as_it_was(key: bytes, value: bytes) -> None:
    line_format = LineFormat(key_separator=b"\t")
    line = key + b"\t" + value
    assert line_format.line_of(record_of(line, line_format)) == line + b"\n"


@pytest.mark.parametrize(
    ("text", "meant"),
    [(r"\t", b"\t"), (r"\\t", b"\\t"), (": ", b": "), (r"\x", b"\\x"), ("→", "→".encode()), ("\\", b"\\")],
)
def test_separators_understand_a_few_escapes(text: str, meant: bytes) -> None:
    assert separator_bytes(text, "-k") == meant


def test_an_empty_separator_is_refused() -> None:
    with pytest.raises(UsageError, match="-k must not be empty"):
        separator_bytes("", "-k")


def test_a_header_without_a_value_is_null_and_one_with_nothing_after_the_sign_is_empty() -> None:
    assert [header_of(text) for text in ("a=b=c", "a", "a=")] == [("a", b"b=c"), ("a", None), ("a", b"")]
    with pytest.raises(UsageError, match="NAME=VALUE"):
        header_of("=x")


def test_json_carries_text_as_text_and_other_bytes_in_base64() -> None:
    record = Record(
        offset=7,
        timestamp_ms=9,
        key=b"\xff\x00",
        value="grüße".encode(),
        headers=(("a", None), ("b", b"\xfe"), ("c\udcff", b"x")),
    )
    line = json_line_of(record, topic="t", partition=3)
    assert line.count(b"\n") == 1
    assert json.loads(line) == {
        "topic": "t",
        "partition": 3,
        "offset": 7,
        "timestamp_ms": 9,
        "key_base64": "/wA=",
        "value": "grüße",
        "headers": [
            {"name": "a", "value": None},
            {"name": "b", "value_base64": "/g=="},
            {"name": "c?", "value": "x"},
        ],
    }


@given(st.none() | st.binary(max_size=30), st.none() | st.binary(max_size=30))
def test_any_record_is_one_line_of_json(key: bytes | None, value: bytes | None) -> None:
    line = json_line_of(Record(offset=0, timestamp_ms=0, key=key, value=value), topic="t", partition=0)
    assert line.endswith(b"}\n")
    assert line.count(b"\n") == 1
    json.loads(line)
