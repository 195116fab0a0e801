"""The bytes of each topic in both tiers, from `v_topic_cost`.

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
    "SELECT v.topic, v.topic_id, v.deleted, v.cold_objects, v.cold_bytes, v.cold_records, v.retired_objects,"
    " v.retired_bytes, v.local_bytes - COALESCE(l.local_bytes, 0) AS local_bytes FROM v_topic_cost v LEFT JOIN ("
    "SELECT topic_id, CAST(SUM(size_bytes) AS BIGINT) AS local_bytes FROM local_segment"
    " WHERE broker_id = :without_broker GROUP BY topic_id) l ON l.topic_id = v.topic_id"
    " ORDER BY v.topic, v.topic_id LIMIT :limit"
).columns(topic_id=Uuid)


def load_all(conn: Connection, *, limit: int, without_broker: int) -> tuple[TopicBytes, ...]:
    """Up to `limit` topics by name; deleted ones only while something of them is in the store. The disk of
    `without_broker` is not counted: that broker asks, and knows it."""
    rows = conn.execute(_QUERY, {"limit": limit, "without_broker": without_broker}).mappings()
    found = (TopicBytes(**{**row, "deleted": bool(row["deleted"])}) for row in rows)
    return tuple(each for each in found if not each.deleted or each.cold_objects or each.retired_objects)
