"""Chooses the segment that is uploaded next, when those of many partitions wait.

Owns that order. Topics take turns by bytes: as in start-time fair queueing, the topic that has had least begins, and a
topic that waited for nothing gains no claim on the past. Within a topic, and among topics that have had the same, the
segment that has waited longest begins. So a backlog drains oldest first, and however long one topic's is, another
topic's next segment waits for one segment of each other topic at the most. Pure: what waits in, one of it out;
`broker.tiering.upload_pipeline` carries it out. Must never choose between two segments of one partition:
`rules.segments.tiering` says which one is next there (T3).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from tiered.ids import TopicId, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class DueUpload:
    """The next segment of one partition, which may be uploaded now. `since_ms` is when it began to be written."""

    where: TopicPartition
    base_offset: int
    size_bytes: int
    since_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadTurns:
    """The progress of topics, in bytes from some moment on. A topic that is not in `ahead_bytes` is at `now_bytes`: a
    topic is remembered only while it is ahead of the others."""

    now_bytes: int = 0
    ahead_bytes: Mapping[TopicId, int] = field(default_factory=lambda: MappingProxyType({}))

    def begins_at(self, topic_id: TopicId) -> int:
        """Where the topic's next segment begins: the topic with the lowest one has its turn."""
        return max(self.now_bytes, self.ahead_bytes.get(topic_id, 0))


def next_upload(due: Iterable[DueUpload], turns: UploadTurns) -> DueUpload | None:
    """The one whose turn it is; None when nothing waits. `due` has one segment of each partition at the most."""
    return min(due, key=lambda each: (turns.begins_at(each.where.topic_id), each.since_ms, each.where), default=None)


def taken(turns: UploadTurns, chosen: DueUpload) -> UploadTurns:
    """The turns after the upload of `chosen` has begun. A failed upload has had its turn too."""
    topic_id = chosen.where.topic_id
    now_bytes = turns.begins_at(topic_id)
    ahead = {each: at for each, at in turns.ahead_bytes.items() if at > now_bytes}
    ahead[topic_id] = now_bytes + max(1, chosen.size_bytes)
    return UploadTurns(now_bytes=now_bytes, ahead_bytes=MappingProxyType(ahead))
