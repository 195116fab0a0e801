"""The in-sync replicas: how far a leader's log is committed, and which followers join or leave the ISR.

Owns the leader's decisions of rules 3, 4 and 5, as functions of values and the time. Pure: `broker.replication`
keeps what followers have fetched and makes each change a compare-and-swap in SQL.

A leader knows two sets. The committed one is what SQL has said. The maximal one adds a change whose outcome is open:
every broker that may be elected is in it, so the high watermark counts all of it (R3).
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from tiered.ids import InSyncReplica

Members = tuple[InSyncReplica, ...]


class Fetched(NamedTuple):
    """The process `broker_epoch` of a follower holds everything below `offset`: it has fetched from there, in this
    leader epoch."""

    broker_epoch: int
    offset: int


def effective_min_isr(min_insync_replicas: int, replica_count: int) -> int:
    """`min.insync.replicas` for a partition that has fewer replicas than it asks for."""
    return min(min_insync_replicas, replica_count)


def maximal(committed: Members, pending: Members | None) -> Members:
    """Everybody who may be in the ISR, whichever way an open change goes."""
    if pending is None:
        return committed
    return (*committed, *(member for member in pending if member not in committed))


def high_watermark(
    *,
    previous: int,
    own_end_offset: int,
    leader: InSyncReplica,
    committed: Members,
    pending: Members | None,
    min_isr: int,
    fetched: Mapping[int, Fetched],
) -> int:
    """How far everything is committed (rule 4); never lower than it was (R9).

    It stays where it is while the committed ISR is smaller than `min_isr` or without the leader, and while one
    member of the maximal ISR has not fetched in this leader epoch with the registration that is recorded.
    """
    if len(committed) < min_isr or leader not in committed:
        return previous
    end = own_end_offset
    for member in maximal(committed, pending):
        if member == leader:
            continue
        found = fetched.get(member.broker_id)
        if found is None or found.broker_epoch != member.broker_epoch:
            return previous
        end = min(end, found.offset)
    return max(previous, end)


def may_join(fetched: Fetched, *, high_watermark: int, epoch_start_offset: int) -> bool:
    """Whether a follower has all that a member must have (rule 5)."""
    return fetched.offset >= high_watermark and fetched.offset >= epoch_start_offset


def joined(committed: Members, member: InSyncReplica) -> Members:
    """The ISR with this process as a member, in the place of an earlier one of the same broker."""
    if any(each.broker_id == member.broker_id for each in committed):
        return tuple(member if each.broker_id == member.broker_id else each for each in committed)
    return (*committed, member)


def without(committed: Members, leaving: Iterable[InSyncReplica], min_isr: int) -> Members:
    """The ISR without those of `leaving`, in their order, that it can spare: it never gets smaller than `min_isr`
    (rule 3)."""
    left = list(committed)
    for member in leaving:
        if len(left) > min_isr and member in left:
            left.remove(member)
    return tuple(left)


def lagging(
    committed: Members,
    *,
    leader: InSyncReplica,
    log_end_offset: int,
    fetched: Mapping[int, Fetched],
    caught_up_ms: Mapping[int, float],
    now_ms: float,
    max_lag_ms: float,
) -> Members:
    """Members that have not had all of the log for `max_lag_ms`, those furthest behind first.

    `caught_up_ms` tells when each follower last had everything. A follower that has it now is never behind, however
    long nothing was written.
    """
    found: list[tuple[int, InSyncReplica]] = []
    for member in committed:
        if member == leader:
            continue
        known = fetched.get(member.broker_id)
        offset = known.offset if known is not None and known.broker_epoch == member.broker_epoch else -1
        if offset >= log_end_offset:
            continue
        if now_ms - caught_up_ms.get(member.broker_id, now_ms) > max_lag_ms:
            found.append((offset, member))
    return tuple(member for _, member in sorted(found))


def caught_up_at(
    *, offset: int, log_end_offset: int, previous_log_end_offset: int, previous_fetch_ms: float, now_ms: float
) -> float | None:
    """When a follower that fetches from `offset` now had all of the log; None when that cannot be said to be later
    than before.

    It had everything at its previous fetch when it has by now all that there was then: a log that is always
    written to would otherwise have no follower that is ever level with it.
    """
    if offset >= log_end_offset:
        return now_ms
    if offset >= previous_log_end_offset:
        return previous_fetch_ms
    return None


def count_current(committed: Collection[InSyncReplica], current: Collection[InSyncReplica]) -> int:
    """How many members count for a write with acks=all: placeholders of dead processes do not (rule 3)."""
    return sum(member in current for member in committed)
