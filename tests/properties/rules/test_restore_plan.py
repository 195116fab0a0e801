"""The plan of a restore: what comes back, from which numbers it counts, and what it refuses."""

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.checkpointed import (
    CLUSTER,
    TOPIC_ID,
    disk,
    disk_log,
    entry,
    group,
    groups,
    partition,
    pinned,
    segment,
)
from tiered.formats.checkpoint import ClusterCheckpoint, TopicEntry
from tiered.formats.disk_report import DiskReport, OpenLogTransaction
from tiered.formats.pin_entries import PinEntry
from tiered.rules.groups.coordinator_slot import coordinator_slot
from tiered.rules.segments.restore_plan import (
    CHANGES_A_LIFE,
    LEADER_EPOCHS_A_LIFE,
    PRODUCER_IDS_A_LIFE,
    FoundBucket,
    FoundGroups,
    FoundPartition,
    RestorePlan,
    next_life,
    opens_first_after_restore,
    plan_restore,
)


def plan(
    partitions: Sequence[FoundPartition] = (),
    *,
    topics: Sequence[TopicEntry] = (),
    found_groups: Sequence[FoundGroups] = (),
    brokers: Sequence[int] = (1,),
    version: int = 100,
    unlisted: Sequence[tuple[UUID, int]] = (),
    pins: Sequence[PinEntry] = (),
    disks: Sequence[DiskReport] = (),
) -> RestorePlan:
    return plan_restore(
        FoundBucket(
            cluster=ClusterCheckpoint(
                version=version, cluster_id=CLUSTER, topics=tuple(topics or [entry()]), pins=tuple(pins)
            ),
            cluster_etag="etag",
            partitions={(TOPIC_ID, number): each for number, each in enumerate(partitions)},
            groups={each.checkpoint.slot: each for each in found_groups},
            unlisted=tuple(unlisted),
        ),
        brokers,
        disks=disks,
    )


@given(st.integers(0, 2**40), st.integers(1, 2**32))
def test_a_new_life_is_above_the_old_one_and_is_the_same_for_all_of_it(number: int, step: int) -> None:
    found = next_life(number, step)
    assert found % step == 0
    assert number < found <= number + step
    assert next_life(found, step) == found + step


@pytest.mark.parametrize(
    ("leader_epoch", "newest_stored_epoch", "is_first"),
    [
        (LEADER_EPOCHS_A_LIFE, 7, True),
        (LEADER_EPOCHS_A_LIFE + 1, 7, True),
        (3 * LEADER_EPOCHS_A_LIFE + 1, 2 * LEADER_EPOCHS_A_LIFE, True),
        (LEADER_EPOCHS_A_LIFE + 2, 7, False),
        (LEADER_EPOCHS_A_LIFE + 1, LEADER_EPOCHS_A_LIFE + 1, False),
        (1, 0, False),
    ],
)
def test_only_the_first_leader_of_a_life_begins_a_log_as_the_restore_has_planned(
    leader_epoch: int, newest_stored_epoch: int, is_first: bool
) -> None:
    assert opens_first_after_restore(leader_epoch=leader_epoch, newest_stored_epoch=newest_stored_epoch) is is_first


def test_a_partition_goes_on_where_its_segments_end() -> None:
    found = plan([partition(20, 50, 80, log_start_offset=30)])
    (its,) = found.topics[0].partitions
    assert not found.problems
    assert (its.log_start_offset, its.cold_end_offset, its.lost_before) == (30, 80, None)
    assert [each.base_offset for each in its.segments] == [20, 50]


def test_what_was_never_uploaded_is_lost_as_far_as_heads_and_groups_tell() -> None:
    by_head = plan([partition(0, 50, high_watermark=61)])
    assert by_head.topics[0].partitions[0].lost_before == 61
    by_group = plan([partition(0, 50, high_watermark=61)], found_groups=[groups(0, group("g", 70))])
    assert by_group.topics[0].partitions[0].lost_before == 70
    assert plan([partition(0, 50, high_watermark=50)]).topics[0].partitions[0].lost_before is None


def test_of_a_partition_without_a_checkpoint_it_is_not_known_what_is_lost() -> None:
    unread = plan([partition(0, 50)], topics=[entry(partition_count=2)])
    assert [its.is_loss_unknown for its in unread.topics[0].partitions] == [False, True]
    (warning,) = [line for line in unread.warnings if "no checkpoint" in line]
    assert "1 partition (orders-1)" in warning
    assert "--disk" in warning
    read = plan(found_groups=[groups(0, group("g", 7))])
    assert (read.topics[0].partitions[0].is_loss_unknown, read.topics[0].partitions[0].lost_before) == (False, 7)
    given_disk = plan(disks=[disk(1, disk_log(5))])
    assert not given_disk.topics[0].partitions[0].is_loss_unknown
    assert not [line for line in given_disk.warnings if "no checkpoint" in line]


