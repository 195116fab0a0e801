"""Where two logs part, by their leader epochs: what a leader says and what a follower cuts (rule 6).

Owns that arithmetic (KIP-101, KIP-279, KIP-595's diverging epoch). Pure. Never looks at a high watermark: two logs
that agree up to it may still have to be cut above it, and one that is cut to it may lose what is committed.
"""

from typing import NamedTuple

from tiered.rules.replication.leader_epochs import NO_EPOCH, LeaderEpochs


class Divergence(NamedTuple):
    """The newest epoch of the leader's log that is not above the follower's last one, and where it ends there."""

    epoch: int
    end_offset: int


def divergence(
    leader_epochs: LeaderEpochs, log_end_offset: int, *, fetch_offset: int, last_fetched_epoch: int
) -> Divergence | None:
    """Where a follower's log leaves the leader's; None when all that it holds may be a prefix of the leader's.

    The follower's last record is of `last_fetched_epoch`, -1 when it knows of none, and ends at `fetch_offset`.
    """
    if last_fetched_epoch == NO_EPOCH:
        return None
    epoch, end_offset = leader_epochs.end_offset_for(last_fetched_epoch, log_end_offset)
    if epoch == NO_EPOCH or epoch < last_fetched_epoch or end_offset < fetch_offset:
        return Divergence(epoch, max(0, end_offset))
    return None


def truncation_offset(leader_epochs: LeaderEpochs, log_end_offset: int, found: Divergence) -> int:
    """Where the follower's log is cut: it then ends with an epoch that both logs have, or asks once more.

    Always below `log_end_offset` when the answer was about this log, so that asking again comes to an end.
    """
    epoch, end_offset = leader_epochs.end_offset_for(found.epoch, log_end_offset)
    if epoch == NO_EPOCH:
        return min(found.end_offset, log_end_offset)
    return min(end_offset, found.end_offset)


def last_fetched_epoch(leader_epochs: LeaderEpochs, log_end_offset: int) -> int:
    """The epoch of the log's last record, -1 when that is not known. Epochs that wrote nothing do not count."""
    return leader_epochs.epoch_at(log_end_offset - 1) if log_end_offset > 0 else NO_EPOCH
