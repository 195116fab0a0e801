"""A loop that awaits something for each of many items goes on behind one that fails, or stands here with its reason.

`tiered.broker.one_by_one` does so, and notes, names and counts what failed. A loop that catches errors of its items, or
does not await, is left alone.
"""

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.house.sources import parsed

ROOT = Path(__file__).parents[2]
ROOMS = ("tiered/broker", "tiered/read_replica")
WHOLE = {
    "tiered/broker/applier.py:ChangeApplier._apply": "each step catches its own errors",
    "tiered/broker/applier.py:ChangeApplier._apply_rows": "an error closes its partition; only closing is outside",
    "tiered/broker/applier.py:ChangeApplier._open": "an error is noted for its partition; only closing is outside",
    "tiered/broker/applier.py:ChangeApplier._refit": "opening raises nothing of one partition",
    "tiered/broker/groups/classic.py:ClassicGroups.leave": "one request about one group",
    "tiered/broker/groups/consumer.py:ConsumerGroups.knowing": "one request about one group",
    "tiered/broker/groups/offset_reader.py:OffsetReader._ask_together": "tries of one question",
    "tiered/broker/groups/offsets_topic.py:OffsetsTopic._append": "parts of one answer, in their order",
    "tiered/broker/groups/offsets_topic.py:OffsetsTopic.tick": "reading a partition notes its own errors",
    "tiered/broker/people/offset_reset.py:_offsets_after": "one request of a person",
    "tiered/broker/people/record_reader.py:RecordReader._range": "one request of a person",
    "tiered/broker/people/record_search.py:RecordSearches.steps": "an error of a partition is a step of its own",
    "tiered/broker/people/record_writer.py:RecordWriter._write": "one request of a person",
    "tiered/broker/people/record_writer.py:RecordWriter.write": "one request of a person",
    "tiered/broker/people/sql_reports.py:SqlReports._write": "an error is SQL's, and all are noted again",
    "tiered/broker/people/tail.py:LocalTopicTail.next": "one request of a person",
    "tiered/broker/reconcile/bucket.py:BucketComparison._examine": "one page of one partition, which is noted",
    "tiered/broker/reconcile/scrub.py:Scrub._go_on": "an error is noted for its object; only the pause is outside",
    "tiered/broker/reconcile/unknown_topics.py:UnknownTopicObjects._page": "a page that is away is read again",
    "tiered/broker/replication/fetcher.py:ReplicaFetcher._take": "an error is noted; only a pause is outside",
    "tiered/broker/rounds/partition_rounds.py:PartitionRounds.bound_producers": "in memory",
    "tiered/broker/rounds/partition_rounds.py:PartitionRounds.look": "a flush notes its own errors",
    "tiered/broker/tiering/checkpoints.py:CheckpointWriter.write_stale": "writing returns its error",
    "tiered/broker/tiering/compaction.py:CompactionRounds.round": "a pass notes its own errors, and its log rests",
    "tiered/broker/tiering/joining.py:Joining._join_all": "one partition, noted for its next round",
    "tiered/broker/tiering/segment_lifecycle.py:SegmentLifecycle._commit": "tries of one commit",
    "tiered/broker/tiering/segment_lifecycle.py:SegmentLifecycle._deleting": "a look after a refusal raises nothing",
    "tiered/broker/tiering/segment_lifecycle.py:SegmentLifecycle._purge_all": "a batch raises where the store is away",
    "tiered/broker/tiering/tier_reader.py:TierReader._first_in_store": "one question, answered in the order of offsets",
    "tiered/broker/tiering/tier_reader.py:TierReader._greatest_in_store": "one question about one partition",
    "tiered/broker/transactions/coordinator.py:TransactionCoordinator._abort_timed_out": "an abort returns its error",
    "tiered/broker/transactions/coordinator.py:TransactionCoordinator.init_producer_id": "two steps of one request",
    "tiered/read_replica/bucket_topics.py:BucketTopics.refresh.look": "a look notes its own errors",
}
"""Loops whose items are one whole, or whose errors concern all of them."""


