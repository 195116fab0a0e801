"""Configs of topics, groups and brokers: how people write them, and how a broker is asked about one's.

Owns KEY=VALUE and the words for where a value comes from. Must never judge a value: the broker does, and its reason is
shown.
"""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from tiered.cli.failure import CommandFailed, UsageError
from tiered.config.quantity import in_plain_units
from tiered.peer import Cluster
from tiered.peer.answers import the_only
from tiered.peer.topic_admin import TOPIC_RESOURCE, alter_configs, describe_configs
from tiered.wire.error_codes import reason

DEFAULT_SOURCE = 5
_SOURCES = {1: "topic", 2: "broker", 3: "cluster", 4: "broker's start", DEFAULT_SOURCE: "default", 8: "group"}


def source_of(config: Any) -> str:
    """The source of the value; its number, where a newer broker has a source that this version does not know."""
    return _SOURCES.get(config.config_source, str(config.config_source))


def config_pairs(texts: Sequence[str], option: str = "--config ") -> dict[str, str]:
    """The configs that repeated KEY=VALUE mean; raises InvalidConfig, and UsageError that begins with `option`."""
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"{option}{text!r} is not allowed: it must be KEY=VALUE")
        if name.strip() in pairs:
            raise UsageError(f"{option}{name.strip()} is given twice")
        pairs[name.strip()] = in_plain_units(name.strip(), value.strip())
    return pairs


def config_changes(arguments: argparse.Namespace) -> dict[str, str | None]:
    """The changes in `--config` and `--delete-config`; None resets a config to its default."""
    configs = config_pairs(arguments.config)
    if both := configs.keys() & set(arguments.delete_config):
        raise UsageError(f"{sorted(both)[0]} cannot be set and deleted at once")
    return configs | dict.fromkeys(arguments.delete_config)


async def set_configs(
    cluster: Cluster, name: str, changes: Mapping[str, str | None], *, failed: str | None = None, **of_what: Any
) -> None:
    """Changes configs of one resource; `of_what` is that of `alter_configs`. Raises CommandFailed after `failed`."""
    require_done(failed or name, await alter_configs(cluster, name, changes, **of_what))


async def configs_of(
    cluster: Cluster, name: str, *, resource_type: int = TOPIC_RESOURCE, failed: str | None = None, **how: Any
) -> list[Any]:
    """The configs of one resource by name; `how` is that of `describe_configs`. Raises CommandFailed."""
    results = await describe_configs(cluster, [name], resource_type=resource_type, **how)
    return sorted(require_done(failed or name, results).configs, key=lambda each: str(each.name))


def require_done(whom: str, results: Sequence[Any]) -> Any:
    """The one result. Raises CommandFailed with the broker's reason."""
    found = the_only(results, "resource")
    if found.error_code:
        raise CommandFailed(f"{whom}: {reason(found.error_code, found.error_message)}")
    return found
