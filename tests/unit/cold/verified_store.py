"""A whole store on disk, with checkpoints as brokers write them, for tests that damage it and verify."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.unit.cold.stored_segments import NO_ROOT, PARTITION, TOPIC, TOPIC_ID, StoredSegment, store_segment
from tiered.cold.bucket import checkpoints
from tiered.cold.local import LocalStore
from tiered.cold.object_store import ObjectStore
from tiered.cold.verify.verification import Problem, StoreVerifier, VerificationState
from tiered.formats import segment_object
from tiered.formats.checkpoint import ClusterCheckpoint, CommittedSegment, PartitionCheckpoint, TopicEntry
from tiered.formats.producer_snapshot import encode_producers
from tiered.formats.segment_object import SegmentTail

CLUSTER_ID = "cluster-1"
RECORDS = 240
"""In each segment: 24 batches, in about four chunks of 8 KiB."""
CHANGE = 7


@dataclass(kw_only=True)
class VerifiedStore:
    """`store` below `root`, with the segments in order of offsets."""

    root: Path
    store: ObjectStore
    segments: list[StoredSegment]

    @property
    def rows(self) -> list[CommittedSegment]:
        return [each.committed for each in self.segments]

    def path(self, index: int) -> Path:
        """The file that holds the object of segment `index`."""
        return self.root / self.rows[index].object_key

    def tail(self, index: int) -> SegmentTail:
        data = self.path(index).read_bytes()
        return segment_object.read_tail(data, len(data))

    def flip(self, index: int, position: int) -> None:
        """Flips one bit of the object of segment `index`."""
        data = bytearray(self.path(index).read_bytes())
        data[position] ^= 0x10
        self.path(index).write_bytes(data)

    def write_head(
        self,
        rows: Sequence[CommittedSegment] | None = None,
        *,
        log_start_offset: int = 0,
        page_entries: int = 100,
        cold_end_offset: int | None = None,
        high_watermark: int | None = None,
        store: ObjectStore | None = None,
    ) -> PartitionCheckpoint:
        kept = self.rows if rows is None else list(rows)
        kept = [row for row in kept if row.end_offset > log_start_offset]
        end_offset = kept[-1].end_offset if kept else log_start_offset
        head = PartitionCheckpoint(
            version=0,
            cluster_id=CLUSTER_ID,
            topic=TOPIC,
            topic_id=TOPIC_ID,
            partition=PARTITION,
            partition_count=PARTITION + 1,
            log_start_offset=log_start_offset,
            cold_end_offset=end_offset if cold_end_offset is None else cold_end_offset,
            leader_epoch=1,
            pages=(),
            segments=tuple(kept),
            high_watermark=high_watermark,
        )
        return checkpoints.write_partition_checkpoint(store or self.store, head, page_entries=page_entries)

    def verify(self, **options: object) -> VerificationState:
        return verify(self.store, **options)


def cluster_checkpoint(*, topics: bool = True) -> ClusterCheckpoint:
    entry = TopicEntry(name=TOPIC, topic_id=TOPIC_ID, partition_count=PARTITION + 1, configs={})
    return ClusterCheckpoint(version=CHANGE, cluster_id=CLUSTER_ID, topics=(entry,) if topics else ())


def make_store(root: Path, directory: Path, *, segments: int = 3, store: ObjectStore | None = None) -> VerifiedStore:
    """A store with one topic, whose one partition has so many segments in a chain."""
    made = VerifiedStore(root=root, store=store or LocalStore(root), segments=[])
    previous = NO_ROOT
    for index in range(segments):
        stored = store_segment(
            made.store,
            directory,
            range(1_000, 1_000 + RECORDS),
            base_offset=index * RECORDS,
            previous_root_sha256=previous,
            producer_snapshot=encode_producers(()),
        )
        previous = stored.committed.root_sha256
        made.segments.append(stored)
    made.write_head()
    checkpoints.write_cluster_checkpoint(made.store, cluster_checkpoint())
    return made


def verify(store: ObjectStore, **options: object) -> VerificationState:
    """What a run finds; pauses for a store that is away are short."""

    async def run() -> VerificationState:
        verifier = StoreVerifier(store, first_backoff_ms=1, **options)  # type: ignore[arg-type]
        try:
            return await verifier.run()
        finally:
            verifier.close()

    return asyncio.run(run())


def only(state: VerificationState) -> Problem:
    """The one problem that was found."""
    assert [each.fault.message for each in state.problems] == [state.problems[0].fault.message]
    assert state.problem_count == 1
    assert not state.is_whole
    return state.problems[0]
