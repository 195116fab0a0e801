"""Clients' metrics: what is read of OpenTelemetry's messages, and what ends a hostile one."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import otlp
from tiered.errors import MalformedRequest
from tiered.wire.telemetry import MAX_ATTRIBUTES, MAX_FIELDS, MAX_TEXT_BYTES, Point, decode_metrics

GOOD = otlp.metrics_data(
    otlp.gauge("queue", otlp.point(1.5, node="1"), otlp.point(-3)),
    otlp.total("sent", otlp.point(7)),
    otlp.total("since", otlp.point(2), is_delta=True),
)
HURT = st.builds(lambda at, more: GOOD[:at] + more + GOOD[at:], st.integers(0, len(GOOD)), st.binary(max_size=8))


def test_gauges_and_sums_are_read_with_their_attributes() -> None:
    assert decode_metrics(GOOD) == [
        Point(name="queue", attributes=(("node", "1"),), value=1.5),
        Point(name="queue", attributes=(), value=-3.0),
        Point(name="sent", attributes=(), value=7.0, is_counter=True),
        Point(name="since", attributes=(), value=2.0, is_counter=True, is_delta=True),
    ]


def test_what_is_not_known_is_skipped_and_what_is_no_number_is_left_out() -> None:
    strange = otlp.part(99, b"?") + otlp.varint(98 << 3) + b"\x01" + otlp.varint(97 << 3 | 5) + bytes(4)
    data = strange + otlp.metrics_data(otlp.gauge("nan", otlp.point(math.nan), otlp.point(math.inf))) + GOOD
    assert decode_metrics(data) == decode_metrics(GOOD)


def test_texts_and_attributes_are_bounded() -> None:
    attributes = {f"a{number}": "v" * 5000 for number in range(100)}
    (found,) = decode_metrics(otlp.metrics_data(otlp.gauge("n" * 5000, otlp.point(1, **attributes))))
    assert len(found.name) == MAX_TEXT_BYTES
    assert len(found.attributes) == MAX_ATTRIBUTES
    assert all(len(value) == MAX_TEXT_BYTES for _, value in found.attributes)


@pytest.mark.parametrize(
    "data",
    [
        GOOD[:-1],
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
        b"\x80" * 20,
        b"\x0b",
        b"\x08",
        otlp.part(1, b"") * (MAX_FIELDS + 1),
    ],
    ids=["cut", "announces-much", "endless-number", "group", "no-value", "fields"],
)
def test_a_hostile_message_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedRequest):
        decode_metrics(data)


@given(st.binary(max_size=200) | HURT)
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        found = decode_metrics(data)
    except MalformedRequest:
        return
    assert all(math.isfinite(each.value) for each in found)
