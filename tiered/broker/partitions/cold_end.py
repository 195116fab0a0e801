"""The part of a partition that the object store holds, as one replica knows it.

Owns the committed segments and the offsets that go with them, which only grow (T5). `segment_lifecycle` and the feed
report here what SQL has; must never talk to S3 or SQL.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from tiered.formats.checkpoint import CommittedSegment
from tiered.formats.segment_check import ExpectedSegment
from tiered.ids import TopicPartition


class ColdEnd:
    """Of one partition, which is one of these."""

    def __init__(
        self,
        *,
        topic: str,
        topic_partition: TopicPartition,
        log_start_offset: int,
        cold_end_offset: int,
        committed: Sequence[CommittedSegment],
    ) -> None:
        self.topic = topic
        self.topic_partition = topic_partition
        self.log_start_offset = log_start_offset
        self.cold_end_offset = cold_end_offset
        self._committed = list(committed)
        self.cold_bytes = sum(segment.size_bytes for segment in committed)

    @property
    def committed(self) -> tuple[CommittedSegment, ...]:
        """The segments that the object store holds, oldest first."""
        return tuple(self._committed)

    def uploaded(self, segment: CommittedSegment) -> None:
        """`segment` is committed in SQL. Harmless to repeat: the feed says so too."""
        if segment.end_offset <= self.cold_end_offset:
            return
        # The base is lower only where DeleteRecords moved the cold end into this segment.
        assert segment.base_offset <= self.cold_end_offset, f"a commit out of order: {segment.base_offset}"
        self._committed.append(segment)
        self.cold_bytes += segment.size_bytes
        self.cold_end_offset = segment.end_offset

    def learn_segments(self, committed: Sequence[CommittedSegment]) -> None:
        """Takes over committed segments from the feed, in any order; those known already change nothing."""
        for segment in sorted(committed, key=lambda each: each.base_offset):
            # A gap is what retention took meanwhile: the row that says so may be waiting for a truncation to end.
            self.cold_end_offset = max(self.cold_end_offset, segment.base_offset)
            self.uploaded(segment)

    def apply_segments(self, committed: Sequence[CommittedSegment]) -> bool:
        """As `learn_segments`, of rows as they are in SQL by the feed and by nothing older: whether among them was one
        that was put in the place of others."""
        is_changed = False
        for segment in committed:
            is_changed |= self._replace(segment)
        self.learn_segments(committed)
        return is_changed

    def _replace(self, segment: CommittedSegment) -> bool:
        """Replaces the known segments that `segment` covers; whether there were any, and others than itself.

        Where it ends above the cold end, this broker had not yet heard of the last that it covers. Where it begins
        below the first known one, the log start has moved into it."""
        first = bisect_right(self._committed, segment.base_offset, key=lambda known: known.end_offset)
        end = bisect_left(self._committed, segment.end_offset, key=lambda known: known.base_offset)
        before = self._committed[first:end]
        if not before or any(known.object_id == segment.object_id for known in before):
            return False
        is_covered = segment.base_offset <= before[0].base_offset and before[-1].end_offset <= segment.end_offset
        assert is_covered, f"a swap moved {before[-1].end_offset}"
        self._committed[first:end] = [segment]
        self.cold_bytes += segment.size_bytes - sum(known.size_bytes for known in before)
        self.cold_end_offset = max(self.cold_end_offset, segment.end_offset)
        return True

    def moved_log_start(self, log_start_offset: int) -> None:
        """SQL has moved `log_start_offset`; whole segments below it are retired. Records that no client may read need
        no upload, so `cold_end_offset` is never below it (T5)."""
        self.log_start_offset = max(self.log_start_offset, log_start_offset)
        self.cold_end_offset = max(self.cold_end_offset, self.log_start_offset)
        self._committed = [each for each in self._committed if each.end_offset > self.log_start_offset]
        self.cold_bytes = sum(segment.size_bytes for segment in self._committed)

    def place_of(self, segment: CommittedSegment) -> ExpectedSegment:
        """The segment as one of this partition's, which its object must say too."""
        topic_id, number = self.topic_partition.topic_id, self.topic_partition.partition
        return ExpectedSegment(topic=self.topic, topic_id=topic_id, partition=number, segment=segment)

    def committed_segment_at(self, offset: int) -> CommittedSegment | None:
        """The committed segment that holds `offset`."""
        index = bisect_right(self._committed, offset, key=lambda segment: segment.base_offset) - 1
        if index < 0:
            return None
        segment = self._committed[index]
        return segment if offset < segment.end_offset else None
