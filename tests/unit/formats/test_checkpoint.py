"""Checkpoints prove themselves, stay small by sealing pages, and leave room for members to come."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.golden import regenerate as golden
from tests.properties.formats.batches import mutations
from tiered.errors import CorruptObject
from tiered.formats import checkpoint_bytes
from tiered.formats.checkpoint import (
    CheckpointPage,
    CommittedSegment,
    PartitionCheckpoint,
    decode_checkpoint_page,
    decode_cluster_checkpoint,
    decode_partition_checkpoint,
    encode_checkpoint_page,
    encode_cluster_checkpoint,
    encode_cluster_checkpoint_in_pieces,
    encode_partition_checkpoint,
    page_ref,
    sealed,
)
from tiered.formats.checkpoint_pages import with_pages_of
from tiered.formats.pin_entries import PinnedOffsets
from tiered.meta.pins import MAX_RANGES
from tiered.runtime import with_rests

HEAD = encode_partition_checkpoint(golden.partition_checkpoint())
PAGE = encode_checkpoint_page(golden.page())
CLUSTER = encode_cluster_checkpoint(golden.cluster_checkpoint())
PINS = encode_cluster_checkpoint(golden.cluster_checkpoint_with_pins())
EACH: list[tuple[Callable[[bytes], object], bytes]] = [
    (decode_partition_checkpoint, HEAD),
    (decode_checkpoint_page, PAGE),
    (decode_cluster_checkpoint, CLUSTER),
    (decode_cluster_checkpoint, PINS),
]


def signed(members: dict[str, Any]) -> bytes:
    """A checkpoint of any content whose hash is right."""
    members = {name: value for name, value in members.items() if name != "sha256"}
    body = json.dumps(members, sort_keys=True, separators=(",", ":")).encode()
    return json.dumps(members | {"sha256": hashlib.sha256(body).hexdigest()}).encode()


def head_with(**changes: Any) -> bytes:
    return signed(json.loads(HEAD) | changes)


def checkpoint_of(count: int, *, first: int = 0, log_start_offset: int = 0) -> PartitionCheckpoint:
    return replace(
        golden.partition_checkpoint(),
        log_start_offset=log_start_offset,
        cold_end_offset=100 * (first + count),
        pages=(),
        segments=tuple(golden.committed(index) for index in range(first, first + count)),
    )


@pytest.mark.parametrize(("decode", "data"), EACH)
def test_every_flipped_byte_is_found(decode: Any, data: bytes) -> None:
    for at in range(len(data)):
        for pattern in (0x01, 0x20, 0x80):
            changed = bytearray(data)
            changed[at] ^= pattern
            with pytest.raises(CorruptObject):
                decode(changed)


@pytest.mark.parametrize(("decode", "data"), EACH)
def test_every_truncation_is_found(decode: Any, data: bytes) -> None:
    for length in range(len(data)):
        with pytest.raises(CorruptObject):
            decode(data[:length])


@given(st.data(), st.sampled_from(EACH))
def test_hostile_bytes_are_refused(data: st.DataObject, each: tuple[Any, bytes]) -> None:
    decode, written = each
    hostile = data.draw(mutations(written))
    try:
        assert decode(hostile) == decode(written)
    except CorruptObject:
        pass


@pytest.mark.parametrize(
    "data",
    [
        b"[]",
        b"null",
        b"NaN",
        b"{}",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"9" * 10_000,
        b'{"format":"tiered.partition-checkpoint/1","x":NaN,"sha256":""}',
        b'{"format":["tiered.partition-checkpoint/1"]}',
        b"\xff\xfe\x00",
    ],
)
def test_what_is_no_checkpoint_is_refused(data: bytes) -> None:
    for decode, _ in EACH:
        with pytest.raises(CorruptObject):
            decode(data)


def test_half_of_a_surrogate_pair_is_refused_and_a_whole_one_is_read() -> None:
    for name, is_whole in (("\U0001f600", True), ("\ud800", False), ("x\udfff", False)):
        data = signed({"format": "tiered.some/1", "name": name})
        if is_whole:
            assert checkpoint_bytes.read_members(data, "tiered.some/1").text("name", max_chars=9) == name
        else:
            with pytest.raises(CorruptObject, match="surrogate"):
                checkpoint_bytes.read_members(data, "tiered.some/1")


@pytest.mark.parametrize("count", [0, 1, 99, 100, 101, 250])
def test_the_canonical_form_is_that_of_json(count: int) -> None:
    """Long lists and tables are encoded in pieces."""
    table: dict[str, Any] = {f"{number * 7919 % 1000}": {"y": "\u00fc", "b": [None, {}]} for number in range(count)}
    members = {"z": list(range(count)), "a": list(table.values()), "t": table, "m": {"d": {}, "c": [[], [1]]}}
    assert checkpoint_bytes.canonical(members) == json.dumps(members, sort_keys=True, separators=(",", ":")).encode()


def test_a_cluster_of_many_topics_and_rules_is_encoded_in_pieces_to_the_same_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = golden.cluster_checkpoint_with_resource_configs()
    configs = {f"GROUP:g-{number}": {"consumer.session.timeout.ms": "45000"} for number in range(250)}
    many = replace(whole, topics=whole.topics * 250, resource_configs=configs)
    rests_s: list[float] = []
    monkeypatch.setattr("tiered.runtime.time.sleep", rests_s.append)
    assert with_rests(encode_cluster_checkpoint_in_pieces(many)) == encode_cluster_checkpoint(many)
    assert len(rests_s) >= 2 * (250 // 100)


def test_one_kind_is_not_read_as_another() -> None:
    for decode, _ in EACH:
        for its_own, data in EACH:
            if its_own is not decode:
                with pytest.raises(CorruptObject, match="format"):
                    decode(data)


def test_a_format_to_come_is_named() -> None:
    with pytest.raises(CorruptObject, match="partition-checkpoint/2"):
        decode_partition_checkpoint(head_with(format="tiered.partition-checkpoint/2"))


def test_members_to_come_are_skipped() -> None:
    assert decode_partition_checkpoint(head_with(later={"x": [1.5, None]})) == golden.partition_checkpoint()
    cluster = json.loads(CLUSTER) | {"acls": [], "group_offsets": {"g": 1}}
    assert decode_cluster_checkpoint(signed(cluster)) == golden.cluster_checkpoint()
    page = json.loads(PAGE) | {"later": 1}
    data = signed(page)
    reference = replace(page_ref(golden.page()), sha256=json.loads(data)["sha256"])
    assert decode_checkpoint_page(data, reference) == golden.page()


@pytest.mark.parametrize(
    "changes",
    [
        {"version": "1"},
        {"version": True},
        {"version": 1.0},
        {"version": -1},
        {"version": 2**63},
        {"topic": ".."},
        {"topic": "a/b"},
        {"topic": None},
        {"topic_id": "0"},
        {"topic_id": "01234567-89AB-4DEF-8123-456789ABCDEF"},
        {"cluster_id": "c" * 2000},
        {"partition_count": 0},
        {"segments": {}},
        {"segments": [1]},
        {"segments": [{}]},
        {"pages": None},
    ],
)
def test_members_of_a_wrong_kind_are_refused_by_name(changes: dict[str, Any]) -> None:
    with pytest.raises(CorruptObject, match="member"):
        decode_partition_checkpoint(head_with(**changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"ranges": None},
        {"ranges": [{}]},
        {"ranges": [[0, 1]]},
        {"ranges": [[0, 1, 2, 3]]},
        {"ranges": [[0, 1, -1]]},
        {"ranges": [[0, 1, True]]},
        {"ranges": [[0, 1, 2**63]]},
        {"name": "../etc"},
        {"name": None},
        {"pin_id": 7},
        {"expires_at_ms": "soon"},
        {"owner": "o" * 300},
    ],
)
def test_pins_of_a_wrong_kind_are_refused_by_name(changes: dict[str, Any]) -> None:
    members = json.loads(PINS)
    members["pins"][0] |= changes
    with pytest.raises(CorruptObject, match=f"member '{next(iter(changes))}'"):
        decode_cluster_checkpoint(signed(members))


@pytest.mark.parametrize(
    "changes",
    [
        {"permission": "MAYBE"},
        {"pattern_type": "MATCH"},
        {"resource_name": "a\0b"},
        {"resource_name": "x" * 256},
        {"principal": None},
        {"host": 7},
    ],
)
def test_a_rule_that_is_not_understood_is_refused_for_it_may_deny(changes: dict[str, Any]) -> None:
    members = json.loads(encode_cluster_checkpoint(golden.cluster_checkpoint_with_acls()))
    members["acls"][0] |= changes
    with pytest.raises(CorruptObject):
        decode_cluster_checkpoint(signed(members))


def test_as_many_pins_as_may_be_fit_into_one_checkpoint() -> None:
    last = PinnedOffsets(partition=99_999, start_offset=10**12, end_offset=10**12)
    pin = replace(golden.cluster_checkpoint_with_pins().pins[0], ranges=(last,) * MAX_RANGES)
    data = encode_cluster_checkpoint(replace(golden.cluster_checkpoint(), pins=(pin,)))
    # 10,000 topics take 5 MB more.
    assert len(data) < checkpoint_bytes.MAX_CHECKPOINT_BYTES - (5 << 20)


def test_segments_that_overlap_are_refused() -> None:
    first, second = golden.committed(0), golden.committed(1)
    base = golden.partition_checkpoint()
    for segments in ((first, replace(second, base_offset=99)), (second, first), (first, first)):
        with pytest.raises(CorruptObject, match="after"):
            decode_partition_checkpoint(encode_partition_checkpoint(replace(base, pages=(), segments=segments)))
    with pytest.raises(CorruptObject, match="within its pages"):
        decode_partition_checkpoint(encode_partition_checkpoint(replace(base, segments=(second,))))


def test_a_gap_is_left_to_the_reader() -> None:
    gap = replace(golden.partition_checkpoint(), pages=(), segments=(golden.committed(0), golden.committed(2)))
    assert decode_partition_checkpoint(encode_partition_checkpoint(gap)) == gap


def test_a_page_that_is_not_the_one_meant_is_refused() -> None:
    other = CheckpointPage(topic_id=golden.TOPIC_ID, partition=3, segments=(golden.committed(0),))
    with pytest.raises(CorruptObject, match="another page"):
        decode_checkpoint_page(encode_checkpoint_page(other), page_ref(golden.page()))
    with pytest.raises(CorruptObject, match="other offsets"):
        decode_checkpoint_page(PAGE, replace(page_ref(golden.page()), count=3))


def test_too_large_a_checkpoint_is_refused_unparsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_bytes, "MAX_CHECKPOINT_BYTES", len(HEAD))
    decode_partition_checkpoint(HEAD)
    with pytest.raises(CorruptObject, match="larger"):
        decode_partition_checkpoint(HEAD + b" ")


@pytest.mark.parametrize(("count", "pages", "left"), [(0, 0, 0), (1, 0, 1), (10, 0, 10), (11, 1, 1), (35, 3, 5)])
def test_full_pages_are_sealed_and_the_newest_segments_stay(count: int, pages: int, left: int) -> None:
    checkpoint = checkpoint_of(count)
    result = sealed(checkpoint, 10)
    assert len(result.pages) == len(result.checkpoint.pages) == pages
    assert len(result.checkpoint.segments) == left
    found: list[CommittedSegment] = []
    for reference, data in result.pages:
        page = decode_checkpoint_page(data, reference)
        assert page_ref(page) == reference
        assert len(page.segments) == 10
        found.extend(page.segments)
    assert (*found, *result.checkpoint.segments) == checkpoint.segments
    head = result.checkpoint
    assert decode_partition_checkpoint(encode_partition_checkpoint(head)) == head
    assert sealed(head, 10) == replace(result, pages=())


def test_a_head_made_anew_keeps_the_pages_of_the_one_before() -> None:
    before = sealed(checkpoint_of(25), 10).checkpoint
    after = with_pages_of(before, checkpoint_of(38))
    assert after.pages == before.pages
    assert [segment.base_offset for segment in after.segments] == [100 * index for index in range(20, 38)]
    assert len(sealed(after, 10).pages) == 1


def test_retention_drops_pages_and_leaves_the_cuts_of_others_where_they_are() -> None:
    before = sealed(checkpoint_of(35), 10).checkpoint
    retained = checkpoint_of(36 - 12, first=12, log_start_offset=1200)
    after = with_pages_of(before, retained, known=frozenset(before.pages))
    assert after.pages == before.pages[1:]
    assert [segment.base_offset for segment in after.segments] == [3000 + 100 * index for index in range(6)]
    gone = replace(before, log_start_offset=2000)
    assert sealed(gone, 10).checkpoint.pages == before.pages[2:]


def test_pages_that_do_not_meet_the_segments_are_not_taken_over() -> None:
    before = sealed(checkpoint_of(25), 10).checkpoint
    lost = checkpoint_of(5, first=22)
    assert with_pages_of(before, lost) == lost
    other = replace(checkpoint_of(30), partition=4)
    assert with_pages_of(before, other) == other
    assert with_pages_of(None, other) == other


def test_everything_deleted_leaves_an_empty_head() -> None:
    before = sealed(checkpoint_of(25), 10).checkpoint
    empty = replace(checkpoint_of(0), log_start_offset=2500, cold_end_offset=2500)
    assert with_pages_of(before, empty) == empty
    assert decode_partition_checkpoint(encode_partition_checkpoint(empty)) == empty


@pytest.mark.parametrize("count", [2**62, 100_001])
def test_a_checkpoint_claims_no_more_partitions_than_readers_can_walk_through(count: int) -> None:
    with pytest.raises(CorruptObject, match="partition_count"):
        decode_partition_checkpoint(head_with(partition_count=count))
    members = json.loads(CLUSTER)
    members["topics"][0]["partition_count"] = count
    with pytest.raises(CorruptObject, match="partition_count"):
        decode_cluster_checkpoint(signed(members))
    members["topics"] = [
        members["topics"][0]
        | {"partition_count": 100_000, "name": f"t{number}", "topic_id": f"{number:08x}-0000-4000-8000-00000000cafe"}
        for number in range(11)
    ]
    with pytest.raises(CorruptObject, match="1100000 partitions"):
        decode_cluster_checkpoint(signed(members))


@pytest.mark.parametrize("name", ["partition", "leader_epoch"])
def test_numbers_that_no_broker_can_hold_are_refused(name: str) -> None:
    with pytest.raises(CorruptObject, match=name):
        decode_partition_checkpoint(head_with(**{name: 2**31}))


@pytest.mark.parametrize("name", ["name", "topic_id"])
def test_a_topic_that_stands_twice_is_refused(name: str) -> None:
    members = json.loads(CLUSTER)
    first = members["topics"][0]
    other = first | {"name": "other", "topic_id": "00000001-0000-4000-8000-00000000cafe"} | {name: first[name]}
    members["topics"] = [first, other]
    with pytest.raises(CorruptObject, match="twice"):
        decode_cluster_checkpoint(signed(members))
