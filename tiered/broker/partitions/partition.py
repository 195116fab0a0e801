"""One partition: its offsets, its producers and its local log, with this object as their sole owner.

Owns every change of the partition's state; each is one function without an await. Its role and its epochs are in
`replication.replica`, and change by `apply_row` alone. Must never talk to S3 or SQL: `segment_lifecycle` and
`replication.isr_changes` do and report here what was committed.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

from tiered.broker.host.disk_reserve import DiskReserve
from tiered.broker.partitions import batch_checks
from tiered.broker.partitions.leadership import Leadership
from tiered.broker.partitions.refused_batches import RefusedBatches
from tiered.broker.partitions.replica import Replica, Role
from tiered.broker.partitions.replica_log import FetchedRun
from tiered.config import TopicConfig
from tiered.errors import (
    NotEnoughReplicas,
    OffsetNotAvailable,
    OffsetOutOfRange,
    OutOfOrderSequence,
    Retriable,
    ShuttingDown,
    TieredError,
)
from tiered.file_slice import FileSlice
from tiered.formats import record_batch
from tiered.formats.checkpoint import CommittedSegment
from tiered.formats.producer_snapshot import ProducerEntry
from tiered.formats.record_batch import BatchHeader
from tiered.formats.segment_check import Place
from tiered.hot.log import Log, LogConfig
from tiered.ids import InSyncReplica, TopicPartition
from tiered.metrics import TrafficState
from tiered.rules.partition import partition_state, producer_state, read_plan
from tiered.rules.partition.partition_state import Offsets

__all__ = ["ALL", "Appended", "Partition", "Role", "log_config"]

NO_TIMESTAMP = -1
ALL = -1


@dataclass(frozen=True, slots=True)
class Appended:
    """Where a batch went. `log_append_time_ms` is -1 unless the broker stamped the time."""

    base_offset: int
    end_offset: int
    log_append_time_ms: int
    log_start_offset: int
    leader_epoch: int = -1


class Partition(Replica):
    """This broker's replica of one partition."""

    def __init__(
        self,
        *,
        topic: str,
        topic_partition: TopicPartition,
        config: TopicConfig,
        log: Log,
        producers: dict[int, ProducerEntry],
        broker_id: int,
        is_current: Callable[[InSyncReplica], bool],
        log_start_offset: int,
        cold_end_offset: int,
        committed: Sequence[CommittedSegment],
        reserve: DiskReserve,
    ) -> None:
        super().__init__(
            topic=topic,
            topic_partition=topic_partition,
            config=config,
            log=log,
            broker_id=broker_id,
            is_current=is_current,
            log_start_offset=log_start_offset,
            cold_end_offset=cold_end_offset,
        )
        self.producers = producers
        self.traffic = TrafficState()
        self._reserve = reserve
        self.closed = False
        self._committed = list(committed)
        self.cold_bytes = sum(segment.size_bytes for segment in committed)
        self._producers_seen_ms: dict[int, int] = {}
        self._refused = RefusedBatches()
        log.producer_source = self.producers.values

    # Offsets

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
        what `errors` calls InvalidRecord, MessageTooLarge, CorruptBatch, OutOfOrderSequence, NotLeader,
        NotEnoughReplicas, ... and LogDirFailed when the disk refuses; then nothing was appended.
        """
        if self.closed:
            raise ShuttingDown(f"{self.name} is closing here; refresh metadata and retry")
        leadership = self.leadership or self.require_leader()
        header = batch_checks.checked_header(buffer, position, end, self.config, self.name)
        batch_checks.check_timestamps(header, self.config, now_ms, self.name)
        if self.config.is_compacted:
            batch_checks.check_keys(buffer, position, header, self.name)
        if header.producer_id >= 0:
            verdict = self._verdict(header, now_ms)
            if isinstance(verdict, producer_state.Duplicate):
                stamped = verdict.timestamp_ms if self.config.is_log_append_time else NO_TIMESTAMP
                return Appended(
                    verdict.base_offset, verdict.last_offset + 1, stamped, self._log_start_offset, self.leader_epoch
                )
        try:
            self._reserve.require_room()
            self._require_replicas(leadership, acks)
            wanted = batch_checks.foreign_codec(header.attributes, self.config)
            if wanted is not None:
                buffer, position, end, header = self._recompressed(buffer, position, header, wanted)
            return self._write(leadership, buffer, position, end, header, now_ms)
        except Retriable as error:
            if header.producer_id >= 0:
                self._refused.note(header, error, now_ms)
            raise

    def _verdict(self, header: BatchHeader, now_ms: int) -> producer_state.Accept | producer_state.Duplicate:
        """As `producer_state.check`; what comes behind a batch that was refused is refused with that one's error."""
        entry = self.producers.get(header.producer_id)
        ahead = self._refused.ahead_of(header, now_ms)
        try:
            verdict = producer_state.check(entry, header)
        except OutOfOrderSequence as error:
            raise error if ahead is None else ahead from None
        if ahead is not None and entry is None:
            raise ahead  # Nothing is known of the producer, and so anything would be its next batch.
        return verdict

    def _require_replicas(self, leadership: Leadership, acks: int) -> None:
        if acks == ALL and self.is_under_min_isr:
            raise NotEnoughReplicas(
                f"{self.name} has in-sync replicas {[each.broker_id for each in leadership.committed]}, of which fewer "
                f"are alive than min.insync.replicas={self.config.min_insync_replicas}: nothing was appended"
            )

    def _write(
        self, leadership: Leadership, buffer: memoryview, position: int, end: int, header: BatchHeader, now_ms: int
    ) -> Appended:
        base_offset = self.log.log_end_offset
        if base_offset == self._cold_end_offset:
            self.log.roll(now_ms)  # No segment may lie across what the store holds and what comes next.
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
            self._note_producer(header, base_offset, now_ms)
            self._refused.appended(header.producer_id)
        self.advance_high_watermark()
        if leadership.has_followers:
            self.growth.wake()
        return Appended(
            base_offset, self.log.log_end_offset, log_append_time_ms, self._log_start_offset, self.leader_epoch
        )

    def _note_producer(self, header: BatchHeader, base_offset: int, now_ms: int) -> None:
        # At the end, so that the order is that of their last batches.
        entry = self.producers.pop(header.producer_id, None)
        self.producers[header.producer_id] = producer_state.apply(entry, header, base_offset)
        self._producers_seen_ms[header.producer_id] = now_ms

    def foreign_codec(self, attributes: int) -> int | None:
        """The codec that a batch with these attributes has to be given; None when it may stay as it is."""
        return batch_checks.foreign_codec(attributes, self.config)

    def _recompressed(
        self, buffer: memoryview, position: int, header: BatchHeader, code: int
    ) -> tuple[memoryview, int, int, BatchHeader]:
        """The same records in the topic's own codec: `compression.type` is not `producer`."""
        data = memoryview(record_batch.recompressed(buffer[: position + header.size_bytes], position, code))
        return data, 0, len(data), record_batch.read_header(data, 0)

    def roll_if_due(self, now_ms: int) -> bool:
        """Closes the active segment when it is old enough; whether it did. Followers only follow their leader's
        segments, or the next leader's would lie across the end of what was uploaded. Raises LogDirFailed."""
        return self.role is Role.LEADER and self.log.roll_if_due(now_ms)

    # Followers: what the leader learns, and what a follower takes over

    def append_fetched(self, runs: Sequence[FetchedRun], *, begins_segment: bool, now_ms: int) -> None:
        """Writes what the leader sent, as it is, at the log's end. `begins_segment` when a segment of the leader's
        begins there: one begins here too. Raises LogDirFailed; runs before the one that failed are in the log.
        """
        assert self.role is Role.FOLLOWER, f"{self.name} is {self.role}"
        assert not self._is_truncating, self.name
        if begins_segment or self.log.log_end_offset == self._cold_end_offset:
            self.log.roll(now_ms)
        for run in runs:
            base_offset = self.log.log_end_offset
            if run.leader_epoch > self.log.leader_epochs.latest:
                self.log.begin_leader_epoch(run.leader_epoch)
            first = run.headers[0][0]
            end = run.headers[-1][0] + run.headers[-1][1].size_bytes
            self.log.append(run.buffer, first, end, run.headers, base_offset=base_offset, now_ms=now_ms, may_roll=False)
            for _, header in run.headers:
                if header.producer_id >= 0:
                    self._note_producer(header, header.base_offset, now_ms)

    def log_truncated(self, producers: Sequence[ProducerEntry] | None) -> None:
        """The log was cut, or begins anew; `producers` are those at its end, None when the cut failed and nobody
        knows."""
        if producers is not None:
            self._replace_producers(producers)
        self.end_truncation()

    # Fetch

    def check_leader_epoch(self, claimed: int) -> None:
        """Raises FencedLeaderEpoch or UnknownLeaderEpoch when the client talks to another leader."""
        partition_state.check_leader_epoch(claimed=claimed, current=self.leader_epoch, where=self.name)

    def require_readable(self, leader_epoch: int, offset: int, *, names_rack: bool) -> None:
        """Returns when a consumer may read `offset` here: from the leader, or from a follower if it names its rack.

        Raises FencedLeaderEpoch, UnknownLeaderEpoch, NotLeader, and OffsetNotAvailable above a follower's log.
        """
        self.check_leader_epoch(leader_epoch)
        if self.leadership is None:
            if not names_rack:
                self.require_leader()
            self.require_replica()
            if offset > self.log.log_end_offset:
                raise OffsetNotAvailable(f"{self.name}: offset {offset} is not on this replica yet; retry")

    def plan_read(self, offset: int, *, committed_only: bool) -> read_plan.Plan:
        """Which tier holds `offset`: Hot, Cold, CaughtUp or OutOfRange."""
        return self._plan(offset, self.last_stable_offset if committed_only else self._high_watermark)

    def outside(self, plan: read_plan.OutOfRange) -> TieredError:
        """What a consumer is told that asks for such an offset."""
        return OffsetOutOfRange(
            f"{self.name}: offset {plan.offset} is not in {plan.log_start_offset} to {plan.log_end_offset}"
        )

    def bounds_of_refusal(self) -> tuple[int, int]:
        """(log start offset, end) beside an error in an answer to Fetch: nothing is said of them."""
        return -1, -1

    def plan_replica_read(self, offset: int) -> read_plan.Plan:
        """The same for a follower, which may have everything."""
        return self._plan(offset, self.log.log_end_offset)

    def _plan(self, offset: int, readable_end_offset: int) -> read_plan.Plan:
        return read_plan.plan(
            offset,
            log_start_offset=self._log_start_offset,
            local_log_start_offset=self.log.local_log_start_offset,
            cold_end_offset=self._cold_end_offset,
            readable_end_offset=readable_end_offset,
            log_end_offset=self.log.log_end_offset,
        )

    def read_hot(self, offset: int, max_bytes: int, *, committed_only: bool, at_least_one: bool) -> FileSlice | None:
        """Whole batches from the one that holds `offset`, below the high watermark; None when none fits."""
        end = self.last_stable_offset if committed_only else self._high_watermark
        return self.log.read(offset, max_bytes, end_offset=end, min_one_batch=at_least_one)

    def place_of(self, segment: CommittedSegment) -> Place:
        """The segment as one of this partition's, which its object must say too."""
        topic_id, number = self.topic_partition.topic_id, self.topic_partition.partition
        return Place(topic=self.topic, topic_id=topic_id, partition=number, segment=segment)

    def committed_segment_at(self, offset: int) -> CommittedSegment | None:
        """The committed segment that holds `offset`."""
        index = bisect_right(self._committed, offset, key=lambda segment: segment.base_offset) - 1
        if index < 0:
            return None
        segment = self._committed[index]
        return segment if offset < segment.end_offset else None

    # What segment_lifecycle, the feed and the admin requests report

    def uploaded(self, segment: CommittedSegment) -> None:
        """`segment` is committed in SQL. Harmless to repeat: the feed says so too."""
        if segment.end_offset <= self._cold_end_offset:
            return
        # The base is lower only where DeleteRecords moved the cold end into this segment.
        assert segment.base_offset <= self._cold_end_offset, f"{self.name}: a commit out of order"
        self._committed.append(segment)
        self.cold_bytes += segment.size_bytes
        self._cold_end_offset = segment.end_offset

    def learn_segments(self, committed: Sequence[CommittedSegment]) -> None:
        """Takes over committed segments from the feed, in any order; those known already change nothing."""
        for segment in sorted(committed, key=lambda each: each.base_offset):
            # A gap is what retention took meanwhile: the row that says so may be waiting for a truncation to end.
            self._cold_end_offset = max(self._cold_end_offset, segment.base_offset)
            self.uploaded(segment)

    def apply_segments(self, committed: Sequence[CommittedSegment]) -> bool:
        """As `learn_segments`, of rows as they are in SQL by the feed and by nothing older: whether among them was one
        that compaction has put in the place of another."""
        is_changed = False
        for segment in committed:
            index = bisect_left(self._committed, segment.base_offset, key=lambda each: each.base_offset)
            if index == len(self._committed) or segment.end_offset > self._cold_end_offset:
                continue
            before = self._committed[index]
            if before.base_offset == segment.base_offset and before.object_id != segment.object_id:
                assert before.end_offset == segment.end_offset, f"{self.name}: a swap moved {before.end_offset}"
                self._committed[index] = segment
                self.cold_bytes += segment.size_bytes - before.size_bytes
                is_changed = True
        self.learn_segments(committed)
        return is_changed

    def moved_log_start(self, log_start_offset: int) -> None:
        """SQL has moved `log_start_offset`; whole segments below it are gone from the catalogue."""
        super().moved_log_start(log_start_offset)
        self._committed = [each for each in self._committed if each.end_offset > self._log_start_offset]
        self.cold_bytes = sum(segment.size_bytes for segment in self._committed)

    def configure(self, config: TopicConfig) -> None:
        """Takes new settings at once; they apply from the next append on."""
        self.config = config
        self.log.config = log_config(config)
        if self.leadership is not None:
            self.leadership.configure(config.min_insync_replicas)
        self.advance_high_watermark()

    def restart_from_cold(
        self, *, producers: Sequence[ProducerEntry], leader_epochs: Sequence[tuple[int, int]]
    ) -> None:
        """The local log begins anew at `cold_end_offset`; what the last object knew of its past goes on."""
        self._replace_producers(producers)
        self.log.restore_leader_epochs(leader_epochs)

    def _replace_producers(self, producers: Sequence[ProducerEntry]) -> None:
        # In place: the log holds on to this very dictionary.
        self.producers.clear()
        self.producers.update({entry.producer_id: entry for entry in producers})

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

    def forget_producers(self, most: int) -> int:
        """Forgets those that have been silent for longest, until `most` are left: how many those were."""
        surplus = list(islice(self.producers, max(0, len(self.producers) - most)))
        for producer_id in surplus:
            del self.producers[producer_id]
            self._producers_seen_ms.pop(producer_id, None)
        return len(surplus)

    def stop(self) -> None:
        """Takes no more writes and wakes everyone who waits. Who waits for followers goes on waiting for them."""
        self.closed = True
        self.waiters.wake()
        self.growth.wake()


def log_config(config: TopicConfig) -> LogConfig:
    """The part of a topic's settings that its local logs need."""
    return LogConfig(
        segment_bytes=config.segment_bytes,
        # A record in an active segment is not compacted, so it must not stay there for too long.
        segment_ms=min(config.segment_ms, config.max_compaction_lag_ms) if config.is_compacted else config.segment_ms,
        index_interval_bytes=config.index_interval_bytes,
        max_index_bytes=config.segment_index_bytes,
        flush_messages=config.flush_messages,
        flush_ms=config.flush_ms,
    )
