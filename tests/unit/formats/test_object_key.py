"""Keys say what they name, keep partitions together, and are refused when nobody here made them."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.properties.formats.batches import mutations
from tiered.errors import CorruptObject
from tiered.formats import object_key
from tiered.formats.object_key import SegmentKey, parse_segment_key, segment_key
from tiered.ids import is_legal_topic_name

TOPIC_ID = UUID("01234567-89ab-4def-8123-456789abcdef")
OBJECT_ID = UUID("aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee")
KEY = segment_key("flights_2", TOPIC_ID, 3, 5, 70, 9, OBJECT_ID)

topics = st.from_regex(r"[a-zA-Z0-9._-]{1,249}", fullmatch=True).filter(is_legal_topic_name)
keys = st.builds(
    lambda topic, topic_id, partition, base, count, epoch, object_id: SegmentKey(
        topic=topic,
        topic_id=topic_id,
        partition=partition,
        base_offset=base,
        end_offset=base + count,
        leader_epoch=epoch,
        object_id=object_id,
    ),
    topics,
    st.uuids(),
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**62),
    st.integers(1, 2**62),
    st.integers(0, 2**31 - 1),
    st.uuids(),
)


def as_text(key: SegmentKey) -> str:
    return segment_key(
        key.topic, key.topic_id, key.partition, key.base_offset, key.end_offset, key.leader_epoch, key.object_id
    )


def test_a_segment_key_looks_like_this() -> None:
    assert KEY == (
        "segments/69d9/flights_2_01234567-89ab-4def-8123-456789abcdef/3/"
        "00000000000000000005-00000000000000000070-e9-aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee.seg"
    )


@given(keys)
def test_a_segment_key_says_what_it_was_made_of(key: SegmentKey) -> None:
    text = as_text(key)
    assert parse_segment_key(text) == key
    assert len(text) <= 440
    assert text.startswith(object_key.partition_segments_prefix(key.topic, key.topic_id, key.partition))
    assert text.startswith(object_key.SEGMENTS_PREFIX)


@given(st.data(), keys)
def test_a_changed_segment_key_is_refused_or_is_another_one_of_ours(data: st.DataObject, key: SegmentKey) -> None:
    changed = data.draw(mutations(as_text(key).encode())).decode("latin-1")
    try:
        assert as_text(parse_segment_key(changed)) == changed
    except CorruptObject:
        pass


@pytest.mark.parametrize(
    "key",
    [
        "",
        "segments/",
        KEY + "\n",
        KEY.replace("/3/", "/03/"),
        KEY.replace("/3/", "/4/"),
        KEY.replace("69d9", "69d8"),
        KEY.replace("-e9-", "-e99999999999-"),
        KEY.replace("-e9-", "-e4294967295-"),
        KEY.replace("00000000000000000070", "00000000000000000005"),
        KEY.replace("00000000000000000070", "99999999999999999999"),
        KEY.replace("flights_2", ".."),
        KEY.replace("flights_2", "fl/ghts"),
        KEY.replace("aaaaaaaa", "AAAAAAAA"),
        KEY.replace("00000000000000000005", "0000000000000000000\u0665"),
    ],
)
def test_what_is_no_segment_key_is_refused(key: str) -> None:
    with pytest.raises(CorruptObject):
        parse_segment_key(key)


def test_keys_of_a_partition_sort_by_offset_under_one_prefix() -> None:
    offsets = [0, 9, 10, 99, 10**6, 10**12, 2**62]
    made = [segment_key("t", TOPIC_ID, 0, base, base + 1, 0, OBJECT_ID) for base in offsets]
    assert sorted(made) == made
    assert len({key[:20] for key in made}) == 1


def test_partitions_are_spread() -> None:
    folders = {segment_key("t", TOPIC_ID, partition, 0, 1, 0, OBJECT_ID)[9:13] for partition in range(200)}
    assert len(folders) > 190


def test_checkpoint_keys() -> None:
    folder = "checkpoints/partitions/01234567-89ab-4def-8123-456789abcdef/3/"
    head = object_key.partition_checkpoint_key(TOPIC_ID, 3)
    page = object_key.partition_page_key(TOPIC_ID, 3, 40, "0123456789abcdef" * 4)
    assert object_key.cluster_checkpoint_key() == "checkpoints/cluster.json"
    assert head == folder + "head.json"
    assert page == folder + "pages/00000000000000000040-0123456789abcdef.json"
    assert object_key.parse_partition_checkpoint_key(head) == (TOPIC_ID, 3)
    assert object_key.parse_partition_checkpoint_key(page) is None
    assert head.startswith(object_key.PARTITION_CHECKPOINTS_PREFIX)
    assert head.startswith(object_key.partition_checkpoint_prefix(TOPIC_ID, 3))
