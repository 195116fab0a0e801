"""Fills a store as a broker does: segment objects, the checkpoints that name them, and what the rows must be."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from uuid import UUID, uuid4

from tiered.cold.object_store import ObjectStore
from tiered.formats.batch_times import claimed_times, proven_times
from tiered.formats.checkpoint import (
    ClusterCheckpoint,
    CommittedSegment,
    PartitionCheckpoint,
    TopicEntry,
    encode_cluster_checkpoint,
    encode_partition_checkpoint,
    sealed,
)
from tiered.formats.object_key import cluster_checkpoint_key, partition_checkpoint_key, segment_key
from tiered.formats.record_batch import Compression, Record, encode_batch
from tiered.formats.segment_object import NO_ROOT, AbortedIndexEntry, ChunkTableBuilder, build_tail

CLUSTER_ID = "test-cluster"


@dataclass(slots=True)
class PartitionState:
    """What was written of one partition."""

    segments: list[CommittedSegment] = field(default_factory=list)
    log_start_offset: int = 0
    high_watermark: int | None = None
    version: int = 0
    partition_count: int = 1


@dataclass(slots=True)
class Bucket:
    """A store with topics in it. `publish` writes the checkpoints of everything added so far."""

    store: ObjectStore
    chunk_bytes: int = 4096
    page_entries: int = 1000
    topic_ids: dict[str, UUID] = field(default_factory=dict)
    partitions: dict[tuple[str, int], PartitionState] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return self.store.url

    def add_segment(
        self,
        topic: str,
        partition: int,
        batches: Sequence[bytes],
        *,
        aborted: Sequence[AbortedIndexEntry] = (),
        keep_bytes: int | None = None,
        is_old: bool = False,
    ) -> CommittedSegment:
        """Stores one object of these batches and remembers its row; `keep_bytes` stores a damaged, shorter one. Of an
        old one nobody has proven the times."""
        topic_id = self.topic_ids.setdefault(topic, uuid4())
        state = self.partitions.setdefault((topic, partition), PartitionState())
        log = b"".join(batches)
        times_of = claimed_times if is_old else proven_times
        builder = ChunkTableBuilder(self.chunk_bytes, lambda _, header: times_of(header))
        builder.feed(log)
        table = builder.finish()
        previous = bytes.fromhex(state.segments[-1].root_sha256) if state.segments else NO_ROOT
        tail = build_tail(
            table,
            cluster_id=CLUSTER_ID,
            topic_id=topic_id,
            topic=topic,
            partition=partition,
            leader_epochs=((0, table.base_offset),),
            aborted=aborted,
            producer_snapshot=b"",
            previous_root_sha256=previous,
        )
        base = state.segments[-1].end_offset if state.segments else table.base_offset
        assert base == table.base_offset, "segments follow each other"
        object_id = uuid4()
        key = segment_key(topic, topic_id, partition, table.base_offset, table.end_offset, 0, object_id)
        self.store.put(key, (log + tail)[:keep_bytes])
        segment = CommittedSegment(
            base_offset=table.base_offset,
            end_offset=table.end_offset,
            leader_epoch=0,
            object_key=key,
            object_id=object_id,
            size_bytes=len(log) + len(tail),
            log_bytes=table.log_bytes,
            min_timestamp_ms=table.min_timestamp_ms,
            max_timestamp_ms=table.max_timestamp_ms,
            max_timestamp_is_proven=table.max_timestamp_is_proven or None,
            record_count=table.record_count,
            root_sha256=table.root_sha256.hex(),
            previous_root_sha256=previous.hex(),
            committed_at_ms=1_700_000_000_000,
        )
        state.segments.append(segment)
        return segment

    def publish(self) -> None:
        counts: dict[str, int] = {}
        for topic, partition in self.partitions:
            counts[topic] = max(counts.get(topic, 0), partition + 1)
        for (topic, partition), state in self.partitions.items():
            if not state.segments:
                continue  # A partition of which nothing was uploaded yet.
            state.version += 1
            checkpoint = PartitionCheckpoint(
                version=state.version,
                cluster_id=CLUSTER_ID,
                topic=topic,
                topic_id=self.topic_ids[topic],
                partition=partition,
                partition_count=counts[topic],
                log_start_offset=state.log_start_offset,
                cold_end_offset=state.segments[-1].end_offset,
                leader_epoch=0,
                pages=(),
                segments=tuple(state.segments),
                high_watermark=state.high_watermark,
            )
            key = partition_checkpoint_key(self.topic_ids[topic], partition)
            head = sealed(checkpoint, self.page_entries)
            for page, content in head.pages:
                self.store.put(page.key, content)
            self.store.put(key, encode_partition_checkpoint(head.checkpoint))
        cluster = ClusterCheckpoint(
            version=1 + sum(state.version for state in self.partitions.values()),
            cluster_id=CLUSTER_ID,
            topics=tuple(
                TopicEntry(name=topic, topic_id=self.topic_ids[topic], partition_count=count, configs={})
                for topic, count in sorted(counts.items())
            ),
        )
        self.store.put(cluster_checkpoint_key(), encode_cluster_checkpoint(cluster))


def records(first: int, count: int, *, value_bytes: int = 60, start_ms: int = 1_700_000_000_000) -> list[Record]:
    """Records of all shapes: nulls, empty ones, headers; one millisecond apart by offset."""
    return [
        Record(
            offset=offset,
            timestamp_ms=start_ms + offset,
            key=None if offset % 7 == 0 else b"" if offset % 11 == 0 else f"key-{offset}".encode(),
            value=None if offset % 13 == 0 else (f"value-{offset}-".encode() * value_bytes)[:value_bytes],
            headers=(("trace", str(offset).encode()), ("größe", None)) if offset % 5 == 0 else (),
        )
        for offset in range(first, first + count)
    ]


def batches_of(
    rows: Sequence[Record], *, per_batch: int = 10, codecs: Sequence[Compression] = (Compression.NONE,)
) -> list[bytes]:
    """The rows in batches, the codecs in turn."""
    return [
        encode_batch(
            rows[at : at + per_batch],
            base_offset=rows[at].offset,
            compression=codecs[at // per_batch % len(codecs)],
        )
        for at in range(0, len(rows), per_batch)
    ]


def expected(topic: str, partition: int, rows: Iterable[Record]) -> list[dict[str, object]]:
    """The rows that Spark must give, timestamps in microseconds."""
    return [
        {
            "key": row.key,
            "value": row.value,
            "topic": topic,
            "partition": partition,
            "offset": row.offset,
            "timestamp": row.timestamp_ms * 1000,
            "timestampType": 0,
            "headers": [{"key": name, "value": value} for name, value in row.headers] or None,
        }
        for row in rows
    ]
