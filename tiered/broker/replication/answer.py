"""The leader's answer to a follower's Fetch: what comes next in its log, or where the two logs part.

Owns what a follower is told, and notes how far it is: that is what moves the high watermark. Must never read the
object store for a follower: one that needs what only the store has is told so, and reads there itself.

Two fields, of which a follower has no use, mean something else than in an answer to a consumer, and batches are given
up to the log's end. `last_stable_offset` says where the leader's segment begins that the batches are of: the follower
begins one there too, so that whoever leads next can go on uploading where this leader has stopped.
`preferred_read_replica` says how many offsets, from the first one on, are of batches whose times are not proven
(decision 0028); the -1 of a leader from before that says nothing, so none is.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tiered.broker.context import BrokerContext
from tiered.broker.partitions.fetch_wait import Waiters, Watch
from tiered.broker.partitions.partition import Partition
from tiered.broker.partitions.topics import Topics
from tiered.broker.replication.isr_changes import IsrChanges
from tiered.broker.view.image import ClusterImage
from tiered.errors import (
    ClusterNotAuthorized,
    LogDirFailed,
    OffsetMovedToTieredStorage,
    OffsetOutOfRange,
    ReplicaNotAvailable,
    StaleBrokerEpoch,
    TieredError,
)
from tiered.file_slice import FileSlice
from tiered.ids import InSyncReplica
from tiered.rules.partition import read_plan
from tiered.rules.replication.divergence import divergence
from tiered.rules.security.registration_proof import is_proved
from tiered.wire.fetch import EpochEndOffset, FetchPartition, FetchRequest, FetchTopic
from tiered.wire.fetch.values import HIGH_WATERMARK_NOT_SENT

log = logging.getLogger(__name__)

MAX_WAIT_MS = 60_000
MAX_INT32 = 2**31 - 1


@dataclass(slots=True)
class FollowerFetchEntry:
    """One partition of the question, and what was found for it: an error, a divergence, batches, or nothing yet."""

    asked: FetchPartition
    partition: Partition | None = None
    error: TieredError | None = None
    diverging: EpochEndOffset | None = None
    records: FileSlice | None = None
    segment_base_offset: int = -1
    unproven_offsets: int = -1


@dataclass(slots=True)
class FollowerFetchLook:
    """One look at all partitions of a question."""

    topics: list[tuple[FetchTopic, list[FollowerFetchEntry]]] = field(default_factory=list)
    total_bytes: int = 0
    is_urgent: bool = False
    """There is something that the follower has to hear at once."""

    def entries(self) -> list[FollowerFetchEntry]:
        return [entry for _, entries in self.topics for entry in entries]


class FollowerAnswers:
    """Answers followers of the partitions that this broker leads."""

    def __init__(self, *, context: BrokerContext, image: ClusterImage, isr_changes: IsrChanges, topics: Topics) -> None:
        self._context = context
        self._image = image
        self._isr_changes = isr_changes
        self._topics = topics

    def look(self, asked: FetchRequest, *, is_first: bool) -> FollowerFetchLook:
        """The records that there are now. The first look at a Fetch also notes the follower's state."""
        follower = InSyncReplica(asked.replica_id, asked.replica_epoch)
        refusal = self.refusal(asked)
        budget = asked.max_bytes
        now_ms = self._context.clock.monotonic_ms()
        found = FollowerFetchLook()
        for topic in asked.topics:
            entries: list[FollowerFetchEntry] = []
            for each in topic.partitions:
                entry = FollowerFetchEntry(each)
                entries.append(entry)
                try:
                    if refusal is not None:
                        raise refusal
                    assert topic.topic_id is not None
                    entry.partition = self._topics.by_id(topic.topic_id).partition(each.partition)
                    self._look_at(entry, entry.partition, follower, budget, found, now_ms if is_first else None)
                except TieredError as error:
                    entry.error = error.without_frames()
                    found.is_urgent = True
                except OSError as error:
                    name = "a partition" if entry.partition is None else entry.partition.name
                    self._context.counters.disk_errors += 1
                    log.error("%s cannot be read for a follower: %s", name, error)
                    entry.error = LogDirFailed(f"{name} cannot be read from the leader's disk: {error}")
                    found.is_urgent = True
                if entry.records is not None:
                    budget -= entry.records.length
            found.topics.append((topic, entries))
        return found

    def refusal(self, asked: FetchRequest) -> TieredError | None:
        """Why this process gets nothing and counts for nothing: it is not the broker that it says, as known here.

        A registration that this broker has not heard of is refused as well, for nobody could take back what a made-up
        one was noted to have. The feed brings a real one within moments, and its process asks again.
        """
        broker_id, epoch = asked.replica_id, asked.replica_epoch
        known = self._image.brokers.get(broker_id)
        if known is None or known.broker_epoch < epoch:
            return StaleBrokerEpoch(f"epoch {epoch} of broker {broker_id} is no registration that is known here; retry")
        if known.broker_epoch > epoch:
            return StaleBrokerEpoch(
                f"broker {broker_id} has registered again at epoch {known.broker_epoch}; the process of epoch "
                f"{epoch} must stop"
            )
        if not is_proved(known.incarnation_id, asked.replica_incarnation):
            return ClusterNotAuthorized(f"not allowed: this is not the process that is broker {broker_id}")
        return None

    def _look_at(
        self,
        entry: FollowerFetchEntry,
        partition: Partition,
        follower: InSyncReplica,
        budget: int,
        found: FollowerFetchLook,
        noted_at_ms: float | None,
    ) -> None:
        asked = entry.asked
        partition.check_leader_epoch(asked.current_leader_epoch)
        leadership = partition.require_leader()
        if follower.broker_id not in leadership.replicas:
            raise ReplicaNotAvailable(
                f"{partition.name}: broker {follower.broker_id} is to hold no replica, as known here"
            )
        log_ = partition.log
        offset = asked.fetch_offset
        diverging = divergence(
            log_.leader_epochs,
            log_.log_end_offset,
            fetch_offset=offset,
            last_fetched_epoch=asked.last_fetched_epoch,
        )
        if diverging is not None:
            entry.diverging = EpochEndOffset(*diverging)
            found.is_urgent = True
            return
        match partition.plan_replica_read(offset):
            case read_plan.OutsideLog():
                raise OffsetOutOfRange(
                    f"{partition.name}: offset {offset} is not in {partition.log_start_offset} to {log_.log_end_offset}"
                )
            case read_plan.Cold():
                raise OffsetMovedToTieredStorage(
                    f"{partition.name}: the local log begins at {log_.local_log_start_offset}, {offset} is in the store"
                )
            case read_plan.Hot():
                self._note(partition, follower, offset, noted_at_ms)
                if budget > 0 or found.total_bytes == 0:
                    limit = max(0, min(budget, asked.partition_max_bytes))
                    is_first = found.total_bytes == 0
                    entry.records = log_.read(offset, limit, end_offset=log_.log_end_offset, min_one_batch=is_first)
                    if entry.records is not None:
                        entry.segment_base_offset = log_.segment_base_offset(offset)
                        unproven_offsets = log_.times_proven_from(offset) - offset
                        entry.unproven_offsets = min(max(0, unproven_offsets), MAX_INT32)
                        found.total_bytes += entry.records.length
            case _:
                self._note(partition, follower, offset, noted_at_ms)
                known = asked.high_watermark
                if known != HIGH_WATERMARK_NOT_SENT and known < min(offset, partition.high_watermark):
                    found.is_urgent = True  # Consumers of the follower wait for it.

    def _note(self, partition: Partition, follower: InSyncReplica, offset: int, noted_at_ms: float | None) -> None:
        if noted_at_ms is None:
            return
        partition.note_fetch(follower, offset, noted_at_ms)
        leadership = partition.leadership
        assert leadership is not None
        if leadership.may_join(follower, partition.high_watermark):
            self._isr_changes.caught_up(partition)

    def is_enough(self, found: FollowerFetchLook, asked: FetchRequest) -> bool:
        """Whether the follower should have the answer now."""
        return found.is_urgent or found.total_bytes >= max(1, asked.min_bytes) or asked.max_wait_ms <= 0

    def wait(self, asked: FetchRequest, found: FollowerFetchLook) -> "FollowerWait":
        """A wait for more than was found; begun in the same breath as the look, or something is missed."""
        return FollowerWait(self, asked, found)


