"""What a read from the store alone may leave out: records that brokers have not uploaded yet.

Owns the rule and the words. The store cannot know where a log ends now; a partition's checkpoint says where the log
ended when the checkpoint was written, at the latest upload. Must never ask a broker.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from pyspark_tiered.options import LATEST_OFFSET, AtOffsets, Position
from pyspark_tiered.plan import NO_BOUNDS, FilterBounds, OffsetVector, PartitionView, TopicAndPartition
from tiered.errors import OffsetOutOfRange

log = logging.getLogger(__name__)

_NAMED_RUNS = 20
"""Runs of partitions that a sentence names."""
_LAST_SECOND = 253_402_300_799
"""The end of the year 9999, the last that a datetime can be of."""


def read_to_the_end(
    views: Mapping[TopicAndPartition, PartitionView],
    ends: OffsetVector,
    ending: Position,
    bounds: FilterBounds = NO_BOUNDS,
) -> list[PartitionView]:
    """The partitions that are read up to wherever their log ends, which a fixed offset or a filter below is not."""
    return [
        view
        for key, view in views.items()
        if not (isinstance(ending, AtOffsets) and ending.offsets[key] != LATEST_OFFSET)
        and ends[key] >= view.end_offset
        and bounds.may_hold(view.topic, view.partition)
        and bounds.last_offset >= view.end_offset
    ]


def report_store_end(
    views: Iterable[PartitionView], *, fail: bool, brokers_option: str = "kafka.bootstrap.servers"
) -> None:
    """One warning for each topic that is read from the store alone, with how far the store reaches.

    `brokers_option` is the option by which the caller's user names brokers.

    With `fail` raises `OffsetOutOfRange` where the store lacks records, or cannot tell.
    """
    by_topic: dict[str, list[PartitionView]] = {}
    for view in views:
        if view.is_store_alone:
            by_topic.setdefault(view.topic, []).append(view)
    incomplete = [topic for topic, partitions in by_topic.items() if any(map(_may_lack_records, partitions))]
    if fail and incomplete:
        sentences = " ".join(described(by_topic[topic]) for topic in incomplete)
        raise OffsetOutOfRange(
            f"{sentences} Give {brokers_option} to read the rest from the brokers, or set "
            "failOnIncompleteStore=false to go without it"
        )
    for partitions in by_topic.values():
        log.warning("%s Give %s to read the rest from the brokers.", described(partitions), brokers_option)


def described(partitions: Sequence[PartitionView]) -> str:
    """What is known of the end of one topic's partitions, in sentences."""
    empty = [view for view in partitions if view.latest_upload_ms is None]
    others = [view for view in partitions if view.latest_upload_ms is not None]
    behind = [view for view in partitions if _missing_offsets(view)]
    silent = [view for view in others if view.known_log_end is None]
    sentences = [
        f"Topic {partitions[0].topic} is read from the store alone, so records that are not uploaded yet are left out."
    ]
    if empty:
        sentences.append(f"The store has nothing of {_names(empty)}.")
    if others:
        times = [view.latest_upload_ms or 0 for view in others]
        first, last = _time(min(times)), _time(max(times))
        until = first if first == last else f"{first} to {last}"
        sentences.append(f"The latest upload of {_names(others)} is from {until}.")
    if behind:
        count = sum(map(_missing_offsets, behind))
        sentences.append(f"The checkpoints know of {count:,} more offsets, in {_names(behind)}.")
    if silent:
        sentences.append(f"The checkpoints of {_names(silent)} do not say where the log ended.")
    return " ".join(sentences)


def _may_lack_records(view: PartitionView) -> bool:
    return view.latest_upload_ms is None or view.known_log_end is None or _missing_offsets(view) > 0


def _missing_offsets(view: PartitionView) -> int:
    """How many offsets the log had above the store's end when the checkpoint was written."""
    return max(0, (view.known_log_end or 0) - view.cold_end_offset)


def _names(views: Sequence[PartitionView]) -> str:
    """Partitions as people write them: `partition 3`, `partitions 0-2, 7`."""
    runs: list[list[int]] = []
    for number in sorted(view.partition for view in views):
        if runs and runs[-1][-1] == number - 1:
            runs[-1] = [runs[-1][0], number]
        else:
            runs.append([number])
    named = ", ".join("-".join(map(str, run)) for run in runs[:_NAMED_RUNS])
    more = ", …" if len(runs) > _NAMED_RUNS else ""
    return f"partition{'s' if len(views) > 1 else ''} {named}{more}"


def _time(timestamp_ms: int) -> str:
    seconds = max(0, min(timestamp_ms // 1000, _LAST_SECOND))
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
