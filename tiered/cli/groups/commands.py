"""`tiered groups list|describe|delete`: who reads what, how far they are, and how far behind.

Owns these commands' words. Everything is asked over the Kafka protocol, so it works for any Kafka broker.
"""

import argparse
import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tiered.cli.client.cluster import with_cluster
from tiered.cli.client.refusals import lacks, none_to_see
from tiered.cli.failure import CommandFailed
from tiered.cli.names import nearest_names
from tiered.cli.output import Cell, counted, describe, on_one_line, print_json, print_table, report, say
from tiered.errors import GroupNotFound, TieredError
from tiered.peer import EARLIEST, LATEST, BrokerError, Cluster, TopicPartition
from tiered.peer.group_admin import (
    DescribedGroup,
    ListedGroup,
    committed_offsets,
    delete_group,
    describe_group,
    list_groups,
)
from tiered.peer.topology import numbers_by_topic
from tiered.rules.partition.partition_state import LogBounds
from tiered.rules.security.acl import Operation, ResourceType
from tiered.wire.error_codes import GROUP_AUTHORIZATION_FAILED, GROUP_ID_NOT_FOUND, NONE, reason

SHOWS_GROUPS = "`tiered groups list` shows those that exist"
_LISTED_AT_ONCE = 8
_SHOWN_ID_CHARS = 40


def state_key(state: str) -> str:
    """Kafka's name of a state as an option's value: `PreparingRebalance` is `preparing-rebalance`."""
    return "".join(f"-{each.lower()}" if each.isupper() and at else each.lower() for at, each in enumerate(state))


@with_cluster
async def run_list(arguments: argparse.Namespace, cluster: Cluster) -> None:
    """`groups list`."""
    found = [each for each in await list_groups(cluster) if _is_wanted(each, arguments.state, arguments.kind)]
    if arguments.quiet and not arguments.json:
        for each in found:
            say(on_one_line(each.group_id))
        return
    lags = await _lags(cluster, [each.group_id for each in found])
    if arguments.json:
        print_json(
            [
                {
                    "group": each.group_id,
                    "kind": each.kind,
                    "state": each.state,
                    "protocol_type": each.protocol_type,
                    "lag": lags[each.group_id],
                }
                for each in found
            ]
        )
    elif not found:
        what = "such group" if arguments.state or arguments.kind else "group"
        say(await none_to_see(cluster, what, "a group is there once it has a member or a committed offset"))
    else:
        rows = [[each.group_id, each.kind, each.state, lags[each.group_id], each.protocol_type] for each in found]
        print_table("GROUP KIND STATE >LAG PROTOCOL", rows)


async def _lags(cluster: Cluster, group_ids: Sequence[str]) -> dict[str, int | None]:
    """The lag of each group in records; None where it is not known."""
    turns = asyncio.Semaphore(_LISTED_AT_ONCE)

    async def committed_by(group_id: str) -> dict[TopicPartition, int]:
        async with turns:
            try:
                return {each: at.offset for each, at in (await committed_offsets(cluster, group_id)).items()}
            except TieredError:
                return {}  # Its offsets are nothing for this user, or its coordinator is away: the others are listed.

    committed = dict(zip(group_ids, await asyncio.gather(*map(committed_by, group_ids)), strict=True))
    bounds: dict[TopicPartition, LogBounds] = {}
    try:
        bounds = await bounds_of(cluster, {each for offsets in committed.values() for each in offsets})
    except* TieredError:
        pass  # A leader has just gone away.
    return {
        group_id: sum(max(0, bounds[each].high_watermark - at) for each, at in offsets.items() if each in bounds)
        if any(each in bounds for each in offsets)
        else None
        for group_id, offsets in committed.items()
    }


def _is_wanted(group: ListedGroup, states: Sequence[str] | None, kinds: Sequence[str] | None) -> bool:
    return (states is None or state_key(group.state) in states) and (kinds is None or group.kind in kinds)


@with_cluster
async def run_describe(arguments: argparse.Namespace, cluster: Cluster) -> None:
    """`groups describe`."""
    found = [await _description(cluster, group_id) for group_id in arguments.groups]
    describe(arguments, found, _show)


