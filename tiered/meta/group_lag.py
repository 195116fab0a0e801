"""Every group's committed offsets, part by part, and how far partitions are: what lag is computed from, for people.

Owns two bounded questions. Nothing here decides anything; decisions read offsets from `group_offsets`.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import Connection, bindparam, func, select, tuple_

from tiered.meta.tables import consumer_group, group_offset, partition_position

MAX_TOPICS_TO_FILTER = 100


class CommittedOffsetRow(NamedTuple):
    """One row. A NamedTuple, because there may be many of them every few seconds."""

    group_id: str
    topic_id: UUID
    partition: int
    offset: int
    committed_at_ms: int
    high_watermark: int | None
    """As the partition's leader last reported it."""


def count(conn: Connection) -> int:
    """How many groups there are, with offsets or without."""
    return conn.execute(select(func.count()).select_from(consumer_group)).scalar_one()


def load_some(conn: Connection, *, after: CommittedOffsetRow | None, limit: int) -> tuple[CommittedOffsetRow, ...]:
    """Up to `limit` committed offsets that come after this one, by group; without those below 0, which are no
    positions."""
    statement = _ALL if after is None else _ALL.where(tuple_(*_KEY) > after[:3])
    return tuple(CommittedOffsetRow(*row) for row in conn.execute(statement, {"most": limit}))


_OFFSETS, _POSITIONS = group_offset.c, partition_position.c
_KEY = (_OFFSETS.group_id, _OFFSETS.topic_id, _OFFSETS.partition)
_ALL = (
    select(
        *_KEY,
        _OFFSETS.committed_offset,
        _OFFSETS.committed_at_ms,
        _POSITIONS.high_watermark,
    )
    .outerjoin(
        partition_position, (_POSITIONS.topic_id == _OFFSETS.topic_id) & (_POSITIONS.partition == _OFFSETS.partition)
    )
    .where(_OFFSETS.committed_offset >= 0)
    .order_by(*_KEY)
    .limit(bindparam("most"))
)


def high_watermarks(conn: Connection, topic_ids: Collection[UUID]) -> Mapping[tuple[UUID, int], int]:
    """The last reports of leaders, by topic id and partition; partitions without a report are missing."""
    columns = partition_position.c
    statement = select(columns.topic_id, columns.partition, columns.high_watermark)
    if len(topic_ids) <= MAX_TOPICS_TO_FILTER:
        statement = statement.where(columns.topic_id.in_(topic_ids))
    return {(topic_id, partition): offset for topic_id, partition, offset in conn.execute(statement)}
