"""The views that people and dashboards SELECT from: names and columns are a promise (docs/sql.md).

Owns their definitions, one set per revision that changes any. A released definition is never edited: a
changed view is a new set here and a new revision that installs it. Columns may be added at the end; one
that exists keeps its name and meaning. Nothing in this project reads them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from sqlalchemy import Connection

from tiered.meta.clock import NOW_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A view: its documented columns, in order, and the query. Words in braces are what each database calls it."""

    name: str
    columns: tuple[str, ...]
    query: str


# One row per segment object, and one per local segment without an object of the same offsets.
_SEGMENTS = View(
    name="v_segments",
    columns=(
        "topic",
        "partition",
        "base_offset",
        "end_offset",
        "tier",
        "state",
        "size_bytes",
        "min_timestamp_ms",
        "max_timestamp_ms",
        "object_key",
    ),
    query="""
SELECT t.name AS topic, s.partition, s.base_offset, s.end_offset,
       CASE WHEN s.state = 'planned' THEN 'hot'
            WHEN s.state = 'committed' AND l.base_offset IS NOT NULL THEN 'both'
            ELSE 'cold' END AS tier,
       s.state, s.size_bytes, s.min_timestamp_ms, s.max_timestamp_ms, s.object_key
FROM segment s
JOIN topic t ON t.topic_id = s.topic_id
JOIN partition p ON p.topic_id = s.topic_id AND p.partition = s.partition
LEFT JOIN local_segment l
       ON l.topic_id = s.topic_id AND l.partition = s.partition AND l.broker_id = p.leader
      AND l.base_offset = s.base_offset AND l.end_offset = s.end_offset
WHERE t.deleted_at_ms IS NULL AND s.state <> 'purged' AND s.abandoned_at_ms IS NULL
UNION ALL
SELECT t.name, l.partition, l.base_offset, l.end_offset, 'hot',
       CASE WHEN l.closed THEN 'closed' ELSE 'open' END,
       l.size_bytes, l.min_timestamp_ms, l.max_timestamp_ms, NULL
FROM local_segment l
JOIN topic t ON t.topic_id = l.topic_id
JOIN partition p ON p.topic_id = l.topic_id AND p.partition = l.partition AND p.leader = l.broker_id
WHERE t.deleted_at_ms IS NULL
  AND NOT EXISTS (
        SELECT 1 FROM segment s
        WHERE s.topic_id = l.topic_id AND s.partition = l.partition
          AND s.base_offset = l.base_offset AND s.end_offset = l.end_offset
          AND s.state <> 'purged' AND s.abandoned_at_ms IS NULL)
""",
)

# An object may stand for many local segments, whose uploads were joined to it: they are shown as that object.
_SEGMENTS_WITH_JOINED = replace(
    _SEGMENTS,
    query="""
SELECT t.name AS topic, s.partition, s.base_offset, s.end_offset,
       CASE WHEN s.state = 'planned' THEN 'hot'
            WHEN s.state = 'committed' AND EXISTS (
                SELECT 1 FROM local_segment l
                WHERE l.topic_id = s.topic_id AND l.partition = s.partition AND l.broker_id = p.leader
                  AND l.base_offset < s.end_offset AND l.end_offset > s.base_offset) THEN 'both'
            ELSE 'cold' END AS tier,
       s.state, s.size_bytes, s.min_timestamp_ms, s.max_timestamp_ms, s.object_key
FROM segment s
JOIN topic t ON t.topic_id = s.topic_id
JOIN partition p ON p.topic_id = s.topic_id AND p.partition = s.partition
WHERE t.deleted_at_ms IS NULL AND s.state <> 'purged' AND s.abandoned_at_ms IS NULL
UNION ALL
SELECT t.name, l.partition, l.base_offset, l.end_offset, 'hot',
       CASE WHEN l.closed THEN 'closed' ELSE 'open' END,
       l.size_bytes, l.min_timestamp_ms, l.max_timestamp_ms, NULL
FROM local_segment l
JOIN topic t ON t.topic_id = l.topic_id
JOIN partition p ON p.topic_id = l.topic_id AND p.partition = l.partition AND p.leader = l.broker_id
WHERE t.deleted_at_ms IS NULL
  AND NOT EXISTS (
        SELECT 1 FROM segment s
        WHERE s.topic_id = l.topic_id AND s.partition = l.partition
          AND s.base_offset = l.base_offset AND s.end_offset = l.end_offset
          AND s.state IN ('planned', 'committed') AND s.abandoned_at_ms IS NULL)
  AND NOT EXISTS (
        SELECT 1 FROM segment s
        WHERE s.topic_id = l.topic_id AND s.partition = l.partition AND s.state = 'committed'
          AND s.base_offset <= l.base_offset AND s.end_offset >= l.end_offset)
""",
)

