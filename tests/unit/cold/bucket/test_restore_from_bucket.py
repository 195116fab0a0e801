"""Reading a whole bucket for a restore, and taking it over: nothing is guessed, and nobody is overtaken unseen."""

from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.golden import regenerate as golden
from tests.support.restored_bucket import CLUSTER, GONE, PARALLEL, SNAPSHOT, Bucket
from tests.unit.cold.stored_segments import PARTITION, TOPIC_ID
from tiered.cold.bucket import checkpoints, group_checkpoints, restore_claims
from tiered.cold.bucket.contents import read_bucket
from tiered.cold.bucket.restored_settings import MAX_SCOPES
from tiered.cold.local import LocalStore
from tiered.config.broker_changes import MAX_SETTINGS
from tiered.errors import InvalidConfig, LostRace
from tiered.formats import object_key
from tiered.formats.checkpoint import ClusterCheckpoint, TopicEntry
from tiered.rules.segments.restore_plan import RestorePlan, plan_restore


@pytest.fixture
def bucket(tmp_path: Path) -> Bucket:
    return Bucket(tmp_path)


def test_everything_is_read_and_counted(bucket: Bucket) -> None:
    told: list[tuple[int, int]] = []
    found = read_bucket(bucket.store, parallel=PARALLEL, report=lambda done, total: told.append((done, total)))
    assert told == [(done, 5) for done in range(1, 6)]  # Four partitions, and a slot of groups.
    assert found.unlisted == ((GONE, PARTITION),)
    its = found.partitions[TOPIC_ID, PARTITION]
    assert its.head is not None
    assert (its.segments, its.newest_producer_id, its.fault) == ((bucket.segment,), 77, None)
    assert list(found.groups) == [42]


def test_a_store_without_checkpoints_is_no_bucket_of_ours(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="no cluster's checkpoint"):
        read_bucket(LocalStore(tmp_path), parallel=PARALLEL)


def test_a_newest_object_that_is_gone_is_a_problem_of_the_plan(bucket: Bucket) -> None:
    bucket.store.delete(bucket.segment.object_key)
    (problem,) = bucket.plan().problems
    assert problem.startswith("orders-3: its newest object")


def test_a_checkpoint_that_names_an_object_of_another_topic_is_a_problem_of_the_plan(bucket: Bucket) -> None:
    """Restored like that, the retention of one topic would delete the records of the other."""
    data, _ = bucket.store.get(bucket.segment.object_key, max_bytes=1 << 20)
    theirs = object_key.segment_key("theirs", UUID(int=9), 0, 0, 50, 0, bucket.segment.object_id)
    bucket.store.put(theirs, data)
    bucket.write(replace(bucket.head, segments=(replace(bucket.segment, object_key=theirs),)))
    (problem,) = bucket.plan().problems
    assert "the key of another segment" in problem


def test_a_topic_that_is_left_out_stays_in_the_bucket_and_is_none_of_the_clusters(bucket: Bucket) -> None:
    bucket.store.delete(bucket.segment.object_key)
    found = read_bucket(bucket.store, parallel=PARALLEL)
    plan = plan_restore(found, (1,), ["orders"])
    assert not plan.problems
    restore_claims.claim(bucket.store, plan, found, parallel=PARALLEL)
    cluster = checkpoints.read_cluster_checkpoint(bucket.store)
    assert cluster is not None
    assert (cluster.topics, cluster.pins) == ((), ())
    stored = checkpoints.read_partition_checkpoint(bucket.store, TOPIC_ID, PARTITION)
    assert stored is not None
    assert stored.checkpoint.cluster_id == CLUSTER


def test_a_damaged_head_is_a_problem_and_damaged_groups_are_a_warning(bucket: Bucket) -> None:
    bucket.store.put(object_key.group_checkpoint_key(42), b"{}")
    found = bucket.plan()
    assert not found.problems
    assert any("slot 42" in each for each in found.warnings)
    bucket.store.put(object_key.partition_checkpoint_key(TOPIC_ID, PARTITION), b"{}")
    (problem,) = bucket.plan().problems
    assert "orders-3" in problem


def claim(bucket: Bucket) -> RestorePlan:
    found = read_bucket(bucket.store, parallel=PARALLEL)
    plan = plan_restore(found, (1,))
    restore_claims.claim(bucket.store, plan, found, parallel=PARALLEL)
    return plan