def test_groups_go_back_to_the_restored_end_and_never_forward() -> None:
    found = plan([partition(20, 50)], found_groups=[groups(0, group("far", 70), group("near", 5), group("end", 50))])
    assert {each.group_id: each.offsets[0].offset for each in found.groups} == {"far": 50, "near": 5, "end": 50}
    assert {each.group_id: each.offsets[0].leader_epoch for each in found.groups} == {"far": -1, "near": 4, "end": 4}
    (moved,) = found.moved_offsets
    assert (moved.group_id, moved.topic, moved.committed_offset, moved.restored_offset) == ("far", "orders", 70, 50)


def test_offsets_of_topics_that_are_not_restored_are_left_out_and_their_group_is_not() -> None:
    (found,) = plan(found_groups=[groups(0, group("g", 5, topic_id=UUID(int=99)))]).groups
    assert (found.group_id, found.offsets) == ("g", ())


def test_a_newer_holder_of_a_slot_has_the_last_word() -> None:
    # Before the number of slots changed the group had another one, whose object is still there.
    slot = coordinator_slot("g", 50)
    older = groups(slot + 100, group("g", 7), slot_count=200, slot_epoch=1 << 20)
    newer = groups(slot, group("g", 9), slot_epoch=2 << 20)
    found = plan([partition(0, 50)], found_groups=[older, newer])
    assert [each.offsets[0].offset for each in found.groups] == [9]
    assert found.slot_count == 50
    deleted = plan([partition(0, 50)], found_groups=[older, groups(slot, slot_epoch=2 << 20)])
    assert not deleted.groups
    unwritten = plan([partition(0, 50)], found_groups=[older, groups((slot + 1) % 50, slot_epoch=2 << 20)])
    assert [each.offsets[0].offset for each in unwritten.groups] == [7]


def test_numbers_are_above_everything_that_was_seen() -> None:
    found = plan(
        [partition(0, 50, leader_epoch=3 * LEADER_EPOCHS_A_LIFE + 1, newest_producer_id=4 * PRODUCER_IDS_A_LIFE)],
        version=CHANGES_A_LIFE + 1,
        found_groups=[groups(0, slot_epoch=(2 * CHANGES_A_LIFE + 5) << 20)],
    )
    assert found.topics[0].partitions[0].leader_epoch == 4 * LEADER_EPOCHS_A_LIFE
    assert found.next_producer_id == 5 * PRODUCER_IDS_A_LIFE
    assert found.change_number == 3 * CHANGES_A_LIFE
    assert found.slot_epoch > (2 * CHANGES_A_LIFE + 5) << 20


def test_the_new_cluster_has_another_id_and_remembers_the_old_one() -> None:
    first, again, later = plan(), plan(), plan(version=101)
    assert first == again
    assert len({CLUSTER, first.cluster_id, later.cluster_id}) == 3
    assert first.previous_cluster_ids == (CLUSTER,)


def test_partitions_that_came_after_the_clusters_checkpoint_are_restored_too() -> None:
    found = plan([partition(0, 50, partition_count=3), partition(0, 10, partition_count=3)])
    assert [each.cold_end_offset for each in found.topics[0].partitions] == [50, 10, 0]
    assert [each.has_head for each in found.topics[0].partitions] == [True, True, False]


def test_replicas_are_spread_over_the_brokers_that_there_are() -> None:
    three = entry(partition_count=4, replication_factor=3, configs={"min.insync.replicas": "2"})
    found = plan(topics=[three], brokers=[4, 5])
    assert {each.replicas for each in found.topics[0].partitions} == {(4, 5), (5, 4)}
    assert any("had 3 replicas and gets 2" in each for each in found.warnings)
    alone = plan(topics=[three], brokers=[4])
    assert any("min.insync.replicas is 2" in each for each in alone.warnings)
    unknown = plan(topics=[entry(replication_factor=None)])
    assert any("is not known" in each for each in unknown.warnings)


