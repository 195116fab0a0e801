"""What the catalogue knows of objects that somebody found in the store, by their ids.

Reads alone. Must never say of an id that it has no row because too many were asked for at once.
"""

from collections.abc import Collection
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Connection, select

from tiered.meta.tables import segment
from tiered.rules.segments.segment_states import SegmentState

MAX_IDS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownObject:
    """The row of one object, as far as it says what has become of it."""

    object_id: UUID
    object_key: str
    state: SegmentState
    change_number: int


def load(conn: Connection, object_ids: Collection[UUID]) -> dict[UUID, KnownObject]:
    """The rows of at most 1,000 ids, by id; those without one are not among them."""
    assert len(object_ids) <= MAX_IDS, len(object_ids)
    if not object_ids:
        return {}
    statement = select(segment.c.object_id, segment.c.object_key, segment.c.state, segment.c.change_number).where(
        segment.c.object_id.in_(object_ids)
    )
    return {
        row.object_id: KnownObject(
            object_id=row.object_id,
            object_key=row.object_key,
            state=SegmentState(row.state),
            change_number=row.change_number,
        )
        for row in conn.execute(statement)
    }
