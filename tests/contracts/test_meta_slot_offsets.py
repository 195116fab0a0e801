"""What goes into the bucket's checkpoint of a slot, on SQLite and on PostgreSQL."""

from collections.abc import Sequence
from uuid import UUID

import pytest

from tests.catalogue import HOUR_MS, NOW_MS, create_topic
from tiered.meta import coordinator_slots, group_offsets, slot_offsets, topics
from tiered.meta.engine import Database
from tiered.meta.group_offsets import GroupCommit, OffsetEntry, WritingCoordinator
from tiered.rules.groups.coordinator_slot import coordinator_slot

pytest_plugins = ["tests.meta_databases"]

SLOTS = 2


@pytest.fixture
def by(database: Database) -> WritingCoordinator:
    epoch = database.run_sync(lambda conn: conn.exec_driver_sql("SELECT broker_epoch FROM broker").scalar_one())
    moved = database.run_sync(
        lambda conn: coordinator_slots.take_unheld(
            conn, broker_id=1, broker_epoch=epoch, slot_count=SLOTS, now_ms=NOW_MS
        )
    )
    epochs = {row.slot: row.slot_epoch for row in moved.rows}
    return WritingCoordinator(broker_id=1, broker_epoch=epoch, slot_epochs=epochs, commit_number=1)


def commit(database: Database, by: WritingCoordinator, group_id: str, entries: Sequence[OffsetEntry]) -> int:
    slot = coordinator_slot(group_id, SLOTS)
    one = GroupCommit(group_id=group_id, slot=slot, generation=3, entries=tuple(entries), committed_at_ms=NOW_MS)
    assert not database.run_sync(lambda conn: group_offsets.write(conn, [one], [], by)).refused
    return slot


def load(database: Database, slot: int, limit: int = 100) -> slot_offsets.SlotOffsets:
    return database.run_sync(lambda conn: slot_offsets.load(conn, slot=slot, limit=limit))


def groups_of(slot: int, count: int) -> list[str]:
    names = (f"group-{number:03}" for number in range(1_000))
    return [name for name in names if coordinator_slot(name, SLOTS) == slot][:count]


def entry(topic_id: UUID, partition: int, offset: int, metadata: str = "") -> OffsetEntry:
    return OffsetEntry(topic_id=topic_id, partition=partition, offset=offset, leader_epoch=4, metadata=metadata)


def test_a_slot_has_its_own_groups_with_their_offsets_as_clients_sent_them(
    database: Database, by: WritingCoordinator
) -> None:
    topic_id = database.run_sync(create_topic).topic_id
    ours, theirs = groups_of(0, 1)[0], groups_of(1, 1)[0]
    commit(database, by, ours, [entry(topic_id, 0, 17, "note\0"), entry(topic_id, 1, 5)])
    commit(database, by, theirs, [entry(topic_id, 0, 99)])
    (group,) = load(database, 0).groups
    assert (group.group_id, group.generation) == (ours, 3)
    assert [(each.partition, each.offset, each.leader_epoch, each.metadata) for each in group.offsets] == [
        (0, 17, 4, "note\0"),
        (1, 5, 4, ""),
    ]


def test_offsets_of_deleted_topics_do_not_count(database: Database, by: WritingCoordinator) -> None:
    gone = database.run_sync(create_topic).topic_id
    database.run_sync(lambda conn: topics.delete_topic(conn, gone, now_ms=NOW_MS, purge_after_ms=NOW_MS + HOUR_MS))
    slot = commit(database, by, "late", [entry(gone, 0, 17)])
    (group,) = load(database, slot).groups
    assert group.offsets == ()


def test_beyond_the_limit_whole_groups_are_left_out_and_counted(database: Database, by: WritingCoordinator) -> None:
    topic_id = database.run_sync(create_topic).topic_id
    names = groups_of(0, 3)
    for name in names:
        commit(database, by, name, [entry(topic_id, partition, 1) for partition in range(3)])
    found = load(database, 0, limit=7)
    assert [(group.group_id, len(group.offsets)) for group in found.groups] == [(names[0], 3), (names[1], 3)]
    assert found.left_out == 1


def test_a_slot_is_read_in_parts_that_say_how_many_groups_come_after_them(
    database: Database, by: WritingCoordinator
) -> None:
    topic_id = database.run_sync(create_topic).topic_id
    names = groups_of(0, 5)
    for name in names:
        commit(database, by, name, [entry(topic_id, partition, 1) for partition in range(3)])
    commit(database, by, groups_of(1, 1)[0], [entry(topic_id, 0, 99)])

    def part(after: str) -> slot_offsets.SlotOffsets:
        return database.run_sync(lambda conn: slot_offsets.load(conn, slot=0, limit=100, after=after, most_groups=2))

    parts = [part(""), part(names[1]), part(names[3]), part(names[4])]
    assert [[(group.group_id, len(group.offsets)) for group in one.groups] for one in parts] == [
        [(names[0], 3), (names[1], 3)], [(names[2], 3), (names[3], 3)], [(names[4], 3)], [],
    ]  # fmt: skip
    assert [one.left_out for one in parts] == [3, 1, 0, 0]
