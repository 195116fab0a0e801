"""The leader and the in-sync replicas of a partition: each event's effect on one replica set.

Owns the decisions of a registration, a failure, a full disk, a store that the leader alone does not reach, and of a
preferred and an unclean election. Must never add a broker to the ISR (the leader does, when it has caught up), and
never elect one whose recorded registration is not current and in service (rule 2), but for `unclean`, which says so.

Each function returns the new replica set, or None where nothing changes. Applied to its own answer it returns
None, so two controllers that both decide do no harm. A new leader, none in place of one, and a leader that
restarted raise `leader_epoch` by one.
"""

from dataclasses import replace

from tiered.ids import InSyncReplica
from tiered.rules.replication.replica_set import NO_LEADER, ReplicaSet, Standings, is_current

NO_REGISTRATION = -1
"""The epoch of a member that only keeps a place, although its broker is in service."""


def registered(
    before: ReplicaSet, standings: Standings, *, broker_id: int, previous_epoch: int | None, is_clean: bool
) -> ReplicaSet | None:
    """After `broker_id` registered; `standings` hold its new registration, `previous_epoch` is that before it.

    A clean member goes on under its new epoch, if what the ISR recorded is the registration that it continues (rule 8).
    So does a member that is the whole ISR: no other broker could ever lead. Any other keeps its old entry, which holds
    a place (rule 3) and can never be elected, until the leader sees that it has caught up.

    What it led it leads on, in the next leader epoch, where that is still possible; else the first electable
    replica does, else nobody. It also leads what nobody led and only it can.
    """
    member = before.member(broker_id)
    isr = before.isr
    if member is not None and ((is_clean and member.broker_epoch == previous_epoch) or len(before.isr) == 1):
        renewed = InSyncReplica(broker_id, standings[broker_id].broker_epoch)
        isr = tuple(renewed if each.broker_id == broker_id else each for each in before.isr)
    after = replace(before, isr=isr)
    if before.leader == broker_id and member != after.member(broker_id) and _can_lead(after, standings, broker_id):
        return replace(after, leader_epoch=before.leader_epoch + 1)  # its own successor
    if before.leader in (broker_id, NO_LEADER):
        after = _elected(after, standings)
    return _changed(before, after)


def after_failure(before: ReplicaSet, standings: Standings, *, min_isr: int) -> ReplicaSet | None:
    """Removes members that are out of service, and elects a leader wherever a member can lead.

    Members whose registration is not current leave, as long as `min(min_isr, len(replicas))` stay; then the rest keeps
    its place (rule 3). No member leaves while none is current: nothing can be committed without them, and each that
    comes back can lead. A leader that can go on does.
    """
    isr = before.isr
    current = {each for each in isr if is_current(each, standings)}
    if current and len(current) < len(isr):
        excess = len(isr) - min(min_isr, len(before.replicas))
        leaving = sorted((each for each in isr if each not in current), key=lambda each: _may_return(each, standings))
        gone = frozenset(leaving[: max(0, excess)])
        isr = tuple(each for each in isr if each not in gone)
    after = before if len(isr) == len(before.isr) else replace(before, isr=isr)
    return _changed(before, _elected(after, standings))


def resigned(before: ReplicaSet, standings: Standings, *, broker_id: int, min_isr: int) -> ReplicaSet | None:
    """Without the replica of `broker_id`, which its disk has let down while the broker serves on.

    None where nobody else can lead. Where the ISR would be smaller than `min(min_isr, len(replicas))` the replica
    keeps its place under no registration (rule 3): it comes back as any other that has to catch up.
    """
    member = before.member(broker_id)
    others = [each for each in before.electable(standings) if each != broker_id]
    if member is None or member.broker_epoch == NO_REGISTRATION or not others:
        return None
    isr = tuple(each for each in before.isr if each != member)
    if len(isr) < min(min_isr, len(before.replicas)):
        isr = (*isr, InSyncReplica(broker_id, NO_REGISTRATION))
    return _changed(before, _elected(replace(before, isr=isr), standings))


def spared(before: ReplicaSet, standings: Standings, *, broker_id: int, min_isr: int) -> ReplicaSet | None:
    """Without the replica of `broker_id`, whose disk is full, where the partition goes on without it.

    None unless `min(min_isr, len(replicas))` other members can lead. Otherwise the replica stays, and can be elected:
    all that is committed is on its disk, and the others alone could commit no more than it can.
    """
    others = [replica for replica in before.electable(standings) if replica != broker_id]
    if len(others) < min(min_isr, len(before.replicas)):
        return None
    return resigned(before, standings, broker_id=broker_id, min_isr=min_isr)


def passed_on(before: ReplicaSet, standings: Standings, *, broker_id: int) -> ReplicaSet | None:
    """Led by a member that reaches the object store, where `broker_id` leads and does not. Its replica stays in sync:
    replication needs no store. None where nobody else who can lead reaches the store."""
    standing = standings.get(broker_id)
    if before.leader != broker_id or standing is None or standing.reaches_store:
        return None
    leader = next((member for member in before.electable(standings) if standings[member].reaches_store), NO_LEADER)
    if leader == NO_LEADER:
        return None
    return replace(before, leader=leader, leader_epoch=before.leader_epoch + 1)


def preferred(before: ReplicaSet, standings: Standings) -> ReplicaSet | None:
    """With the first of the replicas as leader. None where it leads or cannot, or does not reach the object store while
    another one that can lead does."""
    wanted = before.replicas[0]
    if before.leader == wanted or before.electable(standings)[:1] != (wanted,):
        return None
    return replace(before, leader=wanted, leader_epoch=before.leader_epoch + 1)


def unclean(before: ReplicaSet, standings: Standings) -> ReplicaSet | None:
    """With a leader, whatever it has lost: for where `unclean.leader.election.enable` or an operator says so.

    Somebody electable leads where there is one. Else the first replica in service does, one that the ISR still
    names before the others: it missed least. It then is the whole ISR. None where there is a leader, or nobody.
    """
    if before.leader != NO_LEADER and _can_lead(before, standings, before.leader):
        return None
    after = _elected(before, standings)
    if after.leader != NO_LEADER:
        return after
    alive = [each for each in before.replicas if each in standings and not standings[each].fenced]
    if not alive:
        return _changed(before, after)
    chosen = min(alive, key=lambda broker_id: before.member(broker_id) is None)
    return replace(
        before,
        leader=chosen,
        leader_epoch=before.leader_epoch + 1,
        isr=(InSyncReplica(chosen, standings[chosen].broker_epoch),),
    )


def _elected(before: ReplicaSet, standings: Standings) -> ReplicaSet:
    """With the leader that it has if that one can lead, else with the first that can, else with none."""
    if _can_lead(before, standings, before.leader):
        return before
    leader = next(iter(before.electable(standings)), NO_LEADER)
    if leader == before.leader:
        return before
    return replace(before, leader=leader, leader_epoch=before.leader_epoch + 1)


def _can_lead(replicas: ReplicaSet, standings: Standings, broker_id: int) -> bool:
    member = replicas.member(broker_id)
    return member is not None and broker_id in replicas.replicas and is_current(member, standings)


def _may_return(member: InSyncReplica, standings: Standings) -> bool:
    """False for an entry that can never be elected any more, True for one that only waits for its broker."""
    standing = standings.get(member.broker_id)
    return standing is not None and standing.broker_epoch == member.broker_epoch


def _changed(before: ReplicaSet, after: ReplicaSet) -> ReplicaSet | None:
    return None if after == before else after
