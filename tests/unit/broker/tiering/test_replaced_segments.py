"""What a partition makes of rows that compaction has put in others' places in the store, and of answers too late."""

from dataclasses import replace
from pathlib import Path
from uuid import UUID

from tests.golden import regenerate as golden
from tests.unit.broker.replication.replicas import replica
from tiered.formats.checkpoint import CommittedSegment

ROWS = [golden.committed(index) for index in range(4)]


def compacted(segment: CommittedSegment) -> CommittedSegment:
    return replace(
        segment,
        object_id=UUID(int=segment.object_id.int + 1),
        size_bytes=segment.size_bytes - 10,
        uploaded_root_sha256=segment.root_sha256,
    )


def test_the_feed_puts_a_compacted_segment_in_the_place_of_the_old_one(tmp_path: Path) -> None:
    partition = replica(tmp_path, 1)
    assert not partition.apply_segments(ROWS[:3])
    before = partition.cold_bytes
    new = compacted(ROWS[1])
    # In any order, together with what was uploaded meanwhile; told again it changes nothing.
    assert partition.apply_segments([ROWS[3], new])
    assert not partition.apply_segments([new])
    assert partition.committed == (ROWS[0], new, ROWS[2], ROWS[3])
    assert partition.cold_bytes == before - 10 + ROWS[3].size_bytes
    assert partition.cold_end_offset == ROWS[3].end_offset
    assert partition.committed_segment_at(ROWS[1].base_offset) == new


def test_an_answer_that_is_older_than_the_feed_does_not_bring_an_old_segment_back(tmp_path: Path) -> None:
    partition = replica(tmp_path, 1)
    partition.apply_segments(ROWS[:2])
    new = compacted(ROWS[1])
    partition.apply_segments([new])
    partition.uploaded(ROWS[1])  # A commit's own answer.
    partition.learn_segments(ROWS[:2])  # What was asked before an upload.
    assert partition.committed == (ROWS[0], new)
    # Nor does one of which retention has taken the offsets.
    partition.moved_log_start(ROWS[0].end_offset)
    assert not partition.apply_segments([compacted(ROWS[0])])
    assert list(partition.committed) == [new]
