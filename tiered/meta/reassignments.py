"""Moves of partitions and elections that people ask for: each request one transaction.

Owns which error each partition of a request gets. Must never decide a step: `rules.replication.reassignment` and
`rules.replication.elections` do, and `elections.change_replica_sets` writes what they return.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Connection

from tiered.errors import (
    BrokerNotRegistered,
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    InvalidReplicationFactor,
    PolicyViolation,
    PreferredLeaderNotAvailable,
    TieredError,
    UnknownTopicOrPartition,
)
from tiered.ids import TopicPartition
from tiered.meta import brokers, partitions
from tiered.meta.cluster import take_number
from tiered.meta.elections import change_replica_sets
from tiered.meta.partitions import PartitionRow
from tiered.rules.replication import elections, reassignment
from tiered.rules.replication.replica_set import NO_LEADER, ReplicaSet, Standings

Target = tuple[int, ...]
MinIsr = Callable[[UUID], int]
"""`min.insync.replicas` of the topic with this id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """The outcome for each partition in the request: an error, or None. `change_number` says when it holds."""

    change_number: int
    errors: Mapping[TopicPartition, TieredError | None]


def alter(
    conn: Connection,
    targets: Mapping[TopicPartition, Target | None],
    *,
    min_isr: MinIsr,
    may_resize: bool = True,
) -> Outcomes:
    """Begins the move of each partition to its target, or cancels it where that is None. Each for itself.

    With `may_resize=False` a target of another size than the partition has is InvalidReplicationFactor.
    """

    def step(row: PartitionRow, standings: Standings) -> ReplicaSet | None:
        before = row.replica_set
        target = targets[row.topic_partition]
        floor = min_isr(row.topic_id)
        if target is None:
            return reassignment.cancel(before, standings, min_isr=floor)
        size = len(reassignment.original_of(before))
        if not may_resize and len(target) != size:
            raise InvalidReplicationFactor(
                f"the partition has {size} replicas and the target {len(target)}, but the request does not allow "
                "another replication factor"
            )
        return reassignment.begin(before, target, standings, min_isr=floor)

    return _each(conn, targets.keys(), step)


def advance(conn: Connection, only: Collection[TopicPartition], *, min_isr: MinIsr) -> Outcomes:
    """Completes the moves, among `only`, whose targets have caught up."""

    def step(row: PartitionRow, standings: Standings) -> ReplicaSet | None:
        return reassignment.progress(row.replica_set, standings, min_isr=min_isr(row.topic_id))

    return _each(conn, only, step)


def elect_preferred(conn: Connection, only: Collection[TopicPartition]) -> Outcomes:
    """Gives each partition back to the first of its replicas. ElectionNotNeeded, PreferredLeaderNotAvailable."""

    def step(row: PartitionRow, standings: Standings) -> ReplicaSet | None:
        before = row.replica_set
        wanted = before.replicas[0]
        electable = before.electable(standings)
        if before.leader == wanted and wanted in electable:
            raise ElectionNotNeeded(f"broker {wanted}, the preferred leader, leads already")
        if wanted not in electable:
            raise PreferredLeaderNotAvailable(
                f"broker {wanted}, the preferred leader, is not in sync or not alive: start it, and wait until it has "
                "caught up"
            )
        if wanted != electable[0]:
            raise PreferredLeaderNotAvailable(
                f"broker {wanted}, the preferred leader, does not reach the object store; broker {electable[0]} does"
            )
        return elections.preferred(before, standings)

    return _each(conn, only, step)


def elect_unclean(conn: Connection, only: Collection[TopicPartition], *, may_lose: Callable[[UUID], bool]) -> Outcomes:
    """Elects any live replica where no in-sync one is left; what it does not have is lost (rule 2).

    ElectionNotNeeded where an in-sync replica can lead, EligibleLeadersNotAvailable where nobody lives, and
    PolicyViolation where `may_lose` says that the topic forbids it.
    """

    def step(row: PartitionRow, standings: Standings) -> ReplicaSet | None:
        before = row.replica_set
        if before.electable(standings):
            raise ElectionNotNeeded("an in-sync replica is alive, which leads without a loss")
        if not may_lose(row.topic_id):
            raise PolicyViolation(
                "an unclean election loses acknowledged records, and unclean.leader.election.enable is false for this "
                "topic: set it to true first if nobody in sync will come back"
            )
        after = elections.unclean(before, standings)
        if after is None or after.leader == NO_LEADER:
            raise EligibleLeadersNotAvailable(f"none of the replicas {list(before.replicas)} is alive: start one")
        return after

    return _each(conn, only, step)


def unregister(conn: Connection, broker_id: int) -> int:
    """Forgets a broker; the change's number. Raises BrokerNotRegistered, and PolicyViolation for a broker that is in
    service or that partitions name, for nobody would ever move them away."""
    change_number = take_number(conn)
    found = next((each for each in brokers.load_all(conn) if each.broker_id == broker_id), None)
    if found is None:
        raise BrokerNotRegistered(f"no broker {broker_id} is registered")
    if not found.fenced:
        raise PolicyViolation(f"broker {broker_id} is in service: stop it first")
    held = [row for row in partitions.load_all(conn) if broker_id in row.replicas]
    if held:
        raise PolicyViolation(
            f"broker {broker_id} is a replica of {len(held)} partitions: move them first (`tiered brokers drain "
            f"{broker_id}`)"
        )
    brokers.unregister(conn, broker_id=broker_id)
    return change_number


def _each(
    conn: Connection,
    only: Collection[TopicPartition],
    step: Callable[[PartitionRow, Standings], ReplicaSet | None],
) -> Outcomes:
    """Applies `step` to each partition; what it raises becomes that partition's error and changes nothing."""
    errors: dict[TopicPartition, TieredError | None] = {}

    def decide(row: PartitionRow, standings: Standings) -> ReplicaSet | None:
        errors[row.topic_partition] = None
        try:
            return step(row, standings)
        except TieredError as error:
            errors[row.topic_partition] = error.without_frames()
            return None

    done = change_replica_sets(conn, decide, only=only)
    for each in only:
        if each not in errors:
            errors[each] = UnknownTopicOrPartition(
                f"partition {each.partition} does not exist, or its row cannot be read; refresh metadata"
            )
    return Outcomes(change_number=done.change_number, errors=errors)
