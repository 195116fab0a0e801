"""`tiered brokers config show|set|delete`: settings of brokers, while they run.

Owns these commands' words. Everything is asked over the Kafka protocol, so it works for any Kafka broker; which
settings there are, the broker says.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tiered.cli.client.cluster import run_with_cluster, with_cluster
from tiered.cli.configs import DEFAULT_SOURCE, config_pairs, configs_of, set_configs, source_of
from tiered.cli.failure import CommandFailed
from tiered.cli.names import nearest_names
from tiered.cli.output import print_json, print_table, say
from tiered.config.describe import NO_EFFECT
from tiered.peer import Cluster
from tiered.peer.broker_admin import describe_cluster
from tiered.peer.topic_admin import BROKER_RESOURCE

_OF_ONE, _OF_ALL = 2, 3
_PREFIX = "listener.name."


@with_cluster
async def run_show(arguments: argparse.Namespace, cluster: Cluster) -> None:
    """`brokers config show`."""
    by_broker = {each: await _settings(cluster, each) for each in await _brokers(cluster, arguments.broker)}
    for settings in by_broker.values():
        _require_known(arguments.names, settings)
    chosen = _chosen(arguments)
    found = [(broker, each) for broker, settings in by_broker.items() for each in settings if chosen(each)]
    if arguments.json:
        print_json([{"broker": broker, **_fields(each)} for broker, each in found])
    elif found:
        _show(found, len(by_broker))
    else:
        say("every setting has its default; --all-configs shows them")


def run_set(arguments: argparse.Namespace) -> int:
    """`brokers config set`."""
    values = config_pairs(arguments.settings, option="")

    async def act(cluster: Cluster) -> None:
        (one, *_) = await _brokers(cluster, arguments.broker)
        known = await _settings(cluster, one)
        if not arguments.unknown:
            _require_known([name for name in values if not name.startswith(_PREFIX)], known)
        await _alter(cluster, arguments.broker, values, validate_only=arguments.validate_only)
        done = "could be set" if arguments.validate_only else "set"
        inert = {each.name for each in known if not _has_effect(each)}
        _report(arguments, values, done, inert)

    return run_with_cluster(arguments, act)


def run_delete(arguments: argparse.Namespace) -> int:
    """`brokers config delete`."""
    values: dict[str, str | None] = dict.fromkeys(arguments.names)

    async def act(cluster: Cluster) -> None:
        of = _OF_ALL if arguments.broker is None else _OF_ONE
        there = [each.name for each in await _settings(cluster, arguments.broker) if each.config_source == of]
        for name in values:
            if name not in there:
                raise CommandFailed(
                    f"{name} was not set for {_whom(arguments.broker)} while it ran{nearest_names(name, there)}; "
                    "`tiered brokers config show` tells where a value comes from"
                )
        await _alter(cluster, arguments.broker, values)
        _report(arguments, values, "taken back", ())

    return run_with_cluster(arguments, act)


async def _brokers(cluster: Cluster, broker_id: int | None) -> list[int]:
    """The one that is meant, or all in service."""
    known = (await describe_cluster(cluster)).brokers
    if broker_id is None:
        return sorted(each.broker_id for each in known.values() if not each.is_fenced)
    if broker_id not in known:
        raise CommandFailed(f"there is no broker {broker_id}; `tiered brokers list` shows those that there are")
    return [broker_id]


async def _settings(cluster: Cluster, broker_id: int | None) -> list[Any]:
    """All settings of one broker by name, or those that were set for all (None) while they run."""
    name, failed = _resource_name(broker_id), _whom(broker_id)
    return await configs_of(
        cluster, name, resource_type=BROKER_RESOURCE, failed=failed, documented=True, broker_id=broker_id
    )


async def _alter(
    cluster: Cluster, broker_id: int | None, values: Mapping[str, str | None], *, validate_only: bool = False
) -> None:
    await set_configs(
        cluster,
        _resource_name(broker_id),
        values,
        failed="nothing was changed",
        resource_type=BROKER_RESOURCE,
        validate_only=validate_only,
        broker_id=broker_id,
    )


def _resource_name(broker_id: int | None) -> str:
    return "" if broker_id is None else str(broker_id)


def _require_known(names: Sequence[str], settings: Sequence[Any]) -> None:
    there = {each.name for each in settings}
    for name in names:
        if name not in there:
            raise CommandFailed(f"there is no broker setting {name}{nearest_names(name, there)}")


def _chosen(arguments: argparse.Namespace) -> Callable[[Any], bool]:
    if arguments.names:
        return lambda each: each.name in arguments.names
    return lambda each: arguments.all_configs or each.config_source != DEFAULT_SOURCE


def _has_effect(each: Any) -> bool:
    return NO_EFFECT not in (each.documentation or "")


def _fields(each: Any) -> dict[str, Any]:
    return {
        "name": each.name,
        "value": each.value,
        "source": "all brokers" if each.config_source == _OF_ALL else source_of(each),
        "read_only": each.read_only,
        "sensitive": each.is_sensitive,
        "has_effect": _has_effect(each),
    }


def _show(found: Sequence[tuple[int, Any]], broker_count: int) -> None:
    """Settings that all brokers share stand there once."""
    alike: dict[tuple[str, ...], list[int]] = {}
    for broker, each in found:
        fields = _fields(each)
        value = "(hidden)" if each.is_sensitive else each.value or "-"
        notes = [] if fields["has_effect"] else ["no effect"]
        if each.read_only:
            notes.append("read at start")
        alike.setdefault((each.name, value, fields["source"], ", ".join(notes)), []).append(broker)
    rows = [
        [name, value, source, "all" if len(brokers) == broker_count else ",".join(map(str, brokers)), note]
        for (name, value, source, note), brokers in sorted(alike.items())
    ]
    print_table("KEY VALUE FROM BROKER NOTE", rows)


def _report(
    arguments: argparse.Namespace, values: Mapping[str, str | None], done: str, inert: Sequence[str] | set[str]
) -> None:
    if arguments.json:
        print_json({"broker": arguments.broker, "settings": dict(values), "error": None})
        return
    for name, value in values.items():
        note = "; it has no effect here" if name in inert else ""
        say(f"{name if value is None else f'{name}={value}'} {done} for {_whom(arguments.broker)}{note}")


def _whom(broker_id: int | None) -> str:
    return "all brokers" if broker_id is None else f"broker {broker_id}"
