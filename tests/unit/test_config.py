"""Settings: Kafka's names and defaults, refusals that name what is wrong, precedence and sources."""

import pytest

from tiered.config import (
    BROKER_SETTINGS,
    TOPIC_SETTINGS,
    BrokerSettings,
    ConfigChange,
    ConfigOperation,
    ConfigSource,
    ConfigType,
    TopicConfig,
    changed,
    describe_broker,
    describe_dynamic_default,
    describe_topic,
    for_clients,
)
from tiered.config.describe import ConfigEntry
from tiered.config.setting import as_java_writes
from tiered.errors import InvalidConfig

# Kafka 4.2's defaults, as `kafka-configs --describe --all` prints them. Ours differ where the design says so.
KAFKA_TOPIC_DEFAULTS = {
    "cleanup.policy": "delete",
    "compression.gzip.level": "-1",
    "compression.lz4.level": "9",
    "compression.type": "producer",
    "compression.zstd.level": "3",
    "delete.retention.ms": "86400000",
    "file.delete.delay.ms": "60000",
    "flush.messages": "9223372036854775807",
    "flush.ms": "9223372036854775807",
    "follower.replication.throttled.replicas": "",
    "index.interval.bytes": "4096",
    "leader.replication.throttled.replicas": "",
    "local.retention.bytes": "-2",
    "local.retention.ms": "-2",
    "max.compaction.lag.ms": "9223372036854775807",
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "preallocate": "false",
    "remote.log.copy.disable": "false",
    "remote.log.delete.on.disable": "false",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}

DEFAULTS = BrokerSettings()


def described(overrides: dict[str, str], broker: BrokerSettings = DEFAULTS) -> dict[str, ConfigEntry]:
    return {entry.name: entry for entry in describe_topic(overrides, broker)}


def test_every_kafka_topic_config_is_known_with_kafkas_default() -> None:
    values = {entry.name: entry.value for entry in describe_topic({}, DEFAULTS)}
    assert values | KAFKA_TOPIC_DEFAULTS == values


def test_what_mirrormaker_copies_are_configs_that_kafka_knows() -> None:
    """It copies what is not read-only, set or not: Kafka refuses a topic, and all its configs, for one it has not."""
    overrides = {name: TOPIC_SETTINGS[name].text_of(TOPIC_SETTINGS[name].default) or "" for name in TOPIC_SETTINGS}
    for told in ({}, overrides):
        copied = {entry.name for entry in for_clients(describe_topic(told, DEFAULTS)) if not entry.read_only}
        unknown = copied - KAFKA_TOPIC_DEFAULTS.keys() - {"remote.storage.enable"}
        assert not unknown, (
            f"Kafka 4.2 has no such config: give its field in config/topic.py is_kafkas=False: {unknown}"
        )
        assert copied == KAFKA_TOPIC_DEFAULTS.keys() | {"remote.storage.enable"}, (
            "is_kafkas=False on a config of Kafka's"
        )


def test_topics_are_tiered_unless_told_otherwise() -> None:
    assert TopicConfig().remote_storage_enable is True


def test_every_setting_has_documentation_and_a_default_that_its_own_bounds_allow() -> None:
    for entry in [*TOPIC_SETTINGS.values(), *BROKER_SETTINGS.values()]:
        assert entry.documentation.endswith("."), f"the documentation of {entry.name} needs a full stop"
        text = entry.text_of(entry.default)
        if text is not None:
            assert entry.parse(text) == entry.default, entry.name


def test_every_synonym_is_a_broker_setting_of_the_same_type_family() -> None:
    for entry in TOPIC_SETTINGS.values():
        for synonym in entry.synonyms:
            theirs = BROKER_SETTINGS[synonym.name]
            whole = {ConfigType.INT, ConfigType.LONG}
            assert theirs.type is entry.type or {theirs.type, entry.type} <= whole, entry.name


