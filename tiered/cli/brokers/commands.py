"""`tiered brokers list|describe|drain|balance|remove`: the brokers of a cluster, for people.

Owns these commands' words. Must never decide where a replica goes: `rules.replication.rebalancing` does.
"""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from tiered.cli.brokers.own_facts import OwnFacts, own_facts
from tiered.cli.client.cluster import all_topics, with_cluster
from tiered.cli.failure import CommandFailed, UsageError
from tiered.cli.moves.following import carry_out, replicas_of, require_brokers
from tiered.cli.output import complain, counted, describe, in_bytes, print_json, print_table, say
from tiered.config.addresses import host_and_port
from tiered.errors import InvalidReplicationFactor
from tiered.peer import Cluster, TopicMetadata
from tiered.peer.broker_admin import (
    DescribedBroker,
    DescribedCluster,
    LocalDisk,
    describe_cluster,
    local_disk,
    unregister_broker,
)
from tiered.rules.replication.rebalancing import emptied, evened_out

COUNTS = ("replicas", "leaders", "preferred_leaders", "not_in_sync")


@with_cluster
async def run_list(arguments: argparse.Namespace, cluster: Cluster) -> None:
    """`brokers list`."""
    described = await describe_cluster(cluster)
    visible = await all_topics(cluster)
    found = [_summary(each, described, _with_replicas(visible)) for each in described.brokers.values()]
    if not visible:
        # There is always one, of the offsets. A 0 would say that all is in sync.
        found = [each | dict.fromkeys(COUNTS) for each in found]
        complain(arguments, "you may see no topic, so nothing is counted: give the --command-config of an operator")
    if arguments.quiet and not arguments.json:
        for each in found:
            say(str(each["broker"]))
        return
    facts = await own_facts(cluster, described, arguments.http, arguments.command_config)
    found = [broker | _own_fields(facts[broker["broker"]]) for broker in found]
    if arguments.json:
        print_json(found)
    else:
        _show_list(found)


@with_cluster
async def run_describe(arguments: argparse.Namespace, cluster: Cluster) -> None:
    """`brokers describe`."""
    described = await describe_cluster(cluster)
    topics = _with_replicas(await all_topics(cluster))
    chosen = _chosen(described, arguments.brokers)
    found = [await _description(cluster, each, described, topics) for each in chosen]
    describe(arguments, found, _show)


@with_cluster
async def run_drain(arguments: argparse.Namespace, cluster: Cluster) -> int:
    """`brokers drain`: every replica goes to brokers that stay."""
    described = await describe_cluster(cluster)
    held = replicas_of(_with_replicas(await all_topics(cluster)))
    leaving = set(arguments.brokers)
    # Partitions may still name a broker that is no longer registered.
    require_brokers(leaving, {*described.brokers, *(each for replicas in held.values() for each in replicas)})
    require_brokers(arguments.to or (), described.brokers)
    if both := leaving & set(arguments.to or ()):
        raise UsageError(f"broker {min(both)} cannot be drained and be given replicas at once")
    known = described.brokers.values()
    taking = {each.broker_id for each in known if not each.is_fenced} - leaving
    if arguments.to is not None:
        taking &= set(arguments.to)
    if not taking:
        raise CommandFailed("no broker in service would be left to take the replicas; start another one first")
    try:
        targets = emptied(
            held,
            [each.place for each in known],
            leaving,
            closed=described.brokers.keys() - taking,
        )
    except InvalidReplicationFactor as error:
        (topic, _), replicas = max(held.items(), key=lambda each: len(each[1]))
        raise CommandFailed(
            f"{topic} has {len(replicas)} replicas, and only {counted(len(taking), 'broker')} would be left to "
            f"hold them: start another broker, or give it fewer with `tiered topics reassign {topic} --to N,... "
            "--replication-factor N`"
        ) from error
    words = _named(sorted(leaving))
    return await carry_out(
        arguments,
        cluster,
        held,
        targets,
        done=f"{words} drained: {counted(len(targets), 'partition')} moved",
        nothing=f"{words}: no replica left to move",
    )


@with_cluster
async def run_balance(arguments: argparse.Namespace, cluster: Cluster) -> int:
    """`brokers balance`: every broker in service carries as many replicas as any other."""
    described = await describe_cluster(cluster)
    held = replicas_of(_with_replicas(await all_topics(cluster)))
    live = [each for each in described.brokers.values() if not each.is_fenced]
    targets = evened_out(held, [each.place for each in live])
    return await carry_out(
        arguments,
        cluster,
        held,
        targets,
        done=f"balanced: {counted(len(targets), 'partition')} moved",
        nothing="the brokers carry alike: nothing to move",
    )


@with_cluster
async def run_remove(arguments: argparse.Namespace, cluster: Cluster) -> None:
    """`brokers remove`: forgets a broker that holds nothing any more and was stopped."""
    refusal = await unregister_broker(cluster, arguments.broker)
    if refusal is not None:
        raise CommandFailed(f"broker {arguments.broker}: {refusal}")
    if arguments.json:
        print_json({"broker": arguments.broker, "error": None})
    else:
        say(f"broker {arguments.broker} removed")


