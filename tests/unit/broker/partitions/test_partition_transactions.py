"""What a replica does with transactions: who may write into one, what ends it, and how far readers may see."""

import errno
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.partition_appends import NOW_MS, append, batch
from tests.support.transactions import end, marker_header, transactional_batch, transactional_header, write
from tests.unit.broker.replication.replicas import fetch, replica, row, tell
from tiered.broker.host.disk_reserve import DiskReserve
from tiered.broker.partitions.partition import Partition
from tiered.broker.partitions.transactions import HoldingTransaction, PartitionTransactions
from tiered.errors import (
    InvalidTransactionState,
    LogDirFailed,
    NotEnoughReplicas,
    NotLeader,
    StaleProducerEpoch,
    TransactionCoordinatorFenced,
)
from tiered.formats.control_record import MarkerType, TransactionMarker
from tiered.formats.producer_snapshot import ProducerBatch, ProducerEntry
from tiered.formats.segment_object import AbortedIndexEntry
from tiered.hot.file_system import RealFileSystem

ABORT, COMMIT = MarkerType.ABORT, MarkerType.COMMIT


@pytest.fixture
def alone(tmp_path: Path) -> Partition:
    """A leader without followers: what it appends is committed."""
    made = replica(tmp_path, 1, min_insync_replicas=1)
    tell(made, row(isr=(1,), replicas=(1,)))
    return made


def open_since(partition: Partition, producer_id: int) -> int | None:
    return partition.producers.entries[producer_id].current_transaction_first_offset


# Who may write


def test_a_batch_that_opens_a_transaction_needs_its_coordinators_word(alone: Partition) -> None:
    with pytest.raises(InvalidTransactionState, match="vouches"):
        write(alone, 7, is_verified=False)
    assert alone.log.log_end_offset == 0
    write(alone, 7, 0)
    assert alone.begin_verification(7, 0) is None, "its transaction is open"
    write(alone, 7, 1, is_verified=False)
    assert open_since(alone, 7) == 0


def test_each_transaction_of_a_producer_is_asked_for_again(alone: Partition) -> None:
    write(alone, 7, 0)
    end(alone, 7, COMMIT)
    with pytest.raises(InvalidTransactionState):
        write(alone, 7, 1, is_verified=False)
    write(alone, 7, 1)
    assert open_since(alone, 7) == 2


@pytest.mark.parametrize("stands_already", [False, True])
def test_an_answer_from_before_a_marker_is_worth_nothing_after_it(alone: Partition, stands_already: bool) -> None:
    """X7: the coordinator said "ongoing" of a transaction that has ended since."""
    write(alone, 7, 0)
    if stands_already:
        end(alone, 7, COMMIT)
    asked = alone.begin_verification(7, 0) or alone.begin_verification(7, 1)
    end(alone, 7, COMMIT)
    data = memoryview(transactional_batch(7, 1 if stands_already else 0, epoch=0 if stands_already else 1))
    with pytest.raises(InvalidTransactionState):
        alone.append(data, 0, len(data), acks=-1, now_ms=NOW_MS, verified=asked)


def test_an_answer_for_one_producer_or_epoch_is_none_for_another(alone: Partition) -> None:
    asked = alone.begin_verification(7, 0)
    for other in (transactional_batch(8), transactional_batch(7, epoch=1)):
        with pytest.raises(InvalidTransactionState):
            alone.append(memoryview(other), 0, len(other), acks=-1, now_ms=NOW_MS, verified=asked)


def test_batches_that_wait_together_share_one_question(alone: Partition) -> None:
    first = alone.begin_verification(7, 0)
    assert first is not None
    assert alone.begin_verification(7, 0) is first


def test_a_batch_outside_of_the_transaction_that_is_open_is_refused(alone: Partition) -> None:
    write(alone, 7, 0)
    with pytest.raises(InvalidTransactionState, match="open here since offset 0"):
        write(alone, 7, 1, is_transactional=False)
    append(alone, batch("a", producer_id=8, sequence=0))
    end(alone, 7, ABORT)
    write(alone, 7, 1, is_transactional=False)


def test_a_repeated_batch_of_a_transaction_that_has_ended_is_answered_as_it_was(alone: Partition) -> None:
    first = write(alone, 7, 0)
    end(alone, 7, COMMIT)
    assert write(alone, 7, 0, is_verified=False).base_offset == first.base_offset


# Markers


