"""What a partition's offsets allow: who may read what, and when a write may be acknowledged.

Owns the arithmetic of `log_start_offset`, `high_watermark` and `last_stable_offset`. Pure: the caller
brings the offsets and acts on the answer.
"""

from dataclasses import dataclass

from tiered.errors import FencedLeaderEpoch, UnknownLeaderEpoch


@dataclass(frozen=True, slots=True, kw_only=True)
class Offsets:
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


def high_watermark_of_sole_replica(
    *, previous: int, log_end_offset: int, flushed_offset: int, flush_messages: int
) -> int:
    """The high watermark of a partition whose ISR is its leader alone.

    It is the log end offset, unless `flush_messages` or more records wait for the disk: then it stays at
    what is flushed (or where it was), so that nobody reads what a power loss would take back. It never
    goes back (R9).
    """
    if log_end_offset - flushed_offset < flush_messages:
        return log_end_offset
    return max(previous, min(flushed_offset, log_end_offset))


def check_leader_epoch(*, claimed: int, current: int, where: str) -> None:
    """Returns when a client may talk to this leader (KIP-320); -1 claims nothing.

    Raises FencedLeaderEpoch for an older claim and UnknownLeaderEpoch for a newer one.
    """
    if claimed < 0 or claimed == current:
        return
    if claimed < current:
        raise FencedLeaderEpoch(f"{where}: leader epoch {claimed} is over, {current} is current; refresh metadata")
    raise UnknownLeaderEpoch(f"{where}: leader epoch {claimed} is not known here yet ({current} is); retry")
