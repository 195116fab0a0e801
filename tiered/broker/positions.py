"""How far partitions are, wherever they are led: what lags are held against.

Owns the order of who is believed: the leader here, a replica here that is in sync, and then the leader's last report
in SQL, which is seconds old. For people: nothing is ever decided by it.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tiered.broker.partition import Partition
from tiered.ids import TopicPartition
from tiered.meta import group_lag

if TYPE_CHECKING:
    from tiered.broker.broker import Broker

READ_DEADLINE_MS = 4_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """What consumers may read of a partition: from `log_start_offset` up to `high_watermark`."""

    log_start_offset: int
    high_watermark: int


def known_here(broker: "Broker", key: TopicPartition) -> Partition | None:
    """The replica here, when it leads or is in sync: then it knows the partition's position."""
    topic, row = broker.topics.find_id(key.topic_id), broker.image.row(key)
    hosted = None if topic is None else topic.hosted(key.partition)
    if hosted is None or row is None:
        return None
    return hosted if broker.broker_id in broker.image.in_sync(row) else None


async def positions_of(broker: "Broker", keys: Collection[TopicPartition]) -> Mapping[TopicPartition, Position]:
    """The positions of these partitions; those that do not exist (any more) are left out.

    Asks SQL only for what no replica here knows. Raises MetadataUnavailable.
    """
    found: dict[TopicPartition, Position] = {}
    elsewhere = []
    for key in keys:
        here = known_here(broker, key)
        if here is not None:
            found[key] = Position(log_start_offset=here.log_start_offset, high_watermark=here.high_watermark)
        elif broker.image.row(key) is not None:
            elsewhere.append(key)
    if elsewhere:
        topic_ids = {key.topic_id for key in elsewhere}
        reported = await broker.database.read(
            lambda conn: group_lag.high_watermarks(conn, topic_ids), deadline_ms=READ_DEADLINE_MS
        )
        for key in elsewhere:
            found[key] = reported_position(broker, key, reported.get((key.topic_id, key.partition)))
    return found


def reported_position(broker: "Broker", key: TopicPartition, high_watermark: int | None) -> Position:
    """The position of a partition of the image, by what its leader has reported of it, if it has."""
    row = broker.image.row(key)
    assert row is not None, "the image knows the partition"
    return Position(
        log_start_offset=row.log_start_offset,
        high_watermark=max(row.cold_end_offset, row.log_start_offset, high_watermark or 0),
    )
