"""`tiered groups reset GROUP`: moves the offsets of a group without members; first as a plan.

Owns what is meant by earliest, latest, a time, a shift. Must never change anything without `--execute`, and never
commit an offset that is not in the log.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from tiered.cli.client.cluster import chosen_partitions, existing_topic, run_with_cluster
from tiered.cli.client.refusals import lacks, topic_refusal
from tiered.cli.failure import EXIT_FAILED, EXIT_OK, CommandFailed, UsageError
from tiered.cli.groups.commands import SHOWS_GROUPS, bounds_of, missing_group
from tiered.cli.output import Cell, complain, counted, print_json, print_table, say
from tiered.cli.times import moment_ms
from tiered.errors import GroupNotFound
from tiered.peer import BrokerError, Cluster, TopicPartition
from tiered.peer.group_admin import committed_offsets, delete_offsets, describe_group, move_offsets
from tiered.peer.topology import numbers_by_topic
from tiered.rules.groups.offset_reset import (
    NewOffset,
    ShiftBy,
    Target,
    ToEarliest,
    ToLatest,
    ToOffset,
    ToTimestamp,
    new_offset,
)
from tiered.rules.partition.partition_state import LogBounds
from tiered.rules.security.acl import Operation, ResourceType
from tiered.wire.error_codes import GROUP_AUTHORIZATION_FAILED, reason

Wanted = Mapping[str, tuple[int, ...] | None]
"""Topics, and those of their partitions that are meant; None means all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One partition's offset before and after; None is none. `asked` is that of NewOffset."""

    topic: str
    partition: int
    before: int | None
    after: int | None
    asked: int | None


def wanted_of(texts: Sequence[str]) -> Wanted:
    """The topics that repeated `TOPIC[:P,...]` mean. Raises UsageError."""
    found: dict[str, tuple[int, ...] | None] = {}
    for text in texts:
        topic, colon, rest = text.partition(":")
        numbers = rest.split(",") if colon else []
        if not topic or not all(each.isascii() and each.isdigit() and len(each) < 10 for each in numbers):
            raise UsageError(f"{text!r} is not allowed: it must be TOPIC, or TOPIC:0,1 for some partitions")
        if topic in found:
            raise UsageError(f"{topic} is given twice; name its partitions with commas: {topic}:0,1")
        found[topic] = tuple(map(int, numbers)) if colon else None
    return found


def run(arguments: argparse.Namespace) -> int:
    """Shows where the offsets would go, and with `--execute` moves them."""
    wanted = None if arguments.all_topics else wanted_of(arguments.topics)
    target = None if arguments.delete else target_of(arguments)

    async def act(cluster: Cluster) -> int:
        missing = await _missing_or_empty(cluster, arguments.group, must_exist=wanted is None)
        committed = await committed_offsets(cluster, arguments.group)
        partitions = sorted(committed) if wanted is None else await _partitions(cluster, wanted)
        if not partitions:
            raise CommandFailed(f"group {arguments.group} has no offsets to move; name a topic with --topic")
        after: Mapping[TopicPartition, NewOffset | None] = {}
        if target is None:
            partitions = [each for each in partitions if each in committed]
        else:
            bounds = await bounds_of(cluster, partitions)
            _require_there(partitions, bounds)
            found = await _found_by_time(cluster, bounds, target)
            before = {each: at.offset for each, at in committed.items()}
            after = {
                each: new_offset(target, bounds[each], committed=before.get(each), found=found.get(each))
                for each in partitions
            }
        moves = [
            Move(
                topic=each[0],
                partition=each[1],
                before=committed[each].offset if each in committed else None,
                after=new.offset if (new := after.get(each)) is not None else None,
                asked=new.asked if new is not None else None,
            )
            for each in partitions
        ]
        _require_starts(arguments, moves)
        codes = await _execute(cluster, arguments.group, moves) if arguments.execute else {}
        failures = {where: _refusal(cluster, arguments.group, where, code) for where, code in codes.items() if code}
        return _tell(arguments, moves, failures, missing)

    return run_with_cluster(arguments, act)


async def _missing_or_empty(cluster: Cluster, group_id: str, *, must_exist: bool) -> str | None:
    """The message that there is no such group; None where it has no members. Raises CommandFailed when it has some."""
    try:
        group = await describe_group(cluster, group_id)
    except GroupNotFound:
        told = await missing_group(cluster, group_id)
        if must_exist:
            raise CommandFailed(f"{told}; {SHOWS_GROUPS}, and a reset with --topic makes one") from None
        return told
    if group.members:
        raise CommandFailed(
            f"group {group_id} has {counted(len(group.members), 'member')}, who would overwrite it: stop them first "
            f"(`tiered groups describe {group_id}` shows them; one that died leaves when its session ends)"
        )
    return None


