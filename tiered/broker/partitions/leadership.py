"""The leader's state of one partition in one leader epoch: its ISR, a pending change of it, its followers.

Owns that state from the election to the next one; nothing of it is ever carried over, so that fetches of another
leader epoch cannot count (R8). Must never talk to SQL (`isr_changes` does) nor to the log (`partition` does).
"""

from tiered.ids import InSyncReplica
from tiered.rules.replication import isr
from tiered.rules.replication.isr import Fetched, Members


class Leadership:
    """One leader epoch of one partition, led here."""

    __slots__ = (
        "_caught_up_ms",
        "_fetched",
        "_seen",
        "committed",
        "epoch_start_offset",
        "has_followers",
        "is_sole",
        "leader_epoch",
        "me",
        "min_isr",
        "pending",
        "pending_since_epoch",
        "replicas",
    )

    def __init__(self, *, me: InSyncReplica, leader_epoch: int, epoch_start_offset: int) -> None:
        self.me = me
        self.leader_epoch = leader_epoch
        self.epoch_start_offset = epoch_start_offset
        self.committed: Members = ()
        """The ISR that SQL has."""
        self.pending: Members | None = None
        """The ISR of a change that is under way, or whose outcome is unknown."""
        self.pending_since_epoch = -1
        """The partition epoch that the open change expects."""
        self.replicas: tuple[int, ...] = ()
        self.has_followers = False
        self.min_isr = 1
        self.is_sole = False
        """Nobody else counts: what the log has is committed."""
        self._fetched: dict[int, Fetched] = {}
        self._seen: dict[int, tuple[int, float]] = {}
        """Of each follower: the log's end at its last fetch, and when that was."""
        self._caught_up_ms: dict[int, float] = {}

    # The ISR

    def learn(self, committed: Members, replicas: tuple[int, ...], min_insync_replicas: int) -> None:
        """Takes over what SQL says; a change that is still open stays in the maximal ISR."""
        self.committed = committed
        self.replicas = replicas
        self.has_followers = len(replicas) > 1
        self.configure(min_insync_replicas)

    def configure(self, min_insync_replicas: int) -> None:
        """Takes over what the topic now asks for."""
        self.min_isr = isr.effective_min_isr(min_insync_replicas, len(self.replicas))
        self._decide_sole()

    def propose(self, members: Members, partition_epoch: int) -> None:
        """A change to `members` begins; from now on both sides of it count."""
        assert self.pending is None, "one change at a time"
        self.pending = members
        self.pending_since_epoch = partition_epoch
        self._decide_sole()

    def settle(self) -> None:
        """The open change has ended, and `committed` tells how."""
        self.pending = None
        self._decide_sole()

    def _decide_sole(self) -> None:
        self.is_sole = self.pending is None and self.committed == (self.me,) and self.min_isr <= 1

    @property
    def maximal(self) -> Members:
        return isr.maximal(self.committed, self.pending)

    # Followers

    def note_fetch(self, follower: InSyncReplica, offset: int, log_end_offset: int, now_ms: float) -> None:
        """A follower has everything below `offset`: it fetches from there, in this leader epoch."""
        broker_id = follower.broker_id
        before = self._fetched.get(broker_id)
        if before is not None and before.broker_epoch > follower.broker_epoch:
            return  # A Fetch that an earlier process of that broker sent.
        if before is None or before.broker_epoch != follower.broker_epoch:
            self._seen.pop(broker_id, None)
            self._caught_up_ms.pop(broker_id, None)
        self._fetched[broker_id] = Fetched(follower.broker_epoch, offset)
        end_then, fetched_ms = self._seen.get(broker_id, (log_end_offset, now_ms))
        caught_up_ms = isr.caught_up_at(
            offset=offset,
            log_end_offset=log_end_offset,
            previous_log_end_offset=end_then,
            previous_fetch_ms=fetched_ms,
            now_ms=now_ms,
        )
        if caught_up_ms is not None:
            self._caught_up_ms[broker_id] = max(caught_up_ms, self._caught_up_ms.get(broker_id, caught_up_ms))
        self._seen[broker_id] = (log_end_offset, now_ms)

    def fetched_by(self, broker_id: int) -> Fetched | None:
        """How far the follower is, as far as this leader epoch knows."""
        return self._fetched.get(broker_id)

    def high_watermark(self, previous: int, own_end_offset: int) -> int:
        """How far everything is committed now."""
        return isr.high_watermark(
            previous=previous,
            own_end_offset=own_end_offset,
            leader=self.me,
            committed=self.committed,
            pending=self.pending,
            min_isr=self.min_isr,
            fetched=self._fetched,
        )

    def may_join(self, follower: InSyncReplica, high_watermark: int) -> bool:
        """Whether the follower is not in the ISR yet and may join it (rule 5)."""
        if follower in self.committed or follower.broker_id not in self.replicas:
            return False
        known = self._fetched.get(follower.broker_id)
        if known is None or known.broker_epoch != follower.broker_epoch:
            return False
        return isr.may_join(known, high_watermark=high_watermark, epoch_start_offset=self.epoch_start_offset)

    def lagging(self, log_end_offset: int, now_ms: float, max_lag_ms: float) -> Members:
        """Members that have been behind for too long. Each has its time from this epoch's first look on."""
        for member in self.committed:
            self._caught_up_ms.setdefault(member.broker_id, now_ms)
        return isr.lagging(
            self.committed,
            leader=self.me,
            log_end_offset=log_end_offset,
            fetched=self._fetched,
            caught_up_ms=self._caught_up_ms,
            now_ms=now_ms,
            max_lag_ms=max_lag_ms,
        )
