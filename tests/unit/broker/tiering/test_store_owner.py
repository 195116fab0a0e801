"""Whose a store is cannot be told from a damaged head: it is replaced by nobody, and nothing is written beside it."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.broker.tiering.tiers import tiers
from tiered.broker.tiering.store_look import StoreLook, look_at_store
from tiered.broker.tiering.store_owner import StoreOwner
from tiered.cold.bucket import checkpoints
from tiered.errors import CorruptObject
from tiered.formats import object_key
from tiered.formats.checkpoint import encode_cluster_checkpoint

HEAD = object_key.cluster_checkpoint_key()


async def test_a_damaged_head_is_replaced_by_nobody_and_healed_by_its_removal(tmp_path: Path) -> None:
    async with tiers(tmp_path) as made:
        store = made.context.store
        store.put(HEAD, b"damaged")
        store.is_ours = False
        made.context.state.is_controller = True
        owner = StoreOwner(context=made.context, checkpoints=made.checkpoints)
        look = await look_at_store(store, made.context.uploads)
        assert look == StoreLook(has_answered=False)
        await owner.check_before_registration(look)
        await owner.check_before_ready(look)
        with pytest.raises(CorruptObject, match="remove it if no other cluster has this prefix"):
            await owner.tick()
        await made.checkpoints.write_stale()
        assert store.get(HEAD, max_bytes=100)[0] == b"damaged"
        (tmp_path / "objects" / HEAD).unlink()
        await owner.tick()
        assert store.is_ours
        head = checkpoints.read_cluster_checkpoint(store)
        assert head is not None
        assert head.cluster_id == made.context.state.cluster_id
        assert [topic.name for topic in head.topics] == ["orders"]


async def test_a_store_that_is_given_back_is_used_again(tmp_path: Path) -> None:
    async with tiers(tmp_path) as made:
        store = made.context.store
        owner = StoreOwner(context=made.context, checkpoints=made.checkpoints)
        await owner.tick()
        before, (head, etag) = owner.interval_ms(), checkpoints.read_stored_cluster_checkpoint(store) or (None, "")
        assert head is not None
        other = replace(head, cluster_id="another")
        etag = store.put(HEAD, encode_cluster_checkpoint(other), if_match=etag).etag
        await owner.tick()
        assert (store.is_ours, store.other_cluster_id, owner.interval_ms()) == (False, "another", before)
        (tmp_path / "objects" / HEAD).write_bytes(encode_cluster_checkpoint(head))
        await owner.tick()
        assert (store.is_ours, store.other_cluster_id) == (True, "")
