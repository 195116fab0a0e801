"""Where the replicas of new partitions go: spread over racks, then over brokers.

Owns the spread alone. Must never know who is alive or who leads: callers pass the brokers that may be chosen, and
the first replica of each partition is its preferred leader. Processes of one host share a rack, so that two
replicas never land on one host while there is another.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tiered.errors import InvalidReplicationFactor


class BrokerPlace(NamedTuple):
    """A broker that replicas may be put on. A broker without a rack counts as a rack of its own."""

    broker_id: int
    rack: str | None


def place_of(broker_id: int, *, rack: str | None, host: str) -> BrokerPlace:
    """Where the broker is: those that were given no rack share one with all that are reached at their host."""
    return BrokerPlace(broker_id, rack or host)


def assign(
    partition_count: int, replication_factor: int, brokers: Sequence[tuple[int, str | None]], *, start: int
) -> list[tuple[int, ...]]:
    """The replicas of each partition, the preferred leader first. Raises InvalidReplicationFactor.

    Leaders go round all brokers, beginning with the one that `start` picks, so that another topic with another
    `start` begins elsewhere. Followers go to the racks that the partition has least of, then to the brokers that
    have least so far, then to those that were next to this leader least, so that a dead leader's work falls on many.
    """
    ring = _alternating([BrokerPlace(*each) for each in brokers])
    if not 1 <= replication_factor <= len(ring):
        raise InvalidReplicationFactor(
            f"replication factor {replication_factor}, but there {_are(len(ring))}; use 1 to {len(ring)} (or -1)"
            if ring
            else "no broker is there that replicas could be put on; start one"
        )
    spread = _Spread(ring=ring)
    return [spread.next_partition((start + index) % len(ring), replication_factor) for index in range(partition_count)]


def _are(count: int) -> str:
    return "is 1 broker" if count == 1 else f"are {count} brokers"


def _rack(place: BrokerPlace) -> str | int:
    """A key that no two racks share: brokers without a rack are told apart by their ids."""
    return place.broker_id if place.rack is None else place.rack


def _alternating(brokers: Sequence[BrokerPlace]) -> list[BrokerPlace]:
    """The brokers in an order in which neighbours are of different racks as long as that is possible."""
    by_rack: dict[str | int, list[BrokerPlace]] = {}
    for place in sorted(brokers, key=lambda each: each.broker_id):
        by_rack.setdefault(_rack(place), []).append(place)
    ranked = [
        (position, rank, place) for rank, places in enumerate(by_rack.values()) for position, place in enumerate(places)
    ]
    return [place for _, _, place in sorted(ranked, key=lambda each: each[:2])]


@dataclass(slots=True, kw_only=True)
class _Spread:
    """The replicas given out so far."""

    ring: list[BrokerPlace]
    replicas: Counter[int] = field(default_factory=Counter)
    followers: Counter[tuple[int, int, int]] = field(default_factory=Counter)
    """How often a broker stands at a place behind a leader: the first of them takes over when it dies."""

    def next_partition(self, leader_at: int, replication_factor: int) -> tuple[int, ...]:
        leader = self.ring[leader_at].broker_id
        racks = Counter([_rack(self.ring[leader_at])])
        chosen = [leader]
        # From the leader's neighbour on, so that the first of equals is another one for each leader.
        open_places = self.ring[leader_at + 1 :] + self.ring[:leader_at]
        while len(chosen) < replication_factor:
            best = min(
                open_places,
                key=lambda place: (
                    racks[_rack(place)],
                    self.replicas[place.broker_id],
                    self.followers[leader, len(chosen), place.broker_id],
                ),
            )
            open_places.remove(best)
            racks[_rack(best)] += 1
            self.followers[leader, len(chosen), best.broker_id] += 1
            chosen.append(best.broker_id)
        self.replicas.update(chosen)
        return tuple(chosen)
