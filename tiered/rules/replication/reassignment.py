"""A partition's move to other brokers: catch up, then swap (KIP-455).

Owns the steps, each a function of the replicas before: `begin`, `progress` until the target has taken over, or
`cancel`. Must never choose where to (`placement` does), nor drop a replica that the committed records still rest
on: what these functions return keeps at least `min_isr` members in the ISR, as every other change does (rule 3).
"""

from collections.abc import Sequence
from dataclasses import replace

from tiered.errors import InvalidReplicaAssignment, NoReassignment
from tiered.rules.replication.replica_set import NO_LEADER, ReplicaSet, Standings, is_current


def is_under_way(replica_set: ReplicaSet) -> bool:
    """Whether the partition is being moved."""
    return bool(replica_set.adding_replicas or replica_set.removing_replicas)


def original_of(replica_set: ReplicaSet) -> tuple[int, ...]:
    """The replicas that it goes back to when the move is cancelled."""
    return tuple(each for each in replica_set.replicas if each not in replica_set.adding_replicas)


def target_of(replica_set: ReplicaSet) -> tuple[int, ...]:
    """The replicas that it has in the end, in their order."""
    return tuple(each for each in replica_set.replicas if each not in replica_set.removing_replicas)


def begin(before: ReplicaSet, target: Sequence[int], standings: Standings, *, min_isr: int) -> ReplicaSet | None:
    """The replicas once the move to `target` has begun; None when they are there already.

    A move that only drops replicas, or orders them anew, is over at once. A move under way is replaced: replicas that
    it added, and `target` does not name, go. Raises InvalidReplicaAssignment.
    """
    _require_possible(target, standings)
    originals = original_of(before)
    if tuple(target) == originals and not is_under_way(before):
        return None
    begun = _on(
        replace(
            before,
            replicas=(*target, *(each for each in originals if each not in target)),
            adding_replicas=tuple(each for each in target if each not in originals),
            removing_replicas=tuple(each for each in originals if each not in target),
        ),
        standings,
        min_isr=min_isr,
    )
    if begun is None:
        raise InvalidReplicaAssignment(
            "the move that is under way has added replicas that the committed records rest on by now: wait until it "
            "is complete, then move the partition again"
        )
    return progress(begun, standings, min_isr=min_isr) or begun


def progress(before: ReplicaSet, standings: Standings, *, min_isr: int) -> ReplicaSet | None:
    """The replicas after the swap; None while the target is not ready for it, and when there is nothing to move.

    It is ready when every added replica is in the ISR and alive, and enough of the target are. The leader goes on
    leading when it is in the target; else the first of the target that can be elected takes over.
    """
    if not is_under_way(before):
        return None
    target = target_of(before)
    alive = {each.broker_id for each in before.isr if is_current(each, standings)}
    if not alive.issuperset(before.adding_replicas) or len(alive.intersection(target)) < min(min_isr, len(target)):
        return None
    swapped = replace(before, replicas=target, adding_replicas=(), removing_replicas=())
    return _on(swapped, standings, min_isr=min_isr)


def cancel(before: ReplicaSet, standings: Standings, *, min_isr: int) -> ReplicaSet:
    """The replicas as they were before the move. Raises NoReassignment, InvalidReplicaAssignment."""
    if not is_under_way(before):
        raise NoReassignment("no reassignment of this partition is in progress")
    reverted = replace(before, replicas=original_of(before), adding_replicas=(), removing_replicas=())
    settled = _on(reverted, standings, min_isr=min_isr)
    if settled is None:
        raise InvalidReplicaAssignment(
            "the committed records rest on replicas that the move has added: bring back one of the original replicas "
            f"{list(reverted.replicas)}, or let the move go on"
        )
    return settled


def _on(wanted: ReplicaSet, standings: Standings, *, min_isr: int) -> ReplicaSet | None:
    """`wanted` with an ISR and a leader out of its own replicas; None when too few of the ISR would be left.

    No member joins the ISR here, so the leader's own view of it still contains all who can be elected (R3).
    """
    kept = replace(wanted, isr=tuple(each for each in wanted.isr if each.broker_id in wanted.replicas))
    if kept.isr != wanted.isr and len(kept.isr) < min(max(1, min_isr), len(wanted.replicas)):
        return None
    electable = kept.electable(standings)
    if not electable and any(is_current(each, standings) for each in wanted.isr):
        return None
    if kept.leader == NO_LEADER or kept.leader in kept.replicas:
        return kept  # Whether it lives is for `elections` to see to.
    return replace(kept, leader=electable[0] if electable else NO_LEADER, leader_epoch=kept.leader_epoch + 1)


def _require_possible(target: Sequence[int], standings: Standings) -> None:
    if not target:
        raise InvalidReplicaAssignment("a partition cannot be moved to no broker at all: name at least one")
    if len(set(target)) != len(target):
        raise InvalidReplicaAssignment(f"replicas {list(target)} name a broker twice: name each once")
    unknown = sorted(each for each in target if each not in standings)
    if unknown:
        raise InvalidReplicaAssignment(
            f"replicas {list(target)} name brokers that are not registered: {unknown}; there are {sorted(standings)}"
        )
