"""One replica: how it becomes leader and follower, and what it does as either."""

import asyncio
from pathlib import Path

import pytest

from tests.support.partition_appends import NOW_MS, append, batch, bytes_of
from tests.unit.broker.replication.replicas import EPOCHS, fetch, replica, row, tell
from tiered.broker.partitions.partition import Partition
from tiered.broker.partitions.replica_log import checked_runs
from tiered.broker.partitions.role import Role
from tiered.errors import CorruptBatch, CorruptMetadata, NotEnoughReplicas, NotLeader
from tiered.ids import InSyncReplica
from tiered.rules.partition import producer_state
from tiered.rules.replication.divergence import Divergence, divergence, last_fetched_epoch, truncation_offset


@pytest.fixture
def leader(tmp_path: Path) -> Partition:
    made = replica(tmp_path, 1)
    tell(made, row())
    return made


@pytest.fixture
def follower(tmp_path: Path) -> Partition:
    made = replica(tmp_path, 2)
    tell(made, row())
    return made


@pytest.fixture
def third(tmp_path: Path) -> Partition:
    made = replica(tmp_path, 3)
    tell(made, row())
    return made


def test_a_replica_is_nothing_until_a_row_says_so(tmp_path: Path) -> None:
    made = replica(tmp_path, 1)
    roles = [made.role]
    with pytest.raises(NotLeader):
        append(made, batch("a"))
    for told in (row(), row(leader=2, epoch=1), row(leader=-1, epoch=2)):
        tell(made, told)
        roles.append(made.role)
    assert roles == [Role.NONE, Role.LEADER, Role.FOLLOWER, Role.NONE]


def test_a_row_of_an_earlier_registration_makes_nobody_a_leader(tmp_path: Path) -> None:
    made = replica(tmp_path, 1)
    made.apply_row(row(), broker_epoch=EPOCHS[1] + 1)
    assert made.role is Role.NONE


def test_an_overtaken_row_changes_nothing(leader: Partition) -> None:
    tell(leader, row(leader=2, epoch=3))
    tell(leader, row(leader=1, epoch=2))
    assert (leader.role, leader.leader_epoch, leader.halted) == (Role.FOLLOWER, 3, None)


@pytest.mark.parametrize(
    "contradiction",
    [
        row(epoch=2, partition_epoch=31, number=200),
        row(epoch=2, partition_epoch=29, number=200),
        row(epoch=4, partition_epoch=30, number=200),
    ],
    ids=["a lower leader epoch", "a lower partition epoch, later", "two leader epochs of one partition epoch"],
)
def test_epochs_that_go_back_halt_the_partition(leader: Partition, contradiction: object) -> None:
    tell(leader, row(epoch=3))
    tell(leader, contradiction)  # type: ignore[arg-type]
    assert leader.halted is not None
    with pytest.raises(CorruptMetadata, match="restore it"):
        append(leader, batch("a"))
    tell(leader, row(epoch=9))
    assert leader.role is Role.NONE


def test_what_all_members_have_fetched_is_committed(leader: Partition, follower: Partition, third: Partition) -> None:
    append(leader, batch("a", "b"))
    fetch(leader, follower)
    fetch(leader, third)
    assert leader.high_watermark == 0
    fetch(leader, follower)
    assert leader.high_watermark == 0
    fetch(leader, third)
    assert leader.high_watermark == 2
    fetch(leader, follower)
    assert follower.high_watermark == 2
    assert bytes_of(follower) == bytes_of(leader)


def test_fetches_of_the_leader_epoch_before_commit_nothing(leader: Partition, follower: Partition) -> None:
    append(leader, batch("a"))
    for broker_id in (2, 3):
        leader.note_fetch(InSyncReplica(broker_id, EPOCHS[broker_id]), 1, 0.0)
    assert leader.high_watermark == 1
    tell(leader, row(epoch=1))
    append(leader, batch("b"))
    assert leader.high_watermark == 1
    leader.note_fetch(InSyncReplica(2, EPOCHS[2]), 2, 0.0)
    assert leader.high_watermark == 1


def test_an_earlier_process_of_a_follower_cannot_take_its_place(leader: Partition) -> None:
    append(leader, batch("a"))
    for broker_id in (2, 3):
        leader.note_fetch(InSyncReplica(broker_id, EPOCHS[broker_id] - 50), 1, 0.0)
    assert leader.high_watermark == 0
    for broker_id in (2, 3):
        leader.note_fetch(InSyncReplica(broker_id, EPOCHS[broker_id]), 1, 0.0)
        leader.note_fetch(InSyncReplica(broker_id, EPOCHS[broker_id] - 50), 0, 0.0)
    assert leader.high_watermark == 1


