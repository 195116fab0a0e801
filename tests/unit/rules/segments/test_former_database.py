"""What an older database adds to the plan of a restore, and what it must not add."""

from dataclasses import replace

import pytest

from tests.support.checkpointed import CLUSTER, TOPIC_ID, entry, group, groups, partition
from tiered.formats.acl_entries import AclEntry
from tiered.formats.checkpoint import ClusterCheckpoint
from tiered.formats.disk_report import DiskLog, DiskReport, OpenLogTransaction
from tiered.formats.group_checkpoint import GroupEntry
from tiered.rules.security.quotas import QuotaEntity
from tiered.rules.security.sasl.mechanism import ScramMechanism
from tiered.rules.security.sasl.scram import ScramCredential
from tiered.rules.segments.former_database import DecidedCommit, FormerDatabase
from tiered.rules.segments.restore_plan import FoundBucket, RestoredSettings, RestorePlan, plan_restore
from tiered.rules.transactions.transaction_state import KEEPS_EPOCH, RAISES_EPOCH

PRODUCER, EPOCH = 9, 4


def rule(principal: str) -> AclEntry:
    return AclEntry(
        resource_type="TOPIC",
        resource_name="orders",
        pattern_type="LITERAL",
        principal=principal,
        host="*",
        operation="READ",
        permission="ALLOW",
    )


def disk() -> DiskReport:
    """One log, in which the producer's transaction has no end."""
    log = DiskLog(
        topic_id=TOPIC_ID,
        partition=0,
        log_start_offset=0,
        local_log_start_offset=0,
        log_end_offset=60,
        leader_epochs=((4, 0),),
        newest_producer_id=PRODUCER,
        open_transactions=(OpenLogTransaction(producer_id=PRODUCER, producer_epoch=EPOCH, first_offset=55),),
    )
    return DiskReport(cluster_id=CLUSTER, broker_id=1, broker_epoch=5, logs=(log,), faults=())


def bucket(*in_bucket: GroupEntry, acls: tuple[AclEntry, ...] = ()) -> FoundBucket:
    return FoundBucket(
        cluster=ClusterCheckpoint(
            version=100,
            cluster_id=CLUSTER,
            topics=(entry(partition_count=3),),
            acls=acls,
            previous_cluster_ids=("first",),
        ),
        cluster_etag="etag",
        partitions={(TOPIC_ID, number): partition(0, 50) for number in range(3)},
        groups={0: groups(0, *in_bucket)} if in_bucket else {},
        settings=RestoredSettings(giving_rights={"": {"tiered.http.allowed.hosts": "other.example"}}),
    )


def committed(group_id: str, *offsets: tuple[int, int], generation: int = 3) -> GroupEntry:
    """A group with (offset, time of the commit), a pair for each partition."""
    made = group(group_id, *(offset for offset, _ in offsets))
    timed = (replace(each, committed_at_ms=at_ms) for each, (_, at_ms) in zip(made.offsets, offsets, strict=True))
    return replace(made, generation=generation, offsets=tuple(timed))


def offsets_of(plan: RestorePlan) -> dict[str, list[tuple[int, int]]]:
    return {each.group_id: [(its.partition, its.offset) for its in each.offsets] for each in plan.groups}


@pytest.mark.parametrize("cluster_id", [CLUSTER, "first"])
def test_a_database_of_the_buckets_lineage_is_taken(cluster_id: str) -> None:
    assert plan_restore(bucket(), (1,), former=FormerDatabase(cluster_id=cluster_id)).problems == ()


def test_a_database_of_another_cluster_is_refused() -> None:
    (problem,) = plan_restore(bucket(), (1,), former=FormerDatabase(cluster_id="foreign")).problems
    assert problem == "the former database belongs to cluster foreign, which is not the store's"


