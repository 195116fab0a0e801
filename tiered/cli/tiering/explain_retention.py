"""`tiered explain-retention TOPIC`: what retention would delete now, what it keeps, and why.

Reads the decision of each partition's leader over HTTP. Decides nothing and changes nothing.
"""

import argparse
from typing import Any

from tiered.cli.client.http_api import HttpApi
from tiered.cli.output import Cell, counted, in_bytes, in_utc, print_json, print_table, say
from tiered.cli.tiering.segments import offsets_of, partitions_of


def run(arguments: argparse.Namespace) -> None:
    """Explains one partition or all. Raises CommandFailed and UsageError."""
    api = HttpApi(arguments.http, arguments.command_config)
    topic = arguments.topic
    numbers = [arguments.partition] if arguments.partition is not None else partitions_of(api, topic)
    found = [api.retention(topic, number) for number in numbers]
    if arguments.json:
        print_json({"topic": topic, "partitions": [_without_topic(each) for each in found]})
        return
    _show(found, "runs", "delete", "keep")
    if arguments.local:
        say("\nLocal copies, of each leader:")
        _show(found, "local_runs", "remove", "keep")
    say("\n" + "\n".join(_summary(found)))


def _without_topic(partition: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in partition.items() if name != "topic"}


def _show(partitions: list[dict[str, Any]], runs: str, delete: str, keep: str) -> None:
    rows = [_row(each["partition"], run, delete, keep) for each in partitions for run in each[runs]]
    print_table(">PARTITION OFFSETS >SEGMENTS >SIZE NEWEST VERDICT WHY", rows)


def _row(partition: int, run: dict[str, Any], delete: str, keep: str) -> list[Cell]:
    return [
        partition,
        offsets_of(run),
        run["segments"],
        in_bytes(run["size_bytes"]),
        in_utc(run["newest_ms"]),
        delete if run["deletes"] else keep,
        run["why"] + (f": {run['pin']}" if run["pin"] else ""),
    ]


def _summary(partitions: list[dict[str, Any]]) -> list[str]:
    """What the tables don't say: the settings, what goes in all, what waits for its end, and whether the clock lies."""
    configs = partitions[0]["configs"]
    lines = [
        f"cleanup.policy={configs['cleanup.policy']}, retention.ms={configs['retention.ms']}, "
        f"retention.bytes={configs['retention.bytes']} (of each partition; -1 is no limit)",
        f"The next round deletes {_sum(partitions, 'retires')} and keeps {_sum(partitions, 'keeps')}.",
    ]
    retired = [each["retired"] for each in partitions]
    if any(each["objects"] for each in retired):
        objects, pinned = sum(each["objects"] for each in retired), sum(each["pinned_objects"] for each in retired)
        size = in_bytes(sum(each["bytes"] for each in retired))
        first = min((each["next_purge_ms"] for each in retired if each["next_purge_ms"] is not None), default=None)
        waits = [f"the first goes after {in_utc(first)}, when its grace is over"] if first is not None else []
        waits += [f"{pinned} are kept for readers that have pinned them"] if pinned else []
        lines.append(f"Deleted before and still stored: {counted(objects, 'object')}, {size}; {'; '.join(waits)}.")
    lines += [f"Partition {each['partition']}: {each['clock']['reason']}" for each in partitions if _doubts(each)]
    return lines


def _doubts(partition: dict[str, Any]) -> bool:
    return not partition["clock"]["trusted"]


def _sum(partitions: list[dict[str, Any]], what: str) -> str:
    segments = sum(each[what]["segments"] for each in partitions)
    size_bytes = sum(each[what]["bytes"] for each in partitions)
    return f"{counted(segments, 'segment')} ({in_bytes(size_bytes)})" if segments else "nothing"