def loops(path: Path) -> Iterator[str]:
    """The functions of a module with a loop that an error of one item ends."""

    def walk(node: ast.AST, name: str) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            inner = name
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inner = f"{name}.{child.name}".lstrip(".")
            if isinstance(child, ast.For | ast.AsyncFor) and awaits(child.body):
                yield inner
            yield from walk(child, inner)

    for name in walk(parsed(path), ""):
        yield f"{path.relative_to(ROOT)}:{name}"


def awaits(body: Iterable[ast.AST]) -> bool:
    """Whether something is awaited in `body`, outside of whatever catches its errors."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.Await | ast.AsyncWith):
            return True
        inner: Iterable[ast.AST] = ast.iter_child_nodes(node)
        if isinstance(node, ast.Try) and node.handlers:
            inner = [*node.handlers, *node.orelse, *node.finalbody]
        elif isinstance(node, ast.With) and "suppress(" in ast.unparse(node.items[0]):
            continue
        if awaits(inner):
            return True
    return False


def test_no_item_of_a_loop_blocks_those_behind_it_without_a_reason() -> None:
    found = {name for room in ROOMS for path in sorted((ROOT / room).rglob("*.py")) for name in loops(path)}
    new, gone = found - WHOLE.keys(), WHOLE.keys() - found
    assert not new, f"give each item to tiered.broker.one_by_one, catch its errors, or say here why not: {sorted(new)}"
    assert not gone, f"no such loop is there any more: {sorted(gone)}"


AT_ONCE = {
    "tiered/broker/applier.py:ChangeApplier._take_settings": "when the number of fetchers was altered",
    "tiered/broker/broker.py:Broker._let_go": "once, at the end",
    "tiered/broker/broker.py:Broker.begin_stop": "once, at the end",
    "tiered/broker/broker.py:Broker.metadata_went_back": "no write may come in between",
    "tiered/broker/control/handover.py:_hand_over": "once, at the end",
    "tiered/broker/partitions/failed_replicas.py:FailedReplicas._spare": "while a disk is full",
    "tiered/broker/partitions/failed_replicas.py:FailedReplicas.resign": "while the object store is away",
    "tiered/broker/people/sql_reports.py:SqlReports.write": "once, at the start",
    "tiered/broker/people/sql_reports.py:SqlReports.write_all": "once, at the end",
    "tiered/broker/reconcile/bucket.py:BucketComparison.round": "makes a list that a thread sorts",
    "tiered/broker/reconcile/disk.py:DiskComparison.round": "makes a list that a thread sorts",
    "tiered/broker/replication/replication.py:Replication.start": "once, at the start",
    "tiered/broker/rounds/partition_rounds.py:PartitionRounds.bound_producers": "makes a list for in_turns",
    "tiered/broker/tiering/partition_loader.py:PartitionLoader.close_all": "once, at the end",
    "tiered/broker/tiering/retention.py:RetentionRounds.round": "makes a list for in_turns",
}
"""Functions that have all partitions in one step of the event loop, of which there may be tens of thousands."""


def walks(path: Path) -> Iterator[str]:
    """The functions of a module that go through all partitions and let nobody in between."""

    def walk(node: ast.AST, name: str, *, in_turns: bool) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            inner = name
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inner = f"{name}.{child.name}".lstrip(".")
            text = ast.unparse(child) if isinstance(child, ast.Call) else ""
            if text.endswith("opics.partitions()") and not text.startswith("in_turns(") and not in_turns:
                yield inner
            else:
                yield from walk(child, inner, in_turns=text.startswith("in_turns("))

    for name in walk(parsed(path), "", in_turns=False):
        yield f"{path.relative_to(ROOT)}:{name}"


def test_what_goes_through_all_partitions_lets_others_in_between_or_says_why_not() -> None:
    names = {name for path in sorted((ROOT / "tiered/broker").rglob("*.py")) for name in walks(path)}
    new, gone = names - AT_ONCE.keys(), AT_ONCE.keys() - names
    assert not new, f"go through them with tiered.runtime.in_turns, or say here why not: {sorted(new)}"
    assert not gone, f"no such function is there any more: {sorted(gone)}"