async def existing_group(cluster: Cluster, group_id: str) -> DescribedGroup:
    """The group of this name. Raises CommandFailed when there is none."""
    try:
        return await describe_group(cluster, group_id)
    except GroupNotFound:
        raise CommandFailed(f"{await missing_group(cluster, group_id)}; {SHOWS_GROUPS}") from None
    except BrokerError as error:
        raise CommandFailed(f"{group_id}: {reason(error.code, error.message)}") from error


async def missing_group(cluster: Cluster, group_id: str) -> str:
    """The message that there is no such group, with similar names."""
    there = [each.group_id for each in await list_groups(cluster)]
    return f"there is no group {group_id}{nearest_names(group_id, there)}"


async def bounds_of(cluster: Cluster, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, LogBounds]:
    """The bounds of those partitions that exist and have a leader."""
    wanted = numbers_by_topic(partitions)
    if not wanted:
        return {}
    described = (await cluster.metadata(sorted(wanted))).topics
    turns = asyncio.Semaphore(_LISTED_AT_ONCE)
    found: dict[TopicPartition, LogBounds] = {}

    async def look(topic: str, numbers: list[int]) -> None:
        async with turns:
            starts = await cluster.list_offsets(topic, dict.fromkeys(numbers, EARLIEST))
            ends = await cluster.list_offsets(topic, dict.fromkeys(numbers, LATEST))
        for number in numbers:
            found[topic, number] = LogBounds(log_start_offset=starts[number], high_watermark=ends[number])

    async with asyncio.TaskGroup() as tasks:
        for topic, numbers in wanted.items():
            there = described[topic].partitions if topic in described and not described[topic].error_code else ()
            led = [each.partition for each in there if each.leader_id >= 0 and each.partition in numbers]
            if led:
                tasks.create_task(look(topic, led))
    return found


async def _description(cluster: Cluster, group_id: str) -> dict[str, Any]:
    group = await existing_group(cluster, group_id)
    committed = await committed_offsets(cluster, group_id)
    owners = {
        (topic, partition): member
        for member in group.members
        for topic, partitions in member.assignment.items()
        for partition in partitions
    }
    bounds = await bounds_of(cluster, committed.keys() | owners.keys())
    uncommitted = await _uncommitted(
        cluster, committed.keys(), {topic for topic, _ in committed.keys() | owners.keys()}
    )
    offsets = []
    for topic, partition in sorted(committed.keys() | owners.keys()):
        offset = committed.get((topic, partition))
        bound = bounds.get((topic, partition))
        owner = owners.get((topic, partition))
        offsets.append(
            {
                "topic": topic,
                "partition": partition,
                "committed_offset": offset.offset if offset else None,
                "log_start_offset": bound.log_start_offset if bound else None,
                "high_watermark": bound.high_watermark if bound else None,
                "lag": max(0, bound.high_watermark - offset.offset) if bound and offset else None,
                "metadata": offset.metadata if offset else None,
                "member_id": owner.member_id if owner else None,
                "client_id": owner.client_id if owner else None,
            }
        )
    return {
        "group": group.group_id,
        "kind": group.kind,
        "state": group.state,
        "protocol_type": group.protocol_type,
        "assignor": group.assignor,
        "lag": sum(each["lag"] or 0 for each in offsets),
        "members": [{**asdict(each), "assignment": dict(sorted(each.assignment.items()))} for each in group.members],
        "offsets": offsets,
        "uncommitted": uncommitted,
    }


async def _uncommitted(
    cluster: Cluster, committed: Collection[TopicPartition], topics: Collection[str]
) -> dict[str, list[int]]:
    """The partitions of these topics that the group has committed nothing of, whether or not a member has them."""
    described = (await cluster.metadata(sorted(topics))).topics if topics else {}
    numbers = {
        name: [
            partition.partition
            for partition in described[name].partitions
            if (name, partition.partition) not in committed
        ]
        for name in sorted(described)
    }
    return {name: lacking for name, lacking in numbers.items() if lacking}


