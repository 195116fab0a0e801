"""What a user may write, and what an error tells them."""

import pytest
from pyspark.sql.types import StructType

from pyspark_tiered.client_options import ClientOptions
from pyspark_tiered.columns import columns_of, ddl
from pyspark_tiered.options import (
    Assign,
    AtEarliest,
    AtLatest,
    AtOffsets,
    AtTimestamps,
    Isolation,
    Subscribe,
    SubscribePattern,
    parse_options,
)
from tiered.errors import InvalidConfig

STORE = {"store": "s3://logs/prod", "subscribe": "orders"}


def refused(given: dict[str, str], *, streaming: bool = False) -> str:
    with pytest.raises(InvalidConfig) as caught:
        parse_options(given, streaming=streaming)
    return str(caught.value)


def test_a_store_and_a_topic_are_enough() -> None:
    options = parse_options(STORE, streaming=False)
    assert options.store == "s3://logs/prod"
    assert options.selection == Subscribe(topics=("orders",))
    assert (options.starting, options.ending) == (AtEarliest(), AtLatest())
    assert options.fail_on_data_loss
    assert not options.include_headers


def test_a_stream_begins_at_the_latest_offsets_as_spark_does() -> None:
    assert parse_options(STORE, streaming=True).starting == AtLatest()


def test_an_object_costs_as_much_as_a_file_in_spark_unless_told_otherwise() -> None:
    assert parse_options(STORE, streaming=False).open_cost_bytes == 4 << 20
    assert parse_options(STORE | {"openCostInBytes": "0"}, streaming=False).open_cost_bytes == 0


def test_names_are_case_insensitive() -> None:
    options = parse_options({"STORE": "file:///x", "SubScribe": "a, b", "MINPARTITIONS": "7"}, streaming=False)
    assert options.selection == Subscribe(topics=("a", "b"))
    assert options.min_partitions == 7


def test_kafka_options_pass() -> None:
    options = parse_options(
        {
            "kafka.bootstrap.servers": "h:1",
            "subscribe": "a",
            "kafka.group.id": "g",
            "kafka.isolation.level": "read_committed",
        },
        streaming=False,
    )
    assert options.bootstrap_servers == "h:1"
    assert options.client == ClientOptions()
    assert options.isolation is Isolation.READ_COMMITTED


@pytest.mark.parametrize("name", ["isolation.level", "kafka.isolation.level", "isolation"])
def test_isolation_has_kafkas_name_and_two_others(name: str) -> None:
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "a"}
    assert parse_options(given, streaming=True).isolation is Isolation.READ_UNCOMMITTED
    told = given | {name: "read_committed"}
    assert parse_options(told, streaming=True).isolation is Isolation.READ_COMMITTED
    both = told | {"isolation.level" if name != "isolation.level" else "isolation": "read_uncommitted"}
    with pytest.raises(InvalidConfig, match="say different things"):
        parse_options(both, streaming=True)


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        ({"subscrib": "a"}, "unknown option 'subscrib': did you mean subscribe?"),
        ({"whatever": "a"}, "unknown option 'whatever'"),
        ({"path": "/x"}, "load() takes no path"),
        ({"minOffsetsPerTrigger": "5"}, "belongs to readStream"),
        ({"kafkaConsumer.pollTimeoutMs": "soon"}, "pollTimeoutMs"),
        ({"fetchOffset.numRetries": "-1"}, "number from 0 on"),
        ({"kafka.whatever": "x"}, "unknown option kafka.whatever"),
        ({"kafka.fetch.max.byte": "x"}, "did you mean kafka.fetch.max.bytes?"),
        ({"kafka.acks": "all"}, "belongs to writes"),
        ({"kafka.request.timeout.ms": "1"}, "give a number from 100"),
        ({"kafka.security.protocol": "TLS"}, "kafka.security.protocol"),
        ({"kafka.sasl.jaas.config": "x"}, "kafka.sasl.jaas.config"),
        ({"kafka.auto.offset.reset": "latest"}, "use startingOffsets"),
        ({"minPartitions": "0"}, "minPartitions"),
        ({"minPartitions": "many"}, "minPartitions"),
        ({"maxRecordsPerPartition": "-1"}, "maxRecordsPerPartition"),
        ({"maxOffsetsPerTrigger": "5"}, "belongs to readStream"),
        ({"failOnDataLoss": "maybe"}, "use true or false"),
        ({"includeHeaders": "1"}, "use true or false"),
        ({"isolation": "serializable"}, "read_uncommitted or read_committed"),
        ({"startingOffsets": "latest"}, "where a batch ends"),
        ({"startingOffsets": '{"orders":{"0":-1}}'}, "where a batch ends"),
        ({"endingOffsets": "earliest"}, "where a batch begins"),
        ({"endingOffsets": '{"orders":{"0":-2}}'}, "where a batch begins"),
        ({"startingOffsets": "yesterday"}, "must be JSON"),
        ({"startingOffsets": "[1]"}, "must be JSON"),
        ({"startingOffsets": '{"orders":{"x":1}}'}, "no partition"),
        ({"startingOffsets": '{"orders":{"0":-3}}'}, "has -3"),
        ({"startingOffsets": '{"orders":{"0":true}}'}, "has True"),
        ({"startingOffsets": '{"orders":[1]}'}, "no object of partitions"),
        ({"startingTimestamp": "noon"}, "milliseconds since 1970"),
        ({"startingOffsetsByTimestampStrategy": "guess"}, "use error or latest"),
        ({"assign": '{"orders":[0]}'}, "subscribe and assign are given"),
    ],
)
def test_an_option_that_is_wrong_is_named(extra: dict[str, str], says: str) -> None:
    assert says in refused(STORE | extra)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"subscribe": "a"}, "give option store"),
        ({"store": "file:///x"}, "none is given"),
        ({"store": "file:///x", "subscribe": " , "}, "names no topic"),
        ({"store": "file:///x", "subscribe": "a b"}, "no topic name"),
        ({"store": "file:///x", "subscribePattern": "("}, "no regular expression"),
        ({"store": "file:///x", "assign": "{}"}, "names no topic"),
        ({"store": "file:///x", "assign": '{"a":[]}'}, "no list of partitions"),
        ({"store": "file:///x", "assign": '{"a":[-1]}'}, "no list of partitions"),
    ],
)
def test_what_is_missing_is_named(given: dict[str, str], says: str) -> None:
    assert says in refused(given)


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    assert "a stream has no end" in refused(STORE | {name: "1"}, streaming=True)