# Of what only disks have: since when that is so of the partition's oldest record.
_POSITION = "LEFT JOIN partition_position h ON h.topic_id = {0}.topic_id AND h.partition = {0}.partition"
_SEGMENTS_WITH_AGE = replace(
    _SEGMENTS_WITH_JOINED,
    columns=(*_SEGMENTS_WITH_JOINED.columns, "disk_only_since_ms"),
    query=_SEGMENTS_WITH_JOINED.query.replace(
        "s.object_key\nFROM segment s",
        f"""s.object_key,
       CASE WHEN s.state = 'planned' THEN h.disk_only_since_ms END AS disk_only_since_ms
FROM segment s
{_POSITION.format("s")}""",
    ).replace(
        "NULL\nFROM local_segment l",
        f"""NULL, h.disk_only_since_ms
FROM local_segment l
{_POSITION.format("l")}""",
    ),
)

_LAG = View(
    name="v_lag",
    columns=(
        "group_id",
        "topic",
        "partition",
        "committed_offset",
        "high_watermark",
        "lag",
        "committed_at_ms",
        "high_watermark_at_ms",
    ),
    query="""
SELECT g.group_id, t.name AS topic, g.partition, g.committed_offset, w.high_watermark,
       CASE WHEN w.high_watermark < g.committed_offset THEN 0
            ELSE w.high_watermark - g.committed_offset END AS lag,
       g.committed_at_ms, w.updated_at_ms AS high_watermark_at_ms
FROM group_offset g
JOIN topic t ON t.topic_id = g.topic_id
LEFT JOIN partition_position w ON w.topic_id = g.topic_id AND w.partition = g.partition
WHERE t.deleted_at_ms IS NULL
""",
)

# An offset below 0, by which some clients mean the end or the beginning, is no position and has no lag.
_LAG_OF_POSITIONS = replace(
    _LAG, query=_LAG.query.replace("CASE WHEN", "CASE WHEN g.committed_offset < 0 THEN NULL\n            WHEN")
)

_OVERDUE_UPLOADS = View(
    name="v_overdue_uploads",
    columns=(
        "topic",
        "partition",
        "base_offset",
        "end_offset",
        "size_bytes",
        "owner",
        "abandoned",
        "planned_at_ms",
        "deadline_ms",
        "overdue_ms",
        "object_key",
    ),
    query="""
SELECT t.name AS topic, s.partition, s.base_offset, s.end_offset, s.size_bytes, s.owner,
       s.abandoned_at_ms IS NOT NULL AS abandoned, s.planned_at_ms, s.deadline_ms,
       {now_ms} - s.deadline_ms AS overdue_ms, s.object_key
FROM segment s
JOIN topic t ON t.topic_id = s.topic_id
WHERE s.state = 'planned' AND s.deadline_ms < {now_ms}
""",
)

_TOPIC_COST = View(
    name="v_topic_cost",
    columns=(
        "topic",
        "deleted",
        "cold_objects",
        "cold_bytes",
        "cold_records",
        "retired_objects",
        "retired_bytes",
        "planned_bytes",
        "local_bytes",
        "topic_id",
    ),
    query="""
SELECT t.name AS topic, t.deleted_at_ms IS NOT NULL AS deleted,
       COALESCE(s.cold_objects, 0) AS cold_objects,
       COALESCE(s.cold_bytes, 0) AS cold_bytes,
       COALESCE(s.cold_records, 0) AS cold_records,
       COALESCE(s.retired_objects, 0) AS retired_objects,
       COALESCE(s.retired_bytes, 0) AS retired_bytes,
       COALESCE(s.planned_bytes, 0) AS planned_bytes,
       COALESCE(l.local_bytes, 0) AS local_bytes,
       t.topic_id
FROM topic t
LEFT JOIN (
    SELECT topic_id,
           SUM(CASE WHEN state = 'committed' THEN 1 ELSE 0 END) AS cold_objects,
           CAST(SUM(CASE WHEN state = 'committed' THEN size_bytes ELSE 0 END) AS BIGINT) AS cold_bytes,
           CAST(SUM(CASE WHEN state = 'committed' THEN record_count ELSE 0 END) AS BIGINT) AS cold_records,
           SUM(CASE WHEN state = 'retired' THEN 1 ELSE 0 END) AS retired_objects,
           CAST(SUM(CASE WHEN state = 'retired' THEN size_bytes ELSE 0 END) AS BIGINT) AS retired_bytes,
           CAST(SUM(CASE WHEN state = 'planned' THEN size_bytes ELSE 0 END) AS BIGINT) AS planned_bytes
    FROM segment GROUP BY topic_id) s ON s.topic_id = t.topic_id
LEFT JOIN (
    SELECT topic_id, CAST(SUM(size_bytes) AS BIGINT) AS local_bytes
    FROM local_segment GROUP BY topic_id) l ON l.topic_id = t.topic_id
""",
)

