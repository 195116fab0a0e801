"""`tiered topics reassign|reassignments|elect`: which brokers hold and lead the partitions of topics.

Owns these commands' words. Must never decide whether a move or an election is legal: the broker does, and its reason
is shown.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tiered.cli.client.cluster import all_topics, chosen_partitions, existing_topic, run_with_cluster, with_cluster
from tiered.cli.failure import EXIT_FAILED, EXIT_OK, CommandFailed, UsageError
from tiered.cli.groups.reset import Wanted, wanted_of
from tiered.cli.moves.following import Replicas, begin, carry_out, progress, replicas_of, require_brokers
from tiered.cli.output import complain, counted, in_bytes, print_json, print_table, say
from tiered.errors import InvalidReplicationFactor
from tiered.peer import Cluster, TopicMetadata, TopicPartition
from tiered.peer.broker_admin import (
    PREFERRED,
    UNCLEAN,
    PartitionRefusal,
    describe_cluster,
    elect_leaders,
    list_reassignments,
)
from tiered.rules.replication.placement import assign
from tiered.wire.error_codes import ELECTION_NOT_NEEDED


def run_reassign(arguments: argparse.Namespace) -> int:
    """`topics reassign`."""
    wanted = wanted_of(arguments.topics)
    planned = None if arguments.file is None else planned_in(_text_of(arguments.file), arguments.file)
    if planned is None and not wanted:
        raise UsageError("nothing to reassign: name topics, or a plan with --file")
    if planned is not None and wanted:
        raise UsageError("--file names the partitions: leave the topics away")
    if arguments.replication_factor is not None and arguments.to is None:
        raise UsageError("--replication-factor needs --to: which brokers are to hold the replicas")

    async def act(cluster: Cluster) -> int:
        topics = await _topics(cluster, wanted, planned)
        before = replicas_of(topics)
        if planned is not None:
            targets = planned
            for topic, number in targets:
                if (topic, number) not in before:
                    raise CommandFailed(f"{arguments.file}: {topic} has no partition {number}")
        elif arguments.cancel:
            return await _cancel(arguments, cluster, _chosen(topics, wanted))
        elif arguments.replicas is not None:
            targets = dict.fromkeys(_chosen(topics, wanted), tuple(arguments.replicas))
        else:
            targets = await _spread(arguments, cluster, topics, wanted)
        targets = {each: target for each, target in targets.items() if target != before[each]}
        return await carry_out(
            arguments,
            cluster,
            before,
            targets,
            done=f"{counted(len(targets), 'partition')} moved",
            nothing="every partition is there already: nothing to move",
        )

    return run_with_cluster(arguments, act)


@with_cluster
async def run_reassignments(arguments: argparse.Namespace, cluster: Cluster) -> None:
    """`topics reassignments`: what is being moved now."""
    moving = await list_reassignments(cluster)
    copied = await progress(cluster, moving) if moving else {}
    found = [
        {
            "topic": topic,
            "partition": number,
            **asdict(move),
            "copied_bytes": copied[topic, number].done_bytes,
            "leader_bytes": copied[topic, number].all_bytes,
        }
        for (topic, number), move in sorted(moving.items(), key=lambda each: each[0])
    ]
    if arguments.json:
        print_json(found)
    elif not found:
        say("nothing is being moved")
    else:
        _show_moving(found)


def run_elect(arguments: argparse.Namespace) -> int:
    """`topics elect`: preferred leaders, or with `--unclean` whoever is left."""
    wanted = wanted_of(arguments.topics)
    if not wanted and not arguments.all:
        raise UsageError("nothing to elect for: name topics, or all of them with --all")
    if wanted and arguments.all:
        raise UsageError("--all means every topic: leave the names away")
    if arguments.unclean and arguments.all:
        raise UsageError("--unclean loses records: name the topics it may lose them of")

    async def act(cluster: Cluster) -> int:
        partitions = None if arguments.all else _chosen(await _topics(cluster, wanted, None), wanted)
        found = await elect_leaders(cluster, UNCLEAN if arguments.unclean else PREFERRED, partitions)
        return _report(arguments, found)

    return run_with_cluster(arguments, act)


def planned_in(text: str, name: str) -> dict[TopicPartition, Replicas]:
    """The targets in a plan as Kafka's kafka-reassign-partitions writes it. Raises UsageError."""
    wrong = f"{name} is no plan: it must be " + '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}]}'
    try:
        partitions = json.loads(text)["partitions"]
        found = [((each["topic"], each["partition"]), tuple(each["replicas"])) for each in partitions]
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(wrong) from error
    for (topic, number), replicas in found:
        if not isinstance(topic, str) or not all(type(each) is int and each >= 0 for each in (number, *replicas)):
            raise UsageError(wrong)
    if len(dict(found)) != len(found):
        raise UsageError(f"{name} names a partition twice")
    return dict(found)


