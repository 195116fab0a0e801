"""What a stream does when its topic is another one by now, when brokers are away, and when there is too little to read.

Driver and tasks are in this process, without a JVM; the broker, where there is one, too.
"""

import threading
import time
from collections.abc import Iterator

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from pyspark_tiered.options import parse_options
from pyspark_tiered.stream import TOPIC_IDS, StreamReader
from tests.spark.bucket import Bucket, batches_of, records
from tests.spark.pinned_topics import append
from tiered.errors import OffsetOutOfRange, Retriable
from tiered.testing import LocalCluster, cluster

EVERYTHING = ReadAllAvailable()


@pytest.fixture
def broker() -> Iterator[LocalCluster]:
    with cluster(topics={"orders": 1}) as running:
        yield running


def stream_of(bucket: Bucket, **more: str) -> StreamReader:
    given = {"store": bucket.url, "subscribe": "orders", "startingOffsets": "earliest", **more}
    return StreamReader(parse_options(given, streaming=True), ("offset",))


def offsets_of(
    stream: StreamReader, start: dict[str, dict[str, object]], end: dict[str, dict[str, object]]
) -> list[int]:
    found = [batch.column(0).to_pylist() for split in stream.partitions(start, end) for batch in stream.read(split)]
    return [offset for offsets in found for offset in offsets]


def recreated(bucket: Bucket, count: int) -> None:
    bucket.partitions.clear()
    bucket.topic_ids.clear()
    bucket.add_segment("orders", 0, batches_of(records(0, count)))
    bucket.publish()


@pytest.mark.parametrize("count", [5, 50])
def test_a_topic_that_was_created_again_while_the_query_was_stopped_is_another_one(bucket: Bucket, count: int) -> None:
    recreated(bucket, 20)
    stream = stream_of(bucket)
    end = stream.latestOffset(stream.initialOffset(), EVERYTHING)
    assert end["orders"] == {"0": 20}
    recreated(bucket, count)
    with pytest.raises(OffsetOutOfRange, match="topic orders was deleted and created again"):
        stream_of(bucket).latestOffset(end, EVERYTHING)
    with pytest.raises(OffsetOutOfRange, match="topic orders was deleted and created again"):
        stream_of(bucket).partitions({"orders": {"0": 0}}, end)
    # By the user's choice the new topic is read, from its beginning.
    going_on = stream_of(bucket, failOnDataLoss="false")
    begun = going_on.latestOffset(end, EVERYTHING)
    assert offsets_of(going_on, end, begun) == []
    after = going_on.latestOffset(begun, EVERYTHING)
    assert offsets_of(going_on, begun, after) == list(range(count))
    assert begun[TOPIC_IDS] == after[TOPIC_IDS] != end[TOPIC_IDS]


def test_a_checkpoint_without_topic_ids_goes_on(bucket: Bucket) -> None:
    recreated(bucket, 20)
    stream = stream_of(bucket)
    end = stream.latestOffset({"orders": {"0": 7}}, EVERYTHING)
    assert offsets_of(stream, {"orders": {"0": 7}}, end) == list(range(7, 20))


def test_a_micro_batch_waits_until_there_is_enough_or_for_its_longest_delay(bucket: Bucket) -> None:
    recreated(bucket, 20)
    stream = stream_of(bucket, minOffsetsPerTrigger="30", maxTriggerDelay="1s", maxOffsetsPerTrigger="40")
    limit = ReadMaxRows(40)
    first = stream.latestOffset(stream.initialOffset(), limit)
    assert first["orders"] == {"0": 20}, "the first micro-batch does not wait"
    bucket.add_segment("orders", 0, batches_of(records(20, 10)))
    bucket.publish()
    assert stream.latestOffset(first, limit) == first
    bucket.add_segment("orders", 0, batches_of(records(30, 25)))
    bucket.publish()
    second = stream.latestOffset(first, limit)
    assert second["orders"] == {"0": 55}
    bucket.add_segment("orders", 0, batches_of(records(55, 1)))
    bucket.publish()
    time.sleep(1.1)
    assert stream.latestOffset(second, limit)["orders"] == {"0": 56}


def test_available_now_waits_for_nothing(bucket: Bucket) -> None:
    recreated(bucket, 20)
    stream = stream_of(bucket, minOffsetsPerTrigger="30")
    stream.prepareForTriggerAvailableNow()
    half = stream.latestOffset(stream.initialOffset(), ReadMaxRows(10))
    assert half["orders"] == {"0": 10}
    assert stream.latestOffset(half, ReadMaxRows(10))["orders"] == {"0": 20}


def test_a_stream_waits_for_brokers_that_are_away_for_a_while(broker: LocalCluster) -> None:
    append(broker, "orders", 30)
    given = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "orders", "startingOffsets": "earliest"}
    stream = StreamReader(parse_options(given, streaming=True), ("offset",))
    start = stream.initialOffset()
    end = stream.latestOffset(start, EVERYTHING)
    back = threading.Timer(1.5, broker.brokers[0].start)
    broker.brokers[0].stop()
    back.start()
    # Planning and reading both ask brokers that are not there yet.
    assert stream.latestOffset(start, EVERYTHING) == end
    assert offsets_of(stream, start, end) == list(range(30))
    back.join()
    stream.stop()


def test_a_stream_whose_brokers_stay_away_says_so(broker: LocalCluster) -> None:
    given = {
        "kafka.bootstrap.servers": broker.bootstrap,
        "subscribe": "orders",
        "kafka.request.timeout.ms": "300",
        "fetchOffset.numRetries": "2",
        "fetchOffset.retryIntervalMs": "100",
    }
    stream = StreamReader(parse_options(given, streaming=True), ("offset",))
    broker.stop()
    began = time.monotonic()
    with pytest.raises(Retriable):
        stream.initialOffset()
    assert time.monotonic() - began >= 0.2, "it was asked three times"
    stream.stop()
