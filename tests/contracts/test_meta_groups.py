"""Committed offsets in SQL: who may write them, and that nothing ever moves them back, on both databases."""

from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from tests.catalogue import HOUR_MS, NOW_MS, create_topic
from tests.contracts.stored_groups import SLOTS, TOPIC, commit, later, offsets, take, write
from tiered.errors import CoordinatorNotAvailable, IllegalGeneration, NotCoordinator
from tiered.meta import coordinator_slots, group_offsets, groups, topics
from tiered.meta.engine import Database
from tiered.meta.group_offsets import GroupCommit, OffsetEntry
from tiered.meta.groups import GroupRow
from tiered.rules.groups.coordinator_slot import coordinator_slot
from tiered.rules.security.authorization import NameScope

if TYPE_CHECKING:
    pass

pytest_plugins = ["tests.meta_databases"]


def group_row(
    group: str = "billing", *, generation: int = 0, slot: int = 0, empty_since_ms: int | None = None
) -> GroupRow:
    return GroupRow(
        group_id=group,
        slot=slot,
        kind=groups.CLASSIC,
        protocol_type="consumer",
        generation=generation,
        empty_since_ms=empty_since_ms,
    )


def test_a_batch_holds_many_groups_and_each_row_says_what_was_committed(database: Database) -> None:
    by = take(database)
    names = [f"group-{number}" for number in range(700)]
    batch = [commit(number, group=name, slot=number % SLOTS) for number, name in enumerate(names)]
    assert write(database, by, *batch).refused == {}
    for number in range(0, 700, 50):
        assert offsets(database, names[number]) == {0: number}
    (row,) = database.run_sync(lambda conn: group_offsets.load(conn, "group-7", limit=10))
    assert (row.topic_id, row.metadata, row.committed_at_ms, row.leader_epoch) == (TOPIC, "at 7", NOW_MS + 7, -1)
    stored = database.run_sync(lambda conn: groups.load(conn, "group-7"))
    assert stored is not None
    assert (stored.slot, stored.protocol_type, stored.empty_since_ms) == (3, "", NOW_MS + 7)


def test_of_two_commits_to_one_partition_in_a_batch_the_later_one_stays(database: Database) -> None:
    by = take(database)
    assert write(database, by, commit(9), commit(4), commit(1, partition=1)).refused == {}
    assert offsets(database) == {0: 4, 1: 1}


def test_a_commit_may_move_an_offset_back_when_it_is_the_newer_one(database: Database) -> None:
    by = take(database)
    write(database, by, commit(9))
    write(database, later(by, number=2), commit(4))
    assert offsets(database) == {0: 4}


@pytest.mark.parametrize("number", [1, 2])
def test_an_old_write_that_comes_late_changes_nothing_and_is_not_acknowledged(database: Database, number: int) -> None:
    by = take(database)
    write(database, later(by, number=2), commit(9))
    with pytest.raises(NotCoordinator, match="newer coordinator"):
        write(database, later(by, number=number), commit(4), commit(4, partition=1))
    assert offsets(database) == {0: 9}, "all of the old batch or nothing"


def test_a_coordinator_whose_slot_was_taken_can_commit_nothing_more(database: Database) -> None:
    old = take(database)
    write(database, old, commit(5))
    new = take(database, broker_id=2)
    refused = write(database, later(old, number=99), commit(6), changed=(group_row(generation=8),)).refused
    assert isinstance(refused[0], NotCoordinator)
    assert offsets(database) == {0: 5}
    stored = database.run_sync(lambda conn: groups.load(conn, "billing"))
    assert stored is not None
    assert stored.generation == 0, "nor can it store a generation"
    with pytest.raises(NotCoordinator):
        database.run_sync(lambda conn: group_offsets.require_slots(conn, [0], old))
    assert write(database, new, commit(4)).refused == {}, "commit numbers begin anew with each epoch"
    assert offsets(database) == {0: 4}


def test_a_restarted_broker_fences_its_own_former_self(database: Database) -> None:
    old = take(database)
    new = take(database)
    assert isinstance(write(database, old, commit(6)).refused[0], NotCoordinator)
    assert write(database, new, commit(5)).refused == {}


