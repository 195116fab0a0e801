"""How fast a store is verified, beside nothing but SHA-256 over the same bytes: in this process, from a local folder.

Owns the stores that it makes: segments in a chain, with checkpoints, without a broker. Hashing is one thread that reads
the objects in blocks of 1 MiB; verifying is the product with its four threads. They alternate.
"""

import asyncio
import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO
from uuid import UUID, uuid4

from tiered.cold.bucket import checkpoints, uploader
from tiered.cold.local import LocalStore
from tiered.cold.verify.verification import StoreVerifier
from tiered.formats import object_key, record_batch
from tiered.formats.checkpoint import ClusterCheckpoint, CommittedSegment, PartitionCheckpoint, TopicEntry
from tiered.formats.record_batch import Record

Run = dict[str, float]
TOPIC = "bench"
SEGMENT_BYTES = 128 << 20
BLOCK_BYTES = 1 << 20
RECORD_BYTES = 1024
BATCH_RECORDS = (1, 16, 256)
"""A batch of one record is the worst there is; 16 KiB is what a producer sends that does not wait."""
_NO_ROOT = "0" * 64


def verification(
    folder: Path, *, rounds: int, gb: float, say: Callable[[str], None]
) -> dict[str, dict[str, list[Run]]]:
    """MB/s and CPU s/GB of both, for batches of several sizes; the first round only warms and is dropped."""
    results: dict[str, dict[str, list[Run]]] = {}
    for batch_records in BATCH_RECORDS:
        root = folder / f"store-{batch_records}"
        make_store(root, batch_records, segments=max(2, round(gb * 1e9 / SEGMENT_BYTES)))
        name = f"batches of {batch_records} KiB"
        sides: dict[str, Callable[[Path], int]] = {"SHA-256 alone": hash_all, "tiered verify": verify_all}
        for number in range(rounds + 1):
            for side, act in sides.items():
                run = _timed(act, root)
                if number > 0:
                    results.setdefault(name, {}).setdefault(side, []).append(run)
                    say(f"verify, {name:22}{side:16}{run['mb_per_s']:8.0f} MB/s{run['cpu_s_per_gb']:8.2f} CPU s/GB")
    return results


def _timed(act: Callable[[Path], int], root: Path) -> Run:
    cpu, started = os.times(), time.perf_counter()
    done_bytes = act(root)
    seconds, used = time.perf_counter() - started, os.times()
    cpu_seconds = used.user + used.system - cpu.user - cpu.system
    return {"mb_per_s": done_bytes / seconds / 1e6, "cpu_s_per_gb": cpu_seconds / done_bytes * 1e9}


def hash_all(root: Path) -> int:
    """SHA-256 over every object, and nothing else."""
    total = 0
    for path in sorted((root / "segments").rglob("*.seg")):
        digest = hashlib.sha256()
        with path.open("rb", buffering=0) as file:
            while block := file.read(BLOCK_BYTES):
                digest.update(block)
                total += len(block)
        digest.digest()
    return total


def verify_all(root: Path) -> int:
    """What `tiered verify` does, all of it."""

    async def run() -> int:
        verifier = StoreVerifier(LocalStore(root))
        try:
            state = await verifier.run()
        finally:
            verifier.close()
        if not state.is_whole:
            raise SystemExit(f"the benchmark's own store is bad: {state.problems[0]}")
        return state.checked_bytes

    return asyncio.run(run())


def batch_of(records: int) -> bytearray:
    """A batch of so many records of 1 KiB of random bytes."""
    made = [
        Record(offset=index, timestamp_ms=1, key=None, value=os.urandom(RECORD_BYTES), headers=())
        for index in range(records)
    ]
    return bytearray(record_batch.encode_batch(made, base_offset=0, leader_epoch=1))


def write_segment(file: BinaryIO, batch: bytearray, records: int, *, base_offset: int, size_bytes: int) -> int:
    """The end offset of the segment that was written: the same batch again and again, up to so many bytes."""
    offset = base_offset
    for _ in range(size_bytes // len(batch)):
        record_batch.stamp_offsets(batch, 0, offset, 1)
        file.write(batch)
        offset += records
    return offset


def make_store(root: Path, batch_records: int, *, segments: int) -> None:
    """A store of one partition with so many segments, all of equal batches of random bytes."""
    store, topic_id, cluster_id = LocalStore(root), uuid4(), "bench"
    batch = batch_of(batch_records)
    rows: list[CommittedSegment] = []
    log = root.parent / "segment.log"
    for _ in range(segments):
        base_offset = rows[-1].end_offset if rows else 0
        with log.open("wb") as file:
            offset = write_segment(file, batch, batch_records, base_offset=base_offset, size_bytes=SEGMENT_BYTES)
        rows.append(_stored(store, log, topic_id, cluster_id, base_offset, offset, rows[-1] if rows else None))
    log.unlink()
    head = PartitionCheckpoint(
        version=0,
        cluster_id=cluster_id,
        topic=TOPIC,
        topic_id=topic_id,
        partition=0,
        partition_count=1,
        log_start_offset=0,
        cold_end_offset=rows[-1].end_offset,
        leader_epoch=1,
        pages=(),
        segments=tuple(rows),
    )
    checkpoints.write_partition_checkpoint(store, head)
    topic = TopicEntry(name=TOPIC, topic_id=topic_id, partition_count=1, configs={})
    checkpoints.write_cluster_checkpoint(store, ClusterCheckpoint(version=1, cluster_id=cluster_id, topics=(topic,)))


def _stored(
    store: LocalStore,
    log: Path,
    topic_id: UUID,
    cluster_id: str,
    base_offset: int,
    end_offset: int,
    before: CommittedSegment | None,
) -> CommittedSegment:
    object_id, previous_root = uuid4(), _NO_ROOT if before is None else before.root_sha256
    key = object_key.segment_key(TOPIC, topic_id, 0, base_offset, end_offset, 1, object_id)
    with log.open("rb") as file:
        described = uploader.describe(
            file.fileno(),
            log.stat().st_size,
            cluster_id=cluster_id,
            topic_id=topic_id,
            topic=TOPIC,
            partition=0,
            leader_epochs=((1, 0),),
            producer_snapshot=b"",
            previous_root_sha256=bytes.fromhex(previous_root),
        )
        store.put_segment(key, file.fileno(), described.table.log_bytes, described.tail)
    table = described.table
    return CommittedSegment(
        base_offset=base_offset,
        end_offset=end_offset,
        leader_epoch=1,
        object_key=key,
        object_id=object_id,
        size_bytes=described.object_bytes,
        log_bytes=table.log_bytes,
        min_timestamp_ms=table.min_timestamp_ms,
        max_timestamp_ms=table.max_timestamp_ms,
        record_count=table.record_count,
        root_sha256=table.root_sha256.hex(),
        previous_root_sha256=previous_root,
        committed_at_ms=1,
    )