def _show(group: dict[str, Any]) -> None:
    members, offsets = group["members"], group["offsets"]
    about = [group["kind"], group["state"], counted(len(members), "member")]
    say("  ".join([group["group"], ", ".join(each for each in [*about, group["assignor"]] if each)]))
    if offsets:
        print_table("TOPIC >PARTITION >OFFSET >END >LAG MEMBER", map(_offset_row, offsets))
        if any(each["lag"] is not None for each in offsets):
            lagging = sum(bool(each["lag"]) for each in offsets)
            where = f", in {counted(lagging, 'partition')}" if lagging else ""
            say(f"\n{counted(group['lag'], 'record')} behind{where}{_without_offset(group)}")
    if members:
        say()
        print_table("MEMBER CLIENT HOST ASSIGNED", map(_member_row, members))
    for hint in hints(group):
        say(hint)


def _without_offset(group: Mapping[str, Any]) -> str:
    count = sum(map(len, group["uncommitted"].values()))
    named = " ".join(f"{topic}:{ranges(numbers)}" for topic, numbers in group["uncommitted"].items())
    return f"; nothing committed in {counted(count, 'partition')} ({named})" if count else ""


def _offset_row(each: Mapping[str, Any]) -> list[Cell]:
    numbers = (each["partition"], each["committed_offset"], each["high_watermark"], each["lag"])
    return [each["topic"], *numbers, shortened(each["member_id"] or "")]


def _member_row(each: Mapping[str, Any]) -> list[str]:
    assigned = [f"{topic}:{ranges(numbers)}" for topic, numbers in each["assignment"].items()]
    instance = f" ({each['instance_id']})" if each["instance_id"] else ""
    # Clients' addresses begin with a slash in Kafka, as Java prints them.
    host = each["client_host"].removeprefix("/")
    return [shortened(each["member_id"]) + instance, each["client_id"], host, " ".join(assigned)]


def shortened(member_id: str) -> str:
    """A member's id in a column: its begin and its end, which differ between members."""
    if len(member_id) <= _SHOWN_ID_CHARS:
        return member_id
    half = (_SHOWN_ID_CHARS - 3) // 2
    return f"{member_id[:half]}...{member_id[-half:]}"


def ranges(numbers: Sequence[int]) -> str:
    """`0-3,7` for 0, 1, 2, 3 and 7."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def hints(group: Mapping[str, Any]) -> list[str]:
    """Notes on things that a person might wonder about."""
    found = []
    if not group["members"]:
        found.append("It has no members: nobody reads for it now.")
    if not any(each["committed_offset"] is not None for each in group["offsets"]):
        found.append("It has committed nothing: members begin where auto.offset.reset says.")
    for each in group["offsets"]:
        committed, where = each["committed_offset"], f"{each['topic']}-{each['partition']}"
        if committed is None:
            continue
        if each["high_watermark"] is None:
            found.append(f"{where} does not exist any more, or has no leader now.")
        elif committed < each["log_start_offset"]:
            lost = counted(each["log_start_offset"] - committed, "record")
            found.append(f"{where}: retention has deleted {lost} that the group has not read.")
        elif committed > each["high_watermark"]:
            found.append(f"{where}: the offset is beyond the end; members begin where auto.offset.reset says.")
    return found


@with_cluster
async def run_delete(arguments: argparse.Namespace, cluster: Cluster) -> int:
    """`groups delete`."""
    outcomes = []
    for group_id in dict.fromkeys(arguments.groups):
        code = await _deleted(cluster, group_id)
        missing_is_fine = arguments.if_exists and code == GROUP_ID_NOT_FOUND
        told = f"{await missing_group(cluster, group_id)}; {SHOWS_GROUPS}" if code == GROUP_ID_NOT_FOUND else None
        if code == GROUP_AUTHORIZATION_FAILED:
            told = lacks(cluster, Operation.DELETE, ResourceType.GROUP, group_id)
        message = None if code == NONE or missing_is_fine else reason(code, told)
        outcomes.append((group_id, code == NONE, message))
    return report(arguments, "group", outcomes, "deleted")


async def _deleted(cluster: Cluster, group_id: str) -> int:
    try:
        return await delete_group(cluster, group_id)
    except BrokerError as error:
        return error.code