def test_a_lost_slot_takes_only_its_own_groups_out_of_a_batch(database: Database) -> None:
    by = take(database)
    database.run_sync(lambda conn: conn.execute(text("UPDATE coordinator_slot SET broker_id = 2 WHERE slot = 1")))
    refused = write(database, by, commit(1), commit(2, group="other", slot=1), commit(3, partition=1)).refused
    assert list(refused) == [1]
    assert offsets(database) == {0: 1, 1: 3}
    assert offsets(database, "other") == {}


def test_a_slot_that_this_broker_never_held_is_refused(database: Database) -> None:
    by = take(database)
    refused = write(database, by, commit(1, slot=SLOTS), changed=(group_row(slot=SLOTS + 1),)).refused
    assert isinstance(refused[0], NotCoordinator)
    assert offsets(database) == {}
    assert database.run_sync(lambda conn: groups.load(conn, "billing")) is None


def test_after_the_slots_were_taken_again_a_write_under_the_old_epoch_is_refused(database: Database) -> None:
    by = take(database)
    before = database.run_sync(coordinator_slots.load_all)
    after = database.run_sync(
        lambda conn: coordinator_slots.retake_own(conn, broker_id=1, broker_epoch=by.broker_epoch)
    )
    assert {row.slot: row.slot_epoch for row in after} == {slot: row.slot_epoch + 1 for slot, row in before.items()}
    assert {row.tenure for row in after} == {row.tenure for row in before.values()}, "nobody else had them meanwhile"
    assert isinstance(write(database, by, commit(6)).refused[0], CoordinatorNotAvailable)
    assert offsets(database) == {}


def test_retaking_leaves_the_slots_of_others_alone(database: Database) -> None:
    ours = take(database)
    theirs = take(database, broker_id=2)
    before = database.run_sync(coordinator_slots.load_all)
    database.run_sync(lambda conn: coordinator_slots.retake_own(conn, broker_id=1, broker_epoch=ours.broker_epoch))
    assert database.run_sync(coordinator_slots.load_all) == before
    assert write(database, theirs, commit(6)).refused == {}


def test_with_another_number_of_slots_a_moved_group_is_still_written(database: Database) -> None:
    *_, by = (take(database) for _ in range(3))
    write(database, later(by, number=50), commit(5))
    moved = take(database, slot_count=SLOTS + 3)
    slot = coordinator_slot("billing", SLOTS + 3)
    stored = database.run_sync(lambda conn: groups.load(conn, "billing"))
    assert stored is not None
    assert stored.slot == slot, "whoever lists or expires groups by slot finds it"
    assert write(database, moved, commit(6, slot=slot)).refused == {}
    assert offsets(database) == {0: 6}


def test_a_commit_of_an_older_generation_is_refused_and_those_before_its_end_are_not(database: Database) -> None:
    by = take(database)
    last_of_one = write(database, by, commit(1, generation=1), changed=(group_row(generation=2),))
    assert last_of_one.refused == {}, "it came before the generation ended"
    refused = write(
        database, later(by, number=2), commit(2, generation=1), commit(3, generation=2, partition=1)
    ).refused
    assert list(refused) == [0]
    assert isinstance(refused[0], IllegalGeneration)
    assert offsets(database) == {0: 1, 1: 3}
    assert write(database, later(by, number=3), commit(7, generation=-1)).refused == {}, "tools name none"


def test_an_old_state_of_a_group_that_comes_late_changes_nothing(database: Database) -> None:
    by = take(database)
    write(database, later(by, number=2), changed=(group_row(generation=2, empty_since_ms=NOW_MS),))
    write(database, later(by, number=1), changed=(group_row(generation=1),))
    assert database.run_sync(lambda conn: groups.load(conn, "billing")) == group_row(
        generation=2, empty_since_ms=NOW_MS
    )


def test_offsets_are_read_by_topic_or_all_and_never_more_than_asked_for(database: Database) -> None:
    by = take(database)
    other = uuid4()
    entries = tuple(OffsetEntry(topic_id=TOPIC, partition=number, offset=number) for number in range(20))
    entries += (OffsetEntry(topic_id=other, partition=0, offset=77),)
    write(
        database,
        by,
        GroupCommit(group_id="billing", slot=0, generation=0, entries=entries, committed_at_ms=NOW_MS),
    )

    def count(topic_ids: set[UUID] | None, limit: int) -> int:
        return len(
            database.run_sync(lambda conn: group_offsets.load(conn, "billing", topic_ids=topic_ids, limit=limit))
        )

    assert [count(None, 100), count(None, 5), count({other}, 100), count(set(), 100)] == [21, 5, 1, 0]


