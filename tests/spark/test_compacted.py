"""A compacted topic, read by Spark from the bucket and from the broker, beside a consumer of the same topic."""

import random
import time

import pytest
from pyspark.sql import SparkSession

from tests.spark.compacted_rows import WAIT_S, consumed, of_spark, write
from tiered.testing import cluster

pytestmark = pytest.mark.spark

SETTINGS = {"log.cleaner.backoff.ms": 20, "log.cleaner.io.max.bytes.per.second": 10**9}
CONFIGS = {
    "cleanup.policy": "compact",
    "segment.bytes": 3_000,
    "min.cleanable.dirty.ratio": 0.01,
    "delete.retention.ms": 0,
    "remote.copy.lag.ms": -1,
    "tiered.chunk.bytes": 4_096,
}


def test_spark_and_a_consumer_read_the_newest_of_each_key_and_nothing_older_than_allowed(spark: SparkSession) -> None:
    chance = random.Random(6)
    with cluster(settings=SETTINGS) as c:
        c.create_topic("table", configs=CONFIGS)
        first = write(c, chance, 300)
        newest = {key: (offset, key, value) for offset, key, value in first[:-1]}
        # Tombstones too: what they delete may be in the store.
        wanted = sorted(newest.values())
        deadline = time.monotonic() + WAIT_S
        while consumed(c)[:-1] != wanted:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        c.tier("table", keep_local=False)
        assert of_spark(spark, store=c.store_url) == consumed(c) == [*wanted, first[-1]]
        # What comes now is in the tail: nothing of it may be missing, and the two tiers meet inside one table.
        second = write(c, chance, 100)
        both = {"store": c.store_url, "kafka.bootstrap.servers": c.bootstrap}
        # A pass of compaction between two looks takes records out of the second.
        deadline = time.monotonic() + WAIT_S
        settled, found = None, of_spark(spark, **both)
        while settled != (settled := consumed(c)):
            assert time.monotonic() < deadline
            found = of_spark(spark, **both)
        offsets = {offset for offset, _, _ in found}
        newest |= {key: (offset, key, value) for offset, key, value in [first[-1], *second]}
        assert offsets.issuperset(offset for offset, _, _ in newest.values())
        assert set(found) <= {*first, *second}
        assert len(found) == len(offsets)
        assert sorted(found) == settled
