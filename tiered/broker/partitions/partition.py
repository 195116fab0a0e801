"""One partition: its role, its offsets, its producers and its local log, with this object as their sole owner.

Owns every change of the partition's state; each is one function without an await. How it becomes leader, follower or
neither is `apply_row`'s alone. Must never talk to S3 or SQL: `segment_lifecycle` and `replication.isr_changes` do and
report here what was committed.
"""

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tiered.broker.host.disk_reserve import DiskReserve
from tiered.broker.partitions import batch_checks
from tiered.broker.partitions.acknowledgements import Acknowledgements
from tiered.broker.partitions.batch_checks import AS_SENT, ValidatedBatch, limits_of
from tiered.broker.partitions.cold_end import ColdEnd
from tiered.broker.partitions.fetch_wait import Waiters
from tiered.broker.partitions.leadership import Leadership
from tiered.broker.partitions.log_settings import log_config
from tiered.broker.partitions.producers import Producers
from tiered.broker.partitions.replica_log import FetchedRun
from tiered.broker.partitions.role import Role
from tiered.broker.partitions.transactions import AskedMarker, PartitionTransactions, Verification, in_their_places
from tiered.config import TopicConfig
from tiered.errors import (
    CorruptMetadata,
    NotEnoughReplicas,
    NotLeader,
    OffsetNotAvailable,
    OffsetOutOfRange,
    Retriable,
    ShuttingDown,
    TieredError,
)
from tiered.file_slice import ReadBatches
from tiered.formats import record_batch
from tiered.formats.checkpoint import CommittedSegment
from tiered.formats.producer_snapshot import ProducerEntry
from tiered.formats.record_batch import TRANSACTIONAL_BIT, BatchHeader
from tiered.formats.segment_object import AbortedIndexEntry
from tiered.hot.log import Log
from tiered.ids import InSyncReplica, TopicPartition
from tiered.meta.partitions import PartitionRow
from tiered.metrics import TrafficState
from tiered.rules.partition import partition_state, producer_state, read_plan
from tiered.rules.partition.partition_state import PartitionOffsets, RowOrder
from tiered.rules.replication import isr
from tiered.rules.segments.restored_logs import begins_unseen

log = logging.getLogger(__name__)

NO_TIMESTAMP = -1
ALL = -1
NOBODY = -1
LOST = (
    "The database has lost committed changes (a restored backup, or a standby that was not synchronous): restore it, "
    "then restart this broker"
)


class Appended(NamedTuple):
    """Where a batch went. `log_append_time_ms` is -1 unless the broker stamped the time. (A NamedTuple: one is built
    for each batch.)"""

    base_offset: int
    end_offset: int
    log_append_time_ms: int
    log_start_offset: int
    leader_epoch: int


