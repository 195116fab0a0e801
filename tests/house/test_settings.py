"""Each setting is read by the product, or says that it has no effect."""

import ast
from functools import cache
from pathlib import Path

import pytest

from tests.house.sources import parsed
from tiered.config.broker import BROKER_SETTINGS
from tiered.config.client_metrics import CLIENT_METRICS_SETTINGS
from tiered.config.group import GROUP_SETTINGS
from tiered.config.kafka_names import KAFKA_SETTINGS
from tiered.config.setting import Setting, field_name
from tiered.config.topic import TOPIC_SETTINGS

TIERED = Path(__file__).resolve().parents[2] / "tiered"
BOUNDS_OF_GROUPS = {
    f"group_consumer_{end}_{what}_ms" for end in ("min", "max") for what in ("heartbeat_interval", "session_timeout")
}
"""`config.group.check_group_config` puts these names together."""
DEFAULTS_OF = {
    synonym.name: setting
    for kind in (TOPIC_SETTINGS, GROUP_SETTINGS)
    for setting in kind.values()
    for synonym in setting.synonyms
}
ALL = {
    "broker": [each for each in BROKER_SETTINGS.values() if each.name not in KAFKA_SETTINGS],
    "topic": list(TOPIC_SETTINGS.values()),
    "group": list(GROUP_SETTINGS.values()),
    "client-metrics": list(CLIENT_METRICS_SETTINGS.values()),
}


@cache
def read() -> frozenset[str]:
    """Every attribute that the product reads."""
    trees = (parsed(path) for path in TIERED.rglob("*.py"))
    nodes = (node for tree in trees for node in ast.walk(tree))
    return frozenset(node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load))


def is_read(kind: str, setting: Setting) -> bool:
    """Its own field is read, or, where it is a default of a topic's or a group's config, that one is."""
    if kind == "broker" and (of := DEFAULTS_OF.get(setting.name)):
        return is_read("", of) or field_name(setting.name) in read()
    return field_name(setting.name) in read() | BOUNDS_OF_GROUPS


@pytest.mark.parametrize("kind", ALL)
def test_a_setting_has_an_effect_exactly_when_code_reads_it(kind: str) -> None:
    unread = {each.name for each in ALL[kind] if each.has_effect and not is_read(kind, each)}
    assert not unread, "nothing in tiered/ reads their fields; has_effect=False is for those that are there for Kafka"
    read_still = {each.name for each in ALL[kind] if not each.has_effect and is_read(kind, each)}
    assert not read_still, "code reads their fields: take has_effect=False from them"
