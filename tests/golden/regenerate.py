"""The persisted formats as files, so that a change of a format shows as a change of a file.

`python -m tests.golden.regenerate` writes those that are missing. A file that exists is never rewritten:
readers must go on reading it. A new version of a format gets files of its own beside the old ones.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from uuid import UUID

from tiered.formats.acl_entries import AclEntry
from tiered.formats.batch_times import proven_times
from tiered.formats.checkpoint import (
    CheckpointPage,
    ClusterCheckpoint,
    CommittedSegment,
    PartitionCheckpoint,
    TopicEntry,
    encode_checkpoint_page,
    encode_cluster_checkpoint,
    encode_partition_checkpoint,
    page_ref,
)
from tiered.formats.disk_report import DiskLog, DiskReport, OpenLogTransaction, encode_disk_report
from tiered.formats.group_checkpoint import GroupCheckpoint, GroupEntry, StoredOffset, encode_group_checkpoint
from tiered.formats.group_members import (
    KeptClassicFacts,
    KeptClassicGroup,
    KeptClassicMember,
    KeptConsumerGroup,
    KeptConsumerMember,
    KeptPartitions,
    KeptPattern,
    KeptProtocol,
    encode_classic_group,
    encode_consumer_group,
)
from tiered.formats.leader_epoch_file import encode_leader_epochs
from tiered.formats.object_key import segment_key
from tiered.formats.offset_index import OffsetIndex
from tiered.formats.pin_entries import PinEntry, PinnedOffsets
from tiered.formats.producer_snapshot import ProducerBatch, ProducerEntry, encode_producers
from tiered.formats.record_batch import Compression, Record, encode_batch
from tiered.formats.segment_object import AbortedIndexEntry, ChunkTable, ChunkTableBuilder, build_tail
from tiered.formats.time_index import TimeIndex
from tiered.formats.transaction_index import TransactionIndex

FOLDER = Path(__file__).resolve().parent
TOPIC = "flights.departed"
TOPIC_ID = UUID("01234567-89ab-4def-8123-456789abcdef")
CLUSTER_ID = "golden-cluster"
BASE_OFFSET = 5_000_000_000
NOON_MS = 1_700_000_000_000
LEADER_EPOCHS = ((0, 0), (7, BASE_OFFSET), (9, BASE_OFFSET + 8))
ABORTED = (
    AbortedIndexEntry(
        producer_id=4711, first_offset=BASE_OFFSET + 4, last_offset=BASE_OFFSET + 7, last_stable_offset=BASE_OFFSET + 8
    ),
)
PREVIOUS_ROOT = bytes(range(32))
CHUNK_BYTES = 400
CODECS = [codec for codec in Compression if codec is not Compression.NONE]
"""Whose bytes depend on the version of a library: their files are read, but not compared with what is written."""


def records(base_offset: int = BASE_OFFSET, count: int = 4) -> list[Record]:
    """Keys and values, none of either, headers of every kind, and times that go back."""
    return [
        Record(
            offset=base_offset + index,
            timestamp_ms=NOON_MS + (-1500 if index == 2 else 1000 * index),
            key=None if index == 1 else f"tail-{index}".encode(),
            value=None if index == 3 else b"EWR-ORD " * 8 * (index + 1),
            headers=(("carrier", b"UA"), ("empty", b""), ("none", None), ("caf\u00e9", b"\xff")) if index == 0 else (),
        )
        for index in range(count)
    ]


def log() -> bytes:
    """A segment file of three batches: plain, transactional, log append time."""
    return b"".join(
        (
            encode_batch(records(), base_offset=BASE_OFFSET, leader_epoch=7),
            encode_batch(
                records(BASE_OFFSET + 4),
                base_offset=BASE_OFFSET + 4,
                leader_epoch=7,
                producer_id=4711,
                producer_epoch=3,
                base_sequence=2**31 - 2,
                transactional=True,
            ),
            encode_batch(
                records(BASE_OFFSET + 8), base_offset=BASE_OFFSET + 8, leader_epoch=9, log_append_time_ms=NOON_MS + 77
            ),
        )
    )


def table() -> ChunkTable:
    builder = ChunkTableBuilder(CHUNK_BYTES)
    builder.feed(log())
    return builder.finish()


def proven_table() -> ChunkTable:
    """Of batches whose headers a broker has set right."""
    builder = ChunkTableBuilder(CHUNK_BYTES, lambda _, header: proven_times(header))
    builder.feed(log())
    return builder.finish()


def table_without_crcs() -> ChunkTable:
    """As before decision 0025."""
    return replace(table(), chunks=tuple(replace(row, crc64=None) for row in table().chunks))


def producers() -> Sequence[ProducerEntry]:
    batches = tuple(
        ProducerBatch(
            base_sequence=(2**31 - 2 + index) % 2**31,
            last_sequence=(2**31 - 2 + index) % 2**31,
            base_offset=BASE_OFFSET + index,
            last_offset=BASE_OFFSET + index,
            timestamp_ms=NOON_MS + index,
        )
        for index in range(5)
    )
    return (
        ProducerEntry(producer_id=1, producer_epoch=0),
        ProducerEntry(
            producer_id=4711,
            producer_epoch=3,
            batches=batches,
            current_transaction_first_offset=BASE_OFFSET + 4,
            coordinator_epoch=2,
        ),
    )


def segment_object(chunks: ChunkTable | None = None) -> bytes:
    return log() + build_tail(
        table() if chunks is None else chunks,
        cluster_id=CLUSTER_ID,
        topic_id=TOPIC_ID,
        topic=TOPIC,
        partition=3,
        leader_epochs=LEADER_EPOCHS,
        aborted=ABORTED,
        producer_snapshot=encode_producers(producers()),
        previous_root_sha256=PREVIOUS_ROOT,
    )


def committed(index: int) -> CommittedSegment:
    """The `index`-th segment of a partition: 100 offsets each."""
    base, end = 100 * index, 100 * index + 100
    object_id = UUID(int=index)
    return CommittedSegment(
        base_offset=base,
        end_offset=end,
        leader_epoch=7,
        object_key=segment_key(TOPIC, TOPIC_ID, 3, base, end, 7, object_id),
        object_id=object_id,
        size_bytes=12_345 + index,
        log_bytes=12_000 + index,
        min_timestamp_ms=NOON_MS - 1500,
        max_timestamp_ms=NOON_MS + index,
        record_count=100,
        root_sha256=f"{index + 1:064x}",
        previous_root_sha256=f"{index:064x}",
        committed_at_ms=NOON_MS + 60_000,
    )


def page() -> CheckpointPage:
    return CheckpointPage(topic_id=TOPIC_ID, partition=3, segments=(committed(0), committed(1)))


def partition_checkpoint() -> PartitionCheckpoint:
    return PartitionCheckpoint(
        version=12,
        cluster_id=CLUSTER_ID,
        topic=TOPIC,
        topic_id=TOPIC_ID,
        partition=3,
        partition_count=8,
        log_start_offset=150,
        cold_end_offset=400,
        leader_epoch=9,
        pages=(page_ref(page()),),
        segments=(committed(2), committed(3)),
    )


def cluster_checkpoint() -> ClusterCheckpoint:
    return ClusterCheckpoint(
        version=4,
        cluster_id=CLUSTER_ID,
        topics=(
            TopicEntry(name=TOPIC, topic_id=TOPIC_ID, partition_count=8, configs={"retention.ms": "-1"}),
            TopicEntry(name="plain", topic_id=UUID(int=7), partition_count=1, configs={}),
        ),
    )


def full_partition_checkpoint() -> PartitionCheckpoint:
    """With the members that came later."""
    return replace(partition_checkpoint(), high_watermark=420)


def full_cluster_checkpoint() -> ClusterCheckpoint:
    before = cluster_checkpoint()
    return replace(
        before,
        topics=(replace(before.topics[0], replication_factor=3), before.topics[1]),
        settings={"": {"log.retention.ms": "-1"}, "2": {"num.io.threads": "9"}},
        previous_cluster_ids=("first-cluster", "second-cluster"),
    )


def cluster_checkpoint_with_acls() -> ClusterCheckpoint:
    """Rules of both kinds of patterns and permissions."""
    words = {"resource_type": "TOPIC", "principal": "User:ann", "host": "*", "operation": "READ"}
    return replace(
        cluster_checkpoint(),
        acls=(
            AclEntry(resource_name=TOPIC, pattern_type="LITERAL", permission="ALLOW", **words),
            AclEntry(resource_name="flights.", pattern_type="PREFIXED", permission="DENY", **words),
        ),
    )


def cluster_checkpoint_with_resource_configs() -> ClusterCheckpoint:
    return replace(
        cluster_checkpoint(),
        resource_configs={
            "CLIENT_METRICS:all": {"interval.ms": "10000", "metrics": "org.apache.kafka.producer."},
            "GROUP:departures:1": {"consumer.session.timeout.ms": "50000"},
        },
    )


def cluster_checkpoint_with_pins() -> ClusterCheckpoint:
    return replace(
        full_cluster_checkpoint(),
        pins=(
            PinEntry(
                pin_id=UUID(int=8),
                name="audit-2026",
                topic_id=TOPIC_ID,
                owner="alice",
                created_at_ms=NOON_MS,
                expires_at_ms=None,
                ranges=(
                    PinnedOffsets(partition=0, start_offset=100, end_offset=400),
                    PinnedOffsets(partition=3, start_offset=0, end_offset=2**40),
                ),
            ),
            PinEntry(
                pin_id=UUID(int=9),
                name=None,
                topic_id=TOPIC_ID,
                owner="",
                created_at_ms=NOON_MS,
                expires_at_ms=NOON_MS + 300_000,
                ranges=(),
            ),
        ),
    )


def group_checkpoint() -> GroupCheckpoint:
    offset = StoredOffset(
        topic_id=TOPIC_ID, partition=3, offset=311, leader_epoch=9, metadata="\u00fc\0", committed_at_ms=NOON_MS
    )
    return GroupCheckpoint(
        cluster_id=CLUSTER_ID,
        slot=42,
        slot_count=50,
        slot_epoch=2 << 20,
        groups=(
            GroupEntry(group_id="billing", kind="classic", protocol_type="consumer", generation=7, offsets=(offset,)),
            GroupEntry(group_id="new", kind="consumer", protocol_type="consumer", generation=0, offsets=()),
        ),
        left_out=1,
    )


def disk_report() -> DiskReport:
    log = DiskLog(
        topic_id=TOPIC_ID,
        partition=3,
        log_start_offset=100,
        local_log_start_offset=250,
        log_end_offset=311,
        leader_epochs=((2, 100), (9, 300)),
        newest_producer_id=4_001,
        open_transactions=(OpenLogTransaction(producer_id=4_000, producer_epoch=5, first_offset=305),),
    )
    return DiskReport(
        cluster_id=CLUSTER_ID, broker_id=2, broker_epoch=77, logs=(log,), faults=("another: its bytes are gone",)
    )


def classic_group() -> KeptClassicGroup:
    protocol = KeptProtocol(name="range", metadata=b"\0\1 orders")
    plain = KeptClassicMember(
        member_id="rdkafka-1",
        client_id="rdkafka",
        client_host="/127.0.0.1",
        session_timeout_ms=45_000,
        rebalance_timeout_ms=300_000,
        protocols=(protocol,),
        assignment=b"\xff\0",
    )
    both = (KeptProtocol(name="sticky", metadata=b""), protocol)
    static = replace(plain, member_id="\u00fc-2", instance_id="\u00fc", protocols=both, assignment=b"")
    return KeptClassicGroup(generation=7, protocol_name="range", leader="\u00fc-2", members=(plain, static))


def consumer_group() -> KeptConsumerGroup:
    plain = KeptConsumerMember(
        member_id="m1",
        client_id="rdkafka",
        client_host="/127.0.0.1",
        rebalance_timeout_ms=300_000,
        topics=("orders", "refunds"),
        epoch=7,
        previous_epoch=6,
        assigned=(KeptPartitions(topic_id=TOPIC_ID, partitions=(0, 2)),),
    )
    static = replace(
        plain,
        member_id="m2",
        instance_id="i2",
        rack="r",
        assignor="range",
        topics=(),
        pattern=KeptPattern(text="ord.*", host="127.0.0.1", principal_kind="User", principal_name="alice"),
        epoch=-2,
        assigned=(KeptPartitions(topic_id=TOPIC_ID, partitions=(1,)),),
    )
    classic = replace(
        plain,
        member_id="m3",
        assigned=(),
        classic=KeptClassicFacts(session_timeout_ms=6_000, protocols=(KeptProtocol(name="range", metadata=b"\0"),)),
    )
    return KeptConsumerGroup(
        epoch=7, assignor="range", topics_hash=PREVIOUS_ROOT.hex(), members=(plain, static, classic)
    )


def offset_index() -> OffsetIndex:
    index = OffsetIndex()
    for offset, position in ((3, 0), (90, 4100), (2**31 - 1, 2**31 - 1)):
        index.append(BASE_OFFSET + offset, position)
    return index


def transaction_index() -> TransactionIndex:
    index = TransactionIndex()
    for entry in (*ABORTED, replace(ABORTED[0], producer_id=4712, last_offset=BASE_OFFSET + 90)):
        index.append(entry)
    return index


def time_index() -> TimeIndex:
    index = TimeIndex()
    for timestamp_ms, offset in ((0, 3), (NOON_MS, 90), (NOON_MS + 1, 2**31 - 1)):
        index.append(timestamp_ms, BASE_OFFSET + offset)
    return index


def written_today() -> dict[str, bytes]:
    """What today's writers make of the same values, by file name. Without what libraries compress."""
    return {
        "record_batch.none.bin": encode_batch(records(), base_offset=BASE_OFFSET, leader_epoch=7),
        "offset_index.bin": offset_index().to_bytes(BASE_OFFSET),
        "time_index.bin": time_index().to_bytes(BASE_OFFSET),
        "transaction_index.bin": transaction_index().to_bytes(BASE_OFFSET + 100),
        "leader_epochs.txt": encode_leader_epochs(LEADER_EPOCHS),
        "producer_snapshot.v1.bin": encode_producers(producers()),
        "segment_object.v1.bin": segment_object(table_without_crcs()),
        "segment_object.v1.crcs.bin": segment_object(),
        "segment_object.v1.times.bin": segment_object(proven_table()),
        "checkpoint_page.v1.json": encode_checkpoint_page(page()),
        "partition_checkpoint.v1.json": encode_partition_checkpoint(partition_checkpoint()),
        "cluster_checkpoint.v1.json": encode_cluster_checkpoint(cluster_checkpoint()),
        "partition_checkpoint.v1.full.json": encode_partition_checkpoint(full_partition_checkpoint()),
        "cluster_checkpoint.v1.full.json": encode_cluster_checkpoint(full_cluster_checkpoint()),
        "cluster_checkpoint.v1.acls.json": encode_cluster_checkpoint(cluster_checkpoint_with_acls()),
        "cluster_checkpoint.v1.resource_configs.json": encode_cluster_checkpoint(
            cluster_checkpoint_with_resource_configs()
        ),
        "cluster_checkpoint.v1.pins.json": encode_cluster_checkpoint(cluster_checkpoint_with_pins()),
        "group_checkpoint.v1.json": encode_group_checkpoint(group_checkpoint()),
        "disk_report.v1.json": encode_disk_report(disk_report()),
    }


def compressed_today() -> dict[str, bytes]:
    return {
        "classic_group.v1.bin": encode_classic_group(classic_group()),
        "consumer_group.v1.bin": encode_consumer_group(consumer_group()),
    } | {
        f"record_batch.{codec.name.lower()}.bin": encode_batch(
            records(), base_offset=BASE_OFFSET, leader_epoch=7, compression=codec
        )
        for codec in CODECS
    }


def write_missing() -> None:
    for name, content in (written_today() | compressed_today()).items():
        path = FOLDER / name
        if not path.exists():
            path.write_bytes(content)
            print(f"wrote {name}: {len(content)} bytes")


if __name__ == "__main__":
    write_missing()