def _text_of(path: str) -> str:
    try:
        return sys.stdin.read() if path == "-" else Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error


async def _topics(
    cluster: Cluster, wanted: Wanted, planned: "dict[TopicPartition, Replicas] | None"
) -> list[TopicMetadata]:
    names = sorted({topic for topic, _ in planned}) if planned is not None else list(wanted)
    if len(names) == 1:
        return [await existing_topic(cluster, names[0])]
    there = {each.name: each for each in await all_topics(cluster)}
    return [there[name] if name in there else await existing_topic(cluster, name) for name in names]


def _chosen(topics: Sequence[TopicMetadata], wanted: Wanted) -> list[TopicPartition]:
    return [(each.name, number) for each in topics for number in chosen_partitions(each, wanted[each.name])]


async def _spread(
    arguments: argparse.Namespace, cluster: Cluster, topics: Sequence[TopicMetadata], wanted: Wanted
) -> dict[TopicPartition, Replicas]:
    """Targets over the brokers of `--to`, as new topics would be spread."""
    described = await describe_cluster(cluster)
    require_brokers(arguments.to, described.brokers)
    places = [described.brokers[each].place for each in arguments.to]
    targets: dict[TopicPartition, Replicas] = {}
    for topic in topics:
        keys = _chosen([topic], wanted)
        try:
            spread = assign(
                len(keys), arguments.replication_factor or topic.replication_factor, places, start=len(targets)
            )
        except InvalidReplicationFactor as error:
            raise CommandFailed(f"{topic.name}: {error}") from error
        targets |= dict(zip(keys, spread, strict=True))
    return targets


async def _cancel(arguments: argparse.Namespace, cluster: Cluster, chosen: Sequence[TopicPartition]) -> int:
    under_way = await list_reassignments(cluster)
    moving: dict[TopicPartition, Replicas | None] = {each: None for each in chosen if each in under_way}
    refused = await begin(cluster, moving) if moving else {}
    return _report(arguments, {each: refused.get(each) for each in moving}, done="cancelled", nothing="nothing moves")


def _report(
    arguments: argparse.Namespace,
    outcomes: "dict[TopicPartition, PartitionRefusal | None]",
    *,
    done: str = "elected",
    nothing: str = "every partition has that leader already",
) -> int:
    """Says what became of each partition, and gives the exit code. That nothing was needed is success."""
    rows: list[dict[str, Any]] = []
    for (topic, number), refusal in sorted(outcomes.items(), key=lambda each: each[0]):
        is_fine = refusal is None or refusal.code == ELECTION_NOT_NEEDED
        words = None if is_fine else str(refusal)
        rows.append({"topic": topic, "partition": number, "changed": refusal is None, "error": words})
    if arguments.json:
        print_json(rows)
    failed = [each for each in rows if each["error"] is not None]
    for each in failed:
        complain(arguments, f"{each['topic']}-{each['partition']}: {each['error']}")
    changed = sum(each["changed"] for each in rows)
    if not arguments.json and (changed or not failed):
        say(f"{counted(changed, 'partition')} {done}" if changed else nothing)
    return EXIT_FAILED if failed else EXIT_OK


def _show_moving(found: Sequence[dict[str, Any]]) -> None:
    rows = [
        [
            each["topic"],
            each["partition"],
            *(",".join(map(str, each[which])) for which in ("replicas", "adding_replicas", "removing_replicas")),
            in_bytes(each["copied_bytes"]),
            in_bytes(each["leader_bytes"]),
        ]
        for each in found
    ]
    print_table("TOPIC >PARTITION REPLICAS ADDING REMOVING >COPIED >OF", rows)
