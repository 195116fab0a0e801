"""`tiered groups config`: the configs of one group, shown and changed."""

import argparse

from tiered.cli.client.cluster import run_with_cluster
from tiered.cli.configs import DEFAULT_SOURCE, config_changes, configs_of, set_configs, source_of
from tiered.cli.output import print_json, print_table
from tiered.peer import Cluster
from tiered.peer.topic_admin import GROUP_RESOURCE


def run(arguments: argparse.Namespace) -> int:
    """Changes what is to be changed, then shows every config: those that were set first."""
    group, changes = arguments.group, config_changes(arguments)

    async def act(cluster: Cluster) -> None:
        if changes:
            await set_configs(cluster, group, changes, resource_type=GROUP_RESOURCE)
        configs = await configs_of(cluster, group, resource_type=GROUP_RESOURCE)
        found = [
            {"name": each.name, "value": each.value or "", "source": source_of(each)}
            for each in sorted(configs, key=lambda each: bool(each.config_source == DEFAULT_SOURCE))
        ]
        if arguments.json:
            print_json({"group": group, "configs": found})
        else:
            print_table("CONFIG VALUE SET-BY", [list(each.values()) for each in found])

    return run_with_cluster(arguments, act)
