"""The bucket's copies of groups: which slots are written, and when."""

from pathlib import Path

from tests.unit.broker.groups.coordinators import Coordinating, commit, coordinating
from tiered.broker.groups.checkpoints import GroupCheckpointWriter
from tiered.cold.bucket import group_checkpoints
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


async def test_a_slot_of_another_holder_is_left_to_it(tmp_path: Path) -> None:
    async with coordinating(tmp_path) as broker:
        await commit(broker, "billing")
        made, slot = writer(broker), broker.groups.slot("billing")
        made.slots_changed([slot])
        row = SlotRow(slot=slot, broker_id=2, broker_epoch=9, slot_epoch=1 << 40, change_number=9)
        broker.groups.slots_changed([row])
        await made.write_changed()
        assert stored(broker) == set()
