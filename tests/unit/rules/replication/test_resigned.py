"""A replica that its disk let down, while its broker serves on: it neither leads nor counts as in sync."""

from tiered.ids import InSyncReplica
from tiered.rules.replication import elections
from tiered.rules.replication.elections import NO_REGISTRATION
from tiered.rules.replication.replica_set import ReplicaSet, Standing

STANDINGS = {1: Standing(10, False), 2: Standing(20, False), 3: Standing(30, True)}
ONE, TWO, THREE = InSyncReplica(1, 10), InSyncReplica(2, 20), InSyncReplica(3, 30)


def led_by(leader: int, *isr: InSyncReplica) -> ReplicaSet:
    return ReplicaSet(leader=leader, leader_epoch=4, isr=isr, replicas=(1, 2, 3))


def test_a_leader_that_resigns_is_replaced_and_leaves_the_isr() -> None:
    after = elections.resigned(led_by(1, ONE, TWO), STANDINGS, broker_id=1, min_isr=1)
    assert after is not None
    assert (after.leader, after.leader_epoch, after.isr) == (2, 5, (TWO,))


def test_a_follower_that_resigns_leaves_the_leader_as_it_is() -> None:
    after = elections.resigned(led_by(1, ONE, TWO), STANDINGS, broker_id=2, min_isr=1)
    assert after is not None
    assert (after.leader, after.leader_epoch, after.isr) == (1, 4, (ONE,))


def test_the_isr_does_not_become_smaller_than_the_minimum() -> None:
    after = elections.resigned(led_by(1, ONE, TWO), STANDINGS, broker_id=1, min_isr=2)
    assert after is not None
    assert (after.leader, after.isr) == (2, (TWO, InSyncReplica(1, NO_REGISTRATION)))
    assert after.electable(STANDINGS) == (2,)
    assert elections.resigned(after, STANDINGS, broker_id=1, min_isr=2) is None
    assert elections.after_failure(after, STANDINGS, min_isr=2) is None


def test_nobody_resigns_where_nobody_else_can_lead() -> None:
    assert elections.resigned(led_by(1, ONE), STANDINGS, broker_id=1, min_isr=1) is None
    assert elections.resigned(led_by(1, ONE, THREE), STANDINGS, broker_id=1, min_isr=1) is None
    assert elections.resigned(led_by(2, TWO), STANDINGS, broker_id=1, min_isr=1) is None
