"""wire.md 9 to 15 and 49 to 51: topics as clients see and change them."""

import re
from collections.abc import Sequence
from uuid import UUID

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from tests.broker_process import BrokerProcess
from tests.clients.raw import RawConnection
from tests.components.batches import batch
from tests.support.admin_requests import METADATA, admin, ask
from tests.support.topics import create
from tiered.config.topic import TOPIC_SETTINGS
from tiered.wire import messages


@pytest.mark.parametrize("version", range(14))
def test_every_version_of_metadata_names_the_broker_and_the_leader(broker: BrokerProcess, version: int) -> None:
    topic = create(broker, f"metadata-{version}", partitions=3)
    with RawConnection(broker) as connection:
        answer = ask(connection, [topic], version=version)
        assert [(each.host, each.port) for each in answer.brokers] == [("127.0.0.1", broker.kafka_port)]
        found = answer.topics[0]
        assert (int(found.error_code), found.name, len(found.partitions)) == (0, topic, 3)
        assert {each.leader_id for each in found.partitions} == {answer.brokers[0].node_id}
        if version >= 7:
            assert {each.leader_epoch for each in found.partitions} == {0}
        if version >= 10:
            assert found.topic_id is not None


def test_null_lists_all_topics_and_an_empty_list_none_but_in_version_0(broker: BrokerProcess) -> None:
    topic = create(broker, "listed")
    with RawConnection(broker) as connection:
        assert topic in {each.name for each in ask(connection, None).topics}
        assert ask(connection, []).topics == ()
        assert topic in {each.name for each in ask(connection, [], version=0).topics}


def test_topics_are_created_only_where_client_and_broker_allow_it(make_broker) -> None:  # type: ignore[no-untyped-def]
    process = make_broker(settings={"num.partitions": 4}).start()
    with RawConnection(process) as connection:
        assert int(ask(connection, ["not-wanted"]).topics[0].error_code) == 3
        created = ask(connection, ["wanted"], may_create=True).topics[0]
        assert (int(created.error_code), len(created.partitions)) == (0, 4)
        assert "not-wanted" not in {each.name for each in ask(connection, None).topics}
    strict = make_broker(name="strict", settings={"auto.create.topics.enable": "false"}).start()
    with RawConnection(strict) as connection:
        assert int(ask(connection, ["wanted"], may_create=True).topics[0].error_code) == 3


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "ä", "x" * 250, "a/b", "a\x00b"])
def test_illegal_names_are_refused_each_for_itself(broker: BrokerProcess, name: str) -> None:
    topic = create(broker, f"legal-{abs(hash(name)) % 10**9}")
    with RawConnection(broker) as connection:
        answer = ask(connection, [name, topic], may_create=True)
        assert [int(each.error_code) for each in answer.topics] == [17, 0]
        assert connection.produce(name, batch()).error_code == 17


def test_topic_ids_find_topics_and_change_with_each_incarnation(broker: BrokerProcess) -> None:
    with RawConnection(broker) as connection:
        namespace = messages.request(METADATA, 12)

        def by_id(topic_id: UUID):  # type: ignore[no-untyped-def]
            asked = namespace.MetadataRequestTopic(topic_id=topic_id, name=None)
            return connection.ask(
                METADATA, 12, namespace.MetadataRequest(topics=[asked], include_topic_authorized_operations=False)
            ).topics[0]

        create(broker, "reborn")
        first = ask(connection, ["reborn"], version=12).topics[0].topic_id
        assert by_id(first).name == "reborn"
        connection.produce("reborn", batch([b"of the first life"]))
        admin(broker).delete_topics(["reborn"])["reborn"].result(30)
        assert int(by_id(first).error_code) == 100
        create(broker, "reborn")
        second = ask(connection, ["reborn"], version=12).topics[0].topic_id
        assert second not in (None, first)
        assert connection.fetch("reborn", 0).high_watermark == 0


def test_the_offsets_topic_is_listed_as_internal_and_closed_to_clients(broker: BrokerProcess) -> None:
    with RawConnection(broker) as connection:
        found = {each.name: each for each in ask(connection, None).topics}["__consumer_offsets"]
        assert found.is_internal
        assert len(found.partitions) == 50
        assert connection.produce("__consumer_offsets", batch()).error_code == 17


def test_the_advertised_address_is_what_clients_are_told(make_broker) -> None:  # type: ignore[no-untyped-def]
    process = make_broker("--advertise", "localhost:12345").start()
    with RawConnection(process) as connection:
        assert [(each.host, each.port) for each in ask(connection, []).brokers] == [("localhost", 12345)]