def test_snapshots_and_pins_come_back_with_what_comes_back() -> None:
    whole = pinned("whole", (0, 20, 50))
    pins = [
        whole,
        pinned("hot", (0, 30, 61), (1, 0, 7)),
        pinned(None, (0, 0, 50), (9, 0, 5)),
        pinned("ahead", (0, 55, 61)),
    ]
    found = plan([partition(20, 50, high_watermark=61)], pins=pins)
    assert [each.pin_id for each in found.pins] == [each.pin_id for each in pins]
    assert found.pins[0] == whole
    ranges = [[(its.partition, its.start_offset, its.end_offset) for its in each.ranges] for each in found.pins]
    assert ranges == [[(0, 20, 50)], [(0, 30, 50)], [(0, 0, 50)], []]
    assert [each for each in found.warnings if "snapshot" in each] == [
        f"snapshot {name} held offsets that are lost: it holds the others" for name in ("hot", "ahead")
    ]


def test_pins_of_topics_that_are_not_restored_are_left_out() -> None:
    found = plan(
        [partition(20, 50)], pins=[pinned("gone", (0, 0, 5), topic_id=UUID(int=99)), pinned("kept", (0, 20, 50))]
    )
    assert [each.name for each in found.pins] == ["kept"]


def test_deleted_topics_stay_deleted() -> None:
    gone = UUID(int=66)
    found = plan(unlisted=[(gone, 0)])
    assert [topic.topic_id for topic in found.topics] == [TOPIC_ID]
    assert any(str(gone) in each for each in found.warnings)


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        (partition(0, 50, cluster_id="somebody"), "another cluster, somebody"),
        (FoundPartition(fault="its newest object is gone"), "newest object is gone"),
        (replace(partition(0, 50), segments=()), "up to 0, where 50"),
        (replace(partition(0, 50), segments=(segment(10, 50),)), "offsets from 0 to 9"),
        (replace(partition(0, 50), segments=(segment(0, 20), segment(30, 50))), "offsets from 20 to 29"),
        (replace(partition(0, 50), segments=(segment(0, 20), segment(20, 40))), "up to 40, where 50"),
    ],
)
def test_what_a_checkpoint_cannot_account_for_is_a_problem(found: FoundPartition, problem: str) -> None:
    (told,) = plan([found]).problems
    assert told.startswith("orders-0: ")
    assert problem in told


def test_a_partition_whose_records_are_all_deleted_is_no_problem() -> None:
    found = plan([partition(80)])
    assert not found.problems
    assert found.topics[0].partitions[0].cold_end_offset == 80


def test_a_topic_that_is_left_out_holds_up_nobody_and_takes_its_offsets_and_snapshots_along() -> None:
    other = UUID(int=8)
    cluster = ClusterCheckpoint(
        version=100,
        cluster_id=CLUSTER,
        topics=(entry(), entry(name="whole", topic_id=other)),
        pins=(pinned("of-orders", (0, 0, 5)), pinned("of-whole", (0, 0, 5), topic_id=other)),
    )
    committed = groups(0, group("g", 5), group("h", 5, topic_id=other))
    found = FoundBucket(
        cluster=cluster,
        cluster_etag="etag",
        partitions={
            (TOPIC_ID, 0): FoundPartition(fault="its newest object is gone"),
            (other, 0): partition(0, 50),
        },
        groups={0: committed},
    )
    (problem,) = plan_restore(found, (1,)).problems
    assert problem.startswith("orders-0: ")
    made = plan_restore(found, (1,), ["orders"])
    assert not made.problems
    assert [topic.name for topic in made.topics] == ["whole"]
    assert {each.group_id: len(each.offsets) for each in made.groups} == {"g": 0, "h": 1}
    assert [each.name for each in made.pins] == ["of-whole"]
    assert any(each.startswith("orders: left out as you asked") for each in made.warnings)
    assert plan_restore(found, (1,), ["orders", "odrers"]).problems == ("there is no topic odrers to leave out",)


def test_groups_that_their_checkpoint_could_not_hold_are_told() -> None:
    assert any("3 consumer groups" in each for each in plan(found_groups=[groups(0, left_out=3)]).warnings)


# Disks


def test_a_partition_goes_on_where_the_furthest_log_ends() -> None:
    found = plan(
        [replace(partition(0, 50), newest_leader_epoch=3)],
        topics=[entry(replication_factor=2)],
        found_groups=[groups(1, group("billing", 70))],
        brokers=(1, 2, 3),
        disks=[disk(1, disk_log(60, ((3, 0),))), disk(2, disk_log(65, ((3, 0), (250_007, 60))))],
    )
    (its,) = found.topics[0].partitions
    assert (its.cold_end_offset, its.end_offset, its.has_log, its.replicas) == (50, 65, True, (2, 1))
    assert its.leader_epoch == 300_000
    assert its.lost_before == 70
    assert [(moved.committed_offset, moved.restored_offset) for moved in found.moved_offsets] == [(70, 65)]
    assert [disk.broker_id for disk in found.kept_disks] == [1, 2]
    assert any("no disk of broker 3 is given" in words for words in found.warnings)


