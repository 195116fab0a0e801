"""Retired objects of a partition, and what they wait for: the end of their grace, or of what pins them.

Owns one question, for people. Must never change a row: `segments` does.
"""

from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Connection, select

from tiered.meta.pins import holds_object
from tiered.meta.tables import segment
from tiered.rules.segments.segment_states import SegmentState


@dataclass(frozen=True, slots=True, kw_only=True)
class RetiredObject:
    """An object that is no longer in the log and still in the store. `purge_after_ms` is by the brokers' clock."""

    base_offset: int
    end_offset: int
    size_bytes: int
    purge_after_ms: int
    is_pinned: bool


def list_retired(conn: Connection, topic_id: UUID, partition: int, *, limit: int) -> tuple[RetiredObject, ...]:
    """Up to `limit` of them, those that go first before the others."""
    rows = conn.execute(
        select(
            segment.c.base_offset,
            segment.c.end_offset,
            segment.c.size_bytes,
            segment.c.purge_after_ms,
            holds_object(conn).label("is_pinned"),
        )
        .where(
            segment.c.topic_id == topic_id,
            segment.c.partition == partition,
            segment.c.state == SegmentState.RETIRED,
        )
        .order_by(segment.c.purge_after_ms, segment.c.base_offset)
        .limit(limit)
    )
    return tuple(RetiredObject(**{**row, "is_pinned": bool(row["is_pinned"])}) for row in rows.mappings())
