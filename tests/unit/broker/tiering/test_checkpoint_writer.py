"""What the bucket is told, and when: a store that is away leaves checkpoints stale, and is said once."""

import asyncio
import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.unit.broker.security.rules import reads
from tests.unit.broker.tiering.tiers import TOPIC_ID, tiers
from tiered.broker.partitions.cold_end import ColdEnd
from tiered.broker.tiering import checkpoints as checkpoint_writer
from tiered.cold.bucket import checkpoints
from tiered.cold.object_store import ObjectStore
from tiered.errors import StoreUnavailable
from tiered.formats.acl_entries import AclEntry
from tiered.formats.checkpoint import PartitionCheckpoint, TopicEntry
from tiered.meta.security import Security


async def test_what_cannot_be_written_stays_stale_and_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def away(*_: object, **__: object) -> None:
        raise StoreUnavailable("the store is away")

    async with tiers(tmp_path) as made:
        await made.lifecycle.upload(made.partition, 0)
        with caplog.at_level(logging.WARNING), monkeypatch.context() as patch:
            patch.setattr(checkpoints, "write_partition_checkpoint", away)
            for _ in range(3):
                await made.checkpoints.write_stale()
            assert made.checkpoints.is_stale(TOPIC_ID, 0)
        await made.checkpoints.write_stale()
        assert not made.checkpoints.is_stale(TOPIC_ID, 0)
        assert made.context.counters.checkpoint_failures == 3
        assert [each.getMessage() for each in caplog.records] == [
            "the checkpoint of orders-0 could not be written; stale ones are tried again and again: the store is away",
            "checkpoints are written again",
        ]


async def test_a_store_that_is_away_is_not_asked_for_each_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def away(_: ObjectStore, checkpoint: PartitionCheckpoint, **__: object) -> None:
        asked.append(checkpoint.partition)
        raise StoreUnavailable("the store is away")

    async with tiers(tmp_path, partition_count=7) as made:
        for partition in made.partitions:
            made.checkpoints.partition_changed(partition)
        with monkeypatch.context() as patch:
            patch.setattr(checkpoints, "write_partition_checkpoint", away)
            await made.checkpoints.write_stale()
            await made.checkpoints.write_stale()
        assert asked == [0, 1, 2, 3, 4, 5], "the next round begins with others"
        await made.checkpoints.write_stale()
        assert made.checkpoints.stale_count == 0


async def test_a_leader_that_does_not_know_all_segments_replaces_no_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with tiers(tmp_path) as made:
        await made.upload_all()
        await made.checkpoints.write_stale()
        before = await made.context.uploads.run(checkpoints.read_partition, made.context.store, TOPIC_ID, 0)
        known = made.partition.committed[1:]
        monkeypatch.setattr(ColdEnd, "committed", property(lambda _: known))
        made.checkpoints.partition_changed(made.partition)
        await made.checkpoints.write_stale()
        assert await made.context.uploads.run(checkpoints.read_partition, made.context.store, TOPIC_ID, 0) == before
        assert made.checkpoints.is_stale(TOPIC_ID, 0)
        assert "1 offsets are missing: no segment holds them (offsets 0 to 0)" in caplog.text


async def test_the_controller_alone_writes_the_clusters_checkpoint(tmp_path: Path) -> None:
    async with tiers(tmp_path) as made:
        assert made.checkpoints.stale_count == 0
        made.context.state.is_controller = True
        assert made.checkpoints.stale_count == 1
        await made.checkpoints.write_stale()
        found = await made.context.uploads.run(checkpoints.read_cluster_checkpoint, made.context.store)
        assert found is not None
        assert [each.name for each in found.topics] == ["orders"]


async def test_the_form_of_rules_is_made_beside_the_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []

    def noted(**words: str) -> AclEntry:
        threads.append(threading.get_ident())
        return AclEntry(**words)

    async with tiers(tmp_path) as made:
        made.context.state.is_controller = True
        made.context.state.security = Security(acls=(reads("orders"), reads("bills")))
        monkeypatch.setattr(checkpoint_writer, "AclEntry", noted)
        await made.checkpoints.write_stale()
        stored = await made.context.uploads.run(checkpoints.read_cluster_checkpoint, made.context.store)
        assert stored is not None
        assert [entry.resource_name for entry in stored.acls] == ["orders", "bills"]
    assert len(threads) == 2
    assert threading.get_ident() not in threads


async def test_others_are_served_while_the_topics_of_a_checkpoint_are_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn, turns_of_entries = 0, []

    def noted(**fields: Any) -> TopicEntry:
        turns_of_entries.append(turn)
        return TopicEntry(**fields)

    async def count_turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    async with tiers(tmp_path, others=("bills", "letters", "a")) as made:
        monkeypatch.setattr("tiered.runtime.TURN_MS", -1.0)
        monkeypatch.setattr(checkpoint_writer, "TopicEntry", noted)
        counting = asyncio.create_task(count_turns())
        made.context.state.is_controller = True
        await made.checkpoints.write_stale()
        counting.cancel()
        stored = await made.context.uploads.run(checkpoints.read_cluster_checkpoint, made.context.store)
        assert stored is not None
        assert sorted(entry.name for entry in stored.topics) == ["a", "bills", "letters", "orders"]
    assert len(set(turns_of_entries)) == 4
