"""Which records a search is for, and what a hostile expression or a hostile value may cost."""

import json

import pytest

from tiered.broker.people.record_match import (
    MAX_MATCHED_BYTES,
    MAX_PARSED_BYTES,
    MAX_PARSED_STRUCTURES,
    MAX_STEPS,
    all_of,
    with_header,
    with_json_field,
    with_match,
    with_text,
)
from tiered.errors import InvalidRegularExpression, InvalidRequest
from tiered.formats.record_batch import Record

ORDER = (
    b'{"id": 9007199254740993, "price": 1.10, "gift": true, "note": null, "a.b": "dotted", "items": [{"sku": "a1"}]}'
)


def record(value: bytes | None, *headers: tuple[str, bytes | None]) -> Record:
    return Record(offset=0, timestamp_ms=0, key=None, value=value, headers=headers)


@pytest.mark.parametrize(
    ("path", "content", "is_there"),
    [
        ("id", "9007199254740993", True),
        ("id", "9007199254740992", False),
        ("price", "1.10", True),
        ("price", "1.1", False),
        ("gift", "true", True),
        ("note", "null", True),
        ("note", None, True),
        ("items.0.sku", "a1", True),
        ("$.items[0].sku", "a1", True),
        ("$['items'][0]['sku']", "a1", True),
        ("['a.b']", "dotted", True),
        ("items.1.sku", None, False),
        ("items.sku", None, False),
        ("items", '[{"sku":"a1"}]', True),
        ("items.0", '{"sku": "a2"}', False),
        ("items", "[", False),
        ("id.digits", None, False),
        ("absent", None, False),
    ],
)
def test_a_field_of_json_is_looked_up_and_its_numbers_keep_every_digit(
    path: str, content: str | None, is_there: bool
) -> None:
    assert with_json_field(path, content)(record(ORDER)) is is_there


@pytest.mark.parametrize("path", ["", "$", "a..b", "[x]", "items[", "['a'", ".".join(["a"] * (MAX_STEPS + 1))])
def test_what_is_no_path_is_refused_in_words(path: str) -> None:
    with pytest.raises(InvalidRequest, match=r"items\.0\.sku"):
        with_json_field(path, None)


@pytest.mark.parametrize(
    "value", [None, b"", b"{", b'{"a": NaN}', b'{"a": 1} tail', b"\xff\xfe", b'"a"', b"[" * 100_000, b'{"a": 1' * 9_000]
)
def test_broken_json_never_matches_and_breaks_nothing(value: bytes | None) -> None:
    assert with_json_field("a", None)(record(value)) is False


def test_json_that_is_too_large_to_be_parsed_is_left_out() -> None:
    large = json.dumps({"a": "x" * MAX_PARSED_BYTES}).encode()
    assert not with_json_field("a", None)(record(large))


def test_json_of_too_many_objects_and_lists_is_left_out() -> None:
    for count, is_given in ((MAX_PARSED_STRUCTURES - 1, True), (MAX_PARSED_STRUCTURES, False)):
        value = b'{"a": 1, "b": [%s]}' % b",".join([b"[]"] * (count - 1))
        assert with_json_field("a", "1")(record(value)) is is_given


def test_text_and_header_are_sought_byte_by_byte_and_conditions_add_up() -> None:
    sample = record(b"\xff Gr\xc3\xbc\xc3\x9fe", ("source", b"web"), ("empty", None))
    assert with_text("Grüße")(sample)
    assert not with_text("grüße")(sample)
    assert with_header("source", None)(sample)
    assert with_header("empty", None)(sample)
    assert with_header("source", "web")(sample)
    assert not with_header("source", "app")(sample)
    assert not with_header("empty", "")(sample)
    both = all_of([with_text("Gr"), with_header("source", "app")])
    assert both is not None
    assert not both(sample)
    assert all_of([]) is None
    assert not with_text("x")(record(None))


def test_a_pattern_is_found_in_any_bytes_and_in_the_beginning_of_a_value_alone() -> None:
    assert with_match(r"(?i)GR.SSE\b")(record(b"\xff gr\xc3\xbcsse "))
    assert with_match(r"\d{3}$")(record(b"a123"))
    assert not with_match("x")(record(None))
    assert not with_match("end")(record(b"x" * MAX_MATCHED_BYTES + b"end"))


@pytest.mark.parametrize("pattern", ["(", "(a", "a{2000}", r"(?=a)", r"(a)\1", "(?:\\pL{1,100}.){0,10}", r"\pL{40}"])
def test_a_pattern_that_is_none_or_too_large_is_refused_in_words(pattern: str) -> None:
    with pytest.raises(InvalidRegularExpression, match="regular expression"):
        with_match(pattern)


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*$", "(x?a?){490}b", "^(([a-z])+.)+[A-Z]([a-z])+$"])
def test_a_pattern_that_takes_hours_elsewhere_ends_within_the_time_of_a_test(pattern: str) -> None:
    with_match(pattern)(record(b"a" * 5_000_000 + b"!"))
