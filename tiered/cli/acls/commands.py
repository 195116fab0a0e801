"""`tiered acls list|add|remove`: who may do what.

Owns these commands' words. Everything is asked over the Kafka protocol, so it works for any Kafka broker.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, astuple

from tiered.cli.acls.arguments import RESOURCES
from tiered.cli.client.cluster import run_with_cluster
from tiered.cli.failure import UsageError
from tiered.cli.output import print_json, print_table, say
from tiered.config.addresses import is_address
from tiered.peer import Cluster
from tiered.peer.access_admin import Acl, create_acls, delete_acls, describe_acls
from tiered.rules.security.acl import (
    CLUSTER_NAME,
    WILDCARD,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)

_PRODUCER = (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE)
_CONSUMER = (Operation.READ, Operation.DESCRIBE)


def run_list(arguments: argparse.Namespace) -> int:
    """`acls list`."""
    wanted = _filter(arguments)

    async def act(cluster: Cluster) -> None:
        _show(arguments, await describe_acls(cluster, wanted), "no rules; `tiered acls add` makes one")

    return run_with_cluster(arguments, act)


def run_add(arguments: argparse.Namespace) -> int:
    """`acls add`."""
    rules = list(_rules(arguments))

    async def act(cluster: Cluster) -> None:
        await create_acls(cluster, rules)
        _show(arguments, sorted(rules), "")

    return run_with_cluster(arguments, act)


def run_remove(arguments: argparse.Namespace) -> int:
    """`acls remove`."""
    wanted = _filter(arguments)
    if wanted == AclFilter() and not arguments.all:
        raise UsageError("say which rules go, or --all for every one")

    async def act(cluster: Cluster) -> None:
        ask = describe_acls if arguments.dry_run else delete_acls
        _show(arguments, await ask(cluster, wanted), "no rule is meant; `tiered acls list` shows them")

    return run_with_cluster(arguments, act)


def _show(arguments: argparse.Namespace, rules: Sequence[Acl], none: str) -> None:
    for host in dict.fromkeys(each.host for each in rules if each.host != WILDCARD and not is_address(each.host)):
        say(f"warning: host {host} is no IP address: such a rule is kept, and meets nobody", file=sys.stderr)
    if arguments.json:
        print_json([asdict(each) for each in rules])
    elif rules:
        print_table("RESOURCE NAME PATTERN PRINCIPAL HOST OPERATION PERMISSION", map(astuple, rules))
    else:
        say(none)


def _filter(arguments: argparse.Namespace) -> AclFilter:
    """The filter that `list` and `remove` ask for."""
    named = [(ResourceType[_word(kind)], getattr(arguments, kind.replace("-", "_"))) for kind in RESOURCES]
    given = [(kind, name) for kind, name in named if name is not None]
    if arguments.cluster:
        given.append((ResourceType.CLUSTER, CLUSTER_NAME))
    if len(given) > 1:
        raise UsageError("give one resource at a time")
    if arguments.match and (arguments.prefixed or not given):
        raise UsageError("--match goes with the name of a resource, and not with --prefixed")
    kind, name = given[0] if given else (ResourceType.ANY, None)
    pattern = PatternType.PREFIXED if arguments.prefixed else PatternType.LITERAL if given else PatternType.ANY
    return AclFilter(
        resource_type=kind,
        resource_name=name,
        pattern_type=PatternType.MATCH if arguments.match else pattern,
        principal=arguments.principal,
        host=arguments.host,
        operation=Operation.ANY if arguments.operation is None else Operation[_word(arguments.operation)],
        permission=Permission.ALLOW if arguments.allow else Permission.DENY if arguments.deny else Permission.ANY,
    )


def _rules(arguments: argparse.Namespace) -> Iterator[Acl]:
    """The rules that `add` makes. Raises UsageError."""
    wanted = [*_resources_of(arguments)]
    if not wanted:
        raise UsageError("say on what: --topic, --group, --transactional-id, --cluster, --user or --delegation-token")
    if not (arguments.operation or arguments.producer or arguments.consumer):
        raise UsageError("say what: --operation, --producer or --consumer")
    if arguments.producer and not arguments.topic:
        raise UsageError("--producer needs a --topic")
    if arguments.consumer and not (arguments.topic and arguments.group):
        raise UsageError("--consumer needs a --topic and a --group")
    named = [Operation[_word(each)] for each in arguments.operation or ()]
    pattern = PatternType.PREFIXED if arguments.prefixed else PatternType.LITERAL
    made: dict[Acl, None] = {}
    for kind, name in wanted:
        for operation in dict.fromkeys([*named, *_convenient(arguments, kind)]):
            for principal in arguments.principal:
                for host in arguments.host or [WILDCARD]:
                    rule = Acl(
                        resource_type=kind.name,
                        resource_name=name,
                        pattern_type=(PatternType.LITERAL if kind is ResourceType.CLUSTER else pattern).name,
                        principal=principal,
                        host=host,
                        operation=operation.name,
                        permission=(Permission.DENY if arguments.deny else Permission.ALLOW).name,
                    )
                    made[rule] = None
    yield from made


def _convenient(arguments: argparse.Namespace, kind: ResourceType) -> Sequence[Operation]:
    """The operations that --producer and --consumer stand for, on a resource of this kind."""
    found: list[Operation] = []
    if arguments.producer:
        found += _PRODUCER if kind is ResourceType.TOPIC else ()
        found += (Operation.WRITE, Operation.DESCRIBE) if kind is ResourceType.TRANSACTIONAL_ID else ()
        found += (Operation.IDEMPOTENT_WRITE,) if kind is ResourceType.CLUSTER else ()
    if arguments.consumer:
        found += _CONSUMER if kind is ResourceType.TOPIC else ()
        found += (Operation.READ,) if kind is ResourceType.GROUP else ()
    return found


def _resources_of(arguments: argparse.Namespace) -> Iterator[tuple[ResourceType, str]]:
    for kind in RESOURCES:
        for name in getattr(arguments, kind.replace("-", "_")) or ():
            yield ResourceType[_word(kind)], name
    if arguments.cluster:
        yield ResourceType.CLUSTER, CLUSTER_NAME


def _word(text: str) -> str:
    return text.upper().replace("-", "_")