def test_a_bucket_that_was_taken_over_says_the_same_under_other_numbers(bucket: Bucket) -> None:
    first = claim(bucket)
    again = bucket.plan()
    assert again.previous_cluster_ids == (CLUSTER, first.cluster_id)
    assert again.change_number > first.change_number
    assert [each.offsets for each in again.groups] == [each.offsets for each in first.groups]
    assert again.pins == first.pins == (SNAPSHOT,)
    for before, after in zip(first.topics[0].partitions, again.topics[0].partitions, strict=True):
        assert (after.log_start_offset, after.segments) == (before.log_start_offset, before.segments)
        assert after.leader_epoch > before.leader_epoch


def test_the_old_cluster_is_refused_everywhere_after_it(bucket: Bucket) -> None:
    plan = claim(bucket)
    newest = replace(bucket.head, leader_epoch=2**30, log_start_offset=20)
    for head in (newest, replace(newest, partition=1, segments=(), cold_end_offset=20)):
        with pytest.raises(InvalidConfig, match="another prefix"):
            bucket.write(head)
    with pytest.raises(InvalidConfig, match="belongs to cluster"):
        checkpoints.write_cluster_checkpoint(
            bucket.store, ClusterCheckpoint(version=2**40, cluster_id=CLUSTER, topics=())
        )
    groups = replace(golden.group_checkpoint(), cluster_id=CLUSTER, slot_epoch=2**60)
    with pytest.raises(InvalidConfig, match="another prefix"):
        group_checkpoints.write_group_checkpoint(bucket.store, groups)
    # And the new one, as soon as it leads, is not.
    bucket.write(replace(bucket.head, cluster_id=plan.cluster_id, leader_epoch=100_001))
    group_checkpoints.write_group_checkpoint(
        bucket.store, replace(groups, cluster_id=plan.cluster_id, slot_epoch=plan.slot_epoch + 1, groups=())
    )
    checkpoints.write_cluster_checkpoint(
        bucket.store, ClusterCheckpoint(version=plan.change_number + 1, cluster_id=plan.cluster_id, topics=())
    )
    kept = checkpoints.read_cluster_checkpoint(bucket.store)
    assert kept is not None
    assert kept.previous_cluster_ids == (CLUSTER,)


@pytest.mark.parametrize("what", ["cluster", "head", "groups", "new head"])
def test_whoever_writes_between_plan_and_claim_stops_the_restore(bucket: Bucket, what: str) -> None:
    found = read_bucket(bucket.store, parallel=PARALLEL)
    plan = plan_restore(found, (1,))
    match what:
        case "cluster":
            checkpoints.write_cluster_checkpoint(
                bucket.store, ClusterCheckpoint(version=8, cluster_id=CLUSTER, topics=())
            )
        case "head":
            bucket.write(replace(bucket.head, log_start_offset=20))
        case "new head":
            bucket.write(replace(bucket.head, partition=1, segments=(), cold_end_offset=10))
        case _:
            groups = replace(golden.group_checkpoint(), cluster_id=CLUSTER, groups=())
            group_checkpoints.write_group_checkpoint(bucket.store, groups)
    with pytest.raises(LostRace, match="stop every broker"):
        restore_claims.claim(bucket.store, plan, found, parallel=PARALLEL)


@pytest.mark.parametrize("configs", [{"retention.ms": "soon"}, {"nonsense": "1"}])
def test_configs_that_no_broker_would_start_with_are_a_problem_and_the_topic_may_be_left_out(
    bucket: Bucket, configs: dict[str, str]
) -> None:
    cluster = checkpoints.read_cluster_checkpoint(bucket.store)
    assert cluster is not None
    topics = (replace(cluster.topics[0], configs=configs),)
    checkpoints.write_cluster_checkpoint(bucket.store, replace(cluster, version=8, topics=topics))
    (problem,) = bucket.plan().problems
    assert problem.startswith("orders: ")
    assert next(iter(configs)) in problem
    contents = read_bucket(bucket.store, parallel=PARALLEL)
    assert plan_restore(contents, (1,), ["orders"]).problems == ()


def test_a_bucket_that_was_taken_over_still_says_what_the_next_run_may_accept(bucket: Bucket) -> None:
    cluster = checkpoints.read_cluster_checkpoint(bucket.store)
    assert cluster is not None
    settings, configs = (
        {"": {"tiered.http.allowed.hosts": "logs.example"}},
        {"GROUP:a": {"consumer.session.timeout.ms": "50000"}},
    )
    acls = golden.cluster_checkpoint_with_acls().acls
    assert acls
    checkpoints.write_cluster_checkpoint(
        bucket.store, replace(cluster, version=8, settings=settings, resource_configs=configs, acls=acls)
    )
    contents = read_bucket(bucket.store, parallel=PARALLEL)
    plan = plan_restore(contents, (1,))
    assert (plan.settings, plan.acls) == ({}, ())
    restore_claims.claim(bucket.store, plan, contents, parallel=PARALLEL)
    again = plan_restore(read_bucket(bucket.store, parallel=PARALLEL), (1,), accept_rights=plan.rights_digest)
    assert (again.settings, again.acls, again.resource_configs) == (settings, acls, configs)