async def _partitions(cluster: Cluster, wanted: Wanted) -> list[TopicPartition]:
    found = {name: chosen_partitions(await existing_topic(cluster, name), wanted[name]) for name in wanted}
    return sorted((name, number) for name, numbers in found.items() for number in numbers)


def _require_there(partitions: Sequence[TopicPartition], bounds: Mapping[TopicPartition, LogBounds]) -> None:
    missing = [f"{topic}-{partition}" for topic, partition in partitions if (topic, partition) not in bounds]
    if missing:
        raise CommandFailed(
            f"{missing[0]} does not exist, or has no leader now; nothing was changed. Choose others with --topic, or "
            "forget its offset with --delete"
        )


async def _found_by_time(
    cluster: Cluster, bounds: Mapping[TopicPartition, LogBounds], target: Target
) -> dict[TopicPartition, int]:
    """The first offset since the time, of partitions that have a record as young."""
    found: dict[TopicPartition, int] = {}
    if isinstance(target, ToTimestamp):
        for topic, numbers in sorted(numbers_by_topic(bounds).items()):
            listed = await cluster.list_offsets(topic, dict.fromkeys(numbers, target.timestamp_ms))
            found |= {(topic, number): offset for number, offset in listed.items() if offset >= 0}
    return found


def target_of(arguments: argparse.Namespace) -> Target:
    """The reset that the options ask for. Raises UsageError."""
    if arguments.to_earliest:
        return ToEarliest()
    if arguments.to_latest:
        return ToLatest()
    if arguments.to_offset is not None:
        return ToOffset(offset=arguments.to_offset)
    if arguments.by is not None:
        return ShiftBy(records=arguments.by)
    timestamp_ms = arguments.to_timestamp if arguments.to_datetime is None else moment_ms(arguments.to_datetime)
    if timestamp_ms is None:
        raise UsageError(f"--to-datetime {arguments.to_datetime} is not allowed: write it as 2026-01-31T23:59:59Z")
    return ToTimestamp(timestamp_ms=timestamp_ms)


def _require_starts(arguments: argparse.Namespace, moves: Sequence[Move]) -> None:
    if arguments.by is None:
        return
    for each in moves:
        if each.before is None:
            raise CommandFailed(
                f"group {arguments.group} has no offset of {each.topic}-{each.partition} that --by could count from; "
                "nothing was changed. Use --to-earliest or --to-latest there"
            )


async def _execute(cluster: Cluster, group_id: str, moves: Sequence[Move]) -> dict[TopicPartition, int]:
    """The error code of each partition."""
    new = {(each.topic, each.partition): each.after for each in moves}
    try:
        codes: dict[TopicPartition, int] = {}
        if kept := {each: after for each, after in new.items() if after is not None}:
            codes |= await move_offsets(cluster, group_id, kept)
        if gone := [each for each, after in new.items() if after is None]:
            codes |= await delete_offsets(cluster, group_id, gone)
    except BrokerError as error:
        message = error.message
        if error.code == GROUP_AUTHORIZATION_FAILED:
            message = lacks(cluster, Operation.DELETE, ResourceType.GROUP, group_id)
        raise CommandFailed(f"{group_id}: {reason(error.code, message)}") from error
    return codes


def _refusal(cluster: Cluster, group_id: str, where: TopicPartition, code: int) -> str:
    if code == GROUP_AUTHORIZATION_FAILED:
        return reason(code, lacks(cluster, Operation.READ, ResourceType.GROUP, group_id))
    return topic_refusal(cluster, Operation.READ, where[0], code)


def _tell(
    arguments: argparse.Namespace, moves: Sequence[Move], failures: Mapping[TopicPartition, str], missing: str | None
) -> int:
    if arguments.json:
        offsets = [{**asdict(each), "error": failures.get((each.topic, each.partition))} for each in moves]
        print_json({"group": arguments.group, "executed": arguments.execute, "offsets": offsets})
    else:
        print_table("TOPIC >PARTITION >BEFORE >AFTER >CHANGE", map(_row, moves))
        if missing is not None and not arguments.delete:
            # Kafka's tool makes it too: whoever mistyped the name should hear of it.
            say(f"\nThis makes a new group: {missing}.")
        done = counted(len(moves) - len(failures), "offset")
        verb = "forgotten" if arguments.delete else "moved"
        say(f"\n{done} {verb}" if arguments.execute else "\nNothing was changed: this is the plan. --execute does it.")
    for each in moves:
        if each.asked is not None:
            what = f"{each.topic}-{each.partition}: offset {each.asked} is outside the log; {each.after} is the nearest"
            complain(arguments, what)
    for (topic, partition), message in failures.items():
        complain(arguments, f"{topic}-{partition}: {message}")
    return EXIT_FAILED if failures else EXIT_OK


def _row(move: Move) -> list[Cell]:
    change = ""
    if move.before is not None and move.after is not None:
        change = f"{move.after - move.before:+d}" if move.after != move.before else "0"
    return [move.topic, move.partition, move.before, move.after, change]
