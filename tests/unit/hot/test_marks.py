"""The small files beside the segments."""

import json
from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiered.hot.marks import (
    RecoveryPoint,
    SegmentMark,
    decode_log_start_offset,
    decode_recovery_point,
    encode_log_start_offset,
    encode_recovery_point,
)

MARK = SegmentMark(
    base_offset=5,
    end_offset=9,
    size_bytes=400,
    max_timestamp_ms=-1,
    offset_of_max_timestamp=-1,
    first_append_ms=None,
    offset_index_bytes=8,
    time_index_bytes=0,
)
POINT = RecoveryPoint(segments=(MARK, replace(MARK, times_proven_from=7)))


def test_marks_survive_a_round_trip() -> None:
    assert decode_recovery_point(encode_recovery_point(POINT)) == POINT
    assert decode_recovery_point(encode_recovery_point(RecoveryPoint(segments=()))) == RecoveryPoint(segments=())
    assert decode_log_start_offset(encode_log_start_offset(2**62)) == 2**62


@given(st.data())
def test_any_damage_makes_a_mark_unknown(data: st.DataObject) -> None:
    good = encode_recovery_point(POINT)
    cut = data.draw(st.integers(0, len(good) - 2))
    assert decode_recovery_point(good[:cut]) is None
    position, bit = data.draw(st.integers(0, len(good) - 2)), data.draw(st.integers(0, 7))
    bad = bytearray(good)
    bad[position] ^= 1 << bit
    assert decode_recovery_point(bytes(bad)) is None


@pytest.mark.parametrize("data", [None, b"", b"\n", b"[]\n00000000\n", encode_log_start_offset(3)])
def test_other_files_are_no_recovery_points(data: bytes | None) -> None:
    assert decode_recovery_point(data) is None


def test_what_is_proven_stands_beside_the_segments_whose_members_older_versions_take_one_by_one() -> None:
    body = json.loads(encode_recovery_point(POINT).partition(b"\n")[0])["body"]
    assert body["times_proven_from"] == [None, 7]
    assert body["segments"][0].keys() == asdict(MARK).keys() - {"times_proven_from"}
