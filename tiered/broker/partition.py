"""One partition: its role, its offsets, its producers and its local log, with this object as their sole owner.

Owns every change of the partition's state; each is one function without an await. Its role and its epochs change
by `apply_row` alone. Must never talk to S3 or SQL: `segment_lifecycle` and `replication.isr_changes` do and report
here what was committed.
"""

import logging
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from tiered.broker import batch_checks
from tiered.broker.disk_reserve import DiskReserve
from tiered.broker.fetch_wait import Waiters
from tiered.broker.replication.acknowledgements import Acknowledgements
from tiered.broker.replication.leadership import Leadership
from tiered.broker.replication.replica_log import FetchedRun
from tiered.config import TopicConfig
from tiered.errors import CorruptMetadata, NotEnoughReplicas, NotLeader, ShuttingDown
from tiered.file_slice import FileSlice
from tiered.formats import record_batch
from tiered.formats.checkpoint import CommittedSegment
from tiered.formats.producer_snapshot import ProducerEntry
from tiered.formats.record_batch import BatchHeader
from tiered.hot.log import Log, LogConfig
from tiered.ids import InSyncReplica, TopicPartition
from tiered.meta.partitions import PartitionRow
from tiered.metrics import TrafficState
from tiered.rules import isr, partition_state, producer_state, read_plan
from tiered.rules.partition_state import Offsets, RowOrder, RowVersion

log = logging.getLogger(__name__)

NO_TIMESTAMP = -1
NOBODY = -1
ALL = -1


class Role(Enum):
    """What this broker is to the partition now."""

    NONE = auto()
    """Nobody leads it, or not as this broker knows it."""
    FOLLOWER = auto()
    LEADER = auto()


@dataclass(frozen=True, slots=True)
class Appended:
    """Where a batch went. `log_append_time_ms` is -1 unless the broker stamped the time."""

    base_offset: int
    end_offset: int
    log_append_time_ms: int
    log_start_offset: int
    leader_epoch: int = -1