def test_a_new_leader_withholds_its_high_watermark(leader: Partition, follower: Partition, third: Partition) -> None:
    append(leader, batch("a"))
    for _ in range(2):
        fetch(leader, follower)
        fetch(leader, third)
    append(leader, batch("b"))
    fetch(leader, follower)
    fetch(leader, third)
    assert (follower.high_watermark, follower.log.log_end_offset) == (1, 2)
    tell(follower, row(leader=2, epoch=1, isr=(2, 3)))
    tell(third, row(leader=2, epoch=1, isr=(2, 3)))
    assert follower.is_withheld
    fetch(follower, third)
    assert follower.high_watermark == 2
    assert not follower.is_withheld


def test_a_log_of_its_own_is_committed_at_once(tmp_path: Path) -> None:
    made = replica(tmp_path, 1)
    tell(made, row(isr=(1,), replicas=(1,)))
    append(made, batch("a"), acks=1)
    assert made.high_watermark == 1


def test_placeholders_do_not_count_for_a_write(tmp_path: Path) -> None:
    made = replica(tmp_path, 1)
    told = row(isr=(1, 2))
    stale = (InSyncReplica(1, EPOCHS[1]), InSyncReplica(2, 5))
    made.apply_row(
        type(told)(**{name: getattr(told, name) for name in told.__slots__} | {"isr": stale}), broker_epoch=EPOCHS[1]
    )
    with pytest.raises(NotEnoughReplicas):
        append(made, batch("a"))
    append(made, batch("a"), acks=1)
    assert made.high_watermark == 0


async def test_who_waits_is_told_when_leadership_goes(leader: Partition) -> None:
    append(leader, batch("a"))
    waiting = asyncio.ensure_future(leader.acknowledgements.reached(1, leader.leader_epoch, 5_000))
    await asyncio.sleep(0)
    tell(leader, row(leader=2, epoch=1))
    with pytest.raises(NotLeader):
        await waiting


async def test_who_waits_is_told_when_the_epoch_changes_under_the_same_leader(leader: Partition) -> None:
    append(leader, batch("a"))
    waiting = asyncio.ensure_future(leader.acknowledgements.reached(1, leader.leader_epoch, 5_000))
    await asyncio.sleep(0)
    tell(leader, row(epoch=1))
    with pytest.raises(NotLeader):
        await waiting


async def test_who_waits_is_told_when_the_replica_leaves(leader: Partition) -> None:
    append(leader, batch("a"))
    waiting = asyncio.ensure_future(leader.acknowledgements.reached(1, leader.leader_epoch, 5_000))
    await asyncio.sleep(0)
    leader.leave()
    with pytest.raises(NotLeader):
        await waiting
    with pytest.raises(NotLeader):
        append(leader, batch("b"))


async def test_waits_end_in_order_and_in_time(leader: Partition) -> None:
    append(leader, batch("a"))
    append(leader, batch("b"))
    first = asyncio.ensure_future(leader.acknowledgements.reached(1, leader.leader_epoch, 5_000))
    second = asyncio.ensure_future(leader.acknowledgements.reached(2, leader.leader_epoch, 1))
    await asyncio.sleep(0)
    for broker_id in (2, 3):
        leader.note_fetch(InSyncReplica(broker_id, EPOCHS[broker_id]), 1, 0.0)
    assert await first is True
    assert await second is False


def test_a_row_waits_for_the_end_of_a_truncation(follower: Partition) -> None:
    follower.begin_truncation()
    tell(follower, row(leader=2, epoch=1))
    assert (follower.role, follower.leader_epoch) == (Role.FOLLOWER, 0)
    follower.log_truncated(())
    assert (follower.role, follower.leader_epoch) == (Role.LEADER, 1)


def test_a_replica_that_left_while_its_log_was_cut_takes_no_role_afterwards(follower: Partition) -> None:
    follower.begin_truncation()
    tell(follower, row(leader=2, epoch=1))
    follower.leave()
    follower.log_truncated(())
    assert follower.role is Role.NONE


def test_a_follower_cuts_what_only_the_dead_leader_had(
    leader: Partition, follower: Partition, third: Partition
) -> None:
    append(leader, batch("a"))
    fetch(leader, follower)
    fetch(leader, third)
    append(leader, batch("only here", producer_id=9, sequence=0))
    tell(follower, row(leader=2, epoch=1, isr=(2, 3)))
    append(follower, batch("b"), acks=1)
    tell(leader, row(leader=2, epoch=1, isr=(2, 3)))
    end = leader.log.log_end_offset
    found = divergence(
        follower.log.leader_epochs,
        follower.log.log_end_offset,
        fetch_offset=end,
        last_fetched_epoch=last_fetched_epoch(leader.log.leader_epochs, end),
    )
    assert found == Divergence(0, 1)
    leader.begin_truncation()
    leader.log.truncate_to(truncation_offset(leader.log.leader_epochs, end, found))
    leader.log_truncated(leader.log.producers_at_end())
    fetch(follower, leader)
    assert bytes_of(leader) == bytes_of(follower)
    assert 9 not in leader.producers.entries


