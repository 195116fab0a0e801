"""What every replica of a partition has: its role, the row it obeys, its high watermark, and who waits for it.

Owns how a replica becomes leader, follower or neither, and how its high watermark moves. Must never read or write
records: `partition` does. Each change is one function without an await.
"""

import logging
from collections.abc import Callable
from enum import Enum, auto

from tiered.broker.partitions.acknowledgements import Acknowledgements
from tiered.broker.partitions.fetch_wait import Waiters
from tiered.broker.partitions.leadership import Leadership
from tiered.config import TopicConfig
from tiered.errors import CorruptMetadata, NotLeader
from tiered.hot.log import Log
from tiered.ids import InSyncReplica, TopicPartition
from tiered.meta.partitions import PartitionRow
from tiered.rules.partition import partition_state
from tiered.rules.partition.partition_state import RowOrder, RowVersion
from tiered.rules.replication import isr

log = logging.getLogger(__name__)

NOBODY = -1


class Role(Enum):
    """What this broker is to the partition now."""

    NONE = auto()
    """Nobody leads it, or not as this broker knows it."""
    FOLLOWER = auto()
    LEADER = auto()


class Replica:
    """The state of one replica besides its records. `Partition` is one."""

    def __init__(
        self,
        *,
        topic: str,
        topic_partition: TopicPartition,
        config: TopicConfig,
        log: Log,
        broker_id: int,
        is_current: Callable[[InSyncReplica], bool],
        log_start_offset: int,
        cold_end_offset: int,
    ) -> None:
        self.topic = topic
        self.topic_partition = topic_partition
        self.name = f"{topic}-{topic_partition.partition}"
        """For people."""
        self.config = config
        self.log = log
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
        self.leadership: Leadership | None = None
        """What a leader knows of its followers; None unless this broker leads."""
        self._is_current = is_current
        self._is_truncating = False
        self._deferred: list[tuple[PartitionRow, int]] = []
        self._cold_end_offset = cold_end_offset
        self._log_start_offset = max(log_start_offset, log.log_start_offset)
        # Not the store's end: what a follower has below it may be another leader's, until its log was compared.
        self._high_watermark = min(self._log_start_offset, log.log_end_offset)

    @property
    def high_watermark(self) -> int:
        return self._high_watermark

    @property
    def log_start_offset(self) -> int:
        return self._log_start_offset

    def moved_log_start(self, log_start_offset: int) -> None:
        """SQL has moved `log_start_offset`. What nobody may read needs no upload, so `cold_end_offset` is never below
        it (T5)."""
        self._log_start_offset = max(self._log_start_offset, log_start_offset)
        self._cold_end_offset = max(self._cold_end_offset, self._log_start_offset)

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
            # Who is elected has everything that was committed, and so all that is in the store.
            self._high_watermark = max(self._high_watermark, min(self._cold_end_offset, self.log.log_end_offset))
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

    def leave(self) -> None:
        """This broker holds no replica any more: whoever waits here has to look elsewhere."""
        self._deferred.clear()  # Or the end of a truncation would give it a role again.
        self.role = Role.NONE
        self._end_leadership(f"{self.name} has moved to other brokers; refresh metadata and retry")

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
        before = self._high_watermark
        log_ = self.log
        own_end = log_.log_end_offset
        if own_end - log_.flushed_offset >= self.config.flush_messages:
            own_end = partition_state.durable_end_offset(previous=before, flushed_offset=log_.flushed_offset)
        after = own_end if leadership.is_sole else leadership.high_watermark(before, own_end)
        if after != before:
            self._moved_high_watermark(after)

    def _moved_high_watermark(self, high_watermark: int) -> None:
        self._high_watermark = high_watermark
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
            previous=self._high_watermark, of_leader=high_watermark, log_end_offset=self.log.log_end_offset
        )
        if after != self._high_watermark:
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
        if self.log.log_end_offset < self._high_watermark:
            log.warning(
                "%s: the log was cut at %d, below the high watermark %d: only an unclean election or a lost disk "
                "does that", self.name, self.log.log_end_offset, self._high_watermark,
            )  # fmt: skip
            self._high_watermark = self.log.log_end_offset
        deferred, self._deferred = self._deferred, []
        for row, broker_epoch in deferred:
            self.apply_row(row, broker_epoch=broker_epoch)


def _version(row: PartitionRow) -> RowVersion:
    return RowVersion(row.partition_epoch, row.leader_epoch, row.change_number)
