"""One partition: its offsets, its producers and its local log, with this object as their sole owner.

Owns every change of the partition's state; each is one function without an await. Must never talk to S3
or SQL: `segment_lifecycle` orders those writes and reports here what was committed.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from tiered.broker.disk_reserve import DiskReserve
from tiered.broker.fetch_wait import Waiters
from tiered.config import TopicConfig
from tiered.errors import (
    InvalidRecord,
    InvalidTimestamp,
    InvalidTransactionState,
    MessageTooLarge,
    NotEnoughReplicas,
    ShuttingDown,
    UnsupportedCompression,
)
from tiered.file_slice import FileSlice
from tiered.formats import record_batch
from tiered.formats.checkpoint import CommittedSegment
from tiered.formats.producer_snapshot import ProducerEntry
from tiered.formats.record_batch import BatchHeader, Compression
from tiered.hot.log import Log, LogConfig
from tiered.ids import TopicPartition
from tiered.metrics import TrafficState
from tiered.rules import partition_state, producer_state, read_plan
from tiered.rules.partition_state import Offsets

NO_TIMESTAMP = -1
_ZSTD = int(Compression.ZSTD)
_CODES = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
"""What `compression.type` may be, besides `producer`, which keeps the client's codec."""


@dataclass(frozen=True, slots=True)
class Appended:
    """Where a batch went. `log_append_time_ms` is -1 unless the broker stamped the time."""

    base_offset: int
    end_offset: int
    log_append_time_ms: int
    log_start_offset: int


