"""Checkpoints of consumer groups in the bucket: the newest holder of a slot has the last word."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.golden import regenerate as golden
from tiered.cold.bucket import group_checkpoints
from tiered.cold.local import LocalStore
from tiered.errors import CorruptObject, FencedLeaderEpoch, InvalidConfig
from tiered.formats.object_key import group_checkpoint_key


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path)


def test_a_slot_is_written_read_and_listed(store: LocalStore) -> None:
    checkpoint = golden.group_checkpoint()
    assert group_checkpoints.list_slots(store) == []
    assert group_checkpoints.read_group_checkpoint(store, 42) is None
    group_checkpoints.write_group_checkpoint(store, checkpoint)
    found = group_checkpoints.read_group_checkpoint(store, 42)
    assert found is not None
    assert found[0] == checkpoint
    assert group_checkpoints.list_slots(store) == [42]


def test_a_slot_without_groups_is_written_only_over_one_that_had_some(store: LocalStore) -> None:
    nothing = replace(golden.group_checkpoint(), groups=(), left_out=0)
    group_checkpoints.write_group_checkpoint(store, nothing)
    assert group_checkpoints.list_slots(store) == []
    group_checkpoints.write_group_checkpoint(store, golden.group_checkpoint())
    group_checkpoints.write_group_checkpoint(store, nothing)
    found = group_checkpoints.read_group_checkpoint(store, 42)
    assert found is not None
    assert found[0].groups == ()


def test_the_same_again_is_not_written(store: LocalStore) -> None:
    group_checkpoints.write_group_checkpoint(store, golden.group_checkpoint())
    before = store.head(group_checkpoint_key(42))
    group_checkpoints.write_group_checkpoint(store, golden.group_checkpoint())
    assert store.head(group_checkpoint_key(42)) == before


def test_an_older_holder_of_the_slot_and_another_cluster_are_refused(store: LocalStore) -> None:
    newest = golden.group_checkpoint()
    group_checkpoints.write_group_checkpoint(store, newest)
    with pytest.raises(FencedLeaderEpoch, match="slot epoch"):
        group_checkpoints.write_group_checkpoint(store, replace(newest, slot_epoch=newest.slot_epoch - 1, groups=()))
    with pytest.raises(InvalidConfig, match="another prefix"):
        group_checkpoints.write_group_checkpoint(store, replace(newest, cluster_id="other"))


def test_a_damaged_one_is_named_by_its_reader_and_replaced_by_its_writer(store: LocalStore) -> None:
    store.put(group_checkpoint_key(42), b"{}")
    with pytest.raises(CorruptObject, match=r"checkpoints/groups/42\.json"):
        group_checkpoints.read_group_checkpoint(store, 42)
    group_checkpoints.write_group_checkpoint(store, golden.group_checkpoint())
    assert group_checkpoints.read_group_checkpoint(store, 42) is not None
