"""A restore's plan for people and for programs: what comes back, what is lost, what to look at.

Owns the words and the JSON. Must never hold a time or anything else that is not in the plan: the same bucket gives the
same words.
"""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from tiered.cli.output import Cell, counted, in_bytes, plain_lines
from tiered.rules.segments.restore_plan import MovedOffset, RestoredPartition, RestoredTopic, RestorePlan

MAX_SHOWN = 50
MAX_PROBLEMS = 20


def lines(plan: RestorePlan, *, target_holds: str | None) -> Iterator[str]:
    """The plan in words."""
    yield f"cluster {plan.former_cluster_id} comes back as {plan.cluster_id}, on {_brokers(plan)}"
    sizes = [each.size_bytes for topic in plan.topics for its in topic.partitions for each in its.segments]
    yield (
        f"{counted(len(plan.topics), 'topic')}, {counted(plan.segment_count, 'segment')}, {in_bytes(sum(sizes))}; "
        f"{counted(len(plan.groups), 'consumer group')}, {counted(_snapshots(plan), 'snapshot')}, "
        f"{counted(len(plan.acls), 'access rule')}; users and their passwords are not kept"
    )
    yield f"leader epochs and producer ids (from {plan.next_producer_id:,} on) are ones that the old cluster never used"
    if plan.topics:
        rows = [_row(topic, its) for topic in plan.topics for its in topic.partitions]
        yield ""
        yield from plain_lines("PARTITION OFFSETS >SEGMENTS >SIZE BROKERS LOST", rows)
    yield ""
    yield from _lost(plan)
    for title, found in (("warnings", plan.warnings), ("problems, with which nothing is restored", problems(plan))):
        if found:
            yield ""
            yield f"{title}:"
            yield from (f"  {each}" for each in found)
    if target_holds is not None:
        yield ""
        yield f"the database holds {target_holds}: only an empty one can be restored into"


def problems(plan: RestorePlan) -> list[str]:
    """The first of them."""
    more = len(plan.problems) - MAX_PROBLEMS
    return [*plan.problems[:MAX_PROBLEMS], *([f"and {more} more"] if more > 0 else [])]


def done(plan: RestorePlan) -> str:
    """What to say afterwards."""
    return (
        f"cluster {plan.cluster_id} is restored: {counted(len(plan.topics), 'topic')}, "
        f"{counted(plan.segment_count, 'segment')}, {counted(len(plan.groups), 'consumer group')}. "
        f"Start {_brokers(plan)} with this --meta and --store, and with empty data folders"
    )


def as_json(plan: RestorePlan, *, target_holds: str | None, applied: bool) -> dict[str, Any]:
    """The plan for programs; `applied` says whether it was carried out."""
    return {
        "applied": applied,
        "former_cluster_id": plan.former_cluster_id,
        "cluster_id": plan.cluster_id,
        "change_number": plan.change_number,
        "next_producer_id": plan.next_producer_id,
        "brokers": list(plan.brokers),
        "settings": {scope: dict(values) for scope, values in sorted(plan.settings.items())},
        "resource_configs": {each: dict(values) for each, values in sorted(plan.resource_configs.items())},
        "topics": [_topic_json(topic) for topic in plan.topics],
        "groups": [
            {
                "group_id": group.group_id,
                "offsets": [
                    {"topic_id": str(each.topic_id), "partition": each.partition, "offset": each.offset}
                    for each in group.offsets
                ],
            }
            for group in plan.groups
        ],
        "moved_offsets": [
            {
                "group_id": each.group_id,
                "topic": each.topic,
                "partition": each.partition,
                "committed_offset": each.committed_offset,
                "restored_offset": each.restored_offset,
            }
            for each in plan.moved_offsets
        ],
        "snapshots": [each.name for each in plan.pins if each.name is not None],
        "pins": len(plan.pins) - _snapshots(plan),
        "access_rules": [asdict(each) for each in plan.acls],
        "warnings": list(plan.warnings),
        "problems": list(plan.problems),
        "database_holds": target_holds,
    }


def _topic_json(topic: RestoredTopic) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "topic_id": str(topic.topic_id),
        "configs": dict(sorted(topic.configs.items())),
        "replication_factor": topic.replication_factor,
        "former_replication_factor": topic.former_replication_factor,
        "partitions": [
            {
                "partition": each.partition,
                "log_start_offset": each.log_start_offset,
                "end_offset": each.cold_end_offset,
                "segments": len(each.segments),
                "size_bytes": sum(segment.size_bytes for segment in each.segments),
                "leader_epoch": each.leader_epoch,
                "replicas": list(each.replicas),
                "lost_from": each.cold_end_offset,
                "lost_before": each.lost_before,
            }
            for each in topic.partitions
        ],
    }


def _row(topic: RestoredTopic, its: RestoredPartition) -> list[Cell]:
    start, end = its.log_start_offset, its.cold_end_offset
    return [
        f"{topic.name}-{its.partition}",
        f"{start}..{end - 1}" if end > start else f"none, the next is {end}",
        len(its.segments),
        in_bytes(sum(each.size_bytes for each in its.segments)),
        ",".join(map(str, its.replicas)),
        None if its.lost_before is None else f"{end}..{its.lost_before - 1}",
    ]


def _lost(plan: RestorePlan) -> Iterator[str]:
    lost = [its for topic in plan.topics for its in topic.partitions if its.lost_before is not None]
    records = sum((its.lost_before or 0) - its.cold_end_offset for its in lost)
    if lost:
        yield (
            f"known to be lost, for it was never uploaded: {counted(records, 'offset')} in "
            f"{counted(len(lost), 'partition')}; and whatever was written later than its partition's last checkpoint"
        )
    else:
        yield "lost is whatever was written later than its partition's last checkpoint; none of it is known"
    if plan.moved_offsets:
        yield f"{counted(len(plan.moved_offsets), 'offset')} of groups lay beyond that and go back to the restored end:"
        yield from (f"  {_moved(each)}" for each in plan.moved_offsets[:MAX_SHOWN])
        if len(plan.moved_offsets) > MAX_SHOWN:
            yield f"  and {len(plan.moved_offsets) - MAX_SHOWN} more; --json has all of them"


def _moved(each: MovedOffset) -> str:
    return f"{each.group_id}: {each.topic}-{each.partition} from {each.committed_offset} to {each.restored_offset}"


def _snapshots(plan: RestorePlan) -> int:
    return sum(each.name is not None for each in plan.pins)


def _brokers(plan: RestorePlan) -> str:
    noun = "broker" if len(plan.brokers) == 1 else "brokers"
    return f"{noun} {', '.join(map(str, plan.brokers))}"