@pytest.mark.parametrize(
    "note", ["", "\0", "a\0b\0", "\u2400", "\u241b\u2400\0", "\u241b\0", "\u241b\u241b", "\x01\n\u00fc\U0001f600"]
)
def test_a_note_comes_back_as_it_was_whatever_is_in_it(database: Database, note: str) -> None:
    entry = OffsetEntry(topic_id=TOPIC, partition=0, offset=1, metadata=note)
    one = GroupCommit(group_id="billing", slot=0, generation=0, entries=(entry,), committed_at_ms=NOW_MS)
    write(database, take(database), one)
    (row,) = database.run_sync(lambda conn: group_offsets.load(conn, "billing", limit=1))
    assert row.metadata == note


def test_what_is_deleted_is_gone_and_nothing_else(database: Database) -> None:
    by = take(database)
    write(database, by, commit(1), commit(2, partition=1), commit(3, group="other"))
    database.run_sync(lambda conn: group_offsets.remove(conn, "billing", [(TOPIC, 0), (TOPIC, 9)]))
    assert offsets(database) == {1: 2}
    assert database.run_sync(lambda conn: groups.remove(conn, "billing"))
    assert not database.run_sync(lambda conn: groups.remove(conn, "billing"))
    assert database.run_sync(lambda conn: groups.load(conn, "billing")) is None
    assert (offsets(database), offsets(database, "other")) == ({}, {0: 3})


def test_a_deleted_topics_offsets_go_with_it_and_so_does_a_commit_that_came_late(database: Database) -> None:
    by = take(database)
    topic_id = database.run_sync(create_topic).topic_id
    alive = database.run_sync(lambda conn: create_topic(conn, "alive")).topic_id

    def commit_both(number: int) -> None:
        entries = tuple(OffsetEntry(topic_id=each, partition=0, offset=5) for each in (topic_id, alive))
        both = GroupCommit(group_id="billing", slot=0, generation=0, entries=entries, committed_at_ms=NOW_MS)
        write(database, later(by, number=number), both)

    commit_both(1)
    database.run_sync(lambda conn: topics.delete_topic(conn, topic_id, now_ms=NOW_MS, purge_after_ms=NOW_MS))
    assert len(offsets(database)) == 1
    commit_both(2)
    assert database.run_sync(group_offsets.remove_of_deleted_topics) == 1
    (left,) = database.run_sync(lambda conn: group_offsets.load(conn, "billing", limit=10))
    assert left.topic_id == alive


def test_expiry_takes_old_commits_of_the_topics_named_and_rows_of_empty_groups_without_offsets(
    database: Database,
) -> None:
    by = take(database)
    old, young = commit(0), commit(HOUR_MS, partition=1)
    write(
        database,
        by,
        old,
        young,
        commit(0, group="other"),
        changed=(group_row("busy"), group_row("idle", empty_since_ms=1)),
    )
    before_ms = NOW_MS + HOUR_MS
    everybody = ["billing", "other", "busy", "idle"]
    found = database.run_sync(lambda conn: group_offsets.old_topics(conn, everybody, before_ms=before_ms))
    assert set(found) == {("billing", TOPIC), ("other", TOPIC)}
    database.run_sync(lambda conn: group_offsets.remove_old(conn, found, before_ms=before_ms))
    assert offsets(database) == {1: HOUR_MS}
    would_go = database.run_sync(lambda conn: groups.without_offsets(conn, everybody, empty_before_ms=before_ms))
    removed = database.run_sync(lambda conn: groups.remove_without_offsets(conn, everybody, empty_before_ms=before_ms))
    assert would_go == frozenset(removed)
    assert set(removed) == {"other", "idle"}, "billing has an offset left, busy has members"


