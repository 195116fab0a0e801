"""Groups belong to the slots that Kafka's own tools compute."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiered.rules.groups.coordinator_slot import coordinator_slot, java_string_hash


@pytest.mark.parametrize(
    ("text", "hashed"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("my-group", -1906497762),
        ("größe", 98762257),
        ("🦊", 1772812),
        ("polygenelubricants", -(2**31)),
    ],
)
def test_text_is_hashed_as_java_does(text: str, hashed: int) -> None:
    """The numbers are what Java 17 prints."""
    assert java_string_hash(text) == hashed


def test_the_smallest_hash_of_all_is_in_slot_0_and_not_below() -> None:
    assert coordinator_slot("polygenelubricants", 50) == 0


@given(st.text(), st.integers(1, 1000))
def test_every_group_has_a_slot(group_id: str, slots: int) -> None:
    assert 0 <= coordinator_slot(group_id, slots) < slots