class Partition:
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
        self.topic = topic
        self.topic_partition = topic_partition
        self.config = config
        self.log = log
        self.producers = producers
        self.broker_id = broker_id
        self.role = Role.NONE
        self.row: PartitionRow | None = None
        """The newest row that was applied; None before the first."""
        self.leader_epoch = -1
        self.halted: str | None = None
        """Why this partition is served no more until a restart: SQL contradicts what it had said (R1)."""
        self.waiters = Waiters()
        """Those who wait for the high watermark or the role to change."""
        self.growth = Waiters()
        """Followers that wait for the log to grow."""
        self.acknowledgements = Acknowledgements()
        self.traffic = TrafficState()
        self._reserve = reserve
        self._is_current = is_current
        self.closed = False
        self.leadership: Leadership | None = None
        """What a leader knows of its followers; None unless this broker leads."""
        self._is_truncating = False
        self._deferred: list[tuple[PartitionRow, int]] = []
        self._committed = list(committed)
        self.cold_bytes = sum(segment.size_bytes for segment in committed)
        self._cold_end_offset = cold_end_offset
        self._log_start_offset = max(log_start_offset, log.log_start_offset)
        self._high_watermark = min(max(self._log_start_offset, cold_end_offset), log.log_end_offset)
        self._producers_seen_ms: dict[int, int] = {}
        log.producer_source = self.producers.values

    @property
    def name(self) -> str:
        """For people: `topic-partition`."""
        return f"{self.topic}-{self.topic_partition.partition}"

    # Role

    def apply_row(self, row: PartitionRow, *, broker_epoch: int) -> None:
        """Takes over what SQL says: leader, epochs, ISR and log start. The one way by which they change.

        Harmless to repeat; a row that was overtaken on its way changes nothing. While the log is being truncated
        it waits until that has ended. A row that contradicts an earlier one halts the partition (R1).
        """
        if self.halted is not None:
            return
        if self._is_truncating:
            self._deferred.append((row, broker_epoch))
            return
        if self.row is not None:
            match partition_state.order_of(_version(row), _version(self.row)):
                case RowOrder.OLDER:
                    return
                case RowOrder.CONTRADICTION:
                    self.halt(
                        f"the catalogue shows leader epoch {row.leader_epoch} at partition epoch {row.partition_epoch}"
                        f", where epoch {self.row.leader_epoch} at {self.row.partition_epoch} had been committed"
                    )
                    return
                case RowOrder.NEWER:
                    pass
        self.row, self.leader_epoch = row, row.leader_epoch
        if row.log_start_offset > self._log_start_offset:
            self.moved_log_start(row.log_start_offset)
        before, self.role = self.role, self._role_in(row, broker_epoch)
        if self.role is Role.LEADER:
            self._lead(row, InSyncReplica(self.broker_id, broker_epoch))
            return
        if self.leadership is not None:
            self._end_leadership(f"{self.name} is led by broker {row.leader} now; refresh metadata")
        if self.role is Role.FOLLOWER and before is not Role.FOLLOWER:
            self.log.forget_empty_leader_epochs()
            self.waiters.wake()

    def _role_in(self, row: PartitionRow, broker_epoch: int) -> Role:
        if row.leader == self.broker_id:
            # A row from before this process registered makes nobody a leader, and nobody begins to lead with a log
            # that has failed: where it ends is not known any more.
            goes_on = self.leadership is not None and self.leadership.leader_epoch == row.leader_epoch
            is_fit = InSyncReplica(self.broker_id, broker_epoch) in row.isr and (goes_on or self.log.failed is None)
            return Role.LEADER if is_fit else Role.NONE
        return Role.FOLLOWER if row.leader != NOBODY and self.broker_id in row.replicas else Role.NONE

    def _lead(self, row: PartitionRow, me: InSyncReplica) -> None:
        leadership = self.leadership
        is_new = leadership is None or leadership.leader_epoch != row.leader_epoch or leadership.me != me
        if is_new:
            if leadership is not None:
                self._end_leadership(f"{self.name} is in another leader epoch now; refresh metadata")
            self.log.begin_leader_epoch(row.leader_epoch)
            epoch_start_offset = self.log.leader_epochs.start_of(row.leader_epoch)
            leadership = Leadership(me=me, leader_epoch=row.leader_epoch, epoch_start_offset=epoch_start_offset)
            self.leadership = leadership
        assert leadership is not None
        leadership.learn(row.isr, row.replicas, self.config.min_insync_replicas)
        if leadership.pending is not None and row.partition_epoch > leadership.pending_since_epoch:
            leadership.settle()
        if is_new:
            if leadership.is_sole:  # Whatever the only member of the ISR has is committed.
                self._high_watermark = max(self._high_watermark, self.log.log_end_offset)
            self.waiters.wake()
        self.advance_high_watermark()

    def _end_leadership(self, reason: str) -> None:
        self.leadership = None
        self.acknowledgements.fail(NotLeader(reason))
        self.waiters.wake()
        self.growth.wake()

    def halt(self, reason: str) -> None:
        """Serves this partition no more: SQL has lost what it had committed (R1). Only a restart ends it."""
        self.halted = (
            f"{self.name} is halted: {reason}. The database has lost committed changes (a restored backup, or a "
            "standby that was not synchronous): restore it, then restart this broker"
        )
        log.critical("%s", self.halted)
        self.role = Role.NONE
        self._end_leadership(self.halted)

    def require_leader(self) -> Leadership:
        """What the leader knows of its followers. Raises NotLeader unless this broker leads, CorruptMetadata when
        the partition is halted."""
        if self.leadership is None:
            self._refuse()
        assert self.leadership is not None
        return self.leadership

    def require_replica(self) -> None:
        """Returns while what is here may be read up to the high watermark. Raises as `require_leader`."""
        if self.role is Role.NONE:
            self._refuse()

    def _refuse(self) -> None:
        if self.halted is not None:
            raise CorruptMetadata(self.halted)
        led_by = "nobody" if self.row is None or self.row.leader == NOBODY else f"broker {self.row.leader}"
        raise NotLeader(f"{self.name} is not led by this broker but by {led_by}; refresh metadata and retry")

    @property
    def is_truncating(self) -> bool:
        """True while the log is cut in a thread: nothing may be written, and rows wait."""
        return self._is_truncating

    @property
    def is_withheld(self) -> bool:
        """True while a new leader cannot know yet how far its log is committed (R9)."""
        leadership = self.leadership
        return leadership is not None and self._high_watermark < leadership.epoch_start_offset

    @property
    def is_under_min_isr(self) -> bool:
        """Fewer living members of the ISR than `min.insync.replicas`; false where this broker does not lead."""
        leadership = self.leadership
        if leadership is None or self.config.min_insync_replicas <= 1:
            return False
        current = [member for member in leadership.committed if member == leadership.me or self._is_current(member)]
        return isr.count_current(leadership.committed, current) < self.config.min_insync_replicas

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
        what `errors` calls InvalidRecord, MessageTooLarge, CorruptBatch, OutOfOrderSequence, NotLeader,
        NotEnoughReplicas, ... and LogDirFailed when the disk refuses; then nothing was appended.
        """
        if self.closed:
            raise ShuttingDown(f"{self.name} is closing here; refresh metadata and retry")
        leadership = self.leadership or self.require_leader()
        self._reserve.require_room()
        if acks == ALL and self.is_under_min_isr:
            raise NotEnoughReplicas(
                f"{self.name} has in-sync replicas {[each.broker_id for each in leadership.committed]}, of which fewer "
                f"are alive than min.insync.replicas={self.config.min_insync_replicas}: nothing was appended"
            )
        header = batch_checks.checked_header(buffer, position, end, self.config, self.name)
        batch_checks.check_timestamps(header, self.config, now_ms, self.name)
        if header.producer_id >= 0:
            entry = self.producers.get(header.producer_id)
            verdict = producer_state.check(entry, header)
            if isinstance(verdict, producer_state.Duplicate):
                stamped = verdict.timestamp_ms if self.config.is_log_append_time else NO_TIMESTAMP
                return Appended(
                    verdict.base_offset, verdict.last_offset + 1, stamped, self._log_start_offset, self.leader_epoch
                )
        wanted = self.foreign_codec(header.attributes)
        if wanted is not None:
            buffer, position, end, header = self._recompressed(buffer, position, header, wanted)
        return self._write(buffer, position, end, header, now_ms)

    def _write(self, buffer: memoryview, position: int, end: int, header: BatchHeader, now_ms: int) -> Appended:
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
        self.advance_high_watermark()
        self.growth.wake()
        return Appended(
            base_offset, self.log.log_end_offset, log_append_time_ms, self._log_start_offset, self.leader_epoch
        )

    def _note_producer(self, header: BatchHeader, base_offset: int, now_ms: int) -> None:
        self.producers[header.producer_id] = producer_state.apply(
            self.producers.get(header.producer_id), header, base_offset
        )
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

    @property
    def needs_flush(self) -> bool:
        """True while `flush.messages` keeps records from being acknowledged before they are on disk."""
        return self.log.unflushed_messages >= self.config.flush_messages

    def advance_high_watermark(self) -> None:
        """Moves the high watermark as far as the rules allow now, and wakes who waited for it."""
        leadership = self.leadership
        if leadership is None:
            return
        before = self._high_watermark
        own_end = partition_state.durable_end_offset(
            previous=before,
            log_end_offset=self.log.log_end_offset,
            flushed_offset=self.log.flushed_offset,
            flush_messages=self.config.flush_messages,
        )
        after = own_end if leadership.is_sole else leadership.high_watermark(before, own_end)
        if after != before:
            self._moved_high_watermark(after)

    def _moved_high_watermark(self, high_watermark: int) -> None:
        self._high_watermark = high_watermark
        self.acknowledgements.advance(high_watermark)
        self.waiters.wake()

    # Followers: what the leader learns, and what a follower takes over

    def note_fetch(self, follower: InSyncReplica, offset: int, now_ms: float) -> None:
        """A follower fetches from `offset` in this leader epoch: it has everything below."""
        self.require_leader().note_fetch(follower, offset, self.log.log_end_offset, now_ms)
        self.advance_high_watermark()

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

    def learn_high_watermark(self, high_watermark: int) -> None:
        """The leader's answer says how far everything is committed; consumers here may read as far."""
        assert self.role is Role.FOLLOWER, f"{self.name} is {self.role}"
        after = partition_state.follower_high_watermark(
            previous=self._high_watermark, of_leader=high_watermark, log_end_offset=self.log.log_end_offset
        )
        if after != self._high_watermark:
            self._moved_high_watermark(after)

    def begin_truncation(self) -> None:
        """The log's end is about to be cut, in a thread; until `end_truncation` rows wait."""
        assert self.role is Role.FOLLOWER, f"{self.name} is {self.role}"
        assert not self._is_truncating, self.name
        self._is_truncating = True

    def end_truncation(self, producers: Sequence[ProducerEntry] | None) -> None:
        """The log is as it is now; `producers` are those at its end, None when the cut failed and nobody knows."""
        self._is_truncating = False
        if producers is not None:
            # In place: the log holds on to this very dictionary.
            self.producers.clear()
            self.producers.update({entry.producer_id: entry for entry in producers})
        if self.log.log_end_offset < self._high_watermark:
            log.warning(
                "%s: the log was cut at %d, below the high watermark %d: only an unclean election or a lost disk "
                "does that", self.name, self.log.log_end_offset, self._high_watermark,
            )  # fmt: skip
            self._high_watermark = self.log.log_end_offset
        deferred, self._deferred = self._deferred, []
        for row, broker_epoch in deferred:
            self.apply_row(row, broker_epoch=broker_epoch)

    # Fetch

    def check_leader_epoch(self, claimed: int) -> None:
        """Raises FencedLeaderEpoch or UnknownLeaderEpoch when the client talks to another leader."""
        partition_state.check_leader_epoch(claimed=claimed, current=self.leader_epoch, where=self.name)

    def plan_read(self, offset: int, *, committed_only: bool) -> read_plan.Plan:
        """Which tier holds `offset`: Hot, Cold, CaughtUp or OutOfRange."""
        return self._plan(offset, self.last_stable_offset if committed_only else self._high_watermark)

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
        if self.leadership is not None:
            self.leadership.configure(config.min_insync_replicas)
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
        """Takes no more writes and wakes everyone who waits. Who waits for followers goes on waiting for them."""
        self.closed = True
        self.waiters.wake()
        self.growth.wake()


def _version(row: PartitionRow) -> RowVersion:
    return RowVersion(row.partition_epoch, row.leader_epoch, row.change_number)


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