def test_only_one_of_two_restores_gets_the_bucket(bucket: Bucket) -> None:
    found = read_bucket(bucket.store, parallel=PARALLEL)
    plan = plan_restore(found, (1,))
    restore_claims.claim(bucket.store, plan, found, parallel=PARALLEL)
    with pytest.raises(LostRace, match=r"checkpoints/cluster\.json"):
        restore_claims.claim(bucket.store, plan, found, parallel=PARALLEL)


ALLOWED = {"log.retention.ms": "86400000"}


def with_settings(bucket: Bucket, **changes: Any) -> RestorePlan:
    """The plan once the cluster's checkpoint says so."""
    cluster = checkpoints.read_cluster_checkpoint(bucket.store)
    assert cluster is not None
    checkpoints.write_cluster_checkpoint(bucket.store, replace(cluster, version=8, **changes))
    return bucket.plan()


def test_as_many_settings_come_back_as_brokers_can_have_and_the_known_ones_first(bucket: Bucket) -> None:
    texts = {f"a{number}": "1" for number in range(2 * MAX_SETTINGS)} | ALLOWED
    scopes = {str(broker_id): {"num.partitions": "3"} for broker_id in range(MAX_SCOPES + 10)}
    plan = with_settings(bucket, settings={"": texts} | scopes)
    assert len(plan.settings[""]) == MAX_SETTINGS
    assert plan.settings[""].items() >= ALLOWED.items()
    assert len(plan.settings) == MAX_SCOPES
    assert sum(map(len, plan.ignored_settings.values())) == MAX_SETTINGS + 1 + 11


def test_configs_of_groups_and_subscriptions_come_back_where_they_are_known_and_allowed(bucket: Bucket) -> None:
    allowed = {"consumer.session.timeout.ms": "50000"}
    configs = {
        "GROUP:a:b": {**allowed, "consumer.heartbeat.interval.ms": "often", "x": "1"},
        "GROUP:\0": allowed,
        "GROUP:": allowed,
        "TOPIC:orders": allowed,
        "CLIENT_METRICS:all": {"interval.ms": "1000", "metrics": "*"},
    }
    plan = with_settings(bucket, resource_configs=configs)
    assert plan.resource_configs == {"GROUP:a:b": allowed, "CLIENT_METRICS:all": configs["CLIENT_METRICS:all"]}
    assert plan.ignored_settings == {
        "GROUP:": ("consumer.session.timeout.ms",),
        "GROUP:\0": ("consumer.session.timeout.ms",),
        "GROUP:a:b": ("consumer.heartbeat.interval.ms", "x"),
        "TOPIC:orders": ("consumer.session.timeout.ms",),
    }


def test_a_setting_that_would_stop_a_broker_beside_a_topics_configs_is_left_out_and_named(bucket: Bucket) -> None:
    topic = TopicEntry(name="new", topic_id=UUID(int=9), partition_count=1, configs={"local.retention.ms": "5000"})
    settings = {"": {"log.retention.ms": "1000", "num.partitions": "3"}, "1": {"log.retention.ms": "2000"}}
    plan = with_settings(bucket, topics=(topic,), settings=settings)
    assert plan.problems == ()
    assert plan.settings == {"": {"num.partitions": "3"}}
    assert plan.contradictory_settings == {"": {"log.retention.ms": "1000"}, "1": {"log.retention.ms": "2000"}}


def test_a_topic_whose_configs_fit_the_clusters_settings_alone_is_no_problem(bucket: Bucket) -> None:
    month_ms = {"local.retention.ms": str(30 * 86_400_000)}
    topic = TopicEntry(name="new", topic_id=UUID(int=9), partition_count=1, configs=month_ms)
    assert with_settings(bucket, topics=(topic,)).problems
    settings = {"": {"log.retention.ms": str(60 * 86_400_000), "num.partitions": "3"}}
    cluster = checkpoints.read_cluster_checkpoint(bucket.store)
    assert cluster is not None
    checkpoints.write_cluster_checkpoint(bucket.store, replace(cluster, version=9, settings=settings))
    plan = bucket.plan()
    assert (plan.problems, plan.settings, plan.contradictory_settings) == ((), settings, {})