def test_options_of_the_client_that_change_no_row_are_taken() -> None:
    options = parse_options(
        STORE | {"groupIdPrefix": "x", "kafka.receive.buffer.bytes": "1", "kafka.max.partition.fetch.bytes": "100000"},
        streaming=False,
    )
    assert options.client == ClientOptions(fetch_bytes=100_000)


@pytest.mark.parametrize(("text", "wanted_ms"), [("250", 250), ("250ms", 250), ("30s", 30_000), ("2 hours", 7_200_000)])
def test_delays_are_written_as_in_spark(text: str, wanted_ms: int) -> None:
    options = parse_options(STORE | {"minOffsetsPerTrigger": "9", "maxTriggerDelay": text}, streaming=True)
    assert (options.min_offsets_per_trigger, options.max_trigger_delay_ms) == (9, wanted_ms)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"maxTriggerDelay": "soon"}, "give a time such as"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "lower the first"),
        ({"snapshot": "s", "catalog": "http://h:1"}, "a snapshot never grows"),
    ],
)
def test_a_streams_option_that_is_wrong_is_named(given: dict[str, str], says: str) -> None:
    assert says in refused(STORE | given, streaming=True)


def test_offsets_are_the_json_of_sparks_kafka_source() -> None:
    options = parse_options(
        STORE | {"startingOffsets": '{"orders":{"0":23,"1":-2}}', "endingOffsets": '{"orders":{"0":50,"1":-1}}'},
        streaming=False,
    )
    assert options.starting == AtOffsets(offsets={("orders", 0): 23, ("orders", 1): -2})
    assert options.ending == AtOffsets(offsets={("orders", 0): 50, ("orders", 1): -1})


def test_the_more_special_way_to_say_a_start_goes_first() -> None:
    by_partition = {"startingOffsetsByTimestamp": '{"orders":{"0":5}}', "startingOffsets": "earliest"}
    assert parse_options(STORE | by_partition, streaming=False).starting == AtTimestamps(
        timestamps_ms={("orders", 0): 5}
    )
    for_all = by_partition | {"startingTimestamp": "7"}
    assert parse_options(STORE | for_all, streaming=False).starting == AtTimestamps(timestamp_ms=7)


def test_topics_by_pattern_and_by_partition() -> None:
    pattern = parse_options({"store": "file:///x", "subscribePattern": "a.*"}, streaming=False).selection
    assert isinstance(pattern, SubscribePattern)
    assigned = parse_options({"store": "file:///x", "assign": '{"a":[2,0,2]}'}, streaming=False).selection
    assert assigned == Assign(partitions={"a": (0, 2)})


def schema(ddl_text: str) -> StructType:
    found = StructType.fromDDL(ddl_text)
    assert isinstance(found, StructType)
    return found


def test_the_schema_is_that_of_sparks_kafka_source() -> None:
    assert ddl(headers=False) == (
        "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
    )
    assert ddl(headers=True).endswith(", headers array<struct<key:string,value:binary>>")


def test_a_schema_of_fewer_columns_is_a_projection(spark: object) -> None:
    assert columns_of(schema("offset bigint, key binary")) == ("offset", "key")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("offsets bigint", "there are key"),
        ("value string", "column value is binary, the schema says string"),
        ("value binary not null", "is nullable"),
    ],
)
def test_a_schema_that_cannot_be_is_refused(spark: object, text: str, says: str) -> None:
    with pytest.raises(InvalidConfig, match=says):
        columns_of(schema(text))