# CreateTopics and its siblings


def code_of(future) -> int:  # type: ignore[no-untyped-def]
    with pytest.raises(KafkaException) as caught:
        future.result(30)
    return int(caught.value.args[0].code())


def test_minus_1_takes_the_brokers_defaults(broker: BrokerProcess) -> None:
    admin(broker).create_topics([NewTopic("defaults", -1, -1)])["defaults"].result(30)
    with RawConnection(broker) as connection:
        assert len(ask(connection, ["defaults"]).topics[0].partitions) == 1


def test_validate_only_creates_nothing(broker: BrokerProcess) -> None:
    admin(broker).create_topics([NewTopic("validated", 2)], validate_only=True)["validated"].result(30)
    with RawConnection(broker) as connection:
        assert int(ask(connection, ["validated"]).topics[0].error_code) == 3


@pytest.mark.parametrize(
    ("new", "code"),
    [
        (NewTopic("exists", 1), 36),
        (NewTopic("bad name", 1), 17),
        (NewTopic("none", 0), 37),
        (NewTopic("many", 50_000), 37),
        (NewTopic("replicated", 1, 3), 38),
        (NewTopic("unknown-config", 1, config={"no.such.config": "1"}), 40),
        (NewTopic("bad-config", 1, config={"retention.ms": "soon"}), 40),
        (NewTopic("assigned", 1, replica_assignment=[[7]]), 39),
    ],
)
def test_topics_that_cannot_be_are_refused_with_their_code(broker: BrokerProcess, new: NewTopic, code: int) -> None:
    with RawConnection(broker) as connection:
        if int(ask(connection, ["exists"]).topics[0].error_code):
            create(broker, "exists")
    assert code_of(admin(broker).create_topics([new])[new.topic]) == code


def test_a_partition_that_is_assigned_twice_is_refused_as_by_kafka(broker: BrokerProcess) -> None:
    """Whose replicas it gets would be a matter of luck."""
    make = messages.request(19, 5)
    assigned = [make.CreatableReplicaAssignment(partition_index=each, broker_ids=[1]) for each in (0, 1, 1)]
    topic = make.CreatableTopic(
        name="assigned-twice", num_partitions=-1, replication_factor=-1, assignments=assigned, configs=[]
    )
    with RawConnection(broker) as connection:
        request = make.CreateTopicsRequest(topics=[topic], timeout=1000, validate_only=False)
        assert [int(each.error_code) for each in connection.ask(19, 5, request).topics] == [39]


def test_topics_with_more_partitions_together_than_a_request_may_have_are_refused_as_by_kafka(
    broker: BrokerProcess,
) -> None:
    """And one that is too large by itself is refused alone."""
    with RawConnection(broker) as connection:
        assert codes_of_new(connection, [100] * 100) == [0] * 100
        assert codes_of_new(connection, [100] * 100 + [1]) == [44] * 101
        assert codes_of_new(connection, [50_000, 10_000]) == [37, 0]


def codes_of_new(connection: RawConnection, counts: Sequence[int]) -> list[int]:
    """The codes of new topics with so many partitions, which are not made."""
    make = messages.request(19, 5)
    topics = [
        make.CreatableTopic(
            name=f"of-one-request-{number}", num_partitions=count, replication_factor=-1, assignments=[], configs=[]
        )
        for number, count in enumerate(counts)
    ]
    request = make.CreateTopicsRequest(topics=topics, timeout=1000, validate_only=True)
    return [int(topic.error_code) for topic in connection.ask(19, 5, request).topics]


def test_a_topic_that_exists_is_refused_in_kafkas_words(broker: BrokerProcess) -> None:
    """Some clients look for them."""
    create(broker, "there")
    with pytest.raises(KafkaException, match=re.escape("Topic 'there' already exists.")):
        admin(broker).create_topics([NewTopic("there", 1)])["there"].result(30)


def test_a_topic_without_a_cleanup_policy_is_created_altered_and_described(broker: BrokerProcess) -> None:
    resource = ConfigResource(ResourceType.TOPIC, create(broker, "no-policy", cleanup_policy=""))
    assert told(described(broker, resource)["cleanup.policy"]) == ("", 1)
    for policy in ("compact", ""):
        change = ConfigResource(ResourceType.TOPIC, "no-policy", {"cleanup.policy": policy})
        admin(broker).alter_configs([change])[change].result(30)
        assert told(described(broker, resource)["cleanup.policy"]) == (policy, 1)


