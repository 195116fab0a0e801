"""Real segments in a real store, for tests of whatever reads them."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from uuid import UUID, uuid4

from tiered.cold.bucket import uploader
from tiered.cold.object_store import ObjectStore
from tiered.formats import object_key, record_batch
from tiered.formats.checkpoint import CommittedSegment
from tiered.formats.record_batch import Compression, Record
from tiered.formats.segment_check import ExpectedSegment
from tiered.formats.segment_object import SegmentFooter, build_tail, read_footer, read_tail

TOPIC = "orders"
TOPIC_ID = UUID("6f1d2c1e-0000-4000-8000-00000000cafe")
PARTITION = 3
NO_ROOT = "0" * 64


@dataclass(frozen=True, kw_only=True)
class StoredSegment:
    """A committed row, and the bytes of the log that it stands for."""

    committed: CommittedSegment
    log: bytes
    timestamps: tuple[int, ...]
    """By offset, from the base offset on."""


def place_of(segment: CommittedSegment) -> ExpectedSegment:
    """The segment as one of the partition that all of these belong to."""
    return ExpectedSegment(topic=TOPIC, topic_id=TOPIC_ID, partition=PARTITION, segment=segment)


@lru_cache(maxsize=32)
def batches(
    timestamps: tuple[int, ...], *, base_offset: int, records_per_batch: int, value_bytes: int
) -> tuple[bytes, ...]:
    """Batches of so many records; every record's value tells its offset, every third batch is compressed.

    The same ones for whoever asks for the same: encoding them takes longer than most tests.
    """
    made: list[bytes] = []
    for start in range(0, len(timestamps), records_per_batch):
        group = timestamps[start : start + records_per_batch]
        records = [
            Record(
                offset=base_offset + start + index,
                timestamp_ms=timestamp_ms,
                key=None,
                value=f"{base_offset + start + index}:".encode() + os.urandom(value_bytes),
                headers=(),
            )
            for index, timestamp_ms in enumerate(group)
        ]
        codec = Compression.ZSTD if len(made) % 3 == 2 else Compression.NONE
        made.append(
            record_batch.encode_batch(records, base_offset=base_offset + start, compression=codec, leader_epoch=1)
        )
    return tuple(made)


def as_it_was(described: uploader.DescribedSegment) -> uploader.DescribedSegment:
    """The same as a broker from before decision 0028 has described it, but for times that it had from headers."""
    table = described.table
    chunks = tuple(
        replace(row, max_timestamp_ms=-1, max_timestamp_is_proven=False, headers_are_proven=False)
        for row in table.chunks
    )
    footer = read_footer(described.tail, described.object_bytes)
    assert isinstance(footer, SegmentFooter)
    tail = read_tail(described.tail, described.object_bytes)
    table = replace(table, chunks=chunks, max_timestamp_ms=-1, max_timestamp_is_proven=False, headers_are_proven=False)
    return uploader.DescribedSegment(
        table=table,
        tail=build_tail(
            table,
            cluster_id=footer.cluster_id,
            topic_id=footer.topic_id,
            topic=footer.topic,
            partition=footer.partition,
            leader_epochs=tail.leader_epochs,
            aborted=tail.aborted,
            producer_snapshot=tail.producer_snapshot,
            previous_root_sha256=footer.previous_root_sha256,
        ),
    )


def store_segment(
    store: ObjectStore,
    directory: Path,
    timestamps: Sequence[int],
    *,
    base_offset: int = 0,
    records_per_batch: int = 10,
    value_bytes: int = 100,
    chunk_bytes: int = 8192,
    previous_root_sha256: str = NO_ROOT,
    producer_snapshot: bytes = b"",
    written: Callable[[bytes], bytes | bytearray] = bytes,
    times_proven_from: int = 0,
    is_old: bool = False,
    leader_epoch: int = 1,
    cluster_id: str = "cluster-1",
) -> StoredSegment:
    """Writes the log to a file in `directory`, describes it, stores it, checks it. `written` changes each batch before.
    `is_old`: as a broker from before decision 0028 has done."""
    made = batches(
        tuple(timestamps), base_offset=base_offset, records_per_batch=records_per_batch, value_bytes=value_bytes
    )
    log = b"".join(written(each) for each in made)
    object_id = uuid4()
    end_offset = base_offset + len(timestamps)
    key = object_key.segment_key(TOPIC, TOPIC_ID, PARTITION, base_offset, end_offset, leader_epoch, object_id)
    path = directory / f"{object_id}.log"
    path.write_bytes(log)
    with path.open("rb") as file:
        described = uploader.describe(
            file.fileno(),
            len(log),
            cluster_id=cluster_id,
            topic_id=TOPIC_ID,
            topic=TOPIC,
            partition=PARTITION,
            leader_epochs=((1, 0),),
            producer_snapshot=producer_snapshot,
            previous_root_sha256=bytes.fromhex(previous_root_sha256),
            chunk_bytes=chunk_bytes,
            times_proven_from=times_proven_from,
        )
        if is_old:
            described = as_it_was(described)
        store.put_segment(key, file.fileno(), len(log), described.tail)
    uploader.verify_stored(store, key, described.object_bytes, described.tail)
    committed = CommittedSegment(
        base_offset=base_offset,
        end_offset=end_offset,
        leader_epoch=leader_epoch,
        object_key=key,
        object_id=object_id,
        size_bytes=described.object_bytes,
        log_bytes=len(log),
        min_timestamp_ms=described.table.min_timestamp_ms,
        max_timestamp_ms=described.table.max_timestamp_ms,
        max_timestamp_is_proven=described.table.max_timestamp_is_proven or None,
        record_count=described.table.record_count,
        root_sha256=described.table.root_sha256.hex(),
        previous_root_sha256=previous_root_sha256,
        committed_at_ms=1_700_000_000_000,
    )
    return StoredSegment(committed=committed, log=log, timestamps=tuple(timestamps))
