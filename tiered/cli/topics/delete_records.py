"""`tiered topics delete-records TOPIC[:P,...]`: takes the oldest records away for good; first as a plan.

Owns what is meant by an offset, a time, the end. Must never delete without `--execute`, nor more than the plan says:
records that come meanwhile stay.
"""

import argparse
import asyncio
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tiered.cli.client.cluster import chosen_partitions, existing_topic, run_with_cluster
from tiered.cli.client.http_api import HttpApi
from tiered.cli.client.refusals import topic_refusal
from tiered.cli.failure import EXIT_FAILED, EXIT_OK, CommandFailed, UsageError
from tiered.cli.groups.reset import wanted_of
from tiered.cli.output import complain, counted, print_json, print_table, say
from tiered.cli.times import point_ms
from tiered.peer import EARLIEST, LATEST, NEWEST, Cluster, CorruptAnswer, TopicMetadata
from tiered.peer.topic_admin import delete_records
from tiered.rules.security.acl import Operation
from tiered.wire.error_codes import NONE, NOT_LEADER_OR_FOLLOWER, POLICY_VIOLATION, reason

Snapshot = Mapping[str, Any]
"""A snapshot as the HTTP API has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """One partition: the offset that its log begins with, and the one that it would begin with."""

    partition: int
    before: int
    after: int


def before_of(text: str) -> tuple[int | None, int | None]:
    """The offset or the time that `--before` means; neither for the end. Raises UsageError."""
    if text == "end":
        return None, None
    if text.isascii() and text.isdigit() and int(text) < 1 << 63:
        return int(text), None
    if text.startswith("@") and (timestamp_ms := point_ms(text[1:])) is not None:
        return None, timestamp_ms
    raise UsageError(
        f"--before {text} is not allowed: it must be an offset, end, or @TIME in milliseconds since 1970 or such as "
        "@2026-01-31T23:59:59Z"
    )


def run(arguments: argparse.Namespace) -> int:
    """Shows which records would go, and with `--execute` deletes them."""
    offset, timestamp_ms = before_of(arguments.before)
    ((name, wanted),) = wanted_of([arguments.topic]).items()

    async def act(cluster: Cluster) -> int:
        topic = await existing_topic(cluster, name)
        numbers = chosen_partitions(topic, wanted)
        cuts = await _plan(cluster, topic, numbers, offset, timestamp_ms)
        codes = await execute_cuts(cluster, topic, cuts) if arguments.execute else {}
        failures = await failures_of(arguments, cluster, topic, cuts, codes)
        _tell(arguments, topic.name, cuts, failures)
        return EXIT_FAILED if failures else EXIT_OK

    return run_with_cluster(arguments, act)


async def _plan(
    cluster: Cluster, topic: TopicMetadata, numbers: Sequence[int], offset: int | None, timestamp_ms: int | None
) -> list[Cut]:
    for each in topic.partitions:
        if each.partition in numbers and each.leader_id < 0:
            raise CommandFailed(f"{topic.name}-{each.partition} has no leader now; nothing was deleted")
    times = {} if timestamp_ms is None else dict.fromkeys(numbers, timestamp_ms)
    starts, ends, since, newest = await asyncio.gather(
        cluster.list_offsets(topic.name, dict.fromkeys(numbers, EARLIEST)),
        cluster.list_offsets(topic.name, dict.fromkeys(numbers, LATEST)),
        cluster.list_offsets(topic.name, times),
        cluster.list_offsets(topic.name, dict.fromkeys(times, NEWEST)),
    )
    cuts = []
    for number in numbers:
        wanted = offset if offset is not None else since.get(number, -1)
        if wanted < 0:
            # Every record is older, or all of them are meant; but where none has a time, nothing is known to be older.
            wanted = starts[number] if newest.get(number, 0) < 0 else ends[number]
        if wanted > ends[number]:
            raise CommandFailed(
                f"{topic.name}-{number} ends at offset {ends[number]}: {wanted} is beyond; nothing was deleted. "
                "Choose partitions with TOPIC:P,... or say `--before end`"
            )
        cuts.append(Cut(partition=number, before=starts[number], after=max(starts[number], wanted)))
    return cuts


async def execute_cuts(cluster: Cluster, topic: TopicMetadata, cuts: Sequence[Cut]) -> dict[int, int]:
    """The error code of each partition that has something to delete, as the leaders in `topic` answer."""
    leaders = {each.partition: each.leader_id for each in topic.partitions}
    by_leader: dict[int, dict[int, int]] = {}
    for cut in cuts:
        if cut.after > cut.before:
            by_leader.setdefault(leaders[cut.partition], {})[cut.partition] = cut.after
    codes: dict[int, int] = {}
    for leader_id, before in by_leader.items():
        answered = await delete_records(cluster, topic.name, before, leader_id=leader_id)
        if answered.keys() != before.keys():
            raise CorruptAnswer(f"a broker answers about partitions {sorted(answered)}, and not {sorted(before)}")
        codes |= {number: code for number, (code, _) in answered.items()}
    return codes


async def failures_of(
    arguments: argparse.Namespace, cluster: Cluster, topic: TopicMetadata, cuts: Sequence[Cut], codes: Mapping[int, int]
) -> dict[int, str]:
    """Why it failed, for each partition where it did."""
    now, snapshots = topic, list[Snapshot]()
    if NOT_LEADER_OR_FOLLOWER in codes.values():
        now = (await cluster.metadata([topic.name])).topics.get(topic.name, topic)
    if POLICY_VIOLATION in codes.values():
        snapshots = await asyncio.to_thread(_snapshots, arguments, topic)
    leaders = {partition.partition: partition.leader_id for partition in now.partitions}
    failures: dict[int, str] = {}
    for cut in cuts:
        code = codes.get(cut.partition, NONE)
        if code == POLICY_VIOLATION:
            failures[cut.partition] = reason(code, _held(topic, cut, snapshots))
        elif code == NOT_LEADER_OR_FOLLOWER:
            leader_id = leaders.get(cut.partition, -1)
            leader = "no broker leads it now" if leader_id < 0 else f"broker {leader_id} does now"
            message = f"the broker that was asked does not lead the partition, {leader}; run the command again"
            failures[cut.partition] = reason(code, message)
        elif code != NONE:
            failures[cut.partition] = topic_refusal(cluster, Operation.DELETE, topic.name, code)
    return failures


def _snapshots(arguments: argparse.Namespace, topic: TopicMetadata) -> list[Snapshot]:
    """The topic's snapshots; none where no broker of this cluster lists them over HTTP.

    DeleteRecords has no room for a name.
    """
    try:
        snapshots = HttpApi.beside_kafka(arguments.http, arguments.command_config).snapshots(topic.name)
    except (CommandFailed, UsageError):
        return []
    return [snapshot for snapshot in snapshots if snapshot["topic_id"] == str(topic.topic_id)]


def _held(topic: TopicMetadata, cut: Cut, snapshots: Sequence[Snapshot]) -> str:
    sentences = [
        f"snapshot {snapshot['name']} holds records before offset {cut.after}; "
        f"`tiered snapshot delete {shlex.quote(snapshot['name'])}` frees them, if nobody needs it"
        for snapshot in snapshots
        if any(_overlap(cut, offsets) for offsets in snapshot["partitions"])
    ]
    may_be = f"a snapshot may hold these records; `tiered snapshot list {topic.name}` shows them"
    return "; ".join(sentences) or may_be


def _overlap(cut: Cut, offsets: Mapping[str, int]) -> bool:
    """Whether the cut takes any of the offsets that a snapshot holds in one partition."""
    is_there = offsets["partition"] == cut.partition
    return is_there and offsets["start_offset"] < cut.after and offsets["end_offset"] > cut.before


def _tell(arguments: argparse.Namespace, topic: str, cuts: Sequence[Cut], failures: Mapping[int, str]) -> None:
    if arguments.json:
        partitions = [{**asdict(each), "error": failures.get(each.partition)} for each in cuts]
        print_json({"topic": topic, "executed": arguments.execute, "partitions": partitions})
    else:
        rows = [[each.partition, each.before, each.after, each.after - each.before] for each in cuts]
        print_table(">PARTITION >START >NEW-START >OFFSETS", rows)
        gone = [each for each in cuts if each.after > each.before and each.partition not in failures]
        count = f"{counted(sum(each.after - each.before for each in gone), 'offset')} of {topic}"
        if arguments.execute:
            say(f"\n{count} deleted")
        elif gone:
            say(f"\nNothing was deleted: this is the plan. --execute deletes {count}, for good.")
        else:
            say(f"\nNothing to delete: {topic} begins there already.")
    for number, message in failures.items():
        complain(arguments, f"{topic}-{number}: {message}")
