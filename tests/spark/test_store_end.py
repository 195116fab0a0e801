"""What a read from the store alone says of the records that brokers have not uploaded yet."""

import logging
from dataclasses import replace
from uuid import uuid4

import pytest

from pyspark_tiered.batch import plan_batch
from pyspark_tiered.log_source import open_log_source
from pyspark_tiered.options import parse_options
from pyspark_tiered.plan import FilterBounds, PartitionView
from pyspark_tiered.store_end import described
from pyspark_tiered.stream import StreamReader
from tests.spark.bucket import Bucket, PartitionState, batches_of, records
from tiered.errors import OffsetOutOfRange

UPLOADED_MS = 1_700_000_000_000


def plan(bucket: Bucket, bounds: FilterBounds | None = None, **options: str) -> None:
    parsed = parse_options({"store": bucket.url, "subscribe": "orders", **options}, streaming=False)
    with open_log_source(parsed) as source:
        plan_batch(source, parsed, bounds or FilterBounds())


@pytest.fixture
def uploading(bucket: Bucket) -> Bucket:
    """Three partitions: wholly in the store, partly, and not at all."""
    for partition in (0, 1):
        bucket.add_segment("orders", partition, batches_of(records(0, 100)))
        bucket.partitions["orders", partition].high_watermark = 100 + 1234 * partition
    bucket.partitions["orders", 2] = PartitionState()
    bucket.publish()
    return bucket


def test_a_warning_says_what_the_store_lacks_and_how_far_it_reaches(
    uploading: Bucket, caplog: pytest.LogCaptureFixture
) -> None:
    plan(uploading)
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
        (
            logging.WARNING,
            "Topic orders is read from the store alone, so records that are not uploaded yet are left out. The store "
            "has nothing of partition 2. The latest upload of partitions 0-1 is from 2023-11-14T22:13:20Z. The "
            "checkpoints know of 1,234 more offsets, in partition 1. Give kafka.bootstrap.servers to read the rest "
            "from the brokers.",
        )
    ]


def test_a_topic_that_is_not_in_the_store_at_all_is_no_silence(
    bucket: Bucket, caplog: pytest.LogCaptureFixture
) -> None:
    bucket.topic_ids["orders"] = uuid4()
    bucket.partitions["orders", 0] = PartitionState()
    bucket.publish()
    plan(bucket)
    assert "The store has nothing of partition 0." in caplog.text


def test_uploads_within_one_second_have_one_time(uploading: Bucket) -> None:
    parsed = parse_options({"store": uploading.url, "subscribe": "orders"}, streaming=False)
    with open_log_source(parsed) as source:
        views = [view for view in source.views().values() if view.latest_upload_ms is not None]
    later = replace(views[1], latest_upload_ms=(views[0].latest_upload_ms or 0) + 5)
    assert "The latest upload of partitions 0-1 is from 2023-11-14T22:13:20Z." in described([views[0], later])


def test_an_incomplete_store_is_an_error_where_the_user_wants_that(uploading: Bucket) -> None:
    with pytest.raises(OffsetOutOfRange, match=r"nothing of partition 2.* or set failOnIncompleteStore=false"):
        plan(uploading, failOnIncompleteStore="true")
    del uploading.partitions["orders", 2]
    uploading.publish()
    with pytest.raises(OffsetOutOfRange, match="know of 1,234 more offsets, in partition 1"):
        plan(uploading, failOnIncompleteStore="true")
    uploading.partitions["orders", 1].high_watermark = None
    uploading.publish()
    with pytest.raises(OffsetOutOfRange, match="checkpoints of partition 1 do not say where the log ended"):
        plan(uploading, failOnIncompleteStore="true")
    uploading.partitions["orders", 1].high_watermark = 100
    uploading.publish()
    plan(uploading, failOnIncompleteStore="true")


def test_a_read_that_ends_below_the_end_of_the_log_leaves_nothing_out(
    uploading: Bucket, caplog: pytest.LogCaptureFixture
) -> None:
    plan(uploading, endingOffsets='{"orders":{"0":100,"1":100,"2":0}}', failOnIncompleteStore="true")
    plan(uploading, FilterBounds(last_offset=-1), failOnIncompleteStore="true")
    assert caplog.text == ""
    plan(uploading, endingTimestamp=str(UPLOADED_MS + 5))
    assert "nothing of partition 2. Give" in caplog.text, "only there may the time be at the end"


def test_a_stream_warns_once_or_does_not_begin(uploading: Bucket, caplog: pytest.LogCaptureFixture) -> None:
    given = {"store": uploading.url, "subscribe": "orders", "startingOffsets": "earliest"}
    stream = StreamReader(parse_options(given, streaming=True), ("offset",))
    start = stream.initialOffset()
    end = stream.latestOffset(start, stream.getDefaultReadLimit())
    stream.partitions(start, end)
    stream.stop()
    assert len(caplog.records) == 1
    assert "The store has nothing of partition 2." in caplog.text
    strict = StreamReader(parse_options(given | {"failOnIncompleteStore": "true"}, streaming=True), ("offset",))
    with pytest.raises(OffsetOutOfRange, match="nothing of partition 2"):
        strict.initialOffset()
    strict.stop()


def test_many_partitions_make_one_line() -> None:
    views = [
        PartitionView(
            topic="orders",
            topic_id=None,
            partition=number,
            log_start_offset=0,
            cold_end_offset=5,
            end_offset=5,
            is_store_alone=True,
            known_log_end=5,
            latest_upload_ms=None if number % 2 else 10**18 * (number == 0),
        )
        for number in range(10_000)
    ]
    sentence = described(views)
    assert "nothing of partitions 1, 3, 5," in sentence
    assert "is from 1970-01-01T00:00:00Z to 9999-12-31T23:59:59Z" in sentence
    assert len(sentence) < 600