def _with_replicas(topics: Sequence[TopicMetadata]) -> list[TopicMetadata]:
    """Leaves out partitions whose records are no log."""
    return [each for each in topics if not each.is_internal]


def _chosen(described: DescribedCluster, asked: Sequence[int]) -> list[DescribedBroker]:
    require_brokers(asked, described.brokers)
    return [described.brokers[each] for each in asked or described.brokers]


def _summary(broker: DescribedBroker, described: DescribedCluster, topics: Sequence[TopicMetadata]) -> dict[str, Any]:
    partitions = [each for topic in topics for each in topic.partitions]
    held = [each for each in partitions if broker.broker_id in each.replicas]
    return {
        "broker": broker.broker_id,
        "host": broker.host,
        "port": broker.port,
        "rack": broker.rack,
        "in_service": not broker.is_fenced,
        "controller": broker.broker_id == described.controller_id,
        "replicas": len(held),
        "leaders": sum(each.leader_id == broker.broker_id for each in partitions),
        "preferred_leaders": sum(each.replicas[0] == broker.broker_id for each in held),
        "not_in_sync": sum(broker.broker_id not in each.in_sync_replicas for each in held),
    }


def _own_fields(facts: OwnFacts) -> dict[str, Any]:
    disk = facts.disk
    return {
        "version": facts.version,
        **_disk_fields(disk),
        "local_bytes": None if disk is None else sum(disk.replica_bytes.values()),
        "unknown": dict(facts.unknown),
    }


def _disk_fields(disk: LocalDisk | None) -> dict[str, int | None]:
    return {
        "disk_total_bytes": None if disk is None or disk.total_bytes < 0 else disk.total_bytes,
        "disk_usable_bytes": None if disk is None or disk.usable_bytes < 0 else disk.usable_bytes,
    }


async def _description(
    cluster: Cluster, broker: DescribedBroker, described: DescribedCluster, topics: Sequence[TopicMetadata]
) -> dict[str, Any]:
    # Of one that has just gone away, what the others know is shown.
    disk = None if broker.is_fenced else await local_disk(cluster, broker.broker_id)
    return {
        **_summary(broker, described, topics),
        **_disk_fields(disk),
        "partitions": [
            {
                "topic": topic.name,
                "partition": each.partition,
                "role": "leader" if each.leader_id == broker.broker_id else "follower",
                "in_sync": broker.broker_id in each.in_sync_replicas,
                "local_bytes": None if disk is None else disk.replica_bytes.get((topic.name, each.partition)),
            }
            for topic in topics
            for each in topic.partitions
            if broker.broker_id in each.replicas
        ],
    }


def _named(numbers: Sequence[int]) -> str:
    return f"{'broker' if len(numbers) == 1 else 'brokers'} {', '.join(map(str, numbers))}"


def _state(broker: Mapping[str, Any]) -> str:
    return ("controller" if broker["controller"] else "in service") if broker["in_service"] else "out of service"


def _show_list(found: Sequence[Mapping[str, Any]]) -> None:
    rows = [
        [
            each["broker"],
            host_and_port(each["host"], each["port"]),
            each["rack"],
            _state(each),
            each["version"],
            in_bytes(each["local_bytes"]),
            in_bytes(each["disk_usable_bytes"]),
            *(each[count] for count in ("leaders", "replicas", "not_in_sync")),
        ]
        for each in found
    ]
    print_table(">BROKER ADDRESS RACK STATE VERSION >LOCAL >FREE >LEADS >REPLICAS >NOT-IN-SYNC", rows)
    brokers_lacking: dict[tuple[str, str], list[int]] = {}
    for broker in found:
        unknown: Mapping[str, str] = broker["unknown"]
        for why in dict.fromkeys(unknown.values()):
            facts = " and ".join(name for name in unknown if unknown[name] == why)
            brokers_lacking.setdefault((facts, why), []).append(broker["broker"])
    if brokers_lacking:
        say()
    for (facts, why), numbers in brokers_lacking.items():
        say(f"{facts} of {_named(numbers)} not known: {why}")


def _show(broker: Mapping[str, Any]) -> None:
    words = [host_and_port(broker["host"], broker["port"]), f"rack {broker['rack'] or '-'}", _state(broker)]
    if broker["disk_usable_bytes"] is not None:
        words.append(f"{in_bytes(broker['disk_usable_bytes'])} of {in_bytes(broker['disk_total_bytes'])} free")
    words.append(f"leads {broker['leaders']} of {counted(broker['replicas'], 'replica')}")
    say(f"broker {broker['broker']}  {', '.join(words)}")
    if not broker["partitions"]:
        return
    rows = [
        [
            each["topic"],
            each["partition"],
            each["role"],
            "yes" if each["in_sync"] else "no",
            in_bytes(each["local_bytes"]),
        ]
        for each in broker["partitions"]
    ]
    print_table("TOPIC >PARTITION ROLE IN-SYNC >LOCAL", rows)