def test_create_topics_answers_the_effective_configs_and_the_id(broker: BrokerProcess) -> None:
    with RawConnection(broker) as connection:
        namespace = messages.request(19, 7)
        config = namespace.CreatableTopicConfig(name="retention.ms", value="1234567")
        topic = namespace.CreatableTopic(
            name="answered", num_partitions=3, replication_factor=1, assignments=[], configs=[config]
        )
        request = namespace.CreateTopicsRequest(topics=[topic], timeout=1000, validate_only=False)
        found = connection.ask(19, 7, request).topics[0]
        assert (int(found.error_code), found.num_partitions, found.replication_factor) == (0, 3, 1)
        assert found.topic_id is not None
        assert {each.name: each.value for each in found.configs}["retention.ms"] == "1234567"


def test_partitions_grow_and_never_shrink(broker: BrokerProcess) -> None:
    topic = create(broker, "grows", partitions=2)
    admin(broker).create_partitions([NewPartitions(topic, 5)])[topic].result(30)
    with RawConnection(broker) as connection:
        assert len(ask(connection, [topic]).topics[0].partitions) == 5
        assert connection.produce(topic, batch(), partition=4).error_code == 0
    assert code_of(admin(broker).create_partitions([NewPartitions(topic, 5)])[topic]) == 37
    assert code_of(admin(broker).create_partitions([NewPartitions("missing", 5)])["missing"]) == 3


def described(broker: BrokerProcess, resource: ConfigResource) -> dict[str, ConfigEntry]:
    found: dict[str, ConfigEntry] = admin(broker).describe_configs([resource])[resource].result(30)
    return found


def told(entry: ConfigEntry) -> tuple[str | None, object]:
    """Its value and its source: a number, although the client's types promise a `ConfigSource`."""
    return entry.value, entry.source


def test_configs_show_real_values_sources_and_defaults(broker: BrokerProcess) -> None:
    topic = create(broker, "configs", cleanup_policy="compact", retention_ms=99_000)
    found = described(broker, ConfigResource(ResourceType.TOPIC, topic))
    assert told(found["cleanup.policy"]) == ("compact", 1)
    assert (found["retention.ms"].value, found["retention.ms"].is_default) == ("99000", False)
    assert told(found["segment.bytes"]) == (str(1 << 30), 5)
    assert found["segment.bytes"].is_default
    assert "log.segment.bytes" in found["segment.bytes"].synonyms
    broker_configs = described(broker, ConfigResource(ResourceType.BROKER, "1"))
    assert broker_configs["num.partitions"].value == "1"
    with pytest.raises(KafkaException):
        described(broker, ConfigResource(ResourceType.TOPIC, "missing"))


def test_configs_that_kafka_has_not_are_told_as_read_only_and_can_be_changed(broker: BrokerProcess) -> None:
    resource = ConfigResource(ResourceType.TOPIC, create(broker, "copied", tiered_chunk_bytes=65_536))
    ours = {entry.name for entry in TOPIC_SETTINGS.values() if not entry.is_kafkas}
    found = described(broker, resource)
    assert {name for name, each in found.items() if each.is_read_only} == ours
    assert told(found["tiered.chunk.bytes"]) == ("65536", 1)
    change = ConfigResource(ResourceType.TOPIC, "copied", {"tiered.purge.grace.ms": "5"})
    admin(broker).alter_configs([change])[change].result(30)
    assert told(described(broker, resource)["tiered.purge.grace.ms"]) == ("5", 1)


def test_configs_change_at_run_time_all_or_nothing_and_survive_a_restart(make_broker) -> None:  # type: ignore[no-untyped-def]
    process = make_broker().start()
    topic = create(process, "altered", retention_ms=1000)
    resource = ConfigResource(ResourceType.TOPIC, topic)
    resource.add_incremental_config(
        ConfigEntry("max.message.bytes", "2000", incremental_operation=AlterConfigOpType.SET)
    )
    resource.add_incremental_config(ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE))
    resource.add_incremental_config(
        ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND)
    )
    admin(process).incremental_alter_configs([resource])[resource].result(30)

    bad = ConfigResource(ResourceType.TOPIC, topic)
    bad.add_incremental_config(ConfigEntry("segment.ms", "77", incremental_operation=AlterConfigOpType.SET))
    bad.add_incremental_config(ConfigEntry("segment.bytes", "tiny", incremental_operation=AlterConfigOpType.SET))
    assert code_of(admin(process).incremental_alter_configs([bad])[bad]) == 40

    for _ in range(2):
        found = described(process, ConfigResource(ResourceType.TOPIC, topic))
        assert found["max.message.bytes"].value == "2000"
        assert found["retention.ms"].is_default
        assert found["cleanup.policy"].value == "delete,compact"
        assert found["segment.ms"].is_default
        with RawConnection(process) as connection:
            assert connection.produce(topic, batch([b"x" * 3000])).error_code == 10
        assert process.stop() == 0
        process.start()


