"""Checkpoints of consumer groups: what is read is what was written, and nothing else is read."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.golden import regenerate as golden
from tests.properties.formats.batches import mutations
from tiered.errors import CorruptObject
from tiered.formats.group_checkpoint import StoredOffset, decode_group_checkpoint, encode_group_checkpoint
from tiered.formats.object_key import group_checkpoint_key, parse_group_checkpoint_key, parse_partition_checkpoint_key

WHOLE = encode_group_checkpoint(golden.group_checkpoint())

offsets = st.builds(
    StoredOffset,
    topic_id=st.uuids(),
    partition=st.integers(0, 2**31 - 1),
    offset=st.integers(-(2**63), 2**63 - 1),
    leader_epoch=st.integers(-1, 2**31 - 1),
    metadata=st.text(max_size=50),
    committed_at_ms=st.integers(0, 2**53),
)


@settings(max_examples=settings().max_examples * 2)
@given(st.text(min_size=1, max_size=80), st.lists(offsets, max_size=5))
def test_any_group_comes_back_as_it_was(group_id: str, its_offsets: list[StoredOffset]) -> None:
    before = golden.group_checkpoint()
    group = replace(before.groups[0], group_id=group_id, offsets=tuple(its_offsets))
    checkpoint = replace(before, groups=(group,))
    assert decode_group_checkpoint(encode_group_checkpoint(checkpoint)) == checkpoint


@settings(max_examples=settings().max_examples * 8)
@given(mutations(WHOLE))
def test_altered_bytes_are_refused(data: bytes) -> None:
    if data != WHOLE:
        with pytest.raises(CorruptObject):
            decode_group_checkpoint(data)


def test_the_key_of_a_slot_is_read_back_and_is_no_head() -> None:
    assert parse_group_checkpoint_key(group_checkpoint_key(49)) == 49
    assert parse_partition_checkpoint_key(group_checkpoint_key(49)) is None
    assert parse_group_checkpoint_key("checkpoints/groups/049.json") is None
    assert parse_group_checkpoint_key("checkpoints/cluster.json") is None


def test_no_more_slots_are_claimed_than_a_restore_can_write() -> None:
    strange = encode_group_checkpoint(replace(golden.group_checkpoint(), slot_count=2**31 - 1))
    with pytest.raises(CorruptObject, match="slot_count"):
        decode_group_checkpoint(strange)


@pytest.mark.parametrize("kind", ["share", "", "Classic"])
def test_a_kind_that_no_database_takes_is_refused(kind: str) -> None:
    before = golden.group_checkpoint()
    strange = encode_group_checkpoint(replace(before, groups=(replace(before.groups[0], kind=kind),)))
    with pytest.raises(CorruptObject, match="kind"):
        decode_group_checkpoint(strange)
