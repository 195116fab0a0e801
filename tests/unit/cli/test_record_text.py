"""A line becomes a record and a record becomes its line again."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiered.cli.failure import UsageError
from tiered.cli.records.record_text import (
    LineFormat,
    Template,
    header_of,
    json_line_of,
    record_of_json,
    separator_bytes,
)
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
    [
        (r"\t", b"\t"),
        (r"\\t", b"\\t"),
        (": ", b": "),
        (r"\x", b"\\x"),
        (r"\x41\xff\\x41", b"A\xff\\x41"),
        ("→", "→".encode()),
        ("\\", b"\\"),
    ],
)
def test_separators_understand_a_few_escapes(text: str, meant: bytes) -> None:
    assert separator_bytes(text, "-k") == meant


def test_any_byte_can_be_a_separator() -> None:
    assert separator_bytes(r"\x41\xff\\x41", "-k") == b"A\xff\\x41"


def test_an_empty_separator_is_refused() -> None:
    with pytest.raises(UsageError, match="-k must not be empty"):
        separator_bytes("", "-k")


def test_a_header_has_a_name_and_a_value_that_may_be_empty_or_stand_for_null() -> None:
    assert [header_of(text) for text in ("a=b=c", "a=", "a=~")] == [("a", b"b=c"), ("a", b""), ("a", b"~")]
    assert header_of("a=~", "~") == ("a", None)


@pytest.mark.parametrize("text", ["bad", "=x", ""])
def test_a_header_without_a_name_or_a_sign_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="it must be NAME=VALUE"):
        header_of(text, "~")


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


# Templates, and JSON that becomes records


def test_a_template_puts_a_record_into_words() -> None:
    record = Record(offset=7, timestamp_ms=5, key=None, value="grüße".encode(), headers=(("a", b"1"), ("b", None)))
    template = Template(r"%t[%p]@%o %T %k=%s %K/%S %h 100%%\n", "NULL")
    assert template.text_of(record, topic="t", partition=3) == "t[3]@7 5 NULL=grüße -1/7 a=1,b=NULL 100%\n".encode()
    assert Template("%s").text_of(record, topic="t", partition=3) == "grüße".encode()
    assert Template(r"%R\x00").text_of(record, topic="t", partition=3) == b"\x00\x00\x00\x07\x00"


@pytest.mark.parametrize("text", ["%x", "%", "a%"])
def test_a_template_that_makes_no_sense_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="--template has %"):
        Template(text)


@given(
    key=st.none() | st.binary(max_size=20),
    value=st.none() | st.binary(max_size=20),
    headers=st.lists(st.tuples(st.text(st.characters(codec="utf-8"), max_size=5), st.none() | st.binary(max_size=5))),
)
def test_what_consume_shows_as_json_produce_takes_back(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    record = Record(offset=0, timestamp_ms=12, key=key, value=value, headers=tuple(headers))
    line = json_line_of(record, topic="t", partition=0)
    assert record_of_json(line, offset=0, timestamp_ms=99) == record


def test_a_value_that_is_json_itself_is_taken_as_it_is() -> None:
    found = record_of_json(b'{"value": {"a": ["\xc3\xbc", 1.10, -0, null, true]}}', offset=0, timestamp_ms=99)
    assert (found.key, found.value, found.timestamp_ms) == (None, '{"a":["ü",1.10,-0,null,true]}'.encode(), 99)


@pytest.mark.parametrize(
    "line",
    [
        b"", b"[]", b"{", b"\xff", b'{"headers": 1}', b'{"headers": [{"value": "x"}]}', b'{"timestamp_ms": "now"}',
        b'{"value_base64": "?"}', b'{"key_base64": 1}', b'{"value": [NaN]}',
    ],
)  # fmt: skip
def test_a_line_that_is_no_record_is_an_error(line: bytes) -> None:
    with pytest.raises(ValueError):
        record_of_json(line, offset=0, timestamp_ms=0)
