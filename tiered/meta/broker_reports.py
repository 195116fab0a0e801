"""Brokers' reports to the database, for people to SELECT: local segments, and partitions' positions.

Owns `local_segment` and `partition_position`. Nothing here decides anything, takes a change number or is
read by a broker: it may be late, and after a crash it is old until the next report.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, bindparam, delete, insert

from tiered.meta.tables import local_segment, partition_position
from tiered.meta.upserts import insert_in


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSegmentRow:
    """One segment on a broker's disk; `closed` once it was rolled. Timestamps are None while unknown."""

    topic_id: UUID
    partition: int
    base_offset: int
    end_offset: int
    size_bytes: int
    closed: bool
    min_timestamp_ms: int | None = None
    max_timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPosition:
    """How far a partition is, as its leader knows it.

    `disk_only_since_ms` is when its oldest record was written that the store does not have; None where there is none.
    """

    topic_id: UUID
    partition: int
    high_watermark: int
    log_end_offset: int
    disk_only_since_ms: int | None = None


def replace_local_segments(
    conn: Connection,
    *,
    broker_id: int,
    of_partitions: Sequence[tuple[UUID, int]] | None,
    segments: Sequence[LocalSegmentRow],
    now_ms: int,
) -> None:
    """Makes `segments` all that the broker holds of those partitions; of every partition when that is None.

    In the partitions' order: a report that hangs and the one after it never wait for each other.
    """
    everything = delete(local_segment).where(local_segment.c.broker_id == broker_id)
    if of_partitions is None:
        conn.execute(everything)
    elif of_partitions:
        one = everything.where(
            local_segment.c.topic_id == bindparam("of_topic"), local_segment.c.partition == bindparam("of_partition")
        )
        conn.execute(
            one, [{"of_topic": topic_id, "of_partition": number} for topic_id, number in sorted(of_partitions)]
        )
    if segments:
        about = {"broker_id": broker_id, "updated_at_ms": now_ms}
        ordered = sorted(segments, key=lambda each: (each.topic_id, each.partition, each.base_offset))
        conn.execute(insert(local_segment), [{**asdict(each), **about} for each in ordered])


def report_positions(conn: Connection, positions: Sequence[PartitionPosition], *, now_ms: int) -> None:
    """Stores the newest positions of these partitions.

    In the key's order: an old and a new leader that both report never wait for each other.
    """
    if not positions:
        return
    ordered = sorted(positions, key=lambda each: (each.topic_id, each.partition))
    conn.execute(_reporting(conn.dialect.name), [{**asdict(each), "updated_at_ms": now_ms} for each in ordered])


@cache
def _reporting(dialect: str) -> Any:
    statement = insert_in(dialect, partition_position)
    return statement.on_conflict_do_update(
        index_elements=["topic_id", "partition"],
        set_={
            name: statement.excluded[name]
            for name in ("high_watermark", "log_end_offset", "updated_at_ms", "disk_only_since_ms")
        },
    )
