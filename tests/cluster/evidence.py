"""What a run left behind, read without asking a broker: replicas from disk, rows from SQL, objects from S3.

Owns the reading and the values it gives. Damage is part of the evidence: it is noted, never raised.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import Engine, text

from tests.cluster.history import decode_value
from tiered.errors import TieredError
from tiered.formats import record_batch
from tiered.formats.control_record import MarkerType, read_marker
from tiered.formats.segment_object import AbortedIndexEntry, read_tail

STRAY = -1
"""Stands for a value that is none of this run's."""


class StoredBatch(NamedTuple):
    """One batch at rest. Two are the same bytes when these are equal: the CRC covers what they do not name."""

    base_offset: int
    end_offset: int
    leader_epoch: int
    size_bytes: int
    crc: int


@dataclass(slots=True, kw_only=True)
class StoredLog:
    """Contiguous bytes at rest: a replica's local log, or one object."""

    name: str
    batches: list[StoredBatch] = field(default_factory=list)
    damage: list[str] = field(default_factory=list)
    values: dict[StoredBatch, list[tuple[int, int]]] = field(default_factory=dict)
    """(offset, value) of each batch."""
    producers: dict[StoredBatch, int] = field(default_factory=dict)
    """Who wrote each transactional batch, markers too."""
    markers: dict[StoredBatch, MarkerType] = field(default_factory=dict)
    aborted: tuple[AbortedIndexEntry, ...] = ()
    """What an object says of aborted transactions."""

    @property
    def start_offset(self) -> int:
        return self.batches[0].base_offset if self.batches else -1

    @property
    def end_offset(self) -> int:
        return self.batches[-1].end_offset if self.batches else -1

    def take(self, data: bytes, *, source: str) -> None:
        """Adds the batches of one file."""
        try:
            for position, header in record_batch.exact_batches(data, 0, len(data)):
                record_batch.verify_crc(data, position, header.size_bytes)
                batch = StoredBatch(
                    header.base_offset,
                    header.end_offset,
                    header.partition_leader_epoch,
                    header.size_bytes,
                    header.crc,
                )
                self.batches.append(batch)
                if header.is_transactional:
                    self.producers[batch] = header.producer_id
                if header.is_control and (marker := read_marker(data, position, header)) is not None:
                    self.markers[batch] = marker.type
                self.values[batch] = [
                    (record.offset, _value(record.value)) for record in record_batch.records(data, position)
                ]
        except TieredError as error:
            self.damage.append(f"{source}: {error}")


def _value(data: bytes | None) -> int:
    try:
        return decode_value(data or b"")
    except ValueError:
        return STRAY


class CatalogueRow(NamedTuple):
    """One committed segment."""

    base_offset: int
    end_offset: int
    leader_epoch: int
    object_key: str
    size_bytes: int


@dataclass(slots=True, kw_only=True)
class PartitionEvidence:
    """Everything about one partition. `index` is its place in the run's list."""

    index: int
    name: str
    log_start_offset: int = 0
    cold_end_offset: int = 0
    rows: list[CatalogueRow] = field(default_factory=list)
    replicas: dict[int, StoredLog] = field(default_factory=dict)
    objects: dict[str, StoredLog] = field(default_factory=dict)
    leader_epoch: int = 0
    isr: tuple[int, ...] = ()
    replica_ids: tuple[int, ...] = ()


def read_replica(folder: Path, name: str) -> StoredLog:
    """The local log in `folder`, all segments in order; an empty one where the folder is missing."""
    log = StoredLog(name=name)
    for path in sorted(folder.glob("*.log")):
        data = path.read_bytes()
        if data and log.batches and log.end_offset != int(path.stem):
            log.damage.append(f"{path.name} follows a segment that ends at {log.end_offset}")
        log.take(data, source=path.name)
    return log


def read_object(key: str, data: bytes | None) -> StoredLog:
    """The batches of one object, every chunk held against its hash."""
    log = StoredLog(name=key)
    if data is None:
        log.damage.append("the object does not exist")
        return log
    try:
        tail = read_tail(data, len(data))
    except TieredError as error:
        log.damage.append(str(error))
        return log
    for chunk in tail.chunks:
        piece = data[chunk.position : chunk.position + chunk.length]
        if hashlib.sha256(piece).digest() != chunk.sha256:
            log.damage.append(f"the chunk at {chunk.position} is not what its hash says")
    log.aborted = tail.aborted
    log.take(data[: tail.footer.log_bytes], source="its batches")
    return log


def read_partitions(
    engine: Engine,
    names: list[tuple[str, int]],
    data_folders: Mapping[int, Path],
    get_object: Callable[[str], bytes | None],
) -> list[PartitionEvidence]:
    """The evidence of each (topic, partition) in `names`. The brokers must have stopped."""
    found = []
    with engine.connect() as conn:
        for index, (topic, partition) in enumerate(names):
            row = conn.execute(
                text(
                    "SELECT p.* FROM partition p JOIN topic t USING (topic_id)"
                    " WHERE t.name = :topic AND t.deleted_at_ms IS NULL AND p.partition = :partition"
                ),
                {"topic": topic, "partition": partition},
            ).one()
            segments = conn.execute(
                text(
                    "SELECT base_offset, end_offset, leader_epoch, object_key, size_bytes FROM segment"
                    " WHERE topic_id = :id AND partition = :partition AND state = 'committed' ORDER BY base_offset"
                ),
                {"id": row.topic_id, "partition": partition},
            ).all()
            evidence = PartitionEvidence(
                index=index,
                name=f"{topic}-{partition}",
                log_start_offset=row.log_start_offset,
                cold_end_offset=row.cold_end_offset,
                rows=[CatalogueRow(*segment) for segment in segments],
                leader_epoch=row.leader_epoch,
                isr=tuple(member[0] if isinstance(member, list) else member["broker_id"] for member in row.isr),
                replica_ids=tuple(row.replicas),
            )
            for broker_id in evidence.replica_ids:
                folder = data_folders[broker_id] / "log" / str(row.topic_id) / str(partition)
                evidence.replicas[broker_id] = read_replica(folder, f"broker {broker_id}")
            for segment in evidence.rows:
                evidence.objects[segment.object_key] = read_object(segment.object_key, get_object(segment.object_key))
            found.append(evidence)
    return found
