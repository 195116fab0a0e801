"""What groups are shown as, where a reset goes, who gets which partitions, and what an aborted transaction hides."""

from typing import Any

import pytest

from tiered.cli.failure import UsageError
from tiered.cli.groups.commands import hints, ranges, shortened, state_key
from tiered.cli.groups.reset import wanted_of
from tiered.cli.names import nearest_names
from tiered.cli.records.consume import AbortedState
from tiered.formats.record_batch import Record, encode_batch, read_header
from tiered.peer.group_member import assign_range
from tiered.wire.fetch import AbortedTransaction


def test_topics_with_and_without_partitions_are_read() -> None:
    assert wanted_of(["a", "b:0,2"]) == {"a": None, "b": (0, 2)}


@pytest.mark.parametrize("texts", [["a:"], ["a:x"], [":0"], ["a:0,"], ["a:-1"], ["a:0", "a:1"]])
def test_topics_that_make_no_sense_are_usage_errors(texts: list[str]) -> None:
    with pytest.raises(UsageError, match=r"it must be TOPIC|is given twice"):
        wanted_of(texts)


def test_partitions_are_shown_as_ranges() -> None:
    assert [ranges(each) for each in ([], [3], [0, 1, 2], [7, 0, 1, 3])] == ["", "3", "0-2", "0-1,3,7"]


def test_states_have_names_that_can_be_typed() -> None:
    assert [state_key(each) for each in ("Stable", "PreparingRebalance", "")] == ["stable", "preparing-rebalance", ""]


def test_a_long_member_id_keeps_both_its_ends() -> None:
    assert shortened("a" * 40) == "a" * 40
    assert shortened("begin" + "x" * 60 + "end").startswith("begin")
    assert shortened("begin" + "x" * 60 + "end").endswith("end")
    assert len(shortened("x" * 100)) <= 40


def test_names_that_are_alike_are_offered_and_others_are_not() -> None:
    assert nearest_names("ordres", ["orders", "payments"]) == " (did you mean orders?)"
    assert nearest_names("ORDERS", ["orders"]) == " (did you mean orders?)"
    assert nearest_names("x", ["orders"]) == ""


def offset_row(committed: int | None, start: int | None, end: int | None) -> dict[str, Any]:
    row = {"topic": "t", "partition": 0, "committed_offset": committed}
    return row | {"log_start_offset": start, "high_watermark": end}


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (offset_row(5, 15, 20), "retention has deleted 10 records"),
        (offset_row(25, 15, 20), "beyond the end"),
        (offset_row(5, None, None), "t-0 does not exist any more"),
        (offset_row(None, 0, 9), "committed nothing"),
    ],
)
def test_what_is_odd_about_an_offset_is_said(row: dict[str, Any], said: str) -> None:
    (hint,) = hints({"members": [object()], "offsets": [row]})
    assert said in hint


def test_an_offset_in_the_log_needs_no_words() -> None:
    assert hints({"members": [object()], "offsets": [offset_row(15, 10, 20)]}) == []


# A member


def test_range_gives_neighbours_and_the_first_members_one_more() -> None:
    found = assign_range({"b": ["t", "u"], "a": ["t"], "c": ["t"]}, {"t": 7, "u": 2, "nobody": 4})
    assert found == {"a": {"t": (0, 1, 2)}, "b": {"t": (3, 4), "u": (0, 1)}, "c": {"t": (5, 6)}}


def test_range_leaves_members_without_partitions_where_there_are_too_few() -> None:
    assert assign_range({"a": ["t"], "b": ["t"]}, {"t": 1}) == {"a": {"t": (0,)}, "b": {}}


# Transactions


def batch(base_offset: int, producer_id: int, *, transactional: bool = True, control: bool = False) -> Any:
    record = Record(offset=base_offset, timestamp_ms=0, key=b"\0\0\0\0", value=b"", headers=())
    encoded = encode_batch(
        [record], producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=transactional,
        control=control,
    )  # fmt: skip
    return read_header(encoded)


def test_an_aborted_transaction_is_hidden_up_to_its_marker_and_other_producers_are_not() -> None:
    aborted = AbortedState([AbortedTransaction(7, 12), AbortedTransaction(7, 2)])
    shown = [
        (0, batch(0, 7), False),  # an earlier transaction of the same producer, which was committed
        (1, batch(1, 7, control=True), False),
        (2, batch(2, 7), True),
        (3, batch(3, 8), False),
        (4, batch(4, 7, transactional=False), False),
        (5, batch(5, 7, control=True), False),
        (6, batch(6, 7), False),
        (12, batch(12, 7), True),
    ]
    assert [aborted.hides(header) for _, header, _ in shown] == [expected for _, _, expected in shown]
