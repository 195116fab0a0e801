"""`tiered groups config`: the configs of one group, shown and changed."""

import argparse

from tiered.cli.client.cluster import run_with_cluster
from tiered.cli.failure import CommandFailed, UsageError
from tiered.cli.output import print_json, print_table
from tiered.cli.topics.commands import config_pairs
from tiered.peer.answers import the_only
from tiered.peer.cluster import Cluster
from tiered.peer.topic_admin import GROUP_RESOURCE, alter_configs, describe_configs
from tiered.wire.error_codes import NONE, reason

_SOURCES = {8: "group", 2: "broker", 3: "cluster", 4: "broker's start", 5: "default"}


def run(arguments: argparse.Namespace) -> int:
    """Changes what is to be changed, then shows every config: those that were set first."""
    group, configs = arguments.group, config_pairs(arguments.config)
    if both := configs.keys() & set(arguments.delete_config):
        raise UsageError(f"{sorted(both)[0]} cannot be set and deleted at once")

    async def act(cluster: Cluster) -> None:
        changes = configs | dict.fromkeys(arguments.delete_config)
        if changes:
            altered = the_only(await alter_configs(cluster, group, changes, resource_type=GROUP_RESOURCE), "group")
            if altered.error_code != NONE:
                raise CommandFailed(f"{group}: {reason(altered.error_code, altered.error_message)}")
        found = await _configs(cluster, group)
        if arguments.json:
            print_json({"group": group, "configs": found})
        else:
            print_table("CONFIG VALUE SET-BY", [list(each.values()) for each in found])

    return run_with_cluster(arguments, act)


async def _configs(cluster: Cluster, group: str) -> list[dict[str, str]]:
    result = the_only(await describe_configs(cluster, [group], resource_type=GROUP_RESOURCE), "group")
    if result.error_code != NONE:
        raise CommandFailed(f"{group}: {reason(result.error_code, result.error_message)}")
    return [
        {"name": each.name, "value": each.value or "", "source": _SOURCES.get(each.config_source, "?")}
        for each in sorted(result.configs, key=lambda each: (each.config_source == 5, each.name))
    ]