def test_alter_configs_replaces_every_override(broker: BrokerProcess) -> None:
    topic = create(broker, "replaced", retention_ms=1000, segment_ms=5000)
    resource = ConfigResource(ResourceType.TOPIC, topic, set_config={"retention.ms": "2000"})
    admin(broker).alter_configs([resource])[resource].result(30)
    found = described(broker, ConfigResource(ResourceType.TOPIC, topic))
    assert found["retention.ms"].value == "2000"
    assert found["segment.ms"].is_default


def test_broker_defaults_change_at_run_time_and_reach_topics(make_broker) -> None:  # type: ignore[no-untyped-def]
    process = make_broker().start()
    topic = create(process, "inherits")
    resource = ConfigResource(ResourceType.BROKER, "1")
    resource.add_incremental_config(
        ConfigEntry("message.max.bytes", "1500", incremental_operation=AlterConfigOpType.SET)
    )
    admin(process).incremental_alter_configs([resource])[resource].result(30)
    process.kill()
    process.start()
    with RawConnection(process) as connection:
        assert connection.produce(topic, batch([b"x" * 2000])).error_code == 10
    assert described(process, ConfigResource(ResourceType.TOPIC, topic))["max.message.bytes"].value == "1500"


SET, DELETE = 0, 1


def altered(broker: BrokerProcess, name: str, operation: int, **values: str | None) -> tuple[int, str | None]:
    """The answer to one request for one broker, or for all of them (`name` is empty, which librdkafka does not ask)."""
    namespace = messages.request(44, 1)
    configs = [
        namespace.AlterableConfig(name=each.replace("_", "."), config_operation=operation, value=value)
        for each, value in values.items()
    ]
    asked = namespace.AlterConfigsResource(resource_type=4, resource_name=name, configs=configs)
    with RawConnection(broker) as connection:
        request = namespace.IncrementalAlterConfigsRequest(resources=[asked], validate_only=False)
        answer = connection.ask(44, 1, request).responses[0]
    return int(answer.error_code), answer.error_message


def of_all_brokers(broker: BrokerProcess) -> dict[str, str | None]:
    namespace = messages.request(32, 4)
    asked = namespace.DescribeConfigsResource(resource_type=4, resource_name="", configuration_keys=None)
    request = namespace.DescribeConfigsRequest(resources=[asked], include_synonyms=True, include_documentation=True)
    with RawConnection(broker) as connection:
        (found,) = connection.ask(32, 4, request).results
    return {each.name: each.value for each in found.configs}


def test_a_reassignment_sets_and_removes_its_three_throttles_in_one_request(broker: BrokerProcess) -> None:
    rates = {
        "leader_replication_throttled_rate": "1000",
        "follower_replication_throttled_rate": "1000",
        "replica_alter_log_dirs_io_max_bytes_per_second": "1000",
    }
    names = [each.replace("_", ".") for each in rates]
    for name in ("1", ""):
        assert altered(broker, name, SET, **rates) == (0, None)
        found = described(broker, ConfigResource(ResourceType.BROKER, "1"))
        assert [told(found[each]) for each in names] == [("1000", 2 if name else 3)] * 3
        assert of_all_brokers(broker) == ({} if name else dict.fromkeys(names, "1000"))
        for _ in range(2):
            assert altered(broker, name, DELETE, **dict.fromkeys(rates)) == (0, None)
    assert of_all_brokers(broker) == {}
    found = described(broker, ConfigResource(ResourceType.BROKER, "1"))
    assert all(found[each].is_default and not found[each].is_read_only for each in names)


