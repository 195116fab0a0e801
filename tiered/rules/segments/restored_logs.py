"""Which replica's log leads a restored partition, and which transactions in it nobody has ended.

Owns both decisions. Pure: the reports of the disks are arguments. A log counts by its newest leader epoch, then by its
end: whatever was committed is in the furthest one, for every leader was elected from those that had all of it, and its
followers cut off what it did not have. Must never give the lead to a log that contradicts the store, or that does not
reach down to it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tiered.formats.disk_report import DiskLog
from tiered.ids import TopicPartition
from tiered.rules.replication.leader_epochs import NO_EPOCH, LeaderEpochs


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaLog:
    """The log on the disk of one broker."""

    broker_id: int
    log: DiskLog


@dataclass(frozen=True, slots=True, kw_only=True)
class LogChoice:
    """`leading` is None where the store has all that was committed. `brokers` have a log, the furthest first; those
    that are `unfit` may follow, and never lead. With a `problem` the partition cannot be restored from these disks."""

    leading: ReplicaLog | None = None
    brokers: tuple[int, ...] = ()
    unfit: tuple[int, ...] = ()
    warnings: tuple[str, ...] = ()
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnendedTransaction:
    """A producer's transaction that is open in these partitions. It is aborted, or committed with the next epoch."""

    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    is_committed: bool = False


def begins_unseen(leader_epochs: LeaderEpochs, *, leader_epoch: int, log_end_offset: int, high_watermark: int) -> bool:
    """Whether a leader has to leave word of its new epoch, for the case that it writes nothing in it.

    Another replica may have later records that never become visible, and would seem to be further than this log, whose
    records do, now or in an epoch before in which nobody wrote. Where the newest records here are of the epoch before
    and visible, nobody can have more than a longer copy of this log.
    """
    written = leader_epochs.truncate_to_end(log_end_offset).latest
    return log_end_offset > 0 and (log_end_offset > high_watermark or written < leader_epoch - 1)


def choose(
    logs: Sequence[ReplicaLog], *, cold_end_offset: int, cold_leader_epoch: int, preferred: Sequence[int] = ()
) -> LogChoice:
    """The log that leads; of equal ones that of the first broker in `preferred`. The store ends at `cold_end_offset`;
    `cold_leader_epoch` wrote its last record (-1: none)."""
    rank = {broker_id: -position for position, broker_id in enumerate(preferred)}
    last = -len(rank)
    ordered = sorted(
        logs,
        key=lambda replica: (replica.log.reach, rank.get(replica.broker_id, last), -replica.broker_id),
        reverse=True,
    )
    brokers = tuple(replica.broker_id for replica in ordered)
    # Such a log would be opened as it is; one that ends before begins anew where the store ends.
    reaching = tuple(its.broker_id for its in ordered if its.log.log_end_offset >= cold_end_offset > 0)
    warnings = []
    for replica in ordered:
        log = replica.log
        if log.log_end_offset < cold_end_offset:
            break
        if cold_end_offset and log.local_log_start_offset > max(cold_end_offset, log.log_start_offset):
            return LogChoice(
                brokers=brokers,
                problem=(
                    f"the disk of broker {replica.broker_id} has the offsets from {log.local_log_start_offset} to "
                    f"{log.log_end_offset - 1}, and the store those below {cold_end_offset}: get what is between them "
                    "back into the store, or leave that disk out, and lose what it alone has"
                ),
            )
        if not _continues(log, cold_end_offset, cold_leader_epoch):
            warnings.append(
                f"the log of broker {replica.broker_id} ends at {log.log_end_offset}, but is not the one that was "
                f"uploaded up to {cold_end_offset}: what it has beyond that does not come back"
            )
            continue
        return LogChoice(leading=replica, brokers=brokers, warnings=tuple(warnings))
    return LogChoice(brokers=brokers, unfit=reaching, warnings=tuple(warnings))


def _continues(log: DiskLog, cold_end_offset: int, cold_leader_epoch: int) -> bool:
    """Whether the epoch that wrote the store's last record wrote it in this log too, as far as the log still knows."""
    if cold_leader_epoch == NO_EPOCH or not cold_end_offset:
        return True
    epochs = LeaderEpochs(log.leader_epochs)
    at_end = epochs.epoch_at(cold_end_offset - 1)
    if at_end == NO_EPOCH or log.local_log_start_offset >= cold_end_offset:
        return not log.leader_epochs or log.leader_epochs[-1][0] >= cold_leader_epoch
    return at_end == cold_leader_epoch


def unended(leading: Iterable[tuple[TopicPartition, DiskLog]]) -> tuple[UnendedTransaction, ...]:
    """The transactions that are open in the logs that lead, by producer and its epoch: they may be decided apart."""
    partitions: dict[tuple[int, int], list[TopicPartition]] = {}
    for where, log in leading:
        for transaction in log.open_transactions:
            partitions.setdefault((transaction.producer_id, transaction.producer_epoch), []).append(where)
    return tuple(
        UnendedTransaction(producer_id=producer_id, producer_epoch=epoch, partitions=tuple(sorted(open_in)))
        for (producer_id, epoch), open_in in sorted(partitions.items())
    )
