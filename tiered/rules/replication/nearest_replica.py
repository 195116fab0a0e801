"""Which replica a consumer should read from: one in its own rack, if that has what it asks for (KIP-392).

Owns that choice. Pure. Must never send anybody to a replica that may lack what is committed.
"""

from collections.abc import Sequence
from typing import NamedTuple


class Candidate(NamedTuple):
    """A replica that is in sync: its rack, and where its log ends as far as the leader knows."""

    broker_id: int
    rack: str | None
    end_offset: int


def preferred_read_replica(
    candidates: Sequence[Candidate], *, leader_id: int, rack: str, fetch_offset: int
) -> int | None:
    """The broker to read from; None when it is the leader.

    The leader wins where it is in the consumer's rack. Of several followers the one that is furthest wins.
    """
    here = [
        each
        for each in candidates
        if each.rack == rack and (each.broker_id == leader_id or each.end_offset >= fetch_offset)
    ]
    if not here or any(each.broker_id == leader_id for each in here):
        return None
    return max(here, key=lambda each: (each.end_offset, -each.broker_id)).broker_id
