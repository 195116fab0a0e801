"""What clients send is checked against the schema that documents it, and the refusal says where and why."""

import json

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiered.errors import InvalidRequest
from tiered.server.http.messages.json_numbers import json_text
from tiered.server.http.messages.parameters import MAX_JSON_PIECES, parsed
from tiered.server.http.messages.schema import (
    Schema,
    array,
    boolean,
    check,
    input_record,
    integer,
    mapping,
    nullable,
    number,
    one_of,
    record,
    text,
    without_nulls,
)

NESTED = record(
    {
        "name": text(minLength=1, maxLength=3),
        "count": integer(minimum=1, maximum=5),
        "tags": array(text(allowed=("a", "b")), max_items=2),
        "open": mapping(nullable(number()), max_properties=2),
        "to": one_of(text(allowed=("earliest",)), record({"offset": integer()})),
        "on": boolean(),
    },
    optional=("count", "tags", "open", "to", "on"),
)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({}, "'name'"),
        ({"name": ""}, "the body.name has 0 characters"),
        ({"name": "abcd"}, "the body.name has 4 characters"),
        ({"name": 1}, "the body.name must be a string"),
        ({"name": "a", "count": 0}, "the body.count is 0: it must be from 1 to 5"),
        ({"name": "a", "count": True}, "the body.count must be an integer"),
        ({"name": "a", "count": 1.5}, "the body.count must be an integer"),
        ({"name": "a", "tags": ["a", "c"]}, "the body.tags[1] is 'c': it must be one of a, b"),
        ({"name": "a", "tags": ["a", "a", "a"]}, "the body.tags has 3 items"),
        ({"name": "a", "open": {"x": "y"}}, "the body.open.x must be a number"),
        ({"name": "a", "open": {"x": 1, "y": 2, "z": 3}}, "the body.open has 3 entries"),
        ({"name": "a", "to": {"offset": -1}}, "the body.to.offset is -1"),
        ({"name": "a", "to": "latest"}, "the body.to is 'latest'"),
        ({"name": "a", "more": 1}, "'more'"),
        ({"name": "\ud800"}, "surrogate"),
        ([], "the body must be an object"),
    ],
)
def test_a_refusal_names_the_part_that_is_wrong(value: object, words: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        check(value, NESTED)
    assert words in str(refused.value)


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 8)
    | st.floats(-2, 7)
    | st.sampled_from(["", "a", "b", "earliest", "abcd"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "count", "tags", "open", "to", "on", "offset", "x"]), inner, max_size=4
        )
    ),
    max_leaves=6,
)


@given(
    _JSON
    | st.fixed_dictionaries(
        {"name": st.just("a")}, optional={"count": _JSON, "tags": _JSON, "to": _JSON, "open": _JSON}
    )
)
def test_the_check_agrees_with_json_schema_itself(value: object) -> None:
    """One difference is meant: JSON Schema takes 1.0 for an integer, and here it is none."""
    schema: Schema = NESTED
    valid = jsonschema.Draft202012Validator(schema).is_valid(value)
    try:
        check(value, schema)
    except InvalidRequest:
        assert not valid or "float" in str(type_names(value))
    else:
        assert valid


def type_names(value: object) -> set[str]:
    """The names of all types in a JSON value."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return {type(value).__name__}.union(*(type_names(each) for each in inner))


@pytest.mark.parametrize(
    "body",
    [b"", b"  ", b"{", b"NaN", b"[Infinity]", b'{"a": 1, "a": 2}', b"\xff", b"[" * 100_000, b"1" * 5000, b"{}{}"],
)
def test_what_is_no_json_value_is_refused_in_words(body: bytes) -> None:
    with pytest.raises(InvalidRequest):
        parsed(body)


_NUMBERS = st.from_regex(r"-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,4})?", fullmatch=True)


@given(st.lists(_NUMBERS))
def test_numbers_are_written_as_they_were_read(numbers: list[str]) -> None:
    text = '{"é":[' + ",".join([*numbers, "null", "true", '"\\n"']) + "]}"
    assert json_text(parsed(text.encode())) == text


def test_what_may_be_absent_may_be_null_and_means_the_same() -> None:
    schema = input_record({"name": text(), "count": integer(minimum=1)}, optional=("count",))
    value = {"name": "a", "count": None}
    check(value, schema)
    assert without_nulls([value]) == [{"name": "a"}]
    assert jsonschema.Draft202012Validator(schema).is_valid(value), "the document says so"
    for refused in ({"name": None}, {"name": "a", "count": 0}):
        with pytest.raises(InvalidRequest):
            check(refused, schema)


def test_names_that_clients_choose_have_a_greatest_length_and_are_text() -> None:
    schema = record({"set": mapping(integer(), max_name_chars=3)})
    check({"set": {"üüü": 1}}, schema)
    validator = jsonschema.Draft202012Validator(schema)
    for name, words in (("long", "a name in the body.set has 4 characters"), ("\ud800", "surrogate")):
        with pytest.raises(InvalidRequest, match=words):
            check({"set": {name: 1}}, schema)
    assert validator.is_valid({"set": {"üüü": 1}}), "the document says so"
    assert not validator.is_valid({"set": {"long": 1}})


@pytest.mark.parametrize("item", [b"1", b"[]", b"{}", b'"a"', b"null"])
def test_json_of_more_pieces_than_there_may_be_is_refused(item: bytes) -> None:
    with pytest.raises(InvalidRequest, match="pieces"):
        parsed(b"[" + b",".join([item] * (MAX_JSON_PIECES + 1)) + b"]")


def test_what_stands_in_a_string_is_one_piece() -> None:
    text = '[{,"\\' * MAX_JSON_PIECES
    assert parsed(json.dumps([text, 1]).encode()) == [text, 1]
    assert parsed(b"[" + b",".join([b"1"] * MAX_JSON_PIECES) + b"]") == [1] * MAX_JSON_PIECES


def test_a_refusal_shows_little_of_what_is_long() -> None:
    for value in ([1] * 1000, {str(each): each for each in range(1000)}, "a" * 1000):
        with pytest.raises(InvalidRequest) as refused:
            check(value, integer())
        assert len(str(refused.value)) < 120
