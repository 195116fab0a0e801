"""Logs with transactions as a broker uploads them: real objects, in a store."""

import random
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

from tests.support.transactional_logs import TransactionalLog
from tests.unit.cold.stored_segments import NO_ROOT, PARTITION, TOPIC, TOPIC_ID
from tiered.cold.bucket import uploader
from tiered.cold.object_store import ObjectStore
from tiered.formats import object_key
from tiered.formats.checkpoint import CommittedSegment
from tiered.formats.segment_object import AbortedIndexEntry, aborted_between


def store_transactions(
    store: ObjectStore,
    folder: Path,
    log: TransactionalLog,
    chance: random.Random,
    *,
    chunk_bytes: int,
    forgets_aborted: bool = False,
) -> list[CommittedSegment]:
    """The segments into which the stable part of the log is cut by chance. `folder` takes one file at a time. A bad
    uploader `forgets_aborted`."""
    segments: list[CommittedSegment] = []
    for base_offset, end_offset, content in log.cut(chance):
        previous = segments[-1].root_sha256 if segments else NO_ROOT
        aborted = [] if forgets_aborted else aborted_between(log.entries, base_offset, end_offset)
        segments.append(_put(store, folder, aborted, base_offset, end_offset, content, previous, chunk_bytes))
    return segments


def _put(
    store: ObjectStore,
    folder: Path,
    aborted: Sequence[AbortedIndexEntry],
    base_offset: int,
    end_offset: int,
    content: Sequence[bytes],
    previous_root: str,
    chunk_bytes: int,
) -> CommittedSegment:
    object_id = UUID(int=base_offset + 1)
    key = object_key.segment_key(TOPIC, TOPIC_ID, PARTITION, base_offset, end_offset, 1, object_id)
    path = folder / "segment"
    path.write_bytes(b"".join(content))
    with path.open("rb") as file:
        described = uploader.describe(
            file.fileno(),
            path.stat().st_size,
            cluster_id="cluster-1",
            topic_id=TOPIC_ID,
            topic=TOPIC,
            partition=PARTITION,
            leader_epochs=((1, 0),),
            producer_snapshot=b"",
            previous_root_sha256=bytes.fromhex(previous_root),
            aborted=aborted,
            chunk_bytes=chunk_bytes,
        )
        store.put_segment(key, file.fileno(), path.stat().st_size, described.tail)
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
        committed_at_ms=0,
    )
