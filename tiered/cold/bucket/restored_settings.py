"""The settings and configs of a bucket's checkpoint with which brokers would start.

Owns what of them is refused: by itself, or beside the others. Pure. Must never decide who is given rights: the plan of
the restore does.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from tiered.config import BrokerSettings, TopicConfig
from tiered.config.broker import BROKER_SETTINGS, broker_setting
from tiered.config.broker_changes import MAX_SETTINGS, taken_at_run_time
from tiered.config.client_metrics import CLIENT_METRICS_SETTINGS
from tiered.config.group import GROUP_SETTINGS
from tiered.config.setting import ConfigChange, ConfigOperation, changed, require_sendable
from tiered.errors import InvalidConfig
from tiered.formats.checkpoint import ClusterCheckpoint
from tiered.rules.segments.restore_plan import RestoredSettings

MAX_SCOPES: Final = 1000
"""All brokers together, and single ones."""
MAX_RESOURCE_NAME_CHARS: Final = 32 * 1024
_RESOURCES: Final = {"GROUP": GROUP_SETTINGS, "CLIENT_METRICS": CLIENT_METRICS_SETTINGS}

Texts = Mapping[str, str]


def restored_settings(cluster: ClusterCheckpoint) -> RestoredSettings:
    """All settings that come back, and the names of those that do not. At most `MAX_SETTINGS` come back for a scope, as
    brokers take them; those that have a name of their own go first."""
    taken: dict[str, dict[str, str]] = {}
    ignored: dict[str, tuple[str, ...]] = {}
    scopes = sorted(cluster.settings, key=lambda scope: (len(scope), scope))
    for number, scope in enumerate(scopes):
        texts = cluster.settings[scope]
        names = sorted(texts, key=lambda name: (name not in BROKER_SETTINGS, name))
        room = MAX_SETTINGS if number < MAX_SCOPES else 0
        _sort_out(scope, texts, names[:room], taken, ignored, taken_at_run_time)
        _ignore(scope, names[room:], ignored)
    resource_configs: dict[str, dict[str, str]] = {}
    for resource, texts in sorted(cluster.resource_configs.items()):
        _sort_out(resource, texts, sorted(texts), resource_configs, ignored, _is_resource_config)
    contradictory: dict[str, dict[str, str]] = {}
    for scope, own in taken.items():
        if refused := _contradictory(scope, own, taken.get("", {}), cluster):
            contradictory[scope] = refused
            taken[scope] = {name: text for name, text in own.items() if name not in refused}
    rights = {
        scope: {name: text for name, text in texts.items() if broker_setting(name).gives_rights}
        for scope, texts in taken.items()
    }
    return RestoredSettings(
        settings={
            scope: others
            for scope, texts in taken.items()
            if (others := {name: text for name, text in texts.items() if name not in rights[scope]})
        },
        giving_rights={scope: texts for scope, texts in rights.items() if texts},
        resource_configs=resource_configs,
        ignored={scope: tuple(sorted(names)) for scope, names in sorted(ignored.items())},
        contradictory=contradictory,
        topic_faults=_topic_faults(cluster, BrokerSettings.of(dynamic_default=taken.get("", {}))),
    )


def _sort_out(
    scope: str,
    texts: Texts,
    names: Iterable[str],
    taken: dict[str, dict[str, str]],
    ignored: dict[str, tuple[str, ...]],
    is_taken: Callable[[str, str, str], object],
) -> None:
    for name in names:
        if is_taken(scope, name, texts[name]):
            taken.setdefault(scope, {})[name] = texts[name]
        else:
            _ignore(scope, [name], ignored)


def _ignore(scope: str, names: Iterable[str], ignored: dict[str, tuple[str, ...]]) -> None:
    if names := tuple(names):
        ignored[scope] = (*ignored.get(scope, ()), *names)


def _is_resource_config(resource: str, name: str, text: str) -> bool:
    kind, _, owner = resource.partition(":")
    if not 0 < len(owner) <= MAX_RESOURCE_NAME_CHARS or "\0" in owner:
        return False
    change = ConfigChange(name=name, operation=ConfigOperation.SET, value=text)
    try:
        changed(_RESOURCES.get(kind, {}), {}, [change], kind="config")
    except InvalidConfig:
        return False
    return True


# What contradicts the rest


def _contradictory(scope: str, texts: Texts, of_all: Texts, cluster: ClusterCheckpoint) -> dict[str, str]:
    """The settings of this scope with which a broker would not start, for a topic's configs or for each other. The
    first ones stay. `of_all` are those of all brokers."""

    def faults(candidate: Texts) -> Mapping[str, str] | None:
        """The topics that would stop a start; None where the settings themselves would."""
        try:
            return _topic_faults(cluster, _broker_settings(scope, candidate, of_all))
        except InvalidConfig:
            return None

    if faults(texts) == {}:
        return {}
    kept: dict[str, str] = {}
    before = faults(kept) or {}
    for name, text in texts.items():
        after = faults({**kept, name: text})
        if after is not None and after.keys() <= before.keys():
            kept[name], before = text, after
    return {name: text for name, text in texts.items() if name not in kept}


def _broker_settings(scope: str, texts: Texts, of_all: Texts) -> BrokerSettings:
    if scope == "":
        return BrokerSettings.of(dynamic_default=texts)
    return BrokerSettings.of(dynamic_default=of_all, dynamic=texts)


def _topic_faults(cluster: ClusterCheckpoint, settings: BrokerSettings) -> dict[str, str]:
    """Topics with whose configs no broker would start, and why, by their names."""
    faults = {}
    for topic in cluster.topics:
        if not topic.configs:
            continue
        try:
            TopicConfig.of(topic.configs, settings)
            for name, text in topic.configs.items():
                require_sendable(name, text)
        except InvalidConfig as error:
            faults[topic.name] = str(error)
    return faults