def test_records_that_only_a_disk_knows_to_be_deleted_stay_deleted() -> None:
    found = plan([partition(0, 50)], disks=[disk(1, disk_log(90, ((3, 0),), start=70))])
    (its,) = found.topics[0].partitions
    assert (its.log_start_offset, its.cold_end_offset, its.end_offset) == (70, 70, 90)


def test_where_the_store_has_nothing_a_log_begins_at_its_first_record() -> None:
    """Its topic is not uploaded, and the disk had not noted yet where the log starts."""
    found = plan(disks=[disk(1, disk_log(90, local=70))])
    (its,) = found.topics[0].partitions
    assert (its.log_start_offset, its.cold_end_offset, its.end_offset) == (70, 70, 90)
    assert not found.problems


def test_producer_ids_are_above_those_in_logs() -> None:
    found = plan(disks=[disk(1, disk_log(5, newest_producer_id=PRODUCER_IDS_A_LIFE))])
    assert found.next_producer_id == 2 * PRODUCER_IDS_A_LIFE


def test_who_has_a_log_that_contradicts_the_store_follows() -> None:
    found = plan(
        [replace(partition(0, 50), newest_leader_epoch=3)],
        topics=[entry(replication_factor=2)],
        brokers=(1, 2),
        disks=[disk(1, disk_log(60, ((2, 0),)))],
    )
    (its,) = found.topics[0].partitions
    assert (its.end_offset, its.has_log, its.replicas) == (50, False, (2, 1))
    assert not found.problems
    assert any("is not the one that was uploaded" in words for words in found.warnings)


@pytest.mark.parametrize(
    ("disks", "brokers", "problem"),
    [
        ([disk(1), disk(1)], (1,), "two disks are those of broker 1"),
        ([disk(2)], (1,), "not among --brokers"),
        ([disk(1, cluster_id="another")], (1,), "belongs to cluster another"),
        ([disk(1, disk_log(90, local=60))], (1,), "from 60 to 89, and the store those below 50"),
        ([disk(1, disk_log(60, ((2, 0),)))], (1,), "on every disk contradicts the store"),
        ([disk(1, disk_log(60, ((3, 0), (2**30, 55))))], (1,), "leaves no room for new ones"),
        ([disk(1, disk_log(60, ((3, 0),)), faults=(f"{TOPIC_ID}/0: no bytes",))], (1,), "cannot be opened: put back"),
    ],
)
def test_disks_that_cannot_be_taken_along_are_a_problem(
    disks: Sequence[DiskReport], brokers: Sequence[int], problem: str
) -> None:
    (words,) = plan([replace(partition(0, 50), newest_leader_epoch=3)], brokers=brokers, disks=disks).problems
    assert problem in words


def test_logs_that_have_no_place_are_named() -> None:
    stray = replace(disk_log(5), topic_id=UUID(int=99))
    found = plan(disks=[disk(1, stray, faults=(f"{UUID(int=99)}/1: its bytes are gone",))])
    assert not found.problems
    assert any(str(UUID(int=99)) in words for words in found.warnings)


def test_a_partition_that_only_a_disk_has_comes_back() -> None:
    """Made anew later under the same topic id, it would meet its old log."""
    found = plan(disks=[disk(1, replace(disk_log(50), partition=2))])
    assert [its.end_offset for its in found.topics[0].partitions] == [0, 0, 50]


def test_each_life_of_a_cluster_has_producer_ids_of_its_own() -> None:
    """Ids that were given out may be in no log and no object."""
    first = plan(version=100)
    again = plan(version=first.change_number + 3)
    assert again.next_producer_id > first.next_producer_id


def test_a_disk_that_has_objects_deleted_is_named() -> None:
    found = plan([partition(0, 50, 80)], disks=[disk(1, disk_log(90, ((3, 0),), start=60))])
    assert any("what is below 60 is deleted" in words for words in found.warnings)


def test_only_transactions_of_logs_that_lead_are_ended() -> None:
    def opened(producer_id: int) -> tuple[OpenLogTransaction, ...]:
        return (OpenLogTransaction(producer_id=producer_id, producer_epoch=0, first_offset=3),)

    found = plan(
        brokers=(1, 2),
        disks=[disk(1, disk_log(9, open_transactions=opened(7))), disk(2, disk_log(8, open_transactions=opened(8)))],
    )
    assert [transaction.producer_id for transaction in found.unended] == [7]