def test_of_each_offset_the_later_commit_counts_and_groups_of_either_come_back() -> None:
    former = FormerDatabase(
        cluster_id=CLUSTER,
        groups=(
            committed("both", (10, 200), (30, 100), (7, 5), generation=8),
            committed("only-database", (70, 1)),
        ),
    )
    found = bucket(committed("both", (20, 100), (3, 200)), committed("only-bucket", (5, 1)))
    plan = plan_restore(found, (1,), former=former)
    assert offsets_of(plan) == {
        "both": [(0, 10), (1, 3), (2, 7)],
        "only-bucket": [(0, 5)],
        "only-database": [(0, 50)],
    }
    assert {each.group_id: each.generation for each in plan.groups}["both"] == 8
    assert [(each.group_id, each.committed_offset) for each in plan.moved_offsets] == [("only-database", 70)]
    assert plan.topics[0].partitions[0].lost_before == 70


def test_rules_come_from_the_database_unasked_and_settings_that_give_rights_do_not() -> None:
    former = FormerDatabase(cluster_id=CLUSTER, acls=(rule("User:ann"),))
    found = bucket(acls=(rule("User:mallory"),))
    plan = plan_restore(found, (1,), former=former)
    assert (plan.acls, plan.left_out_acls) == (former.acls, ())
    assert plan.left_out_settings
    assert any("1 only the bucket has, 1 only the database" in warning for warning in plan.warnings)
    accepted = plan_restore(found, (1,), former=former, accept_rights=plan.rights_digest)
    assert (accepted.problems, accepted.acls, accepted.left_out_settings) == ((), former.acls, {})
    without = plan_restore(found, (1,))
    assert (without.acls, without.left_out_acls) == ((), found.cluster.acls)
    (refused,) = plan_restore(found, (1,), former=former, accept_rights=without.rights_digest).problems
    assert "are others" in refused, "that digest stands for rules that do not come back"


def test_credentials_and_quotas_are_those_of_the_database() -> None:
    credential = ScramCredential(salt=b"salt", stored_key=b"hidden", server_key=b"server", iterations=4096)
    former = FormerDatabase(
        cluster_id=CLUSTER,
        credentials={("ann", ScramMechanism.SHA_256): credential},
        quotas={(QuotaEntity(user=""), "producer_byte_rate"): 5.0},
    )
    plan = plan_restore(bucket(), (1,), former=former)
    assert (plan.credentials, plan.quotas) == (former.credentials, former.quotas)
    assert "hidden" not in repr(plan)


@pytest.mark.parametrize(
    ("commit", "is_committed"),
    [
        (DecidedCommit(producer_id=PRODUCER, marker_epoch=EPOCH + 1, protocol=RAISES_EPOCH), True),
        (DecidedCommit(producer_id=PRODUCER, marker_epoch=EPOCH, protocol=RAISES_EPOCH), False),
        (DecidedCommit(producer_id=PRODUCER, marker_epoch=EPOCH + 2, protocol=RAISES_EPOCH), False),
        (DecidedCommit(producer_id=PRODUCER + 1, marker_epoch=EPOCH + 1, protocol=RAISES_EPOCH), False),
    ],
)
def test_a_decided_transaction_is_committed_where_the_epoch_says_that_it_is_this_one(
    commit: DecidedCommit, is_committed: bool
) -> None:
    former = FormerDatabase(cluster_id=CLUSTER, commits=(commit,))
    plan = plan_restore(bucket(), (1,), disks=[disk()], former=former)
    assert [(each.producer_epoch, each.is_committed) for each in plan.unended] == [(EPOCH, is_committed)]
    assert not plan.warnings


def test_a_decision_that_may_be_about_an_earlier_transaction_of_the_epoch_commits_nothing_and_is_named() -> None:
    commit = DecidedCommit(producer_id=PRODUCER, marker_epoch=EPOCH, protocol=KEEPS_EPOCH)
    plan = plan_restore(bucket(), (1,), disks=[disk()], former=FormerDatabase(cluster_id=CLUSTER, commits=(commit,)))
    assert [each.is_committed for each in plan.unended] == [False]
    (warning,) = plan.warnings
    assert warning.startswith(f"the transaction of producer {PRODUCER} will be aborted")
