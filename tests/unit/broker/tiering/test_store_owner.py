"""Whose a store is, what a damaged head says of it, and the sign of life that a broker leaves there."""

import asyncio
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.broker.tiering.tiers import tiers
from tiered.broker.tiering.store_look import StoreLook, look_at_store
from tiered.broker.tiering.store_owner import StoreOwner
from tiered.cold.bucket import checkpoints, signs_of_life
from tiered.cold.local import LocalStore
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


async def test_a_sign_of_life_that_is_just_being_written_is_gone_after_the_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with tiers(tmp_path) as made:
        context = made.context
        context.uploads.resize(2)
        owner = StoreOwner(context=context, checkpoints=made.checkpoints)
        await owner.tick()
        began, may_end, put = threading.Event(), threading.Event(), LocalStore.put

        def slow_put(store: LocalStore, key: str, data: bytes, **conditions: Any) -> object:
            began.set()
            assert may_end.wait(10)
            return put(store, key, data, **conditions)

        monkeypatch.setattr(LocalStore, "put", slow_put)
        ticking = asyncio.create_task(owner.tick())
        assert await asyncio.to_thread(began.wait, 10)
        ticking.cancel()
        leaving = asyncio.create_task(owner.leave())
        await asyncio.wait([leaving], timeout=0.05)
        may_end.set()
        await leaving
        async with asyncio.timeout(10):
            while context.uploads.pending:
                await asyncio.sleep(0.005)
        assert signs_of_life.live_brokers(context.store, context.state.cluster_id) == ()
