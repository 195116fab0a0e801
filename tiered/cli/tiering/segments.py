"""`tiered segments TOPIC` and `tiered explain-retention TOPIC`: where each range of offsets is, and why it stays.

Reads the metadata store, and the decision of each partition's leader, over HTTP. Decides nothing and changes nothing.
"""

import argparse
from typing import Any

from tiered.cli.client.http_api import HttpApi
from tiered.cli.failure import CommandFailed
from tiered.cli.names import nearest_names
from tiered.cli.output import Cell, counted, in_bytes, in_utc, print_json, print_table, say

_TITLES = ">PARTITION OFFSETS TIER STATE >SIZE FROM TO"


def run_segments(arguments: argparse.Namespace) -> None:
    """Shows the segments of one partition or of all. Raises CommandFailed and UsageError."""
    api = HttpApi(arguments.http, arguments.command_config)
    numbers = _partitions(api, arguments)
    found = [_whole_partition(api, arguments.topic, number) for number in numbers]
    if arguments.json:
        print_json({"topic": arguments.topic, "partitions": found})
    else:
        _show(found, with_objects=arguments.objects)


def _partitions(api: HttpApi, arguments: argparse.Namespace) -> list[int]:
    """The partition that is meant, or all. Raises CommandFailed with a topic's name that may have been meant."""
    if arguments.partition is not None:
        return [arguments.partition]
    topic, topics = arguments.topic, api.topics()
    for each in topics:
        if each["topic"] == topic:
            return [partition["partition"] for partition in each["partitions"]]
    near = nearest_names(topic, [each["topic"] for each in topics])
    raise CommandFailed(f"there is no topic {topic}{near}; `tiered topics list` shows those that exist")


def _whole_partition(api: HttpApi, topic: str, number: int) -> dict[str, Any]:
    """The partition with all of its segments: a long one comes page by page."""
    answer = api.partition(topic, number)
    answer.pop("topic", None)
    segments = answer["segments"]
    page = segments
    while page and page[-1]["end_offset"] < answer["log_end_offset"]:
        page = api.partition(topic, number, start_offset=page[-1]["end_offset"])["segments"]
        segments.extend(page)
    return answer


def _show(partitions: list[dict[str, Any]], *, with_objects: bool) -> None:
    rows = [_row(each["partition"], segment) for each in partitions for segment in each["segments"]]
    if with_objects:
        print_table(f"{_TITLES} OBJECT", rows)
    else:
        print_table(_TITLES, [row[:-1] for row in rows])
    segments = [segment for each in partitions for segment in each["segments"]]
    totals = []
    for tier in ("hot", "both", "cold"):
        sizes = [segment["size_bytes"] for segment in segments if segment["tier"] == tier]
        if sizes:
            totals.append(f"{tier} {in_bytes(sum(sizes))} in {counted(len(sizes), 'segment')}")
    say("\n" + ("; ".join(totals) or "no segments: nothing was produced yet, or all of it was deleted"))


def _offsets_of(found: dict[str, Any]) -> str:
    """The offsets of a segment, or of a run of them: `0..9`, and `10..` for one that has none yet."""
    base_offset, end_offset = found["base_offset"], found["end_offset"]
    return f"{base_offset}..{end_offset - 1}" if end_offset > base_offset else f"{base_offset}.."


def _row(partition: int, segment: dict[str, Any]) -> list[Cell]:
    return [
        partition,
        _offsets_of(segment),
        segment["tier"],
        segment["state"],
        in_bytes(segment["size_bytes"]),
        in_utc(segment["min_timestamp_ms"]),
        in_utc(segment["max_timestamp_ms"]),
        segment["object_key"],
    ]


def run_explain_retention(arguments: argparse.Namespace) -> None:
    """Explains one partition or all. Raises CommandFailed and UsageError."""
    api = HttpApi(arguments.http, arguments.command_config)
    topic = arguments.topic
    found = [api.retention(topic, number) for number in _partitions(api, arguments)]
    if arguments.json:
        for each in found:
            each.pop("topic", None)
        print_json({"topic": topic, "partitions": found})
        return
    _show_runs(found, "runs", "delete", "keep")
    if arguments.local:
        say("\nLocal copies, of each leader:")
        _show_runs(found, "local_runs", "remove", "keep")
    say("\n" + "\n".join(_summary(found)))


def _show_runs(partitions: list[dict[str, Any]], runs: str, delete: str, keep: str) -> None:
    rows = [_run_row(each["partition"], run, delete, keep) for each in partitions for run in each[runs]]
    print_table(">PARTITION OFFSETS >SEGMENTS >SIZE NEWEST VERDICT WHY", rows)


def _run_row(partition: int, run: dict[str, Any], delete: str, keep: str) -> list[Cell]:
    return [
        partition,
        _offsets_of(run),
        run["segments"],
        in_bytes(run["size_bytes"]),
        in_utc(run["newest_ms"]),
        delete if run["deletes"] else keep,
        run["why"] + (f": {run['pin']}" if run["pin"] else ""),
    ]


def _summary(partitions: list[dict[str, Any]]) -> list[str]:
    """Facts that the tables leave out: settings, totals, what waits for its end, and whether the clock lies."""
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
    doubted = [each for each in partitions if not each["clock"]["trusted"]]
    return [*lines, *(f"Partition {each['partition']}: {each['clock']['reason']}" for each in doubted)]


def _sum(partitions: list[dict[str, Any]], what: str) -> str:
    segments = sum(each[what]["segments"] for each in partitions)
    size_bytes = sum(each[what]["bytes"] for each in partitions)
    return f"{counted(segments, 'segment')} ({in_bytes(size_bytes)})" if segments else "nothing"
