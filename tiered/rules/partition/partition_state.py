"""The meaning of a partition's offsets: which may be read, and when a write may be acknowledged.

Owns the arithmetic of `log_start_offset`, `high_watermark` and `last_stable_offset`. Pure: the caller
brings the offsets and acts on the answer.
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from tiered.errors import FencedLeaderEpoch, UnknownLeaderEpoch


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOffsets:
    """A partition's offsets at one moment.

    `log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset`; offsets below
    `cold_end_offset` are in the object store, those from `local_log_start_offset` on are on local disk.
    """

    log_start_offset: int
    local_log_start_offset: int
    cold_end_offset: int
    last_stable_offset: int
    high_watermark: int
    log_end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogBounds:
    """What consumers may read of a partition: from `log_start_offset` up to `high_watermark`."""

    log_start_offset: int
    high_watermark: int


def durable_end_offset(*, previous: int, flushed_offset: int) -> int:
    """How much of the leader's own log counts towards the high watermark while `flush.messages` or more records wait
    for the disk: what is flushed (or what counted before), so that nobody reads what a power loss would take back.
    It never goes back (R9). While fewer records wait, all of the log counts."""
    return max(previous, flushed_offset)


def check_leader_epoch(*, claimed: int, current: int, where: str) -> None:
    """Returns when a client may talk to this leader (KIP-320); -1 claims nothing.

    Raises FencedLeaderEpoch for an older claim and UnknownLeaderEpoch for a newer one.
    """
    if claimed < 0 or claimed == current:
        return
    if claimed < current:
        raise FencedLeaderEpoch(f"{where}: leader epoch {claimed} is over, {current} is current; refresh metadata")
    raise UnknownLeaderEpoch(f"{where}: leader epoch {claimed} is not known here yet ({current} is); retry")


class RowOrder(Enum):
    """How a row of the metadata store stands to what is known of its partition."""

    NEWER = auto()
    """Or the same: taking it over again changes nothing."""
    OLDER = auto()
    """An answer that was overtaken on its way."""
    CONTRADICTION = auto()
    """SQL has lost what it had committed (R1)."""


class RowVersion(NamedTuple):
    """The key that orders the rows of one partition."""

    partition_epoch: int
    leader_epoch: int
    change_number: int


def order_of(row: RowVersion, known: RowVersion) -> RowOrder:
    """How `row` stands to the newest one known: epochs never go back (R1).

    Any change of leader or ISR raises the partition epoch and is numbered, so that of two rows the one with the
    higher number has no lower epoch; and one partition epoch has one leader epoch.
    """
    if row.partition_epoch < known.partition_epoch:
        return RowOrder.CONTRADICTION if row.change_number > known.change_number else RowOrder.OLDER
    if row.leader_epoch < known.leader_epoch:
        return RowOrder.CONTRADICTION
    if row.partition_epoch == known.partition_epoch:
        if row.leader_epoch != known.leader_epoch:
            return RowOrder.CONTRADICTION
        if row.change_number < known.change_number:
            return RowOrder.OLDER
    return RowOrder.NEWER


def follower_high_watermark(*, previous: int, of_leader: int, log_end_offset: int) -> int:
    """The end of the records that a follower may serve: the leader's high watermark, as far as its log goes (R9)."""
    return max(previous, min(of_leader, log_end_offset))