# Only members whose registration is current and in service: the others hold a place, or are gone.
_PARTITIONS = View(
    name="v_partitions",
    columns=(
        "topic",
        "partition",
        "leader",
        "preferred_leader",
        "leader_epoch",
        "replicas",
        "in_sync",
        "under_replicated",
        "reassigning",
        "log_start_offset",
        "cold_end_offset",
        "high_watermark",
    ),
    query="""
SELECT p.topic, p.partition, p.leader, p.preferred_leader, p.leader_epoch, p.replicas, p.in_sync,
       p.in_sync < p.replicas AS under_replicated, p.reassigning, p.log_start_offset, p.cold_end_offset,
       h.high_watermark
FROM (
    SELECT t.name AS topic, p.topic_id, p.partition, p.leader,
           CAST({preferred} AS INTEGER) AS preferred_leader, p.leader_epoch,
           {length}(p.replicas) AS replicas,
           CAST((
               SELECT COUNT(*) FROM {each}(p.isr) AS m
               JOIN broker b ON b.broker_id = CAST({member_id} AS INTEGER)
                            AND b.broker_epoch = CAST({member_epoch} AS BIGINT)
               WHERE NOT b.fenced) AS INTEGER) AS in_sync,
           {length}(p.adding_replicas) + {length}(p.removing_replicas) > 0 AS reassigning,
           p.log_start_offset, p.cold_end_offset
    FROM partition p
    JOIN topic t ON t.topic_id = p.topic_id
    WHERE t.deleted_at_ms IS NULL) p
LEFT JOIN partition_position h ON h.topic_id = p.topic_id AND h.partition = p.partition
""",
)

_PARTITIONS_WITH_AGE = replace(
    _PARTITIONS,
    columns=(*_PARTITIONS.columns, "disk_only_since_ms"),
    query=_PARTITIONS.query.replace("h.high_watermark", "h.high_watermark, h.disk_only_since_ms"),
)

# One row per partition that a pin or a snapshot holds something of; those that have expired hold nothing.
_PINS = View(
    name="v_pins",
    columns=(
        "snapshot",
        "topic",
        "partition",
        "start_offset",
        "end_offset",
        "owner",
        "created_at_ms",
        "expires_at_ms",
        "pin_id",
    ),
    query="""
SELECT h.name AS snapshot, t.name AS topic, r.partition, r.start_offset, r.end_offset, h.owner,
       h.created_at_ms, h.expires_at_ms, h.pin_id
FROM pin h
JOIN pinned_range r ON r.pin_id = h.pin_id
JOIN topic t ON t.topic_id = h.topic_id
WHERE h.expires_at_ms IS NULL OR h.expires_at_ms > {now_ms}
""",
)

# One row per transactional id. A transaction is open from its first partition or offset to its last marker.
_TRANSACTIONS = View(
    name="v_transactions",
    columns=(
        "transactional_id",
        "state",
        "producer_id",
        "producer_epoch",
        "started_at_ms",
        "open_ms",
        "timeout_ms",
        "partitions",
        "waiting_offsets",
        "changed_at_ms",
    ),
    query="""
SELECT x.transactional_id, x.state, x.producer_id, x.producer_epoch, x.started_at_ms,
       {now_ms} - x.started_at_ms AS open_ms, x.timeout_ms,
       (SELECT COUNT(*) FROM transaction_partition p WHERE p.transactional_id = x.transactional_id) AS partitions,
       (SELECT COUNT(*) FROM transaction_offset o WHERE o.producer_id = x.producer_id) AS waiting_offsets,
       x.changed_at_ms
FROM transactional_producer x
""",
)

