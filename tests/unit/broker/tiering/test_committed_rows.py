"""Rows of segments on their way into partitions: those that count, in order, and as readers know them."""

from dataclasses import asdict, replace
from pathlib import Path
from uuid import UUID

from tests.golden import regenerate as golden
from tests.unit.broker.tiering.tiers import tiers
from tiered.broker.tiering import committed_rows
from tiered.formats.checkpoint import CommittedSegment
from tiered.ids import TopicId, TopicPartition
from tiered.meta import segments
from tiered.meta.segments import SegmentRow
from tiered.rules.segments.segment_states import SegmentState


def sql_row(segment: CommittedSegment, partition: int = 0, state: SegmentState = SegmentState.COMMITTED) -> SegmentRow:
    known = asdict(segment)
    del known["min_timestamp_is_proven"]  # The object's table says it; its row does not.
    return SegmentRow(
        **known,
        topic_id=golden.TOPIC_ID,
        partition=partition,
        owner=1,
        state=state,
        planned_at_ms=0,
        deadline_ms=0,
        abandoned_at_ms=None,
        retired_at_ms=None,
        purge_after_ms=None,
        purged_at_ms=None,
        change_number=1,
    )


def test_only_committed_rows_count_and_they_come_oldest_first() -> None:
    first, second, third = (golden.committed(index) for index in range(3))
    rows = [
        sql_row(second),
        sql_row(third, state=SegmentState.RETIRED),
        sql_row(first),
        sql_row(replace(third, committed_at_ms=None), state=SegmentState.PLANNED),  # type: ignore[arg-type]
        sql_row(third, partition=1),
    ]
    topic_id = TopicId(golden.TOPIC_ID)
    assert committed_rows.by_partition(rows) == {
        TopicPartition(topic_id, 0): [first, second],
        TopicPartition(topic_id, 1): [third],
    }


async def test_a_checkpoint_is_due_when_an_object_was_replaced_and_not_when_known_rows_come_again(
    tmp_path: Path,
) -> None:
    async with tiers(tmp_path) as made:
        await made.upload_all()
        partition = made.partition
        replica = made.context.broker_id
        rows = await made.context.database.run(lambda conn: segments.load_committed(conn, replica=replica))
        committed = committed_rows.by_partition(rows)[partition.topic_partition]
        assert tuple(committed) == partition.committed
        await made.checkpoints.write_stale()
        stale = made.checkpoints.stale_count
        committed_rows.apply(made.checkpoints, partition, committed)
        assert made.checkpoints.stale_count == stale
        swapped = replace(committed[0], object_id=UUID(int=1), uploaded_root_sha256=committed[0].root_sha256)
        committed_rows.apply(made.checkpoints, partition, [swapped])
        assert partition.committed[0] == swapped
        assert made.checkpoints.is_stale(partition.topic_partition.topic_id, 0)
