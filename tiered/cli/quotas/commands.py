"""`tiered quotas list|set|remove`: what clients may use of each broker.

Owns these commands' words. Everything is asked over the Kafka protocol, so it works for any Kafka broker.
"""

import argparse
from collections.abc import Mapping

from tiered.cli.client.cluster import run_with_cluster, with_cluster
from tiered.cli.failure import UsageError
from tiered.cli.output import print_json, print_table, say
from tiered.cli.quotas.arguments import KINDS
from tiered.peer import Cluster
from tiered.peer.access_admin import Entity, alter_quotas, describe_quotas

_DEFAULT = "<default>"


@with_cluster
async def run_list(arguments: argparse.Namespace, cluster: Cluster) -> None:
    """`quotas list`."""
    found = await describe_quotas(cluster, _entity(arguments))
    if arguments.json:
        print_json([{"entity": dict(entity), "quotas": dict(values)} for entity, values in found])
        return
    rows = [
        [*(_name(entity, kind) for kind in KINDS), name, _number(value)]
        for entity, values in found
        for name, value in sorted(values.items())
    ]
    if rows:
        print_table("USER CLIENT-ID IP QUOTA >VALUE", sorted(rows))
    else:
        say("no quotas; `tiered quotas set` makes one")


def run_set(arguments: argparse.Namespace) -> int:
    """`quotas set`."""
    values = dict(arguments.quotas)
    if len(values) != len(arguments.quotas):
        raise UsageError("a quota stands twice; give each once")
    return _alter(arguments, values, "would be set" if arguments.validate_only else "set", arguments.validate_only)


def run_remove(arguments: argparse.Namespace) -> int:
    """`quotas remove`."""
    return _alter(arguments, dict.fromkeys(arguments.quotas), "removed", False)


def _alter(arguments: argparse.Namespace, values: Mapping[str, float | None], done: str, validate_only: bool) -> int:
    entity = _entity(arguments)
    if not entity:
        raise UsageError("say whose quotas: --user, --client-id, --ip, or the default of one of them")

    async def act(cluster: Cluster) -> None:
        await alter_quotas(cluster, entity, values, validate_only=validate_only)
        if arguments.json:
            print_json({"entity": dict(entity), "quotas": dict(values)})
        else:
            of_whom = ", ".join(f"{kind} {_name(entity, kind)}" for kind in entity)
            say(f"{', '.join(values)} of {of_whom} {done}")

    return run_with_cluster(arguments, act)


def _entity(arguments: argparse.Namespace) -> Entity:
    entity: dict[str, str | None] = {}
    for kind in KINDS:
        part = kind.replace("-", "_")
        if getattr(arguments, part) is not None:
            entity[kind] = getattr(arguments, part)
        elif getattr(arguments, f"{part}_default"):
            entity[kind] = None
    return entity


def _name(entity: Entity, kind: str) -> str:
    return "" if kind not in entity else entity[kind] or _DEFAULT


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else str(value)
