"""`tiered segments TOPIC`: where each range of offsets is, hot, cold or both, and how large.

Reads the catalogue over HTTP. Changes nothing.
"""

import argparse
from typing import Any

from tiered.cli.client.http_api import HttpApi
from tiered.cli.failure import CommandFailed
from tiered.cli.names import nearest_names
from tiered.cli.output import Cell, counted, in_bytes, in_utc, print_json, print_table, say

_TITLES = ">PARTITION OFFSETS TIER STATE >SIZE FROM TO"


def run(arguments: argparse.Namespace) -> None:
    """Shows the segments of one partition or of all. Raises CommandFailed and UsageError."""
    api = HttpApi(arguments.http, arguments.command_config)
    numbers = [arguments.partition] if arguments.partition is not None else partitions_of(api, arguments.topic)
    found = [_whole_partition(api, arguments.topic, number) for number in numbers]
    if arguments.json:
        print_json({"topic": arguments.topic, "partitions": found})
    else:
        _show(found, with_objects=arguments.objects)


def partitions_of(api: HttpApi, topic: str) -> list[int]:
    """The numbers of the topic's partitions. Raises CommandFailed with a name that may have been meant."""
    topics = api.topics()
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


def offsets_of(found: dict[str, Any]) -> str:
    """The offsets of a segment, or of a run of them: `0..9`, and `10..` for one that has none yet."""
    base_offset, end_offset = found["base_offset"], found["end_offset"]
    return f"{base_offset}..{end_offset - 1}" if end_offset > base_offset else f"{base_offset}.."


def _row(partition: int, segment: dict[str, Any]) -> list[Cell]:
    return [
        partition,
        offsets_of(segment),
        segment["tier"],
        segment["state"],
        in_bytes(segment["size_bytes"]),
        in_utc(segment["min_timestamp_ms"]),
        in_utc(segment["max_timestamp_ms"]),
        segment["object_key"],
    ]
