"""A partition's replicas, its in-sync replicas and its leader: the value that elections change.

Owns the value and what can be read off it. Must never decide anything: `elections`, `placement` and
`reassignment` return another `ReplicaSet`, and SQL makes the change a compare-and-swap.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from tiered.ids import InSyncReplica

NO_LEADER = -1


class Standing(NamedTuple):
    """A broker's present registration, whether it is out of service, and whether it reaches the object store."""

    broker_epoch: int
    fenced: bool
    reaches_store: bool = True


Standings = Mapping[int, Standing]
"""Every registered broker by id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSet:
    """One partition's replicas. The first of `replicas` is the preferred leader; `leader` is -1 for none.

    While a reassignment is under way `adding_replicas` and `removing_replicas` name its two sides, both of which
    are among `replicas` (KIP-455). Any change of the leader, and a leader's restart, raises `leader_epoch`.
    """

    leader: int
    leader_epoch: int
    isr: tuple[InSyncReplica, ...]
    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()

    def member(self, broker_id: int) -> InSyncReplica | None:
        """The broker's entry in the ISR."""
        return next((each for each in self.isr if each.broker_id == broker_id), None)

    def electable(self, standings: Standings) -> tuple[int, ...]:
        """The brokers that may lead (rule 2): members of the ISR whose recorded registration is current and not fenced.

        In the order of `replicas`, so that the preferred leader comes first; those that do not reach the object store
        come behind all others.
        """
        current = {member.broker_id for member in self.isr if is_current(member, standings)}
        electable = [broker_id for broker_id in self.replicas if broker_id in current]
        return tuple(sorted(electable, key=lambda broker_id: not standings[broker_id].reaches_store))


def is_current(member: InSyncReplica, standings: Standings) -> bool:
    """Whether the member is the process that joined the ISR, and in service. Else it only keeps a place (rule 3)."""
    standing = standings.get(member.broker_id)
    return standing is not None and not standing.fenced and standing.broker_epoch == member.broker_epoch