class Partition:
    """The leader's view of one partition."""

    def __init__(
        self,
        *,
        topic: str,
        topic_partition: TopicPartition,
        config: TopicConfig,
        log: Log,
        producers: dict[int, ProducerEntry],
        leader_epoch: int,
        log_start_offset: int,
        cold_end_offset: int,
        committed: Sequence[CommittedSegment],
        reserve: DiskReserve,
    ) -> None:
        self.topic = topic
        self.topic_partition = topic_partition
        self.config = config
        self.log = log
        self.producers = producers
        self.leader_epoch = leader_epoch
        self.waiters = Waiters()
        self.traffic = TrafficState()
        self._reserve = reserve
        self.closed = False
        self._committed = list(committed)
        self.cold_bytes = sum(segment.size_bytes for segment in committed)
        self._cold_end_offset = cold_end_offset
        self._log_start_offset = max(log_start_offset, log.log_start_offset)
        self._high_watermark = log.log_end_offset
        self._producers_seen_ms: dict[int, int] = {}
        log.producer_source = self.producers.values

    @property
    def name(self) -> str:
        """For people: `topic-partition`."""
        return f"{self.topic}-{self.topic_partition.partition}"

    # Offsets

    @property
    def log_start_offset(self) -> int:
        return self._log_start_offset

    @property
    def high_watermark(self) -> int:
        return self._high_watermark

    @property
    def last_stable_offset(self) -> int:
        return self._high_watermark  # No transaction can be open: transactional batches are refused.

    @property
    def cold_end_offset(self) -> int:
        return self._cold_end_offset

    @property
    def committed(self) -> tuple[CommittedSegment, ...]:
        """The segments that the object store holds, oldest first."""
        return tuple(self._committed)

    @property
    def offsets(self) -> Offsets:
        return Offsets(
            log_start_offset=self._log_start_offset,
            local_log_start_offset=self.log.local_log_start_offset,
            cold_end_offset=self.cold_end_offset,
            last_stable_offset=self.last_stable_offset,
            high_watermark=self._high_watermark,
            log_end_offset=self.log.log_end_offset,
        )

    # Produce

    def append(self, buffer: memoryview, position: int, end: int, *, acks: int, now_ms: int) -> Appended:
        """Where the one batch in `buffer[position:end]` went. Stamps it in place and writes it; the caller's
        bytes are changed even when this raises.

        A duplicate of one of the producer's last five batches answers with the first copy's offset. Raises
        what `errors` calls InvalidRecord, MessageTooLarge, CorruptBatch, OutOfOrderSequence, ... and
        LogDirFailed when the disk refuses; then nothing was appended.
        """
        if self.closed:
            raise ShuttingDown(f"{self.name} is closing here; refresh metadata and retry")
        self._reserve.require_room()
        if acks == -1 and self.config.min_insync_replicas > 1:
            raise NotEnoughReplicas(
                f"{self.name} has 1 in-sync replica and min.insync.replicas is {self.config.min_insync_replicas}"
            )
        if end - position >= record_batch.MIN_BATCH_BYTES and buffer[position + record_batch.MAGIC_POSITION] != 2:
            raise InvalidRecord(f"{self.name}: only record batches of magic 2 are stored; upgrade the client")
        header = record_batch.read_header(buffer, position, end)
        self._check_shape(header, end - position)
        record_batch.verify_crc(buffer, position, header.size_bytes)
        self._check_timestamps(header, now_ms)
        if header.producer_id >= 0:
            entry = self.producers.get(header.producer_id)
            verdict = producer_state.check(entry, header)
            if isinstance(verdict, producer_state.Duplicate):
                stamped = verdict.timestamp_ms if self.config.is_log_append_time else NO_TIMESTAMP
                return Appended(verdict.base_offset, verdict.last_offset + 1, stamped, self._log_start_offset)
        wanted = self.foreign_codec(header.attributes)
        if wanted is not None:
            buffer, position, end, header = self._recompressed(buffer, position, header, wanted)
        return self._write(buffer, position, end, header, now_ms)

    def _write(self, buffer: memoryview, position: int, end: int, header: BatchHeader, now_ms: int) -> Appended:
        base_offset = self.log.log_end_offset
        record_batch.stamp_offsets(buffer, position, base_offset, self.leader_epoch)
        log_append_time_ms = NO_TIMESTAMP
        if self.config.is_log_append_time:
            log_append_time_ms = now_ms
            record_batch.stamp_log_append_time(buffer, position, header.size_bytes, now_ms)
            header = record_batch.read_header(buffer, position, end)
        self.log.append(buffer, position, end, ((position, header),), base_offset=base_offset, now_ms=now_ms)
        traffic = self.traffic
        traffic.produced_bytes += end - position
        traffic.produced_batches += 1
        traffic.produced_records += header.record_count
        if header.producer_id >= 0:
            self.producers[header.producer_id] = producer_state.apply(
                self.producers.get(header.producer_id), header, base_offset
            )
            self._producers_seen_ms[header.producer_id] = now_ms
        self.advance_high_watermark()
        return Appended(base_offset, self.log.log_end_offset, log_append_time_ms, self._log_start_offset)

    def _check_shape(self, header: BatchHeader, size_bytes: int) -> None:
        if header.size_bytes != size_bytes:
            raise InvalidRecord(f"{self.name}: a produce request carries exactly one batch for each partition")
        if size_bytes > self.config.max_message_bytes:
            raise MessageTooLarge(
                f"{self.name}: a batch of {size_bytes} bytes exceeds max.message.bytes={self.config.max_message_bytes}"
            )
        if header.record_count <= 0 or header.last_offset_delta != header.record_count - 1:
            raise InvalidRecord(f"{self.name}: the batch's record count contradicts its last offset delta")
        if header.is_control:
            raise InvalidRecord(f"{self.name}: clients may not write control batches")
        if header.is_transactional:
            raise InvalidTransactionState(f"{self.name}: transactions are not served by this version")
        if header.compression > _ZSTD:
            raise UnsupportedCompression(f"{self.name}: compression codec {header.compression} is unknown")
        if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
            raise InvalidRecord(f"{self.name}: an idempotent batch needs a producer epoch and a sequence")

    def _check_timestamps(self, header: BatchHeader, now_ms: int) -> None:
        if self.config.is_log_append_time:
            return
        if header.max_timestamp_ms > now_ms + self.config.message_timestamp_after_max_ms:
            raise InvalidTimestamp(
                f"{self.name}: timestamp {header.max_timestamp_ms} is too far ahead (message.timestamp.after.max.ms)"
            )
        earliest = now_ms - self.config.message_timestamp_before_max_ms
        if 0 <= header.base_timestamp_ms < earliest:
            raise InvalidTimestamp(
                f"{self.name}: timestamp {header.base_timestamp_ms} is too old (message.timestamp.before.max.ms)"
            )

    def foreign_codec(self, attributes: int) -> int | None:
        """The codec that a batch with these attributes has to be given; None when it may stay as it is."""
        wanted = _CODES.get(self.config.compression_type)
        return None if wanted is None or wanted == attributes & 7 else wanted

    def _recompressed(
        self, buffer: memoryview, position: int, header: BatchHeader, code: int
    ) -> tuple[memoryview, int, int, BatchHeader]:
        """The same records in the topic's own codec: `compression.type` is not `producer`."""
        data = memoryview(record_batch.recompressed(buffer[: position + header.size_bytes], position, code))
        return data, 0, len(data), record_batch.read_header(data, 0)

    def advance_high_watermark(self) -> None:
        """Moves the high watermark as far as the rules allow now, and wakes who waited for it."""
        before = self._high_watermark
        self._high_watermark = partition_state.high_watermark_of_sole_replica(
            previous=before,
            log_end_offset=self.log.log_end_offset,
            flushed_offset=self.log.flushed_offset,
            flush_messages=self.config.flush_messages,
        )
        if self._high_watermark != before:
            self.waiters.wake()

    # Fetch

    def check_leader_epoch(self, claimed: int) -> None:
        """Raises FencedLeaderEpoch or UnknownLeaderEpoch when the client talks to another leader."""
        partition_state.check_leader_epoch(claimed=claimed, current=self.leader_epoch, where=self.name)

    def plan_read(self, offset: int, *, committed_only: bool) -> read_plan.Plan:
        """Which tier holds `offset`: Hot, Cold, CaughtUp or OutOfRange."""
        end = self.last_stable_offset if committed_only else self._high_watermark
        return read_plan.plan(
            offset,
            log_start_offset=self._log_start_offset,
            local_log_start_offset=self.log.local_log_start_offset,
            cold_end_offset=self._cold_end_offset,
            readable_end_offset=end,
        )

    def read_hot(self, offset: int, max_bytes: int, *, committed_only: bool, at_least_one: bool) -> FileSlice | None:
        """Whole batches from the one that holds `offset`, below the high watermark; None when none fits."""
        end = self.last_stable_offset if committed_only else self._high_watermark
        return self.log.read(offset, max_bytes, end_offset=end, min_one_batch=at_least_one)

    def committed_segment_at(self, offset: int) -> CommittedSegment | None:
        """The committed segment that holds `offset`."""
        index = bisect_right(self._committed, offset, key=lambda segment: segment.base_offset) - 1
        if index < 0:
            return None
        segment = self._committed[index]
        return segment if offset < segment.end_offset else None

    # What segment_lifecycle and the admin requests report

    def uploaded(self, segment: CommittedSegment) -> None:
        """`segment` is committed in SQL."""
        # The base is lower only where DeleteRecords moved the cold end into this segment.
        assert segment.base_offset <= self._cold_end_offset < segment.end_offset, "a commit out of order"
        self._committed.append(segment)
        self.cold_bytes += segment.size_bytes
        self._cold_end_offset = segment.end_offset

    def moved_log_start(self, log_start_offset: int) -> None:
        """SQL has moved `log_start_offset`; whole segments below it are gone from the catalogue.

        What nobody may read needs no upload, so `cold_end_offset` is never below it (T5).
        """
        self._log_start_offset = max(self._log_start_offset, log_start_offset)
        self._cold_end_offset = max(self._cold_end_offset, self._log_start_offset)
        self._committed = [each for each in self._committed if each.end_offset > self._log_start_offset]
        self.cold_bytes = sum(segment.size_bytes for segment in self._committed)

    def configure(self, config: TopicConfig) -> None:
        """Takes new settings at once; they apply from the next append on."""
        self.config = config
        self.log.configure(log_config(config))
        self.advance_high_watermark()

    def begin_leadership(self) -> None:
        """This broker leads the partition in `leader_epoch` from the present end of the log on."""
        self.log.begin_leader_epoch(self.leader_epoch)
        self.advance_high_watermark()

    def restart_from_cold(
        self, *, producers: Sequence[ProducerEntry], leader_epochs: Sequence[tuple[int, int]]
    ) -> None:
        """The local log begins anew at `cold_end_offset`; what the last object knew of its past goes on."""
        # In place: the log holds on to this very dictionary.
        self.producers.clear()
        self.producers.update({entry.producer_id: entry for entry in producers})
        self.log.restore_leader_epochs(leader_epochs)

    def end_of_leader_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """(leader epoch, its end offset) for the newest epoch not above `leader_epoch`; (-1, -1) if there is none,
        or for an epoch that has not been yet.
        """
        if leader_epoch > self.leader_epoch:
            return -1, -1
        return self.log.leader_epochs.end_offset_for(leader_epoch, self.log.log_end_offset)

    def expire_producers(self, now_ms: int, expiration_ms: int) -> None:
        """Forgets idempotent producers that have not written for `expiration_ms`.

        By this broker's clock: Kafka goes by the records' own times, and so forgets a producer that replays
        old records while it writes. A producer known from before the start counts from the first look on.
        """
        seen = self._producers_seen_ms
        for producer_id in list(self.producers):
            if now_ms - seen.setdefault(producer_id, now_ms) >= expiration_ms:
                del self.producers[producer_id]
                del seen[producer_id]

    def stop(self) -> None:
        """Takes no more writes and wakes everyone who waits."""
        self.closed = True
        self.waiters.wake()


def log_config(config: TopicConfig) -> LogConfig:
    """The part of a topic's settings that its local logs need."""
    return LogConfig(
        segment_bytes=config.segment_bytes,
        segment_ms=config.segment_ms,
        index_interval_bytes=config.index_interval_bytes,
        max_index_bytes=config.segment_index_bytes,
        flush_messages=config.flush_messages,
        flush_ms=config.flush_ms,
    )
