"""What each topic takes of both tiers, as `v_topic_cost` tells it.

Owns nothing: it asks the same view that people SELECT from, so that the two never differ.
"""

from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Connection, Uuid, text


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicBytes:
    """One row of the view. Retired objects are no longer in the log and still in the store, until they are purged."""

    topic: str
    topic_id: UUID
    deleted: bool
    cold_objects: int
    cold_bytes: int
    cold_records: int
    retired_objects: int
    retired_bytes: int
    local_bytes: int


_QUERY = text(
    "SELECT topic, topic_id, deleted, cold_objects, cold_bytes, cold_records, retired_objects, retired_bytes,"
    " local_bytes FROM v_topic_cost ORDER BY topic, topic_id LIMIT :limit"
).columns(topic_id=Uuid)


def load_all(conn: Connection, *, limit: int) -> tuple[TopicBytes, ...]:
    """Up to `limit` topics by name; deleted ones only while something of them is in the store."""
    rows = conn.execute(_QUERY, {"limit": limit}).mappings()
    found = (
        TopicBytes(
            topic=row["topic"],
            topic_id=row["topic_id"],
            deleted=bool(row["deleted"]),
            cold_objects=int(row["cold_objects"]),
            cold_bytes=int(row["cold_bytes"]),
            cold_records=int(row["cold_records"]),
            retired_objects=int(row["retired_objects"]),
            retired_bytes=int(row["retired_bytes"]),
            local_bytes=int(row["local_bytes"]),
        )
        for row in rows
    )
    return tuple(each for each in found if not each.deleted or each.cold_objects or each.retired_objects)
