"""`tiered topics create|list|describe|alter|delete`: what stands in Kafka's admin requests, for people.

Owns these commands' words. Must never decide whether a request is legal: the broker does, and its reason is
shown. With several topics each is tried, and the exit code is 1 when any of them failed.
"""

import argparse
import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from tiered.cli.client.cluster import (
    EARLIEST_LOCAL,
    LATEST_TIERED,
    all_topics,
    existing_topic,
    missing_topic,
    run_with_cluster,
    with_cluster,
)
from tiered.cli.client.http_api import HttpApi
from tiered.cli.client.refusals import none_to_see
from tiered.cli.configs import (
    DEFAULT_SOURCE,
    config_changes,
    config_pairs,
    configs_of,
    require_done,
    set_configs,
    source_of,
)
from tiered.cli.failure import CommandFailed, UsageError
from tiered.cli.output import Cell, complain, counted, describe, in_bytes, in_utc, print_json, print_table, report, say
from tiered.peer import EARLIEST, LATEST, Cluster, CorruptAnswer, TopicMetadata
from tiered.peer.broker_admin import local_disk
from tiered.peer.topic_admin import BROKERS_DEFAULT, create_topics, delete_topics, describe_configs
from tiered.wire.error_codes import NONE, TOPIC_ALREADY_EXISTS, UNKNOWN_TOPIC_OR_PARTITION, reason

TIMEOUT_MS = 30_000
MIN_IN_SYNC = "min.insync.replicas"
_CREATE_PARTITIONS = 37


@with_cluster
async def run_list(arguments: argparse.Namespace, cluster: Cluster) -> None:
    """`topics list`."""
    chosen = [topic for topic in await all_topics(cluster) if arguments.internal or not topic.is_internal]
    if arguments.under_replicated:
        chosen = [topic for topic in chosen if _under_replicated(topic)]
    is_names_alone = arguments.quiet and not arguments.json
    configs = await _listed_configs(cluster, chosen) if arguments.under_min_isr or not is_names_alone else {}
    if arguments.under_min_isr:
        chosen = [topic for topic in chosen if _under_min_isr(topic, configs)]
    if is_names_alone:
        for topic in chosen:
            say(topic.name)
        return
    listed = await _listed(cluster, chosen, configs)
    if arguments.json:
        print_json(listed)
    elif chosen:
        titles = "TOPIC >PARTITIONS >REPLICAS >LOCAL POLICY ID"
        rows = [_listed_row(topic) for topic in listed]
        for count in ("under_replicated", "under_min_isr"):
            if getattr(arguments, count):
                titles += f" >{count.replace('_', '-').upper()}"
                rows = [[*row, topic[count]] for row, topic in zip(rows, listed, strict=True)]
        print_table(titles, rows)
    elif arguments.under_replicated:
        say(await none_to_see(cluster, "under-replicated topic", "every replica is in sync"))
    elif arguments.under_min_isr:
        say(await none_to_see(cluster, "topic under min.insync.replicas", "enough replicas are in sync for acks=all"))
    else:
        say(await none_to_see(cluster, "topic", "`tiered topics create NAME` makes one"))


def min_in_sync_warning(configs: Mapping[str, str | None], replicas: int) -> str | None:
    """Why more replicas must be in sync than there are; None where that is not so."""
    wanted = configs.get(MIN_IN_SYNC) or ""
    if not (wanted.isascii() and wanted.isdigit()) or not 0 < replicas < int(wanted):
        return None
    return (
        f"{MIN_IN_SYNC} is {wanted}, and each partition has {counted(replicas, 'replica')}: it counts as {replicas}, "
        "and acks=all is refused as soon as one is missing"
    )


Configs = Mapping[tuple[str, str], str | None]
"""Values by topic and config."""


async def _listed_configs(cluster: Cluster, topics: Sequence[TopicMetadata]) -> Configs:
    """What `list` shows of the topics' configs, or needs for it."""
    if not topics:
        return {}
    names = [topic.name for topic in topics]
    answer = await describe_configs(cluster, names, keys=("cleanup.policy", MIN_IN_SYNC))
    return {(topic.resource_name, config.name): config.value for topic in answer for config in topic.configs or ()}


async def _listed(cluster: Cluster, topics: Sequence[TopicMetadata], configs: Configs) -> list[dict[str, Any]]:
    """The topics with their policies and the bytes on their leaders' disks; None for what is not known."""
    leaders = {each.leader_id for topic in topics for each in topic.partitions if each.leader_id >= 0}
    disks = dict(zip(leaders, await asyncio.gather(*(local_disk(cluster, each) for each in leaders)), strict=True))
    found = []
    for topic in topics:
        held = [(disks.get(each.leader_id), (topic.name, each.partition)) for each in topic.partitions]
        sizes = [None if disk is None else disk.replica_bytes.get(where) for disk, where in held]
        known = [each for each in sizes if each is not None]
        found.append(
            {
                **_summary(topic),
                "under_min_isr": _under_min_isr(topic, configs),
                "cleanup_policy": configs.get((topic.name, "cleanup.policy")),
                "local_bytes": sum(known) if len(known) == len(sizes) else None,
            }
        )
    return found