def test_a_leader_that_wrote_nothing_leaves_no_trace_of_its_epoch(leader: Partition) -> None:
    append(leader, batch("a"))
    tell(leader, row(epoch=1))
    assert leader.log.leader_epochs.latest == 1
    tell(leader, row(leader=2, epoch=2))
    assert leader.log.leader_epochs.latest == 0


def test_a_follower_knows_producers_and_answers_their_duplicates_once_it_leads(
    leader: Partition, follower: Partition, third: Partition
) -> None:
    first = append(leader, batch("a", producer_id=5, sequence=0))
    append(leader, batch("b", producer_id=5, sequence=1))
    fetch(leader, follower)
    fetch(leader, third)
    assert producer_state.next_sequence(follower.producers.entries[5]) == 2
    tell(follower, row(leader=2, epoch=1))
    again = append(follower, batch("a", producer_id=5, sequence=0))
    assert again.base_offset == first.base_offset
    assert follower.log.log_end_offset == 2


def test_a_follower_begins_segments_where_its_leader_does(leader: Partition, follower: Partition) -> None:
    append(leader, batch("a"))
    fetch(leader, follower)
    leader.log.roll(0)
    append(leader, batch("b"))
    append(leader, batch("c"))
    fetch(leader, follower)
    assert [each.base_offset for each in follower.log.segments] == [0, 1]
    assert not follower.roll_if_due(10**15)


def test_several_epochs_come_in_one_answer(leader: Partition, follower: Partition) -> None:
    append(leader, batch("a"))
    tell(leader, row(epoch=1))
    append(leader, batch("b"))
    append(leader, batch("c"))
    tell(follower, row(epoch=1))
    fetch(leader, follower)
    assert follower.log.leader_epochs == leader.log.leader_epochs
    assert bytes_of(follower) == bytes_of(leader)


def runs_of(partition: Partition, **changes: int) -> object:
    found = partition.log.read(0, 1 << 20, end_offset=partition.log.log_end_offset)
    assert found is not None
    wanted = {"expected_offset": 0, "latest_epoch": -1, "leader_epoch": 0, **changes}
    return checked_runs(memoryview(bytearray(found.read())), name="t-0", **wanted)


def test_nothing_that_does_not_follow_is_written(leader: Partition) -> None:
    append(leader, batch("a"))
    append(leader, batch("b"))
    assert runs_of(leader)
    with pytest.raises(CorruptBatch, match="where 1 follows"):
        runs_of(leader, expected_offset=1)
    with pytest.raises(CorruptBatch, match="leader epoch 0"):
        runs_of(leader, latest_epoch=1, leader_epoch=2)
    tell(leader, row(epoch=4))
    append(leader, batch("c"))
    with pytest.raises(CorruptBatch, match="leader epoch 4"):
        runs_of(leader, leader_epoch=3)


def test_a_flipped_bit_is_not_written(leader: Partition) -> None:
    append(leader, batch("a"))
    found = leader.log.read(0, 1 << 20, end_offset=1)
    assert found is not None
    data = bytearray(found.read())
    data[-1] ^= 1
    with pytest.raises(CorruptBatch):
        checked_runs(memoryview(data), expected_offset=0, latest_epoch=-1, leader_epoch=0, name="t-0")


def test_a_batch_that_is_cut_off_is_left_for_the_next_fetch(leader: Partition) -> None:
    append(leader, batch("a"))
    append(leader, batch("b"))
    data = bytearray(bytes_of(leader)[:-3])
    (run,) = checked_runs(memoryview(data), expected_offset=0, latest_epoch=-1, leader_epoch=0, name="t-0")
    assert run.end_offset == 1


def test_consumers_of_a_follower_read_what_it_knows_to_be_committed(leader: Partition, follower: Partition) -> None:
    append(leader, batch("a"))
    fetch(leader, follower)
    assert follower.read_hot(0, 1 << 20, committed_only=False, at_least_one=True) is None
    follower.learn_high_watermark(1)
    assert follower.read_hot(0, 1 << 20, committed_only=False, at_least_one=True) is not None
    follower.learn_high_watermark(0)
    assert follower.high_watermark == 1


def test_a_replica_in_sync_knows_what_comes_in_and_when(leader: Partition, follower: Partition) -> None:
    append(leader, batch("a", "b"))
    fetch(leader, follower)
    assert (follower.traffic.replicated_records, follower.traffic.produced_records) == (2, 0)
    assert follower.traffic.replicated_bytes == leader.traffic.produced_bytes == leader.log.size_bytes
    assert (leader.last_write_ms(), follower.last_write_ms()) == (NOW_MS, 0)


def test_a_replica_that_catches_up_does_not_count_old_records_as_new(tmp_path: Path, leader: Partition) -> None:
    late = replica(tmp_path, 3)
    tell(late, row(isr=(1, 2)))
    append(leader, batch("a", "b"))
    fetch(leader, late)
    assert late.log.log_end_offset == 2
    assert (late.traffic.replicated_records, late.traffic.written_ms) == (0, None)
