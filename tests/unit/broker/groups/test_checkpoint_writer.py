"""The bucket's copies of groups: which slots are written, and when."""

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from tests.unit.broker.groups.coordinators import Coordinating, commit, coordinating
from tiered.broker.groups import checkpoints
from tiered.broker.groups.checkpoints import GroupCheckpointWriter
from tiered.cold.bucket import group_checkpoints
from tiered.cold.object_store import ObjectStore
from tiered.errors import StoreUnavailable
from tiered.formats.group_checkpoint import GroupCheckpoint
from tiered.meta import slot_offsets
from tiered.meta.coordinator_slots import SlotRow


def writer(broker: Coordinating) -> GroupCheckpointWriter:
    return GroupCheckpointWriter(context=broker.context, slots=broker.groups.slots)


def stored(broker: Coordinating) -> set[int]:
    return set(group_checkpoints.list_slots(broker.context.store))


async def test_what_was_gained_waits_for_the_second_tick(tmp_path: Path) -> None:
    async with coordinating(tmp_path) as broker:
        await commit(broker, "billing")
        made, slot = writer(broker), broker.groups.slot("billing")
        made.slots_gained([slot])
        await made.tick()
        assert stored(broker) == set()
        await made.tick()
        assert stored(broker) == {slot}


async def test_at_a_shutdown_what_was_gained_is_written_where_it_has_groups(tmp_path: Path) -> None:
    async with coordinating(tmp_path) as broker:
        await commit(broker, "billing")
        made, slot = writer(broker), broker.groups.slot("billing")
        made.slots_gained(broker.groups.slots.epochs)
        await made.write_last()
        assert stored(broker) == {slot}


@pytest.mark.parametrize(("most_offsets", "kept"), [(100, 5), (3, 3)])
async def test_a_slot_is_read_in_parts_so_that_commits_wait_for_one_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_offsets: int, kept: int
) -> None:
    monkeypatch.setattr(checkpoints, "GROUPS_A_PART", 2)
    monkeypatch.setattr(checkpoints, "MAX_OFFSETS_A_SLOT", most_offsets)
    async with coordinating(tmp_path) as broker:
        slot = broker.groups.slot("a")
        names = [name for name in map(str, range(1_000)) if broker.groups.slot(name) == slot][:5]
        for name in names:
            await commit(broker, name)
        made, most = writer(broker), 0
        load = slot_offsets.load

        def counted(*arguments: Any, **options: Any) -> slot_offsets.SlotOffsets:
            nonlocal most
            part = load(*arguments, **options)
            most = max(most, len(part.groups))
            return part

        monkeypatch.setattr(slot_offsets, "load", counted)
        made.slots_changed([slot])
        await made.write_changed()
        stored_now = group_checkpoints.read_group_checkpoint(broker.context.store, slot)
        assert stored_now is not None
        written, _ = stored_now
        assert [group.group_id for group in written.groups] == sorted(names)[:kept]
        assert written.left_out == 5 - kept
        assert most == 2


async def test_a_group_with_more_offsets_than_a_part_is_read_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "OFFSETS_A_PART", 2)
    async with coordinating(tmp_path) as broker:
        slot = broker.groups.slot("a")
        names = [name for name in map(str, range(1_000)) if broker.groups.slot(name) == slot][:4]
        for name in names:
            await commit(broker, name)
        more = text(  # Five instead of one.
            "INSERT INTO group_offset SELECT group_id, topic_id, partition + value, committed_offset, leader_epoch, "
            "metadata, committed_at_ms, slot_epoch, commit_number FROM group_offset, json_each('[1, 2, 3, 4]') "
            "WHERE group_id = :group_id"
        )
        await broker.database.run(lambda conn: conn.execute(more, {"group_id": sorted(names)[1]}))
        made = writer(broker)
        made.slots_changed([slot])
        await made.write_changed()
        stored_now = group_checkpoints.read_group_checkpoint(broker.context.store, slot)
        assert stored_now is not None
        assert [len(group.offsets) for group in stored_now[0].groups] == [1, 5, 1, 1]
        assert stored_now[0].left_out == 0


async def test_a_slot_of_another_holder_is_left_to_it(tmp_path: Path) -> None:
    async with coordinating(tmp_path) as broker:
        await commit(broker, "billing")
        made, slot = writer(broker), broker.groups.slot("billing")
        made.slots_changed([slot])
        row = SlotRow(slot=slot, broker_id=2, broker_epoch=9, slot_epoch=1 << 40, change_number=9)
        broker.groups.slots_changed([row])
        await made.write_changed()
        assert stored(broker) == set()


async def test_a_slot_whose_checkpoint_cannot_be_written_keeps_no_other_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with coordinating(tmp_path) as broker:
        groups = ("a", "b", "c")
        slots = sorted(broker.groups.slot(group_id) for group_id in groups)
        for group_id in groups:
            await commit(broker, group_id)
        made, write = writer(broker), group_checkpoints.write_group_checkpoint

        def write_most(store: ObjectStore, checkpoint: GroupCheckpoint) -> None:
            if checkpoint.slot == slots[0]:
                raise RuntimeError("a group that nobody can encode")
            write(store, checkpoint)

        made.slots_changed(slots)
        with monkeypatch.context() as patch:
            patch.setattr(group_checkpoints, "write_group_checkpoint", write_most)
            await made.write_changed()
        assert stored(broker) == set(slots[1:])
        assert broker.context.counters.checkpoint_failures == 1
        await made.write_changed()
        assert stored(broker) == set(slots)


async def test_a_store_that_is_away_is_not_asked_for_each_slot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with coordinating(tmp_path) as broker:
        made, asked = writer(broker), []

        def away(_: ObjectStore, checkpoint: GroupCheckpoint) -> None:
            asked.append(checkpoint.slot)
            raise StoreUnavailable("the store is away")

        monkeypatch.setattr(group_checkpoints, "write_group_checkpoint", away)
        made.slots_changed(range(10))
        await made.write_changed()
        await made.write_changed()
        assert asked == [0, 1, 2, 3, 4, 5], "the next round begins with others"