def _listed_row(topic: Mapping[str, Any]) -> list[Cell]:
    local = in_bytes(topic["local_bytes"])
    counts = (topic["partition_count"], topic["replicas"])
    return [topic["topic"], *counts, local, topic["cleanup_policy"], topic["topic_id"]]


def run_create(arguments: argparse.Namespace) -> int:
    """`topics create`."""
    configs = config_pairs(arguments.config)

    async def act(cluster: Cluster) -> int:
        results = await create_topics(
            cluster,
            arguments.topics,
            partitions=BROKERS_DEFAULT if arguments.partitions is None else arguments.partitions,
            replication_factor=BROKERS_DEFAULT
            if arguments.replication_factor is None
            else arguments.replication_factor,
            configs=configs,
            validate_only=arguments.validate_only,
        )
        fine = {NONE, TOPIC_ALREADY_EXISTS} if arguments.if_not_exists else {NONE}
        done = "could be created" if arguments.validate_only else "created"
        code = _report(arguments, results, fine=fine, done=done)
        for each in results:
            if each.error_code == NONE:
                told = {config.name: config.value for config in getattr(each, "configs", None) or ()}
                _warn(arguments, each.name, told or configs, getattr(each, "replication_factor", 0))
        return code

    return run_with_cluster(arguments, act)


@with_cluster
async def run_delete(arguments: argparse.Namespace, cluster: Cluster) -> int:
    """`topics delete`."""
    names = tuple(arguments.topics)
    results = await delete_topics(cluster, names)
    if any(each.name not in names for each in results):
        raise CorruptAnswer("a broker answers about a topic that it was not asked to delete")
    fine = {NONE, UNKNOWN_TOPIC_OR_PARTITION} if arguments.if_exists else {NONE}
    missing = [each.name for each in results if each.error_code == UNKNOWN_TOPIC_OR_PARTITION]
    told = {} if arguments.if_exists else {name: await missing_topic(cluster, name) for name in missing}
    return _report(arguments, results, fine=fine, done="deleted", told=told)


def run_alter(arguments: argparse.Namespace) -> int:
    """`topics alter`: configs first, partitions second."""
    changes = config_changes(arguments)
    if not changes and arguments.partitions is None:
        raise UsageError("nothing to alter: give --config, --delete-config or --partitions")

    async def act(cluster: Cluster) -> None:
        topic = await existing_topic(cluster, arguments.topic)
        if changes:
            await set_configs(cluster, arguments.topic, changes)
        if arguments.partitions is not None:
            await _grow(cluster, arguments.topic, arguments.partitions)
        if arguments.json:
            print_json({"topic": arguments.topic, "error": None})
        else:
            say(f"{arguments.topic} altered")
        _warn(arguments, arguments.topic, changes, topic.replication_factor)

    return run_with_cluster(arguments, act)


def _warn(arguments: argparse.Namespace, topic: str, configs: Mapping[str, str | None], replicas: int) -> None:
    if (warning := min_in_sync_warning(configs, replicas)) is not None:
        complain(arguments, f"warning: {topic}: {warning}")


async def _grow(cluster: Cluster, topic: str, partition_count: int) -> None:
    answer = await cluster.request(
        _CREATE_PARTITIONS,
        lambda make: make.CreatePartitionsRequest(
            topics=(make.CreatePartitionsTopic(name=topic, count=partition_count, assignments=None),),
            timeout=TIMEOUT_MS,
            validate_only=False,
        ),
    )
    require_done(topic, answer.results)


@with_cluster
async def run_describe(arguments: argparse.Namespace, cluster: Cluster) -> None:
    """`topics describe`."""
    found = []
    for name in arguments.topics:
        topic = await existing_topic(cluster, name)
        found.append(await _description(cluster, topic, arguments))
    describe(arguments, found, _show)


async def _description(cluster: Cluster, topic: TopicMetadata, arguments: argparse.Namespace) -> dict[str, Any]:
    numbers = [each.partition for each in topic.partitions if each.leader_id >= 0]
    places = (EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, LATEST)
    (starts, local_starts, tiered, ends), (since_ms, unknown) = await asyncio.gather(
        asyncio.gather(*(cluster.list_offsets(topic.name, dict.fromkeys(numbers, place)) for place in places)),
        asyncio.to_thread(_disk_only_since_ms, topic, arguments),
    )
    configs = await _configs(cluster, topic.name, everything=arguments.all_configs)
    warning = min_in_sync_warning({each["name"]: each["value"] for each in configs}, topic.replication_factor)
    return {
        **_summary(topic),
        "partitions": [
            {
                "partition": each.partition,
                "leader": each.leader_id,
                "leader_epoch": each.leader_epoch,
                "replicas": list(each.replicas),
                "in_sync_replicas": list(each.in_sync_replicas),
                "out_of_sync_replicas": list(each.out_of_sync_replicas),
                "log_start_offset": starts.get(each.partition),
                "local_log_start_offset": local_starts.get(each.partition),
                "cold_end_offset": tiered[each.partition] + 1 if tiered.get(each.partition, -1) >= 0 else None,
                "high_watermark": ends.get(each.partition),
                "disk_only_since_ms": since_ms.get(each.partition),
            }
            for each in topic.partitions
        ],
        "configs": configs,
        "disk_only_unknown": unknown,
        "warnings": [] if warning is None else [warning],
    }