def test_a_marker_ends_the_transaction_and_a_repeated_one_is_not_appended(alone: Partition) -> None:
    write(alone, 7, 0)
    assert (end(alone, 7, COMMIT, coordinator_epoch=3), open_since(alone, 7)) == (1, None)
    assert end(alone, 7, COMMIT, coordinator_epoch=3) is None
    assert alone.log.log_end_offset == 2


def test_a_marker_of_an_earlier_coordinator_is_refused(alone: Partition) -> None:
    """X7: also where the later coordinator's marker found nothing open."""
    write(alone, 7, 0)
    end(alone, 7, COMMIT, coordinator_epoch=3)
    assert end(alone, 7, COMMIT, coordinator_epoch=4) is not None, "it has to be on record"
    write(alone, 7, 1)
    with pytest.raises(TransactionCoordinatorFenced):
        end(alone, 7, ABORT, coordinator_epoch=3)
    assert open_since(alone, 7) is not None


def test_a_marker_of_an_earlier_epoch_of_the_producer_is_refused(alone: Partition) -> None:
    write(alone, 7, 0, epoch=1)
    with pytest.raises(StaleProducerEpoch):
        end(alone, 7, ABORT, epoch=0)


def test_where_each_end_raises_the_epoch_a_late_marker_ends_no_later_transaction(alone: Partition) -> None:
    """X7."""
    write(alone, 7, 0, epoch=1)
    end(alone, 7, COMMIT, epoch=2, raises_epoch=True)
    assert end(alone, 7, COMMIT, epoch=2, raises_epoch=True) is None
    write(alone, 7, 0, epoch=2)
    with pytest.raises(StaleProducerEpoch):
        end(alone, 7, COMMIT, epoch=2, raises_epoch=True)
    assert open_since(alone, 7) is not None
    assert end(alone, 7, ABORT, epoch=3, raises_epoch=True) is not None


def test_records_of_an_epoch_that_a_marker_has_ended_are_refused(alone: Partition) -> None:
    """X3."""
    write(alone, 7, 0)
    end(alone, 7, ABORT, epoch=1)
    with pytest.raises(StaleProducerEpoch):
        write(alone, 7, 1)


def test_a_marker_needs_a_leader_and_the_replicas_that_an_acknowledged_record_needs(tmp_path: Path) -> None:
    follower, lonely = replica(tmp_path, 2), replica(tmp_path, 1)
    tell(follower, row())
    tell(lonely, row(isr=(1,)))
    with pytest.raises(NotLeader):
        end(follower, 7, ABORT)
    with pytest.raises(NotEnoughReplicas):
        end(lonely, 7, ABORT)
    assert lonely.log.log_end_offset == 0


def test_a_marker_may_take_of_the_disks_reserve(alone: Partition, monkeypatch: pytest.MonkeyPatch) -> None:
    write(alone, 7, 0)

    def full(_: DiskReserve) -> None:
        raise AssertionError("the reserve was asked for")

    monkeypatch.setattr(DiskReserve, "require_room", full)
    assert end(alone, 7, COMMIT) is not None


def test_a_producer_with_an_open_transaction_is_never_forgotten(alone: Partition) -> None:
    write(alone, 7, 0)
    for producer_id in (8, 9):
        append(alone, batch("a", producer_id=producer_id, sequence=0))
    assert alone.producers.forget(1) == 2
    alone.producers.expire(NOW_MS + 10**12, 1)
    alone.producers.expire(NOW_MS + 2 * 10**12, 1)
    assert list(alone.producers.entries) == [7]


# How far readers may see


def test_readers_see_nothing_from_the_oldest_open_transaction_on(alone: Partition) -> None:
    append(alone, batch("a"))
    write(alone, 7, 0)
    write(alone, 8, 0)
    assert (alone.last_stable_offset, alone.high_watermark) == (1, 3)
    end(alone, 7, COMMIT)
    assert alone.last_stable_offset == 2
    end(alone, 8, ABORT)
    assert alone.last_stable_offset == alone.high_watermark == 5


def test_a_transaction_counts_as_open_until_its_marker_is_committed(tmp_path: Path) -> None:
    """X4: a new leader may not have the marker."""
    leader, second, third = (replica(tmp_path, broker_id) for broker_id in (1, 2, 3))
    for each in (leader, second, third):
        tell(each, row())
    write(leader, 7, 0)
    for follower in (second, third, second, third):
        fetch(leader, follower)
    end(leader, 7, COMMIT)
    assert (leader.high_watermark, leader.last_stable_offset) == (1, 0)
    fetch(leader, second)
    assert (second.log.log_end_offset, second.last_stable_offset) == (2, 0)
    for follower in (third, second, third, second):
        fetch(leader, follower)
    assert leader.last_stable_offset == second.last_stable_offset == third.last_stable_offset == 2