class FollowerWait:
    """A follower's question for which there is not enough yet."""

    __slots__ = ("_answers", "_asked", "_wake", "_watch")

    def __init__(self, answers: FollowerAnswers, asked: FetchRequest, found: FollowerFetchLook) -> None:
        self._answers = answers
        self._asked = asked
        self._watch = Watch(_waiters(found.entries()))
        self._wake: Callable[[], None] = _nobody

    @property
    def patience_ms(self) -> float:
        return min(self._asked.max_wait_ms, MAX_WAIT_MS)

    def begin(self, wake: Callable[[], None]) -> None:
        """From now on `wake` is called at each change; it must not look itself, for the change is under way then."""
        self._wake = wake
        self._watch.begin(wake)

    def found(self, *, is_last: bool) -> FollowerFetchLook | None:
        """The records that there are, when they are enough or the follower's wait is over; else the wait goes on."""
        self._watch.end()
        found = self._answers.look(self._asked, is_first=False)
        if is_last or self._answers.is_enough(found, self._asked):
            return found
        self._watch = Watch(_waiters(found.entries()))
        self._watch.begin(self._wake)
        return None

    def cancel(self) -> None:
        """Leaves nothing behind."""
        self._watch.end()


def _nobody() -> None: ...


def _waiters(entries: Sequence[FollowerFetchEntry]) -> list[Waiters]:
    waiters: list[Waiters] = []
    for entry in entries:
        if entry.partition is not None:
            waiters.append(entry.partition.growth)
            if entry.asked.high_watermark != HIGH_WATERMARK_NOT_SENT:
                waiters.append(entry.partition.waiters)
    return waiters
