"""How far partitions are, wherever they are led: what lags are held against.

Owns the order of who is believed: the leader here, a replica here that is in sync, and then the leader's last report
in SQL, which is seconds old. For people: nothing is ever decided by it.
"""

from collections.abc import Collection, Mapping

from tiered.broker.context import BrokerContext
from tiered.broker.partitions.partition import Partition
from tiered.broker.partitions.topics import Topics
from tiered.broker.view.image import ClusterImage
from tiered.ids import TopicPartition
from tiered.meta import group_lag
from tiered.rules.partition.partition_state import LogBounds

READ_DEADLINE_MS = 4_000


class KnownLogBounds:
    """The bounds that one broker knows, or asks SQL for."""

    def __init__(self, *, context: BrokerContext, topics: Topics, image: ClusterImage) -> None:
        self._context = context
        self._topics = topics
        self._image = image

    def known_here(self, key: TopicPartition) -> Partition | None:
        """The replica here, when it leads or is in sync: then it knows the log's bounds."""
        topic, row = self._topics.find_id(key.topic_id), self._image.row(key)
        hosted = None if topic is None else topic.hosted(key.partition)
        if hosted is None or row is None:
            return None
        return hosted if self._context.broker_id in self._image.in_sync(row) else None

    async def of(self, keys: Collection[TopicPartition]) -> Mapping[TopicPartition, LogBounds]:
        """The bounds of these partitions; those that do not exist (any more) are left out.

        Asks SQL only for what no replica here knows. Raises MetadataUnavailable.
        """
        found: dict[TopicPartition, LogBounds] = {}
        elsewhere = []
        for key in keys:
            here = self.known_here(key)
            if here is not None:
                found[key] = LogBounds(log_start_offset=here.log_start_offset, high_watermark=here.high_watermark)
            elif self._image.row(key) is not None:
                elsewhere.append(key)
        if elsewhere:
            topic_ids = {key.topic_id for key in elsewhere}
            reported = await self._context.database.read(
                lambda conn: group_lag.high_watermarks(conn, topic_ids), deadline_ms=READ_DEADLINE_MS
            )
            for key in elsewhere:
                found[key] = self.reported(key, reported.get((key.topic_id, key.partition)))
        return found

    def reported(self, key: TopicPartition, high_watermark: int | None) -> LogBounds:
        """The bounds of a partition of the image, by what its leader has reported of it, if it has."""
        row = self._image.row(key)
        assert row is not None, "the image knows the partition"
        return LogBounds(
            log_start_offset=row.log_start_offset,
            high_watermark=max(row.cold_end_offset, row.log_start_offset, high_watermark or 0),
        )
