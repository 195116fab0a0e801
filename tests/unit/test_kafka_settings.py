"""All broker settings of Kafka 4.2 are known by name; what may be changed at run time, and what is said at start."""

from pathlib import Path

import pytest

from tiered.config import (
    BROKER_SETTINGS,
    BrokerSettings,
    ConfigChange,
    ConfigOperation,
    ConfigSource,
    ConfigType,
    changed_at_run_time,
    describe_broker,
    describe_dynamic_default,
)
from tiered.config.broker_changes import MAX_SETTINGS, start_warnings, without_effect
from tiered.config.describe import ConfigEntry
from tiered.errors import InvalidConfig, InvalidRequest

# As Kafka 4.2.0 tells them of itself, a line each: name, type, and whether they can be changed at run time.
KAFKA = [
    line.split() for line in (Path(__file__).parent / "kafka_4_2_broker_settings.txt").read_text().splitlines() if line
]
READ_AT_START = {
    "listeners",
    "listener.security.protocol.map",
    "sasl.enabled.mechanisms",
    "sasl.jaas.config",
    "sasl.mechanism.inter.broker.protocol",
}
"""Kafka can change these at run time, as it can those of ssl., and they are refused here."""
OF_ANOTHER_TYPE = {"max.connections.per.ip.overrides"}


def set_to(**values: str) -> list[ConfigChange]:
    return [named(name.replace("_", "."), value) for name, value in values.items()]


def named(name: str, value: str | None, operation: ConfigOperation = ConfigOperation.SET) -> ConfigChange:
    return ConfigChange(name=name, operation=operation, value=value)


def entry(name: str, settings: BrokerSettings) -> ConfigEntry:
    (found,) = (each for each in describe_broker(settings) if each.name == name)
    return found


def test_every_broker_setting_of_kafka_is_known_with_kafkas_type() -> None:
    assert len(KAFKA) == 344
    types = {name: BROKER_SETTINGS[name].type.name for name, _, _ in KAFKA}
    assert {name for name, kind, _ in KAFKA if types[name] != kind} == OF_ANOTHER_TYPE


def test_what_kafka_changes_at_run_time_is_changed_here_too_but_for_what_listeners_read() -> None:
    refused = {name for name, _, when in KAFKA if when == "dynamic" and BROKER_SETTINGS[name].read_only}
    assert {name for name in refused if not name.startswith("ssl.")} == READ_AT_START


def test_the_three_throttles_of_a_reassignment_are_removed_in_one_request() -> None:
    names = [f"{each}.replication.throttled.rate" for each in ("leader", "follower")]
    names.append("replica.alter.log.dirs.io.max.bytes.per.second")
    given = changed_at_run_time({}, [named(name, "1000") for name in names], for_all=False)
    assert given == dict.fromkeys(names, "1000")
    removed = [named(name, None, ConfigOperation.DELETE) for name in names]
    assert changed_at_run_time(given, removed, for_all=False) == {}
    assert changed_at_run_time({}, removed, for_all=False) == {}


def test_what_has_no_effect_is_kept_checked_and_described_as_such() -> None:
    settings = BrokerSettings.of(dynamic_default=changed_at_run_time({}, set_to(background_threads="7"), for_all=True))
    found = entry("background.threads", settings)
    assert (found.value, found.source, found.read_only) == ("7", ConfigSource.DYNAMIC_DEFAULT_BROKER, False)
    assert (found.has_effect, found.documentation) == (False, "Kafka's: accepted and kept, without effect here.")
    assert [each.name for each in describe_dynamic_default(settings)] == ["background.threads"]
    with pytest.raises(InvalidConfig, match=r"background.threads=few is not allowed: it must be a whole number from 1"):
        changed_at_run_time({}, set_to(background_threads="few"), for_all=False)
    with pytest.raises(InvalidConfig, match=r"background.threads=0 is not allowed"):
        BrokerSettings.of({"background.threads": "0"})