def _disk_only_since_ms(topic: TopicMetadata, arguments: argparse.Namespace) -> tuple[dict[Any, Any], str | None]:
    """When each partition's oldest record was written that the store lacks, by the broker at --http; or why it is not
    known."""
    try:
        answer = HttpApi.beside_kafka(arguments.http, arguments.command_config).topic(topic.name)
    except (CommandFailed, UsageError) as error:
        return {}, str(error)
    if answer.get("topic_id") != str(topic.topic_id):
        return {}, f"the broker at {arguments.http} belongs to another cluster; --http URL names one of this"
    return {row.get("partition"): row.get("disk_only_since_ms") for row in answer["partitions"]}, None


async def _configs(cluster: Cluster, topic: str, *, everything: bool) -> list[dict[str, Any]]:
    """The configs that were set for the topic or its broker; with `everything`, defaults as well."""
    return [
        {"name": each.name, "value": each.value, "source": source_of(each)}
        for each in await configs_of(cluster, topic)
        if everything or each.config_source != DEFAULT_SOURCE
    ]


def _show(topic: dict[str, Any]) -> None:
    partitions = topic["partitions"]
    shape = f"{counted(len(partitions), 'partition')}, {counted(topic['replicas'], 'replica')}"
    if topic["under_replicated"]:
        shape += f", {counted(topic['under_replicated'], 'partition')} under-replicated"
    say(f"{topic['topic']}  id {topic['topic_id']}  {shape}")
    print_table(
        ">PARTITION >LEADER >EPOCH REPLICAS IN-SYNC NOT-IN-SYNC >START >LOCAL-START >COLD-END >END",
        [
            [
                each["partition"],
                each["leader"] if each["leader"] >= 0 else "none",
                each["leader_epoch"],
                ",".join(map(str, each["replicas"])),
                ",".join(map(str, each["in_sync_replicas"])),
                ",".join(map(str, each["out_of_sync_replicas"])),
                each["log_start_offset"],
                each["local_log_start_offset"],
                each["cold_end_offset"],
                each["high_watermark"],
            ]
            for each in partitions
        ],
    )
    since_ms = [row["disk_only_since_ms"] for row in partitions if row["disk_only_since_ms"] is not None]
    if since_ms:
        say(f"\nthe oldest record that only disks have was written at {in_utc(min(since_ms))}")
    elif topic["disk_only_unknown"] is not None:
        say(f"\nwhat only disks have is not known: {topic['disk_only_unknown']}")
    if topic["configs"]:
        say()
        print_table("CONFIG VALUE SET-BY", [list(each.values()) for each in topic["configs"]])
    for warning in topic["warnings"]:
        say(f"\nwarning: {warning}")


def _summary(topic: TopicMetadata) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "topic_id": str(topic.topic_id),
        "internal": topic.is_internal,
        "partition_count": len(topic.partitions),
        "replicas": topic.replication_factor,
        "under_replicated": len(_under_replicated(topic)),
    }


def _under_replicated(topic: TopicMetadata) -> list[int]:
    """The partitions that have a replica which is not in sync."""
    return [partition.partition for partition in topic.partitions if partition.out_of_sync_replicas]


def _under_min_isr(topic: TopicMetadata, configs: Configs) -> int | None:
    """How many partitions refuse acks=all, as brokers count them: more replicas than there are need not be in sync.
    None where min.insync.replicas is not known."""
    wanted = configs.get((topic.name, MIN_IN_SYNC)) or ""
    if not (wanted.isascii() and wanted.isdigit()):
        return None
    return sum(
        len(partition.in_sync_replicas) < min(int(wanted), len(partition.replicas)) for partition in topic.partitions
    )


def _report(
    arguments: argparse.Namespace,
    results: Sequence[Any],
    *,
    fine: set[int],
    done: str,
    told: Mapping[str, str] | None = None,
) -> int:
    """Says what became of each topic, and gives the exit code. Codes in `fine` are success.

    `told` is what to say of topics in place of the broker's words.
    """
    outcomes = []
    for each in results:
        words = (told or {}).get(each.name) or getattr(each, "error_message", None)
        error = None if each.error_code in fine else reason(each.error_code, words)
        outcomes.append((each.name, each.error_code == NONE, error))
    return report(arguments, "topic", outcomes, done)
