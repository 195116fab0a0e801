"""`messages.schema.Form`: the document of an answer and the answer come from the same rows."""

from types import SimpleNamespace

import pytest

from tiered.server.http.messages.schema import Form, check, integer, nullable, text

RANGE = Form({"start_offset": integer(), "end_offset": (integer(), "end")})
PIN = Form(
    {
        "pin_id": (text(), lambda pin: str(pin.pin_id)),
        "owner": nullable(text()),
        "leader": integer(),
        "ranges": RANGE.many("held.ranges", "What it holds."),
    },
    optional=("leader",),
    and_then={"tail": text()},
)
VALUE = SimpleNamespace(
    pin_id=7, owner=None, leader=2, held=SimpleNamespace(ranges=[SimpleNamespace(start_offset=1, end=5)])
)


def test_an_answer_has_the_fields_of_its_form_in_their_order() -> None:
    answer = PIN.of(VALUE)
    assert answer == {"pin_id": "7", "owner": None, "leader": 2, "ranges": [{"start_offset": 1, "end_offset": 5}]}
    assert list(answer) == ["pin_id", "owner", "leader", "ranges"]


def test_an_answer_is_as_its_own_document_says() -> None:
    check({**PIN.of(VALUE), "tail": "made in turns"}, PIN.schema)


def test_only_an_optional_field_is_left_out_where_it_would_be_null() -> None:
    answer = PIN.of(VALUE, leader=None)
    assert "leader" not in answer
    assert answer["owner"] is None
    assert PIN.schema["required"] == ["pin_id", "owner", "ranges", "tail"]


def test_a_field_that_is_given_is_not_looked_for() -> None:
    assert RANGE.of(None, start_offset=3, end_offset=4) == {"start_offset": 3, "end_offset": 4}


def test_a_field_that_no_form_describes_cannot_be_answered() -> None:
    with pytest.raises(AssertionError, match="only fields of the form"):
        RANGE.of(None, start_offset=3, end_offset=4, state="active")
