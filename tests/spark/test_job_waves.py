"""Waves of a job, and what its arguments mean: every offset is in one wave, and waves end where segments do."""

import argparse

import pytest

from pyspark_tiered import iceberg_table, job_arguments
from pyspark_tiered.job_waves import held_ranges, waves_of
from pyspark_tiered.log_source import open_log_source
from pyspark_tiered.options import parse_options
from pyspark_tiered.value_schema import ValueFormat, ValueSchema
from tests.spark.bucket import Bucket, batches_of, records
from tiered.errors import InvalidConfig


@pytest.mark.parametrize("wave_bytes", [1, 10_000, 1 << 30])
def test_every_offset_is_in_one_wave_and_waves_end_where_segments_do(bucket: Bucket, wave_bytes: int) -> None:
    for partition, segments in ((0, 6), (1, 2)):
        for number in range(segments):
            bucket.add_segment("orders", partition, batches_of(records(number * 50, 50)))
    bucket.publish()
    options = parse_options({"store": bucket.url, "subscribe": "orders"}, streaming=False)
    reached = {0: 20, 1: 0}
    begun = {("orders", 0): 20}
    with open_log_source(options) as source, held_ranges(source, options, begun) as ranges:
        for wave in waves_of(source, options, ranges, wave_bytes=wave_bytes):
            assert {split.partition for split in wave.splits} == {each.view.partition for each in wave.ranges}
            for each in wave.ranges:
                assert each.start_offset == reached[each.view.partition] < each.end_offset
                assert each.end_offset % 50 == 0
                reached[each.view.partition] = each.end_offset
    assert reached == {0: 300, 1: 100}


def test_the_warning_of_a_job_names_the_option_of_a_job(bucket: Bucket, caplog: pytest.LogCaptureFixture) -> None:
    bucket.add_segment("orders", 0, batches_of(records(0, 50)))
    bucket.publish()
    options = parse_options({"store": bucket.url, "subscribe": "orders"}, streaming=False)
    with open_log_source(options) as source, held_ranges(source, options):
        assert "Give --bootstrap to read the rest from the brokers." in caplog.text


def test_a_warehouse_that_is_a_folder_is_answered_with_the_url_of_that_folder() -> None:
    with pytest.raises(InvalidConfig, match="--warehouse /lake/tables is no URL: write file:///lake/tables for"):
        iceberg_table.file_properties("/lake/tables")


def arguments(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    job_arguments.source_arguments(parser)
    return parser.parse_args(["--store", "file:///x", "--topic", "orders", *words])


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ([], {"subscribe": "orders", "startingOffsets": "earliest", "endingOffsets": "latest"}),
        (["--partitions", "0,3"], {"assign": '{"orders": [0, 3]}', "endingOffsets": "latest"}),
        (["--from", '{"0":5}', "--to", "latest"], {"startingOffsets": '{"orders": {"0": 5}}'}),
        (["--from", "2026-01-31"], {"startingTimestamp": "1769817600000"}),
        (["--to", "2026-01-31T12:00+02:00"], {"endingTimestamp": "1769853600000"}),
        (["--from", "1769817600000"], {"startingTimestamp": "1769817600000"}),
        (["--catalog", "http://broker:8080"], {"catalog": "http://broker:8080"}),
    ],
)
def test_a_range_may_be_said_in_words_times_and_offsets(words: list[str], meant: dict[str, str]) -> None:
    assert job_arguments.source_options(arguments(*words)).items() >= meant.items()


@pytest.mark.parametrize(
    ("form", "text", "said"),
    [
        ("json", "{", "the schema is no JSON document"),
        ("json", '{"properties":{"a":{"type":["string","integer"]}}}', "a column has one, and may be null"),
        ("json", '{"properties":{"a":{"type":"array"}}}', "gives the value.a\\[\\] the type None"),
        ("avro", '"string"', "the Avro schema is no record"),
        (
            "avro",
            '{"type":"record","name":"a","fields":[{"name":"b","type":["int","string"]}]}',
            "gives the value.b a union of several types",
        ),
    ],
)
def test_a_schema_without_columns_for_it_is_refused(form: str, text: str, said: str) -> None:
    with pytest.raises(InvalidConfig, match=said):
        ValueSchema(format=ValueFormat(form), text=text).fields()
