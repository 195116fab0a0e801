"""What a partition makes of rows that were put in others' places in the store, and of answers too late."""

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


# One for many


def joined(*segments: CommittedSegment) -> CommittedSegment:
    first, last = segments[0], segments[-1]
    return replace(
        last,
        object_id=UUID(int=last.object_id.int + 1000),
        base_offset=first.base_offset,
        size_bytes=sum(each.size_bytes for each in segments) - 10,
        previous_root_sha256=first.previous_root_sha256,
        uploaded_root_sha256=last.chain_root_sha256,
        joined_count=len(segments),
    )


def test_the_feed_puts_a_joined_segment_in_the_place_of_all_that_it_covers(tmp_path: Path) -> None:
    partition = replica(tmp_path, 1)
    partition.apply_segments(ROWS[:3])
    before, new = partition.cold_bytes, joined(*ROWS[:2])
    assert partition.apply_segments([new, ROWS[3]])
    assert not partition.apply_segments([new])
    assert partition.committed == (new, ROWS[2], ROWS[3])
    assert partition.cold_bytes == before - 10 + ROWS[3].size_bytes
    assert {partition.committed_segment_at(each.base_offset) for each in ROWS[:2]} == {new}
    partition.learn_segments(ROWS[:2])  # An answer that is older than the feed.
    assert partition.committed == (new, ROWS[2], ROWS[3])
    assert partition.apply_segments([joined(new, ROWS[2])])
    assert [each.base_offset for each in partition.committed] == [0, ROWS[3].base_offset]


def test_a_joined_segment_of_which_only_the_first_uploads_were_known_moves_the_cold_end(tmp_path: Path) -> None:
    partition = replica(tmp_path, 1)
    partition.apply_segments(ROWS[:2])
    new = joined(*ROWS[:3])  # The third was committed and replaced between two reads of the feed.
    assert partition.apply_segments([new])
    assert (partition.committed, partition.cold_end_offset) == ((new,), ROWS[2].end_offset)
    assert partition.cold_bytes == new.size_bytes


def test_a_joined_segment_across_the_log_start_replaces_those_that_are_left(tmp_path: Path) -> None:
    partition = replica(tmp_path, 1)
    partition.apply_segments(ROWS)
    partition.moved_log_start(ROWS[0].end_offset)
    new = joined(*ROWS[:3])
    assert partition.apply_segments([new])
    assert list(partition.committed) == [new, ROWS[3]]
    partition.moved_log_start(ROWS[2].end_offset)
    assert list(partition.committed) == [ROWS[3]]


def test_a_joined_segment_of_which_nothing_was_known_is_learnt_like_an_upload(tmp_path: Path) -> None:
    partition = replica(tmp_path, 1)
    new = joined(*ROWS[:3])
    partition.apply_segments([new, ROWS[3]])
    assert (partition.committed, partition.cold_end_offset) == ((new, ROWS[3]), ROWS[3].end_offset)