def test_settings_without_effect_and_unknown_ones_are_kept_as_kafka_keeps_them(make_broker) -> None:  # type: ignore[no-untyped-def]
    process = make_broker("--set", "my.plugin=secret", "--set", "log.cleaner.threads=2").start()
    assert altered(process, "1", SET, num_network_threads="5", my_dynamic_plugin="secret") == (0, None)
    assert of_all_brokers(process) == {}
    altered(process, "", SET, background_threads="6", num_io_threads="3", num_replica_fetchers="2")
    process.kill()
    process.start()
    found = described(process, ConfigResource(ResourceType.BROKER, "1"))
    shown = ("num.network.threads", "background.threads", "num.io.threads", "num.replica.fetchers")
    assert [told(found[each]) for each in shown] == [("5", 2), ("6", 3), ("3", 3), ("2", 3)]
    assert told(found["log.cleaner.threads"]) == ("2", 4)
    hidden = [found[each] for each in ("my.plugin", "my.dynamic.plugin")]
    assert [(told(each), each.is_sensitive) for each in hidden] == [((None, 4), True), ((None, 2), True)]
    assert altered(process, "1", SET, background_threads="few")[0] == 40
    words = "Cannot update these configs dynamically: socket.request.max.bytes"
    assert altered(process, "1", SET, socket_request_max_bytes="5000", num_network_threads="7") == (42, words)
    assert described(process, ConfigResource(ResourceType.BROKER, "1"))["num.network.threads"].value == "5"
    assert "unknown broker setting 'my.plugin' has no effect" in process.log()
    assert "without effect here: log.cleaner.threads" in process.log()


def test_describe_cluster_and_log_dirs(broker: BrokerProcess) -> None:
    topic = create(broker, "sized")
    with RawConnection(broker) as connection:
        connection.produce(topic, batch([b"x" * 1000]))
        namespace = messages.request(60, 1)
        answer = connection.ask(
            60, 1, namespace.DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=1)
        )
        assert [(each.broker_id, each.port) for each in answer.brokers] == [(1, broker.kafka_port)]
        assert answer.cluster_id
        namespace = messages.request(35, 4)
        wanted = [namespace.DescribableLogDirTopic(topic=topic, partitions=[0])]
        answer = connection.ask(35, 4, namespace.DescribeLogDirsRequest(topics=wanted))
        result = answer.results[0]
        assert result.topics[0].partitions[0].partition_size > 1000
        assert result.total_bytes > result.usable_bytes > 0


def test_a_broker_without_a_rack_tells_none_in_metadata_describe_cluster_and_its_configs(broker: BrokerProcess) -> None:
    namespace = messages.request(60, 1)
    with RawConnection(broker) as connection:
        answer = connection.ask(
            60, 1, namespace.DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=1)
        )
        assert [each.rack for each in (*ask(connection, []).brokers, *answer.brokers)] == [None, None]
    assert described(broker, ConfigResource(ResourceType.BROKER, "1"))["broker.rack"].value is None


def test_delete_records_moves_the_start_for_good(make_broker) -> None:  # type: ignore[no-untyped-def]
    process = make_broker().start()
    create(process, "shortened")
    with RawConnection(process) as connection:
        for _ in range(10):
            connection.produce("shortened", batch([b"v"] * 3))

        def delete_before(offset: int) -> tuple[int, int]:
            namespace = messages.request(21, 2)
            partition = namespace.DeleteRecordsPartition(partition_index=0, offset=offset)
            wanted = namespace.DeleteRecordsTopic(name="shortened", partitions=[partition])
            found = connection.ask(21, 2, namespace.DeleteRecordsRequest(topics=[wanted], timeout=1000))
            result = found.topics[0].partitions[0]
            return int(result.error_code), result.low_watermark

        assert delete_before(31) == (1, -1)
        assert delete_before(7) == (0, 7)
        assert delete_before(3) == (0, 7)
        assert connection.fetch("shortened", 6).error_code == 1
        assert connection.fetch("shortened", 7).error_code == 0
    process.kill()
    process.start()
    with RawConnection(process) as connection:
        assert connection.fetch("shortened", 6).error_code == 1
        assert connection.fetch("shortened", 7).log_start_offset == 7


def test_find_coordinator_names_this_broker_in_every_version(broker: BrokerProcess) -> None:
    with RawConnection(broker) as connection:
        for version in range(7):
            namespace = messages.request(10, version)
            request = namespace.FindCoordinatorRequest(key="g", key_type=0, coordinator_keys=["g"])
            answer = connection.ask(10, version, request)
            found = answer.coordinators[0] if version >= 4 else answer
            assert (int(found.error_code), found.port) == (0, broker.kafka_port)