def test_names_that_nobody_knows_are_kept_and_their_values_are_not_shown() -> None:
    texts = changed_at_run_time({}, set_to(no_such_setting="secret"), for_all=False)
    settings = BrokerSettings.of({"my.plugin": "x"}, dynamic=texts)
    found = entry("no.such.setting", settings)
    assert (found.value, found.is_sensitive, found.type, found.has_effect) == (None, True, ConfigType.UNKNOWN, False)
    assert [each.value for each in found.synonyms] == [None]
    assert entry("my.plugin", settings).source is ConfigSource.STATIC_BROKER


@pytest.mark.parametrize("name", ["no such", "x" * 250, "", "a\nb", "ä"])
def test_a_name_that_could_not_be_told_from_others_is_none(name: str) -> None:
    with pytest.raises(InvalidConfig, match="no setting that is known"):
        changed_at_run_time({}, [named(name, "1")], for_all=False)


def test_settings_of_run_time_are_bounded() -> None:
    many = [named(f"mine.{number}", "1") for number in range(MAX_SETTINGS + 1)]
    assert len(changed_at_run_time({}, many[1:], for_all=False)) == MAX_SETTINGS
    with pytest.raises(InvalidConfig, match="1000 can be"):
        changed_at_run_time({}, many, for_all=False)
    with pytest.raises(InvalidConfig, match="10000 characters"):
        changed_at_run_time({}, [named("mine", "x" * 10_001)], for_all=False)


@pytest.mark.parametrize(
    "name",
    [
        "socket.request.max.bytes",
        "advertised.listeners",
        "node.id",
        "ssl.keystore.location",
        "listener.name.secure.ssl.client.auth",
        "listener.name.secure.sasl.enabled.mechanisms",
        "listener.name.secure.plain.sasl.jaas.config",
    ],
)
def test_what_is_read_at_start_alone_is_refused_in_kafkas_words(name: str) -> None:
    steps = [named(name, "1"), *set_to(num_partitions="2")]
    with pytest.raises(InvalidRequest, match=f"^Cannot update these configs dynamically: {name}$"):
        changed_at_run_time({}, steps, for_all=False)
    assert changed_at_run_time({}, [named(name, None, ConfigOperation.DELETE)], for_all=False) == {}


def test_what_each_broker_has_of_its_own_is_not_set_for_all() -> None:
    for name in ("sasl.kerberos.kinit.cmd", "listener.name.secure.num.partitions", "listener.name.secure.mine"):
        assert changed_at_run_time({}, [named(name, "3")], for_all=False) == {name: "3"}
        with pytest.raises(InvalidRequest, match=f"at default cluster level, broker id must be specified: {name}$"):
            changed_at_run_time({}, [named(name, "3")], for_all=True)
    assert changed_at_run_time({}, set_to(listener_name_secure_max_connections="3"), for_all=True)
    with pytest.raises(InvalidConfig, match=r"listener.name.secure.max.connections=many is not allowed"):
        changed_at_run_time({}, set_to(listener_name_secure_max_connections="many"), for_all=True)


def test_at_start_an_unknown_name_is_a_warning_with_the_nearest_one() -> None:
    static = {
        "num.partitons": "1",
        "background.threads": "3",
        "listener.name.secure.ssl.keystore.loction": "x",
        "listener.name.controller.ssl.client.auth": "none",
        "ssl.client.auth": "none",
        "x": "1",
    }
    assert BrokerSettings.of(static).topics.num_partitions == 1
    assert start_warnings(static, ["PLAIN", "SECURE"]) == [
        "listener.name.controller.ssl.client.auth is of no listener and has no effect: there is PLAIN, SECURE",
        "unknown broker setting 'listener.name.secure.ssl.keystore.loction' has no effect; "
        "did you mean listener.name.secure.ssl.keystore.location?",
        "unknown broker setting 'num.partitons' has no effect; did you mean num.partitions?",
        "unknown broker setting 'x' has no effect",
    ]
    assert without_effect(static) == ["background.threads"]
