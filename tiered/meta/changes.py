"""The change feed: what of the metadata store has changed since a number, in the order of commits.

Owns the one question a broker asks again and again to keep its memory current. `cluster.take_number` says
why no change can be missed. Consumers' committed offsets are not in the feed.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection

from tiered.meta import brokers, cluster, coordinator_slots, partitions, security, segments, settings, topics
from tiered.meta.brokers import BrokerRow
from tiered.meta.coordinator_slots import SlotRow
from tiered.meta.partitions import PartitionRow
from tiered.meta.security import Security
from tiered.meta.segments import SegmentRow
from tiered.meta.settings import StoredConfigs
from tiered.meta.topics import TopicRow


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeSet:
    """Every row that changed, as it is now. Ask with `number` next time.

    Deleted topics come with `deleted_at_ms`; their partitions come too. `broker_configs` is all of them when any has
    changed, else None; `resource_configs` and `security` likewise. `broker_ids` is everyone registered, None where
    nothing changed: a missing broker was unregistered. Rows that were deleted for good had changed before: topics were
    deleted, segments purged.
    """

    number: int
    topics: tuple[TopicRow, ...]
    partitions: tuple[PartitionRow, ...]
    brokers: tuple[BrokerRow, ...]
    segments: tuple[SegmentRow, ...]
    broker_configs: Mapping[int | None, Mapping[str, str]] | None
    slots: tuple[SlotRow, ...] = ()
    broker_ids: frozenset[int] | None = None
    security: Security | None = None
    resource_configs: StoredConfigs | None = None


def since(conn: Connection, number: int) -> ChangeSet:
    """The changes after `number`. Run it with `Database.read`, so that its parts fit together."""
    now = cluster.load(conn)
    if now.change_number == number:
        return ChangeSet(number=number, topics=(), partitions=(), brokers=(), segments=(), broker_configs=None)
    settings_changed = now.settings_change_number > number
    return ChangeSet(
        number=now.change_number,
        topics=topics.changed_since(conn, number),
        partitions=partitions.changed_since(conn, number),
        brokers=brokers.changed_since(conn, number),
        segments=segments.changed_since(conn, number),
        broker_configs=settings.load_all(conn) if settings_changed else None,
        slots=coordinator_slots.changed_since(conn, number),
        broker_ids=brokers.load_ids(conn),
        security=security.load_all(conn) if now.security_change_number > number else None,
        resource_configs=settings.load_resources(conn) if settings_changed else None,
    )