def test_groups_are_listed_page_by_page_and_are_empty_once_their_coordinator_is_new(database: Database) -> None:
    by = take(database)
    rows = [group_row(f"g{number}", generation=number) for number in range(5)]
    write(database, by, changed=tuple(rows))
    first = database.run_sync(lambda conn: groups.load_some(conn, after="", limit=3))
    rest = database.run_sync(lambda conn: groups.load_some(conn, after=first[-1].group_id, limit=3))
    assert [*first, *rest] == rows
    other = group_row("h", slot=1)
    write(database, later(by, number=2), changed=(other,))
    assert database.run_sync(groups.slots_with_members) == {0, 1}
    database.run_sync(lambda conn: groups.mark_empty(conn, slots=[0, 2], now_ms=NOW_MS))
    assert database.run_sync(groups.slots_with_members) == {1}
    found = database.run_sync(lambda conn: groups.load_some(conn, after="", limit=9))
    assert {row.group_id: row.empty_since_ms for row in found} == {**{row.group_id: NOW_MS for row in rows}, "h": None}
    assert database.run_sync(lambda conn: groups.load_some(conn, after="", limit=9, slots=[1, 3])) == (other,)


def test_a_list_of_groups_reads_what_its_scope_holds(database: Database) -> None:
    last = chr(0x10FFFF)
    names = sorted(
        ["a", "a_b", "ab", "b%", "bx", "c", "Ab", "ä", "x\ud7ff", "x\ud7ffy", "x\ue000", f"z{last}", f"z{last}a"]
    )
    write(database, take(database), changed=tuple(group_row(name) for name in names))

    def listed(*exact: str, prefixes: tuple[str, ...] = ()) -> list[str]:
        scope = NameScope(frozenset(exact), prefixes)
        rows = database.run_sync(lambda conn: groups.load_some(conn, after="", limit=99, scope=scope))
        return sorted(row.group_id for row in rows)

    for prefix in ("a", "a_", "ä", "x\ud7ff", f"z{last}", last):
        assert listed(prefixes=(prefix,)) == [name for name in names if name.startswith(prefix)]
    assert listed("a", "c", "none") == ["a", "c"]
    assert listed("c", prefixes=("a_", "b%")) == ["a_b", "b%", "c"], "no letter of a name has a meaning"
    assert listed() == []


def test_the_members_of_a_group_are_stored_with_its_row_and_fenced_like_it(database: Database) -> None:
    by = take(database)
    stable = replace(group_row(generation=3), members=b"\0all members\xff")
    write(database, later(by, number=2), changed=(stable, group_row("other", slot=1)))
    write(database, by, changed=(replace(stable, generation=2, members=b"late"),))
    assert database.run_sync(lambda conn: groups.load(conn, "billing")) == stable
    (listed, _) = database.run_sync(lambda conn: groups.load_some(conn, after="", limit=9))
    assert listed == replace(stable, members=None), "a list of groups does not read their members"
    old, new = by, take(database, broker_id=2)
    write(database, later(old, number=99), changed=(replace(stable, members=b"of a zombie"),))
    assert database.run_sync(lambda conn: groups.load(conn, "billing")) == stable
    write(database, new, changed=(replace(stable, members=None),))
    assert database.run_sync(lambda conn: groups.load(conn, "billing")) == replace(stable, members=None)


def test_groups_with_stored_members_are_found_by_slot_page_by_page_and_outlive_their_coordinator(
    database: Database,
) -> None:
    by = take(database)
    kept = [replace(group_row(f"g{number}", slot=number % 2), members=b"some") for number in range(6)]
    write(database, by, commit(1, group="offsets-only"), changed=(*kept, group_row("rebalancing")))

    def found(after: str, *slots: int, limit: int = 2) -> tuple[str, ...]:
        return database.run_sync(lambda conn: groups.with_stored_members(conn, after=after, limit=limit, slots=slots))

    assert (found("", 0), found("g2", 0), found("g4", 0)) == (("g0", "g2"), ("g4",), ())
    assert found("", 0, 1, limit=9) == tuple(row.group_id for row in kept)
    take(database, broker_id=2)
    assert found("", 0, 1, limit=9) == tuple(row.group_id for row in kept)
    rows = database.run_sync(lambda conn: groups.load_some(conn, after="", limit=9))
    assert {row.group_id for row in rows if row.empty_since_ms is None} == {row.group_id for row in kept}
    assert database.run_sync(groups.slots_with_members) == {0, 1}