def test_topic_defaults_and_broker_defaults_agree() -> None:
    for entry in TOPIC_SETTINGS.values():
        for synonym in entry.synonyms:
            theirs = BROKER_SETTINGS[synonym.name]
            if theirs.default is not None and theirs.default != entry.default:
                assert isinstance(theirs.default, int)
                assert theirs.default * synonym.multiplier == entry.default, entry.name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "-2"),
        ("retention.ms", "soon"),
        ("retention.ms", "1_000"),
        ("retention.ms", "9223372036854775808"),
        ("retention.ms", ""),
        ("segment.bytes", "2147483648"),
        ("segment.bytes", "13"),
        ("min.insync.replicas", "0"),
        ("min.cleanable.dirty.ratio", "1.5"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("cleanup.policy", "shred"),
        ("cleanup.policy", "delete,shred"),
        ("message.timestamp.type", "createtime"),
        ("preallocate", "yes"),
        ("tiered.chunk.bytes", "1"),
    ],
)
def test_a_value_out_of_range_is_refused_by_name_with_what_is_allowed(name: str, value: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        TopicConfig.of({name: value}, DEFAULTS)
    assert str(refused.value).startswith(f"{name}={value} is not allowed: it must be ")


def test_the_bounds_in_a_refusal_are_exact() -> None:
    with pytest.raises(InvalidConfig, match=r"a whole number from -1 to 9223372036854775807"):
        TopicConfig.of({"retention.ms": "x"}, DEFAULTS)


def test_an_unknown_config_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(InvalidConfig, match=r"unknown topic config 'retention.msec'; did you mean retention.ms\?"):
        TopicConfig.of({"retention.msec": "1"}, DEFAULTS)


def test_a_huge_value_is_not_repeated_in_full() -> None:
    with pytest.raises(InvalidConfig) as refused:
        TopicConfig.of({"retention.ms": "9" * 100_000}, DEFAULTS)
    assert len(str(refused.value)) < 400


def test_values_are_trimmed_and_booleans_ignore_case() -> None:
    config = TopicConfig.of(
        {"preallocate": " TRUE ", "retention.ms": " 5 ", "cleanup.policy": "compact, delete"}, DEFAULTS
    )
    assert (config.preallocate, config.retention_ms, config.cleanup_policy) == (True, 5, ("compact", "delete"))


def test_a_topic_may_neither_be_compacted_nor_lose_old_segments() -> None:
    config = TopicConfig.of({"cleanup.policy": ""}, DEFAULTS)
    assert (config.cleanup_policy, config.is_compacted, config.deletes_old_segments) == ((), False, False)


def test_local_retention_may_not_exceed_the_total() -> None:
    with pytest.raises(InvalidConfig, match=r"local.retention.ms=10 .* at most retention.ms=5"):
        TopicConfig.of({"local.retention.ms": "10", "retention.ms": "5"}, DEFAULTS)
    with pytest.raises(InvalidConfig, match=r"local.retention.bytes=-1"):
        TopicConfig.of({"local.retention.bytes": "-1", "retention.bytes": "5"}, DEFAULTS)
    assert TopicConfig.of({"local.retention.ms": "5", "retention.ms": "-1"}, DEFAULTS).effective_local_retention_ms == 5


def test_a_brokers_contradictory_defaults_do_not_refuse_topics() -> None:
    broker = BrokerSettings.of({"log.local.retention.ms": "10", "log.retention.ms": "5"})
    assert TopicConfig.of({"segment.ms": "7"}, broker).segment_ms == 7


def test_local_retention_follows_the_total_unless_set() -> None:
    config = TopicConfig.of({"retention.ms": "77", "retention.bytes": "88"}, DEFAULTS)
    assert (config.effective_local_retention_ms, config.effective_local_retention_bytes) == (77, 88)


def test_copy_lag_of_minus_one_means_the_local_retention() -> None:
    config = TopicConfig.of({"remote.copy.lag.ms": "-1", "local.retention.ms": "40"}, DEFAULTS)
    assert config.effective_remote_copy_lag_ms == 40
    with pytest.raises(InvalidConfig, match=r"remote.copy.lag.ms=41 "):
        TopicConfig.of({"remote.copy.lag.ms": "41", "local.retention.ms": "40"}, DEFAULTS)


@pytest.mark.parametrize(
    ("static", "retention_ms"),
    [
        ({}, 604_800_000),
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_the_finest_unit_that_the_broker_was_told_gives_the_default(static: dict[str, str], retention_ms: int) -> None:
    assert TopicConfig.of({}, BrokerSettings.of(static)).retention_ms == retention_ms


def test_layers_win_in_kafkas_order() -> None:
    broker = BrokerSettings.of(
        {"log.segment.bytes": "1000"},
        dynamic_default={"log.segment.bytes": "2000"},
        dynamic={"log.segment.bytes": "3000"},
    )
    entry = described({"segment.bytes": "4000"}, broker)["segment.bytes"]
    assert (entry.value, entry.source, entry.is_default) == ("4000", ConfigSource.DYNAMIC_TOPIC, False)
    assert [(each.name, each.value, each.source.name) for each in entry.synonyms] == [
        ("segment.bytes", "4000", "DYNAMIC_TOPIC"),
        ("log.segment.bytes", "3000", "DYNAMIC_BROKER"),
        ("log.segment.bytes", "2000", "DYNAMIC_DEFAULT_BROKER"),
        ("log.segment.bytes", "1000", "STATIC_BROKER"),
        ("log.segment.bytes", "1073741824", "DEFAULT"),
    ]
    assert TopicConfig.of({}, broker).segment_bytes == 3000


def test_a_default_is_described_as_one() -> None:
    entry = described({})["cleanup.policy"]
    assert (entry.value, entry.source, entry.is_default, entry.type) == (
        "delete",
        ConfigSource.DEFAULT,
        True,
        ConfigType.LIST,
    )
    assert [each.name for each in entry.synonyms] == ["log.cleanup.policy"]


def test_described_values_are_the_effective_ones() -> None:
    overrides = {"retention.ms": "5000", "cleanup.policy": "compact"}
    broker = BrokerSettings.of({"log.roll.hours": "3", "message.max.bytes": "99"})
    config = TopicConfig.of(overrides, broker)
    for entry in describe_topic(overrides, broker):
        value = getattr(config, entry.name.replace(".", "_"))
        assert entry.value == TOPIC_SETTINGS[entry.name].text_of(value), entry.name


def test_a_brokers_facts_are_described_beside_its_settings() -> None:
    entries = {entry.name: entry for entry in describe_broker(DEFAULTS, {"broker.id": "7"})}
    assert (entries["broker.id"].value, entries["broker.id"].read_only) == ("7", True)
    assert entries["num.partitions"].read_only is False
    assert entries["socket.request.max.bytes"].read_only is True
    assert entries["log.retention.ms"].value is None
    assert list(entries) == sorted(entries)


def test_the_cluster_wide_resource_shows_only_what_was_set_for_all() -> None:
    broker = BrokerSettings.of({"num.partitions": "2"}, dynamic_default={"message.max.bytes": "50"})
    assert [(entry.name, entry.value) for entry in describe_dynamic_default(broker)] == [("message.max.bytes", "50")]


def change(name: str, operation: ConfigOperation, value: str | None = None) -> ConfigChange:
    return ConfigChange(name=name, operation=operation, value=value)


def test_incremental_changes_apply_in_order_and_leave_the_original_alone() -> None:
    before = {"retention.ms": "5", "cleanup.policy": "delete"}
    after = changed(
        TOPIC_SETTINGS,
        before,
        [
            change("retention.ms", ConfigOperation.DELETE),
            change("segment.ms", ConfigOperation.SET, " 9 "),
            change("cleanup.policy", ConfigOperation.APPEND, "compact,delete"),
            change("cleanup.policy", ConfigOperation.SUBTRACT, "delete"),
        ],
        kind="topic config",
    )
    assert after == {"segment.ms": "9", "cleanup.policy": "compact"}
    assert before == {"retention.ms": "5", "cleanup.policy": "delete"}


@pytest.mark.parametrize(
    ("one", "message"),
    [
        (change("retention.ms", ConfigOperation.SET), "retention.ms needs a value"),
        (change("retention.ms", ConfigOperation.APPEND, "5"), "retention.ms is no list"),
        (change("retention.ms", ConfigOperation.SET, "x"), "retention.ms=x is not allowed"),
        (change("nope", ConfigOperation.DELETE), "unknown topic config 'nope'"),
        (change("cleanup.policy", ConfigOperation.APPEND, "shred"), "cleanup.policy=delete,shred is not allowed"),
        (change("leader.replication.throttled.replicas", ConfigOperation.SET, "é" * 16_384), "32768 bytes; 32767 are"),
        (
            change("leader.replication.throttled.replicas", ConfigOperation.APPEND, "0" * 32_768),
            "32768 bytes; 32767 are",
        ),
    ],
)
def test_an_impossible_change_is_refused_and_says_why(one: ConfigChange, message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        changed(TOPIC_SETTINGS, {}, [one], kind="topic config")


def test_a_text_with_a_zero_in_it_is_no_value_for_postgresql_keeps_none() -> None:
    with pytest.raises(InvalidConfig, match="throttled"):
        TopicConfig.of({"leader.replication.throttled.replicas": "a\0b"}, BrokerSettings())


@pytest.mark.parametrize(
    ("number", "text"),
    [
        *((0.0, "0.0"), (0.5, "0.5"), (1.0, "1.0"), (0.001, "0.001"), (9999999.999, "9999999.999"), (-12.25, "-12.25")),
        *((1e-4, "1.0E-4"), (9.999e-4, "9.999E-4"), (1e7, "1.0E7"), (12345678.0, "1.2345678E7"), (-1.5e10, "-1.5E10")),
        *((0.1 + 0.2, "0.30000000000000004"), (1e16, "1.0E16"), (1.7976931348623157e308, "1.7976931348623157E308")),
        *((2.2250738585072014e-308, "2.2250738585072014E-308"), (1e-30, "1.0E-30")),
    ],
)
def test_doubles_are_written_as_java_writes_them(number: float, text: str) -> None:
    """The texts are what Double.toString of Java 17 gives."""
    assert as_java_writes(number) == text
    assert float(text) == number


def test_a_double_is_described_as_kafka_describes_it() -> None:
    assert described({"min.cleanable.dirty.ratio": "0.00010"})["min.cleanable.dirty.ratio"].value == "1.0E-4"
