"""Topics whose cold segments are compacted, and when that is done."""

import time
from collections.abc import Callable

from tiered.cold.bucket.checkpoints import read_cluster_checkpoint
from tiered.cold.bucket.look import look_at_partition
from tiered.cold.opening import open_store
from tiered.formats.checkpoint import CommittedSegment
from tiered.meta import segments, topics
from tiered.meta.engine import Database
from tiered.meta.segments import SegmentRow
from tiered.rules.segments.segment_states import SegmentState
from tiered.testing import LocalCluster

WAIT_S = 60.0
COMPACT = {
    "cleanup.policy": "compact",
    "segment.bytes": 3_000,
    "tiered.chunk.bytes": 4_096,
    "delete.retention.ms": 0,
    "tiered.purge.grace.ms": 0,
    "remote.copy.lag.ms": 0,
}
# A broker's own passes would leave nothing to see.
SETTINGS = {"log.cleaner.enable": "false", "tiered.sweep.interval.ms": 50, "tiered.upload.timeout.ms": 2_000}


def eventually(claim: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not claim():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def catalogue(c: LocalCluster, topic: str) -> list[SegmentRow]:
    """All rows of the topic's only partition, in whatever state."""
    database = Database.open(c.sql_url)
    try:
        found = database.run_sync(lambda conn: segments.changed_since(conn, 0))
        known = database.run_sync(topics.load_all)
        topic_id = next(row.topic_id for row in known if row.name == topic)
        return sorted((row for row in found if row.topic_id == topic_id), key=lambda row: row.base_offset)
    finally:
        database.close_sync()


def committed(c: LocalCluster, topic: str) -> list[SegmentRow]:
    return [row for row in catalogue(c, topic) if row.state is SegmentState.COMMITTED]


def in_the_bucket(c: LocalCluster, topic: str) -> tuple[CommittedSegment, ...]:
    """The partition as a read replica, or Spark, finds it."""
    store = open_store(c.store_url)
    try:
        checkpoint = read_cluster_checkpoint(store)
        assert checkpoint is not None
        topic_id = next(each.topic_id for each in checkpoint.topics if each.name == topic)
        return look_at_partition(store, topic, topic_id, 0, None).partition.segments
    finally:
        store.close()


def is_purged(c: LocalCluster, topic: str) -> bool:
    """Whether nothing is left of what was replaced, and the bucket names what the catalogue does."""
    if any(row.state in (SegmentState.RETIRED, SegmentState.PLANNED) for row in catalogue(c, topic)):
        return False
    return [each.object_key for each in in_the_bucket(c, topic)] == [row.object_key for row in committed(c, topic)]
