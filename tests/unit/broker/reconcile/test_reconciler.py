"""Rounds over disk, catalogue and bucket, where the catalogue knows no topic: what is left is told, and stays."""

from pathlib import Path
from uuid import UUID

import pytest

from tests.unit.broker.context import Surroundings, surroundings
from tiered.broker.partitions.topics import Topics
from tiered.broker.reconcile import disk
from tiered.broker.reconcile.findings import FindingKind, Findings
from tiered.broker.reconcile.rounds import Reconciler
from tiered.broker.view.image import ClusterImage
from tiered.formats import object_key

STRANGER = UUID(int=9)


def reconciler(made: Surroundings) -> Reconciler:
    return Reconciler(context=made.context, topics=Topics(), image=ClusterImage(), findings=Findings())


async def test_objects_of_an_unknown_topic_are_told_by_the_controller_and_left(tmp_path: Path) -> None:
    async with surroundings(tmp_path) as made:
        prefix = object_key.partition_segments_prefix("gone", STRANGER, 0)
        key = object_key.segment_key(
            "gone", STRANGER, 0, base_offset=0, end_offset=10, leader_epoch=0, object_id=STRANGER
        )
        made.context.store.put(key, b"records")
        rounds = reconciler(made)
        await rounds.round()
        assert rounds.findings.all() == [], "it is another broker's to look at"
        made.context.state.is_controller = True
        await rounds.round()
        (found,) = rounds.findings.all()
        assert (found.kind, found.topic, found.name) == (FindingKind.UNKNOWN_OBJECT, "gone", prefix)
        assert made.context.store.head(key) is not None
        made.context.state.is_controller = False
        await rounds.round()
        assert rounds.findings.all() == []
        await rounds.stop()


async def test_a_folder_of_an_unknown_topic_is_told_and_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "SECOND_LOOK_MS", 10)
    async with surroundings(tmp_path) as made:
        folder = made.context.data.log_root / str(STRANGER)
        folder.mkdir(parents=True)
        rounds = reconciler(made)
        await rounds.disk.round()
        (found,) = rounds.findings.all()
        assert (found.kind, found.name) == (FindingKind.UNUSED_FILE, str(folder))
        assert folder.is_dir()
        assert rounds.disk.turns == 1
        await rounds.stop()


async def test_a_torn_place_of_the_scrub_begins_its_turn_anew(tmp_path: Path) -> None:
    async with surroundings(tmp_path) as made:
        (made.context.data.root / "scrub.json").write_bytes(b'{"version": 1, "clu')
        rounds = reconciler(made)
        await rounds.scrub.round()
        assert rounds.scrub.turn_ended_at_ms == 0
        await rounds.stop()


async def test_a_part_of_a_round_that_fails_in_an_unforeseen_way_holds_up_none_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def look_at_uploads(_: disk.DiskComparison) -> None:
        raise ValueError("'many' is not a valid state")

    monkeypatch.setattr(disk.DiskComparison, "look_at_uploads", look_at_uploads)
    async with surroundings(tmp_path) as made:
        rounds = reconciler(made)
        await rounds.round()
        assert (rounds.disk.turns, rounds.bucket.turns) == (1, 1)
        assert made.context.counters.housekeeping_failures == 1
        await rounds.stop()