def test_a_follower_knows_of_transactions_what_its_leader_knows(tmp_path: Path) -> None:
    leader, second = replica(tmp_path, 1), replica(tmp_path, 2)
    for each in (leader, second):
        tell(each, row(isr=(1, 2), replicas=(1, 2)))
    write(leader, 7, 0)
    write(leader, 8, 0, epoch=4)
    end(leader, 7, ABORT, epoch=1, coordinator_epoch=5)
    for _ in range(2):
        fetch(leader, second)
    assert second.producers.entries == leader.producers.entries
    assert second.last_stable_offset == leader.last_stable_offset == 1


def test_after_a_cut_the_transaction_whose_marker_went_is_open_again(tmp_path: Path) -> None:
    second = replica(tmp_path, 2)
    leader = replica(tmp_path, 1)
    for each in (leader, second):
        tell(each, row(isr=(1, 2), replicas=(1, 2)))
    write(leader, 7, 0)
    fetch(leader, second)
    end(leader, 7, COMMIT)
    fetch(leader, second)
    assert open_since(second, 7) is None
    second.begin_truncation()
    second.log.truncate_to(1)
    second.log_truncated(second.log.producers_at_end())
    assert (open_since(second, 7), second.last_stable_offset) == (0, 0)


def test_readers_are_told_of_what_was_aborted_on_each_replica_and_the_object_too(tmp_path: Path) -> None:
    leader, second = replica(tmp_path, 1), replica(tmp_path, 2)
    for each in (leader, second):
        tell(each, row(isr=(1, 2), replicas=(1, 2)))
    write(leader, 7, 0)
    write(leader, 8, 0)
    leader.log.roll(NOW_MS)
    fetch(leader, second)
    write(leader, 7, 1)
    end(leader, 8, COMMIT)
    end(leader, 7, ABORT)
    for _ in range(2):
        fetch(leader, second)
    expected = [AbortedIndexEntry(producer_id=7, first_offset=0, last_offset=4, last_stable_offset=5)]
    for each in (leader, second):
        assert each.aborted_between(0, 5) == each.aborted_between(1, 2) == expected
        assert each.aborted_between(5, 9) == []
        batches = each.read_hot(0, 1 << 20, committed_only=True, at_least_one=True)
        assert batches is not None
        assert batches.aborted == expected
        upload = each.log.segment_for_upload(0)
        assert upload.aborted == tuple(expected), "its marker is in the next segment"
        upload.close()


def test_a_marker_that_the_disk_refuses_leaves_nothing(alone: Partition, monkeypatch: pytest.MonkeyPatch) -> None:
    write(alone, 7, 0)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patch:
        patch.setattr(RealFileSystem, "write", full)
        with pytest.raises(LogDirFailed):
            end(alone, 7, ABORT)
    assert (alone.aborted_between(0, 9), alone.last_stable_offset) == ([], 0)
    assert end(alone, 7, ABORT) is not None


def test_what_an_object_knows_to_be_open_has_ended_since(alone: Partition) -> None:
    write(alone, 7, 0)
    alone.restart_from_cold(producers=tuple(alone.producers.entries.values()), leader_epochs=())
    assert open_since(alone, 7) is None
    assert alone.last_stable_offset == 1


def entries_of(batches: list[tuple[int, str]]) -> list[ProducerEntry]:
    """The producers of a log with these batches."""
    found: dict[int, int | None] = {}
    for offset, (producer_id, kind) in enumerate(batches):
        if kind == "end":
            found[producer_id] = None
        elif found.get(producer_id) is None:
            found[producer_id] = offset
    return [
        ProducerEntry(producer_id=producer_id, producer_epoch=0, current_transaction_first_offset=first)
        for producer_id, first in found.items()
    ]