# One row per partition of a transaction that should have ended: past its time-out, or decided and not carried out.
_HANGING = View(
    name="v_hanging",
    columns=("topic", "partition", "transactional_id", "state", "producer_id", "since_ms"),
    query="""
SELECT t.name AS topic, p.partition, x.transactional_id, x.state, x.producer_id,
       CASE WHEN x.state = 'Ongoing' THEN x.started_at_ms + x.timeout_ms ELSE x.changed_at_ms END AS since_ms
FROM transactional_producer x
JOIN transaction_partition p ON p.transactional_id = x.transactional_id
JOIN topic t ON t.topic_id = p.topic_id AND t.deleted_at_ms IS NULL
WHERE (x.state = 'Ongoing' AND x.started_at_ms + x.timeout_ms + 60000 < {now_ms})
   OR (x.state IN ('PrepareCommit', 'PrepareAbort') AND x.changed_at_ms + 60000 < {now_ms})
""",
)

_FIRST = (_SEGMENTS, _LAG, _OVERDUE_UPLOADS, _TOPIC_COST)
_EIGHTH = (_SEGMENTS, _LAG_OF_POSITIONS, _OVERDUE_UPLOADS, _TOPIC_COST, _PARTITIONS, _PINS)
_SIXTEENTH = (_SEGMENTS_WITH_JOINED, *_EIGHTH[1:], _TRANSACTIONS, _HANGING)
_SEVENTEENTH = tuple(
    {_PARTITIONS: _PARTITIONS_WITH_AGE, _SEGMENTS_WITH_JOINED: _SEGMENTS_WITH_AGE}.get(view, view)
    for view in _SIXTEENTH
)

REVISIONS: Mapping[str, tuple[View, ...]] = MappingProxyType(
    {
        "0001": _FIRST,
        "0002": _FIRST,
        "0003": (*_FIRST, _PARTITIONS),
        "0004": (*_FIRST, _PARTITIONS, _PINS),
        "0005": (*_FIRST, _PARTITIONS, _PINS),
        "0006": (*_FIRST, _PARTITIONS, _PINS),
        "0007": (*_FIRST, _PARTITIONS, _PINS),
        "0008": _EIGHTH,
        "0009": (*_EIGHTH, _TRANSACTIONS, _HANGING),
        "0010": (*_EIGHTH, _TRANSACTIONS, _HANGING),
        "0011": (*_EIGHTH, _TRANSACTIONS, _HANGING),
        "0012": (*_EIGHTH, _TRANSACTIONS, _HANGING),
        "0013": (*_EIGHTH, _TRANSACTIONS, _HANGING),
        "0014": (*_EIGHTH, _TRANSACTIONS, _HANGING),
        "0015": (*_EIGHTH, _TRANSACTIONS, _HANGING),
        "0016": _SIXTEENTH,
        "0017": _SEVENTEENTH,
        "0018": _SEVENTEENTH,
    }
)
"""The views as each revision leaves them. 0003 and 0004 add one each, 0008 changes `v_lag`, 0009 adds two,
0016 changes `v_segments`, 0017 that and `v_partitions`."""

_WORDS = {
    # Without `->>`, which SQLite has only since 3.38.
    "sqlite": {
        "now_ms": NOW_MS["sqlite"],
        "length": "json_array_length",
        "each": "json_each",
        "preferred": "json_extract(p.replicas, '$[0]')",
        "member_id": "json_extract(m.value, '$[0]')",
        "member_epoch": "json_extract(m.value, '$[1]')",
    },
    "postgresql": {
        "now_ms": NOW_MS["postgresql"],
        "length": "jsonb_array_length",
        "each": "jsonb_array_elements",
        "preferred": "p.replicas ->> 0",
        "member_id": "m.value ->> 0",
        "member_epoch": "m.value ->> 1",
    },
}


def install(conn: Connection, revision: str, *, after: str | None = None) -> None:
    """Creates the views of one revision; where those of `after` are there, the ones that it adds or changes."""
    known = () if after is None else REVISIONS[after]
    for view in REVISIONS[revision]:
        if view not in known:
            if any(view.name == each.name for each in known):
                conn.exec_driver_sql(f"DROP VIEW {view.name}")
            query = view.query.strip().format(**_WORDS[conn.dialect.name])
            conn.exec_driver_sql(f"CREATE VIEW {view.name} AS\n{query}")


def remove(conn: Connection, revision: str) -> None:
    """Drops the views of one revision."""
    for view in reversed(REVISIONS[revision]):
        conn.exec_driver_sql(f"DROP VIEW {view.name}")
