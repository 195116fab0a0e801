"""Every group's committed offsets at one moment: what lag is computed from, for people.

Owns one bounded question. Nothing here decides anything; who needs a group's offsets to act asks `group_offsets`.
"""

from typing import NamedTuple
from uuid import UUID

from sqlalchemy import Connection, func, select

from tiered.meta.tables import consumer_group, group_offset


class CommittedOffset(NamedTuple):
    """One row. A NamedTuple, because there may be many of them every few seconds."""

    group_id: str
    topic_id: UUID
    partition: int
    offset: int
    committed_at_ms: int


def count(conn: Connection) -> int:
    """How many groups there are, with offsets or without."""
    return conn.execute(select(func.count()).select_from(consumer_group)).scalar_one()


def load_all(conn: Connection, *, limit: int) -> tuple[CommittedOffset, ...]:
    """Up to `limit` committed offsets, by group."""
    columns = group_offset.c
    statement = (
        select(columns.group_id, columns.topic_id, columns.partition, columns.committed_offset, columns.committed_at_ms)
        .order_by(columns.group_id, columns.topic_id, columns.partition)
        .limit(limit)
    )
    return tuple(CommittedOffset(*row) for row in conn.execute(statement))