class Naive:
    """The last stable offset, found by looking at all batches each time."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, str]] = []

    def last_stable_offset(self, high_watermark: int) -> int:
        unstable: dict[int, int] = {}
        found = high_watermark
        for offset, (producer_id, kind) in enumerate(self.batches):
            if kind == "records":
                unstable.setdefault(producer_id, offset)
            elif producer_id in unstable:
                first = unstable.pop(producer_id)
                if offset >= high_watermark:
                    found = min(found, first)
        return min(found, *unstable.values(), high_watermark)


@settings(max_examples=settings().max_examples * 8)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(("records", "end", "commit up to", "cut to")), st.integers(0, 3), st.integers(0, 12)),
        max_size=60,
    )
)
def test_the_last_stable_offset_is_that_of_the_batches_and_never_goes_back(steps: list[tuple[str, int, int]]) -> None:
    """X4, whatever the order of appends, ends, commits and cuts. A cut goes no lower than the high watermark."""
    naive, high_watermark, before = Naive(), 0, 0
    transactions = PartitionTransactions((), end_offset=0, stable_offset=0)
    marker = TransactionMarker(type=COMMIT, coordinator_epoch=0)
    known_from = 0
    for kind, producer_id, number in steps:
        offset = len(naive.batches)
        if kind == "records":
            transactions.note(transactional_header(producer_id), offset, None, 0)
            naive.batches.append((producer_id, "records"))
        elif kind == "end":
            transactions.note(marker_header(producer_id), offset, marker, 0)
            naive.batches.append((producer_id, "end"))
        elif kind == "commit up to":
            high_watermark = min(offset, high_watermark + number)
        else:
            known_from = max(high_watermark, offset - number)
            del naive.batches[known_from:]
            stable_offset = transactions.last_stable_offset(high_watermark, 0)
            transactions.begin_anew(entries_of(naive.batches), end_offset=known_from, stable_offset=stable_offset)
        found = transactions.last_stable_offset(high_watermark, 0)
        expected = naive.last_stable_offset(high_watermark)
        assert before <= found <= expected
        if high_watermark >= known_from:
            assert found == expected
        before = found


# What people see


def test_a_partition_says_which_open_transaction_holds_it_back_and_since_when(alone: Partition) -> None:
    def holder() -> tuple[int, int, int | None] | None:
        found = alone.transactions.holder(alone.high_watermark, alone.log_start_offset)
        return None if found is None else (found.producer_id, found.first_offset, found.since_ms)

    append(alone, batch("v"))
    assert holder() is None
    write(alone, 7, 0)
    write(alone, 8, 0)
    assert holder() == (7, 1, NOW_MS)
    end(alone, 7, COMMIT)
    assert holder() == (8, 2, NOW_MS)
    end(alone, 8, ABORT)
    assert holder() is None


def test_after_a_restart_it_is_since_the_oldest_batch_that_is_remembered() -> None:
    batches = tuple(
        ProducerBatch(base_sequence=each, last_sequence=each, base_offset=each, last_offset=each, timestamp_ms=each)
        for each in range(3, 8)
    )
    entries = (ProducerEntry(producer_id=7, producer_epoch=0, batches=batches, current_transaction_first_offset=5),)
    made = PartitionTransactions(entries, end_offset=8, stable_offset=5)
    assert made.holder(8, 0) == HoldingTransaction(producer_id=7, first_offset=5, since_ms=5)


def test_records_of_long_ago_that_are_copied_in_a_transaction_hold_back_since_they_came() -> None:
    transactions = PartitionTransactions((), end_offset=0, stable_offset=0)
    header = transactional_header(7)._replace(base_timestamp_ms=1)
    transactions.note(header, 0, None, NOW_MS)
    assert transactions.holder(1, 0) == HoldingTransaction(producer_id=7, first_offset=0, since_ms=NOW_MS)


def test_a_transaction_that_has_ended_is_not_told_while_its_marker_is_on_its_way(tmp_path: Path) -> None:
    leader, second = replica(tmp_path, 1), replica(tmp_path, 2)
    for each in (leader, second):
        tell(each, row(isr=(1, 2), replicas=(1, 2)))
    write(leader, 7, 0)
    for _ in range(2):
        fetch(leader, second)
    assert leader.transactions.holder(leader.high_watermark, leader.log_start_offset) is not None
    end(leader, 7, COMMIT)
    assert (leader.last_stable_offset, leader.high_watermark) == (0, 1)
    assert leader.transactions.holder(leader.high_watermark, leader.log_start_offset) is None
    write(leader, 8, 0)
    assert leader.transactions.holder(leader.high_watermark, leader.log_start_offset) is None, (
        "the later one holds nothing"
    )
