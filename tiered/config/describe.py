"""The answer of DescribeConfigs about settings: effective values, their sources, and their synonyms.

Owns the order of synonyms (KIP-226). Never holds a value of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tiered.config.broker import BROKER_SETTINGS, BrokerSettings, broker_setting
from tiered.config.client_metrics import CLIENT_METRICS_SETTINGS
from tiered.config.group import GROUP_SETTINGS
from tiered.config.setting import ConfigSource, ConfigType, ConfigValue, Setting, known
from tiered.config.topic import KIND, TOPIC_SETTINGS, broker_default

NO_EFFECT = "without effect"
"""What the documentation says of a setting that does nothing here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigSynonym:
    """One place that could give, or gives, a setting its value."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """One setting as DescribeConfigs shows it. `synonyms` begins with the one that gives the value."""

    name: str
    value: str | None
    source: ConfigSource
    is_default: bool
    is_sensitive: bool
    read_only: bool
    type: ConfigType
    documentation: str
    has_effect: bool
    allowed: tuple[str, ...]
    synonyms: tuple[ConfigSynonym, ...]


def describe_topic(overrides: Mapping[str, str], broker: BrokerSettings) -> list[ConfigEntry]:
    """Every config of a topic, by name; raises InvalidConfig if `overrides` holds one that is unknown."""
    for name in overrides:
        known(TOPIC_SETTINGS, name, kind=KIND)
    return [
        _overridable(entry, overrides, broker, source=ConfigSource.DYNAMIC_TOPIC) for entry in TOPIC_SETTINGS.values()
    ]


def for_clients(topic_configs: Sequence[ConfigEntry]) -> list[ConfigEntry]:
    """A topic's configs as Kafka's clients are told them: those that Kafka has not are read-only, and can be changed.

    MirrorMaker copies what is not read-only, and Kafka refuses all that is copied for one name that it does not know.
    """
    return [
        entry if TOPIC_SETTINGS[entry.name].is_kafkas else replace(entry, read_only=True) for entry in topic_configs
    ]


def describe_group(overrides: Mapping[str, str], broker: BrokerSettings) -> list[ConfigEntry]:
    """Every config of a group, by name, whether there is such a group or not."""
    return [
        _overridable(entry, overrides, broker, source=ConfigSource.DYNAMIC_GROUP) for entry in GROUP_SETTINGS.values()
    ]


def describe_client_metrics(overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """Every config of a subscription to clients' metrics, by name, whether there is such a one or not."""
    source = ConfigSource.DYNAMIC_CLIENT_METRICS
    return [
        _overridable(entry, overrides, BrokerSettings(), source=source) for entry in CLIENT_METRICS_SETTINGS.values()
    ]


def describe_broker(broker: BrokerSettings, facts: Mapping[str, str | None] | None = None) -> list[ConfigEntry]:
    """Every setting of a broker, by name: those that have a name of their own, others that it was given, and `facts`
    that were fixed at its start (`broker.id`, `listeners`)."""
    facts = facts or {}
    names = {*BROKER_SETTINGS, *broker.static, *broker.dynamic_default, *broker.dynamic, *facts}
    return [
        _fact(name, facts[name]) if name in facts else _broker_entry(broker_setting(name), broker)
        for name in sorted(names)
    ]


def describe_dynamic_default(broker: BrokerSettings) -> list[ConfigEntry]:
    """Only what was set for all brokers at run time: the answer for the broker resource with an empty name."""
    source = ConfigSource.DYNAMIC_DEFAULT_BROKER
    described = []
    for name, text in sorted(broker.dynamic_default.items()):
        entry = _broker_entry(broker_setting(name), broker)
        synonyms = tuple(each for each in entry.synonyms if each.source is source)
        value = None if entry.is_sensitive else broker_setting(name).text_of(broker_setting(name).parse(text))
        described.append(replace(entry, value=value, source=source, is_default=False, synonyms=synonyms))
    return described


def _overridable(
    entry: Setting, overrides: Mapping[str, str], broker: BrokerSettings, *, source: ConfigSource
) -> ConfigEntry:
    """A setting of something that `overrides` may have been given at run time, by `source`."""
    chain: list[tuple[str, ConfigValue, ConfigSource]] = []
    if entry.name in overrides:
        chain.append((entry.name, entry.parse(overrides[entry.name]), source))
    # The effective value is in its own unit; synonyms are shown as they were written, in their own.
    effective = chain[0][1] if chain else broker_default(entry, broker)
    for synonym in entry.synonyms:
        chain.extend((synonym.name, layer.value, layer.source) for layer in broker.explicit(synonym.name))
    for synonym in entry.synonyms:
        default = BROKER_SETTINGS[synonym.name].default
        if default is not None:
            chain.append((synonym.name, default, ConfigSource.DEFAULT))
    if not entry.synonyms:
        chain.append((entry.name, entry.default, ConfigSource.DEFAULT))
    return _entry(entry, effective, chain, read_only=False)


def _broker_entry(entry: Setting, broker: BrokerSettings) -> ConfigEntry:
    chain = [(entry.name, layer.value, layer.source) for layer in broker.explicit(entry.name)]
    effective = chain[0][1] if chain else entry.default
    if entry.default is not None:
        chain.append((entry.name, entry.default, ConfigSource.DEFAULT))
    return _entry(entry, effective, chain, read_only=entry.read_only)


def _entry(
    entry: Setting, effective: ConfigValue, chain: list[tuple[str, ConfigValue, ConfigSource]], *, read_only: bool
) -> ConfigEntry:
    secret = entry.is_sensitive
    source = chain[0][2] if chain else ConfigSource.DEFAULT
    return ConfigEntry(
        name=entry.name,
        value=None if secret else entry.text_of(effective),
        source=source,
        is_default=source is ConfigSource.DEFAULT,
        is_sensitive=secret,
        read_only=read_only,
        type=entry.type,
        documentation=entry.documentation if entry.has_effect else _told(entry.documentation),
        has_effect=entry.has_effect,
        allowed=entry.allowed,
        synonyms=tuple(
            ConfigSynonym(name=name, value=None if secret else entry.text_of(value), source=where)
            for name, value, where in chain
        ),
    )


def _told(documentation: str) -> str:
    """With the words by which whoever reads Kafka's protocol, which has no other place for it, can tell."""
    return documentation if NO_EFFECT in documentation else f"{documentation[:-1]}, {NO_EFFECT} here."


def _fact(name: str, value: str | None) -> ConfigEntry:
    entry = Setting(name=name, type=ConfigType.STRING, default=None, documentation="Fixed when the broker started.")
    return _entry(entry, value, [(name, value, ConfigSource.STATIC_BROKER)], read_only=True)
