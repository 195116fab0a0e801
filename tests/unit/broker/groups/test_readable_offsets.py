"""`__consumer_offsets` as its readers see it: by slot, above all that an earlier holder told, and kept up with SQL."""

from pathlib import Path

import pytest

from tests.unit.broker.groups.coordinators import commit, coordinating
from tiered.broker.groups.offsets_topic import TENURE_SHIFT
from tiered.errors import NotLeader, OffsetOutOfRange, UnknownTopicOrPartition


async def test_a_partition_tells_what_was_committed_and_begins_above_earlier_tenures(tmp_path: Path) -> None:
    async with coordinating(tmp_path) as broker:
        topic, slot = broker.groups.offsets_topic, broker.groups.slot("billing")
        await commit(broker, "billing")
        log = await topic.loaded(slot)
        tenure = broker.groups.slots.tenure(slot)
        assert tenure is not None
        assert (log.start_offset, log.end_offset) == (tenure << TENURE_SHIFT, (tenure << TENURE_SHIFT) + 1)
        await commit(broker, "billing")
        topic.slots_changed([slot])
        await topic.tick()
        assert log.end_offset == (tenure << TENURE_SHIFT) + 2, "a later commit is a later record"
        partition = topic.partition(slot)
        assert partition.read(log.end_offset, 1 << 20, at_least_one=True) == b""
        with pytest.raises(OffsetOutOfRange):
            partition.read(log.end_offset + 1, 1 << 20, at_least_one=True)


async def test_only_the_holder_of_a_slot_answers_for_it(tmp_path: Path) -> None:
    async with coordinating(tmp_path) as broker:
        topic, slot = broker.groups.offsets_topic, broker.groups.slot("billing")
        await topic.loaded(slot)
        with pytest.raises(UnknownTopicOrPartition):
            topic.partition(-1)
        topic.close()
        with pytest.raises(NotLeader):
            topic.partition(slot)
        assert broker.groups.memory.taken_bytes == 0
