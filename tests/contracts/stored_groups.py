"""Groups and their offsets, written to a catalogue by coordinators."""

from collections.abc import Mapping
from uuid import UUID

from sqlalchemy import Connection

from tests.catalogue import NOW_MS, register
from tiered.meta import brokers, coordinator_slots, group_offsets
from tiered.meta.engine import Database
from tiered.meta.group_offsets import GroupCommit, OffsetEntry, WriteOutcome, WritingCoordinator
from tiered.meta.groups import GroupRow

TOPIC = UUID(int=1)
SLOTS = 4


def take(database: Database, *, broker_id: int = 1, slot_count: int = SLOTS) -> WritingCoordinator:
    """Broker `broker_id` as the holder of all slots, before its first write: everybody else has died."""

    def fn(conn: Connection) -> WritingCoordinator:
        for row in brokers.load_all(conn):
            brokers.fence(conn, broker_id=row.broker_id, broker_epoch=row.broker_epoch)
        return WritingCoordinator(
            broker_id=broker_id,
            broker_epoch=(epoch := register(conn, broker_id)),
            slot_epochs=take_unheld(conn, broker_id, epoch, slot_count=slot_count),
            commit_number=1,
        )

    return database.run_sync(fn)


def take_unheld(conn: Connection, broker_id: int, broker_epoch: int, *, slot_count: int = SLOTS) -> Mapping[int, int]:
    moved = coordinator_slots.take_unheld(
        conn, broker_id=broker_id, broker_epoch=broker_epoch, slot_count=slot_count, now_ms=NOW_MS
    )
    return {row.slot: row.slot_epoch for row in moved.rows}


def later(by: WritingCoordinator, *, number: int) -> WritingCoordinator:
    return WritingCoordinator(
        broker_id=by.broker_id, broker_epoch=by.broker_epoch, slot_epochs=by.slot_epochs, commit_number=number
    )


def commit(
    offset: int, *, group: str = "billing", generation: int = 0, slot: int = 0, partition: int = 0
) -> GroupCommit:
    return GroupCommit(
        group_id=group,
        slot=slot,
        generation=generation,
        entries=(OffsetEntry(topic_id=TOPIC, partition=partition, offset=offset, metadata=f"at {offset}"),),
        committed_at_ms=NOW_MS + offset,
    )


def write(
    database: Database, by: WritingCoordinator, *commits: GroupCommit, changed: tuple[GroupRow, ...] = ()
) -> WriteOutcome:
    return database.run_sync(lambda conn: group_offsets.write(conn, commits, changed, by))


def offsets(database: Database, group: str = "billing") -> dict[int, int]:
    rows = database.run_sync(lambda conn: group_offsets.load(conn, group, limit=1000))
    return {row.partition: row.committed_offset for row in rows}
