"""Moving replicas on behalf of commands: the plan in words, the request, and how far it is.

Owns what `brokers drain`, `brokers balance` and `topics reassign` share. Must never choose a target: rules do, or the
person who typed it. Moves go on when a command ends, by itself or by Ctrl-C.
"""

import argparse
import asyncio
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tiered.cli.configs import set_configs
from tiered.cli.failure import EXIT_FAILED, EXIT_OK, CommandFailed
from tiered.cli.output import Cell, complain, counted, in_bytes, print_json, print_table, say
from tiered.cli.progress import bar
from tiered.peer import Cluster, TopicMetadata, TopicPartition
from tiered.peer.broker_admin import PartitionRefusal, Reassignment, alter_reassignments, list_reassignments, local_disk
from tiered.peer.topic_admin import BROKER_RESOURCE
from tiered.runtime import SystemClock

POLL_S = 0.5
THROTTLES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
AT_ONCE = 1_000
"""Partitions in one request."""

Replicas = tuple[int, ...]
Targets = Mapping[TopicPartition, Replicas]


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """How far one move is: what the slowest added replica has of what the leader has on its disk."""

    done_bytes: int
    all_bytes: int


def replicas_of(topics: Sequence[TopicMetadata]) -> dict[TopicPartition, Replicas]:
    """Every partition's replicas."""
    return {(topic.name, each.partition): each.replicas for topic in topics for each in topic.partitions}


def require_brokers(asked: Iterable[int], known: Collection[int]) -> None:
    """Raises CommandFailed for a broker that there is not."""
    for each in sorted(asked):
        if each not in known:
            raise CommandFailed(f"there is no broker {each}; `tiered brokers list` shows {sorted(known)}")


async def carry_out(
    arguments: argparse.Namespace, cluster: Cluster, before: Targets, targets: Targets, *, done: str, nothing: str
) -> int:
    """Shows the plan, or begins the moves and waits for their end; the exit code.

    `arguments` are those of `move_options`. `done` is what is said in the end, `nothing` where nothing has to move.
    """
    if arguments.plan:
        _show_plan(arguments, before, targets, nothing)
        return EXIT_OK
    refused: dict[TopicPartition, PartitionRefusal] = {}
    if targets:
        if arguments.throttle is not None:
            await _throttle(cluster, arguments.throttle)
        refused = await begin(cluster, targets)
    begun = [each for each in targets if each not in refused]
    is_complete = True
    if not arguments.no_wait:
        is_complete = not begun or await wait(cluster, begun, timeout_s=arguments.timeout)
        if is_complete and targets and arguments.throttle is not None:
            await _throttle(cluster, None)
    if arguments.json:
        print_json(
            {
                "complete": is_complete and not refused and not arguments.no_wait,
                "moves": [
                    {**_move(each, before, targets), "error": str(refused[each]) if each in refused else None}
                    for each in targets
                ],
            }
        )
    for (topic, number), refusal in refused.items():
        complain(arguments, f"{topic}-{number}: {refusal}")
    if not is_complete:
        raise CommandFailed(
            f"not complete after {arguments.timeout} s; the moves go on: `tiered topics reassignments` shows them"
        )
    if not arguments.json and not refused:
        going_on = f"{counted(len(begun), 'move')} begun; `tiered topics reassignments` shows how far they are"
        say(nothing if not targets else going_on if arguments.no_wait else done)
    return EXIT_FAILED if refused else EXIT_OK


async def begin(
    cluster: Cluster, targets: Mapping[TopicPartition, Replicas | None]
) -> dict[TopicPartition, PartitionRefusal]:
    """Those that were refused."""
    refused: dict[TopicPartition, PartitionRefusal] = {}
    keys = list(targets)
    for first in range(0, len(keys), AT_ONCE):
        some = {each: targets[each] for each in keys[first : first + AT_ONCE]}
        outcomes = await alter_reassignments(cluster, some)
        refused |= {each: refusal for each, refusal in outcomes.items() if refusal is not None}
    return refused


async def wait(cluster: Cluster, moving: Sequence[TopicPartition], *, timeout_s: int | None) -> bool:
    """True once none of them moves any more, False when `timeout_s` is over. Shows how far they are on a terminal."""
    clock = SystemClock()
    deadline_ms = None if timeout_s is None else clock.monotonic_ms() + timeout_s * 1000.0
    with bar(len(moving), "moves begin") as show:
        while True:
            under_way = await list_reassignments(cluster)
            left = {each: under_way[each] for each in moving if each in under_way}
            if not left:
                return True
            if sys.stderr.isatty():
                copied = (await progress(cluster, left)).values()
                done_bytes, all_bytes = sum(each.done_bytes for each in copied), sum(each.all_bytes for each in copied)
                share = sum(each.done_bytes / each.all_bytes for each in copied if each.all_bytes)
                done = len(moving) - len(left)
                of_all = f"{done} of {counted(len(moving), 'partition')} moved"
                show(done + share, f"{of_all}; {in_bytes(done_bytes)} of {in_bytes(all_bytes)}")
            if deadline_ms is not None and clock.monotonic_ms() > deadline_ms:
                return False
            await asyncio.sleep(POLL_S)


async def progress(cluster: Cluster, moving: Mapping[TopicPartition, Reassignment]) -> dict[TopicPartition, Copied]:
    """How far each is, by the sizes of its replicas on disk; what a broker that is away holds counts as nothing."""
    described = await cluster.metadata(sorted({topic for topic, _ in moving}))
    leaders = {
        (name, each.partition): each.leader_id for name, topic in described.topics.items() for each in topic.partitions
    }
    wanted = {each for move in moving.values() for each in move.adding_replicas}
    wanted |= {leaders[each] for each in moving if leaders.get(each, -1) >= 0}
    disks = {broker_id: await local_disk(cluster, broker_id) for broker_id in sorted(wanted)}

    def held(broker_id: int, each: TopicPartition) -> int:
        disk = disks.get(broker_id)
        return 0 if disk is None else disk.replica_bytes.get(each, 0)

    found = {}
    for each, move in moving.items():
        all_bytes = held(leaders.get(each, -1), each)
        done_bytes = min((held(broker_id, each) for broker_id in move.adding_replicas), default=all_bytes)
        found[each] = Copied(done_bytes=min(done_bytes, all_bytes), all_bytes=all_bytes)
    return found


async def _throttle(cluster: Cluster, bytes_per_s: int | None) -> None:
    """Bounds what every broker sends to, and fetches for, replicas that are being added; None ends the bound."""
    value = None if bytes_per_s is None else str(bytes_per_s)
    settings = dict.fromkeys(THROTTLES, value)
    await set_configs(cluster, "", settings, failed="the throttle was not set", resource_type=BROKER_RESOURCE)


def _move(each: TopicPartition, before: Targets, targets: Targets) -> dict[str, Any]:
    topic, number = each
    return {"topic": topic, "partition": number, "replicas": list(before[each]), "target": list(targets[each])}


def _show_plan(arguments: argparse.Namespace, before: Targets, targets: Targets, nothing: str) -> None:
    if arguments.json:
        print_json({"complete": False, "moves": [{**_move(each, before, targets), "error": None} for each in targets]})
        return
    if not targets:
        say(nothing)
        return
    rows: list[list[Cell]] = [
        [topic, number, ",".join(map(str, before[topic, number])), ",".join(map(str, target))]
        for (topic, number), target in targets.items()
    ]
    print_table("TOPIC >PARTITION REPLICAS TARGET", rows)
    say(f"\n{counted(len(targets), 'partition')} would move; without --plan they do")