class Partition(ColdEnd):
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
        changed: Callable[["Partition"], None],
    ) -> None:
        super().__init__(
            topic=topic,
            topic_partition=topic_partition,
            log_start_offset=max(log_start_offset, log.log_start_offset),
            cold_end_offset=cold_end_offset,
            committed=committed,
        )
        self.name = f"{topic}-{topic_partition.partition}"
        """For people."""
        self.config = config
        self.limits = limits_of(config)
        """What a batch must be to be stored here."""
        self.log = log
        self.broker_id = broker_id
        self.role = Role.NONE
        self._is_in_sync = False
        """Whether the newest row has this replica in the ISR, in its present registration."""
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
        self.leadership: Leadership | None = None
        """What a leader knows of its followers; None unless this broker leads."""
        self._is_current = is_current
        self._is_truncating = False
        self._deferred: list[tuple[PartitionRow, int]] = []
        # Not the store's end: what a follower has below it may be another leader's, until its log was compared.
        self.high_watermark = min(self.log_start_offset, log.log_end_offset)
        self.producers = Producers(producers)
        self.transactions = PartitionTransactions(
            producers.values(), end_offset=log.log_end_offset, stable_offset=self.high_watermark
        )
        self.traffic = TrafficState()
        self._reserve = reserve
        self._changed = changed
        self.closed = False
        log.producer_source = self.producers.entries.values

    def changed(self) -> None:
        """Says that something happened here, or is about to: the next round looks at it."""
        self._changed(self)

    # Offsets

    @property
    def last_stable_offset(self) -> int:
        """As far as a read_committed reader may see: no transaction below is open, or has an end that may go (X4)."""
        return self.transactions.last_stable_offset(self.high_watermark, self.log_start_offset)

    @property
    def offsets(self) -> PartitionOffsets:
        return PartitionOffsets(
            log_start_offset=self.log_start_offset,
            local_log_start_offset=self.log.local_log_start_offset,
            cold_end_offset=self.cold_end_offset,
            last_stable_offset=self.last_stable_offset,
            high_watermark=self.high_watermark,
            log_end_offset=self.log.log_end_offset,
        )

    # Role

    def apply_row(self, row: PartitionRow, *, broker_epoch: int) -> None:
        """Takes over what SQL says: leader, epochs, ISR and log start. The one way by which they change.

        Harmless to repeat; a row that was overtaken on its way changes nothing. While the log is being truncated
        it waits until that has ended. A row that contradicts an earlier one halts the partition (R1).
        """
        self.changed()
        if self.halted is not None:
            return
        if self._is_truncating:
            self._deferred.append((row, broker_epoch))
            return
        if self.row is not None:
            match partition_state.order_of(row.version, self.row.version):
                case RowOrder.OLDER:
                    return
                case RowOrder.CONTRADICTION:
                    self.halt(
                        f"SQL shows leader epoch {row.leader_epoch} at partition epoch {row.partition_epoch}, where "
                        f"epoch {self.row.leader_epoch} at {self.row.partition_epoch} had been committed. {LOST}"
                    )
                    return
                case RowOrder.NEWER:
                    pass
        self.row, self.leader_epoch = row, row.leader_epoch
        self._is_in_sync = InSyncReplica(self.broker_id, broker_epoch) in row.isr
        if row.log_start_offset > self.log_start_offset:
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
            # A row from before this process registered makes no leader, and no broker begins to lead with a log that
            # has failed: where it ends is not known any more.
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
            leaves_word = len(row.replicas) > 1 and begins_unseen(
                self.log.leader_epochs,
                leader_epoch=row.leader_epoch,
                log_end_offset=self.log.log_end_offset,
                high_watermark=self.high_watermark,
            )
            self.log.begin_leader_epoch(row.leader_epoch, leaves_word=leaves_word)
            start = self.log.leader_epochs.start_of(row.leader_epoch)
            self.leadership = leadership = Leadership(me=me, leader_epoch=row.leader_epoch, epoch_start_offset=start)
        assert leadership is not None
        leadership.learn(row.isr, row.replicas, self.config.min_insync_replicas)
        if leadership.pending is not None and row.partition_epoch > leadership.pending_since_epoch:
            leadership.settle()
        if is_new:
            # An elected leader has every committed record, and so all that is in the store.
            self.high_watermark = max(self.high_watermark, min(self.cold_end_offset, self.log.log_end_offset))
            if leadership.is_sole:  # Whatever the only member of the ISR has is committed.
                self.high_watermark = max(self.high_watermark, self.log.log_end_offset)
            self.acknowledgements.lead(row.leader_epoch, self.high_watermark)
            self.waiters.wake()
        self.advance_high_watermark()

    def _end_leadership(self, reason: str) -> None:
        self.leadership = None
        self.acknowledgements.fail(NotLeader(reason))
        self.waiters.wake()
        self.growth.wake()

    def halt(self, reason: str, *, is_logged: bool = False) -> None:
        """Serves this partition no more: SQL contradicts itself (R1, R14). Only a restart ends it. `reason` says what
        to do; it `is_logged` already where it is that of all partitions."""
        self.halted = f"{self.name} is halted: {reason}"
        if not is_logged:
            log.critical("%s", self.halted)
        self.role = Role.NONE
        self._end_leadership(self.halted)

    def leave(self) -> None:
        """This broker holds no replica any more: waiting clients have to look elsewhere."""
        self._deferred.clear()  # Or the end of a truncation would give it a role again.
        self.role = Role.NONE
        self._end_leadership(f"{self.name} has moved to other brokers; refresh metadata and retry")

    def require_leader(self) -> Leadership:
        """The leader's view of followers. Raises NotLeader unless this broker leads, CorruptMetadata when the partition
        is halted."""
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
        return leadership is not None and self.high_watermark < leadership.epoch_start_offset

    @property
    def is_under_min_isr(self) -> bool:
        """Fewer living members of the ISR than there must be; false where this broker does not lead."""
        leadership = self.leadership
        if leadership is None or leadership.min_isr <= 1:
            return False
        current = [member for member in leadership.committed if member == leadership.me or self._is_current(member)]
        return isr.count_current(leadership.committed, current) < leadership.min_isr

    # The high watermark

    @property
    def needs_flush(self) -> bool:
        """True while `flush.messages` keeps records from being acknowledged before they are on disk."""
        return self.log.unflushed_messages >= self.config.flush_messages

    def advance_high_watermark(self) -> None:
        """Moves the high watermark as far as the rules allow now, and wakes who waited for it."""
        leadership = self.leadership
        if leadership is None:
            return
        before = self.high_watermark
        log_ = self.log
        own_end = log_.log_end_offset
        if own_end - log_.flushed_offset >= self.config.flush_messages:
            own_end = partition_state.durable_end_offset(previous=before, flushed_offset=log_.flushed_offset)
        after = own_end if leadership.is_sole else leadership.high_watermark(before, own_end)
        if after != before:
            self._moved_high_watermark(after)

    def _moved_high_watermark(self, high_watermark: int) -> None:
        self.high_watermark = high_watermark
        self.acknowledgements.advance(high_watermark)
        self.waiters.wake()

    def note_fetch(self, follower: InSyncReplica, offset: int, now_ms: float) -> None:
        """A follower fetches from `offset` in this leader epoch: it has everything below."""
        self.require_leader().note_fetch(follower, offset, self.log.log_end_offset, now_ms)
        self.advance_high_watermark()

    def learn_high_watermark(self, high_watermark: int) -> None:
        """The leader's answer says how far everything is committed; consumers here may read as far."""
        assert self.role is Role.FOLLOWER, f"{self.name} is {self.role}"
        after = partition_state.follower_high_watermark(
            previous=self.high_watermark, of_leader=high_watermark, log_end_offset=self.log.log_end_offset
        )
        if after != self.high_watermark:
            self._moved_high_watermark(after)

    # Truncation

    def begin_truncation(self) -> None:
        """The log's end is about to be cut, in a thread; until its end rows wait."""
        assert self.role is Role.FOLLOWER, f"{self.name} is {self.role}"
        assert not self._is_truncating, self.name
        self._is_truncating = True

    def end_truncation(self) -> None:
        """The log is as it is now, and rows that came meanwhile are applied."""
        self._is_truncating = False
        self.changed()
        if self.log.log_end_offset < self.high_watermark:
            log.warning(
                "%s: the log was cut at %d, below the high watermark %d: only an unclean election or a lost disk "
                "does that", self.name, self.log.log_end_offset, self.high_watermark,
            )  # fmt: skip
            self.high_watermark = self.log.log_end_offset
        deferred, self._deferred = self._deferred, []
        for row, broker_epoch in deferred:
            self.apply_row(row, broker_epoch=broker_epoch)

    # Produce

    def append(
        self,
        buffer: memoryview,
        position: int,
        end: int,
        *,
        acks: int,
        now_ms: int,
        verified: Verification | None = None,
        validated: ValidatedBatch | None = None,
    ) -> Appended:
        """Where the one batch in `buffer[position:end]` went. Validates it unless it is `validated` for these limits.
        Stamps it in place and writes it; the caller's bytes are changed even when this raises.

        A duplicate of one of the producer's last five batches answers with the first copy's offset. The first batch of
        a transaction has to be `verified`. Raises what `errors` calls InvalidRecord, MessageTooLarge, CorruptBatch,
        OutOfOrderSequence, InvalidTransactionState, NotLeader, NotEnoughReplicas, ... and LogDirFailed when the disk
        refuses; then nothing was appended.
        """
        if self.closed:
            raise ShuttingDown(f"{self.name} is closing here; refresh metadata and retry")
        leadership = self.leadership or self.require_leader()
        header: BatchHeader | None
        if validated is not None and validated.limits is self.limits:
            buffer, position, end, header, _ = validated
        else:
            header = batch_checks.valid_header(buffer, position, end, self.limits, now_ms, self.name)
            assert header is not None
        if header.producer_id >= 0:
            verdict = self.producers.verdict(header, now_ms)
            if isinstance(verdict, producer_state.Duplicate):
                stamped = verdict.timestamp_ms if self.config.is_log_append_time else NO_TIMESTAMP
                return Appended(
                    verdict.base_offset, verdict.last_offset + 1, stamped, self.log_start_offset, self.leader_epoch
                )
            if header.attributes & TRANSACTIONAL_BIT or self.transactions.is_any_open:
                self.transactions.check(self.producers.entries.get(header.producer_id), header, verified)
        try:
            self._reserve.require_room()
            if acks == ALL and self.is_under_min_isr:
                raise self._too_few_replicas(leadership)
            if self.config.compression_type != AS_SENT:
                wanted = batch_checks.foreign_codec(header.attributes, self.config)
                if wanted is not None:
                    batch = ValidatedBatch(buffer, position, end, header, self.limits)
                    buffer, position, end, header, _ = batch_checks.recompressed(batch, wanted)
            return self._write(leadership, buffer, position, end, header, now_ms)
        except Retriable as error:
            if header.producer_id >= 0:
                self.producers.refused(header, error, now_ms)
            raise

    def begin_verification(self, producer_id: int, producer_epoch: int) -> Verification | None:
        """What `append` has to be given once the coordinator has said that the producer's transaction is ongoing; None
        when there is nothing to ask, for its transaction is open here."""
        return self.transactions.begin_verification(
            self.producers.entries.get(producer_id), producer_id, producer_epoch
        )

    def append_markers(self, asked: Sequence[AskedMarker], *, now_ms: int) -> dict[int, TieredError]:
        """Ends transactions of different producers in one write, which may take of the disk's reserve. Of those that
        are refused, by their places among `asked`, why: TransactionCoordinatorFenced or StaleProducerEpoch. One that
        stands already is not written again. Raises NotLeader, NotEnoughReplicas and LogDirFailed: none was written.
        """
        if self.closed:
            raise ShuttingDown(f"{self.name} is closing here; refresh metadata and retry")
        leadership = self.require_leader()
        due, refused = self.transactions.due_markers(self.producers.entries, asked)
        if due:
            if self.is_under_min_isr:
                raise self._too_few_replicas(leadership)
            base_offset = self._next_offset(now_ms)
            stamp_ms = now_ms if self.config.is_log_append_time else None
            buffer, headers, placed = in_their_places(due, base_offset, self.leader_epoch, stamp_ms)
            aborted = self.transactions.aborted_in(placed) if any(each.marker.aborts for each in due) else ()
            self.log.append(buffer, 0, len(buffer), headers, base_offset=base_offset, now_ms=now_ms, aborted=aborted)
            for header, offset, marker in placed:
                self.producers.note(header, offset, now_ms, marker)
                self.transactions.note(header, offset, marker, now_ms)
            self._grew(leadership, len(buffer), batches=len(due), records=len(due), now_ms=now_ms)
        return refused

    def _too_few_replicas(self, leadership: Leadership) -> NotEnoughReplicas:
        return NotEnoughReplicas(
            f"{self.name} has in-sync replicas {[member.broker_id for member in leadership.committed]}, of which fewer "
            f"are alive than min.insync.replicas={self.config.min_insync_replicas}: nothing was appended"
        )

    def _write(
        self, leadership: Leadership, buffer: memoryview, position: int, end: int, header: BatchHeader, now_ms: int
    ) -> Appended:
        base_offset = self._next_offset(now_ms)
        record_batch.stamp_offsets(buffer, position, base_offset, self.leader_epoch)
        log_append_time_ms = NO_TIMESTAMP
        if self.limits.sets_time:
            log_append_time_ms = now_ms
            record_batch.stamp_log_append_time(buffer, position, header.size_bytes, now_ms)
            header = record_batch.read_header(buffer, position, end)
        self.log.append(buffer, position, end, ((position, header),), base_offset=base_offset, now_ms=now_ms)
        if header.producer_id >= 0:
            self.producers.note(header, base_offset, now_ms)
            if header.attributes & TRANSACTIONAL_BIT:
                self.transactions.note(header, base_offset, None, now_ms)
        self._grew(leadership, end - position, batches=1, records=header.record_count, now_ms=now_ms)
        end_offset = base_offset + header.last_offset_delta + 1
        return Appended(base_offset, end_offset, log_append_time_ms, self.log_start_offset, self.leader_epoch)

    def _next_offset(self, now_ms: int) -> int:
        """Where the next batch goes."""
        self.changed()
        base_offset = self.log.log_end_offset
        if base_offset == self.cold_end_offset:
            self.log.roll(now_ms)  # No segment may lie across what the store holds and what comes next.
        return base_offset

    def _grew(self, leadership: Leadership, size_bytes: int, *, batches: int, records: int, now_ms: int) -> None:
        traffic = self.traffic
        traffic.begin(now_ms)
        traffic.written_ms = now_ms
        traffic.produced_bytes += size_bytes
        traffic.produced_batches += batches
        traffic.produced_records += records
        self.advance_high_watermark()
        if leadership.has_followers:
            self.growth.wake()

    def roll_if_due(self, now_ms: int) -> bool:
        """Closes the active segment when it is old enough; whether it did. Followers only follow their leader's
        segments, or the next leader's would lie across the end of what was uploaded. Raises LogDirFailed."""
        return self.role is Role.LEADER and self.log.roll_if_due(now_ms)

    # Followers: what the leader learns, and what a follower takes over

    def append_fetched(self, runs: Sequence[FetchedRun], *, begins_segment: bool, now_ms: int) -> None:
        """Writes what the leader sent, as it is, at the log's end. `begins_segment` when a segment of the leader's
        begins there: one begins here too. Raises LogDirFailed; runs before the one that failed are in the log."""
        assert self.role is Role.FOLLOWER, f"{self.name} is {self.role}"
        assert not self._is_truncating, self.name
        self.changed()
        if begins_segment or self.log.log_end_offset == self.cold_end_offset:
            self.log.roll(now_ms)
        for run in runs:
            base_offset = self.log.log_end_offset
            if run.leader_epoch > self.log.leader_epochs.latest:
                self.log.begin_leader_epoch(run.leader_epoch)
            first = run.headers[0][0]
            end = run.headers[-1][0] + run.headers[-1][1].size_bytes
            aborted = self.transactions.aborted_in(run.placed()) if run.markers else ()
            self.log.append(
                run.buffer, first, end, run.headers, base_offset=base_offset, now_ms=now_ms, may_roll=False,
                aborted=aborted, times_proven_from=run.times_proven_from,
            )  # fmt: skip
            for position, header in run.headers:
                if header.producer_id >= 0:
                    marker = run.markers.get(position)
                    if marker is None and header.is_control:
                        continue  # Of a kind that ends no transaction.
                    self.producers.note(header, header.base_offset, now_ms, marker)
                    if header.attributes & TRANSACTIONAL_BIT:
                        self.transactions.note(header, header.base_offset, marker, now_ms)
        if self._is_in_sync:
            self._replicated(runs, now_ms)

    def _replicated(self, runs: Sequence[FetchedRun], now_ms: int) -> None:
        """Counts what has come in. What a replica fetches before it is in sync may have been written long ago."""
        traffic = self.traffic
        traffic.begin(now_ms)
        for run in runs:
            traffic.replicated_bytes += sum(header.size_bytes for _, header in run.headers)
            traffic.replicated_records += sum(header.record_count for _, header in run.headers)
        traffic.written_ms = now_ms

    def last_write_ms(self) -> int | None:
        """When the newest record was written; None where there is none. What was not written since the start counts
        by the newest timestamp, and was not written later than its file: a copied replica's file may be newer."""
        if self.traffic.written_ms is not None:
            return self.traffic.written_ms
        newest_ms = self.log.newest_ms
        return self.committed[-1].max_timestamp_ms if newest_ms is None and self.committed else newest_ms

    def log_truncated(self, producers: Sequence[ProducerEntry] | None) -> None:
        """The log was cut, or begins anew; `producers` are those at its end, None when the cut failed and nobody
        knows."""
        if producers is not None:
            self._replace_producers(producers)
        self.end_truncation()

    def _replace_producers(self, producers: Sequence[ProducerEntry]) -> None:
        stable_offset = self.last_stable_offset
        self.producers.replace(producers)
        self.transactions.begin_anew(producers, end_offset=self.log.log_end_offset, stable_offset=stable_offset)

    def end_of_leader_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """(leader epoch, its end offset) for the newest epoch not above `leader_epoch`; (-1, -1) if there is none,
        or for an epoch that has not been yet."""
        if leader_epoch > self.leader_epoch:
            return -1, -1
        return self.log.leader_epochs.end_offset_for(leader_epoch, self.log.log_end_offset)

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
        """Which tier holds `offset`: Hot, Cold, CaughtUp or OutsideLog."""
        return self._plan(offset, self.last_stable_offset if committed_only else self.high_watermark)

    def outside(self, plan: read_plan.OutsideLog) -> TieredError:
        """The error for a consumer that asks for such an offset."""
        return OffsetOutOfRange(
            f"{self.name}: offset {plan.offset} is not in {plan.log_start_offset} to {plan.log_end_offset}"
        )

    def bounds_of_refusal(self) -> tuple[int, int]:
        """(log start offset, end) beside an error in an answer to Fetch: both unknown."""
        return -1, -1

    def plan_replica_read(self, offset: int) -> read_plan.Plan:
        """The same for a follower, which may have everything."""
        return self._plan(offset, self.log.log_end_offset)

    def _plan(self, offset: int, readable_end_offset: int) -> read_plan.Plan:
        return read_plan.plan(
            offset,
            log_start_offset=self.log_start_offset,
            local_log_start_offset=self.log.local_log_start_offset,
            cold_end_offset=self.cold_end_offset,
            readable_end_offset=readable_end_offset,
            log_end_offset=self.log.log_end_offset,
        )

    def read_hot(self, offset: int, max_bytes: int, *, committed_only: bool, at_least_one: bool) -> ReadBatches | None:
        """Whole batches from the one that holds `offset`, below the high watermark; None when none fits, or when
        local retention has been faster than the read, and the plan is another one now."""
        try:
            if committed_only:
                return self.log.read_committed(
                    offset, max_bytes, end_offset=self.last_stable_offset, min_one_batch=at_least_one
                )
            records = self.log.read(offset, max_bytes, end_offset=self.high_watermark, min_one_batch=at_least_one)
        except (OffsetOutOfRange, FileNotFoundError):
            if offset >= self.log.local_log_start_offset:
                raise
            return None
        return None if records is None else ReadBatches(records=records)

    def aborted_between(self, start_offset: int, end_offset: int) -> list[AbortedIndexEntry]:
        """The aborted transactions with a part in these offsets, as far as they are on this disk."""
        return self.log.aborted_between(start_offset, end_offset)

    # What the admin requests and the loader report

    def configure(self, config: TopicConfig) -> None:
        """Takes new settings at once; they apply from the next append on."""
        self.changed()
        self.config, self.limits = config, limits_of(config)
        self.log.config = log_config(config)
        if self.leadership is not None:
            self.leadership.configure(config.min_insync_replicas)
        self.advance_high_watermark()

    def restart_from_cold(
        self, *, producers: Sequence[ProducerEntry], leader_epochs: Sequence[tuple[int, int]]
    ) -> None:
        """The local log begins anew at `cold_end_offset`; what the last object knew of its past goes on."""
        self._replace_producers(producer_state.without_transactions(producers))
        self.log.restore_leader_epochs(leader_epochs)

    def stop(self) -> None:
        """Takes no more writes and wakes all waiting fetches. Producers that wait for followers go on waiting."""
        self.changed()
        self.closed = True
        self.waiters.wake()
        self.growth.wake()
