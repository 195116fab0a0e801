"""Which replica's log leads a restored partition: the furthest one, unless it contradicts the store."""

import pytest

from tests.support.checkpointed import TOPIC_ID, disk_log
from tiered.formats.disk_report import DiskLog, OpenLogTransaction
from tiered.ids import TopicId, TopicPartition
from tiered.rules.segments.restored_logs import ReplicaLog, UnendedTransaction, choose, unended


def replicas(*logs: DiskLog) -> list[ReplicaLog]:
    """Of brokers 1, 2, …"""
    return [ReplicaLog(broker_id=number, log=log) for number, log in enumerate(logs, 1)]


@pytest.mark.parametrize(
    ("logs", "leading"),
    [
        ((disk_log(10), disk_log(12), disk_log(11)), 2),
        ((disk_log(12), disk_log(12)), 1),
        # A later leader cut off what the longer log has.
        ((disk_log(20, ((0, 0), (3, 5))), disk_log(8, ((0, 0), (4, 8)))), 2),
        ((disk_log(20, ((0, 0), (3, 5))), disk_log(21, ((0, 0),))), 1),
        ((), None),
    ],
)
def test_the_log_leads_that_is_furthest_by_leader_epoch_and_then_by_its_end(
    logs: tuple[DiskLog, ...], leading: int | None
) -> None:
    choice = choose(replicas(*logs), cold_end_offset=0, cold_leader_epoch=-1)
    assert (choice.leading.broker_id if choice.leading is not None else None) == leading
    assert choice.problem is None


def test_the_store_leads_where_the_furthest_log_ends_before_it() -> None:
    """What a longer log has beyond that, no leader has committed: it may follow, and never lead."""
    behind, longer = disk_log(90, ((0, 0), (5, 80))), disk_log(120, ((0, 0),))
    choice = choose(replicas(behind, longer), cold_end_offset=100, cold_leader_epoch=5)
    assert (choice.leading, choice.unfit, choice.brokers) == (None, (2,), (1, 2))


@pytest.mark.parametrize(
    ("log", "fits"),
    [
        (disk_log(120, ((0, 0), (5, 80))), True),
        (disk_log(120, ((0, 0), (5, 100))), False),  # In it epoch 0 wrote what is in the store by epoch 5.
        (disk_log(120, ((0, 0),)), False),
        (disk_log(100, ((0, 0),)), False),  # As long as the store, and another past.
        (disk_log(120, ((5, 110),), local=100), True),  # It begins where the store ends, and knows no epoch before.
        (disk_log(120, ((4, 100),), local=100), False),
    ],
)
def test_a_log_that_is_not_the_one_which_was_uploaded_never_leads(log: DiskLog, fits: bool) -> None:
    choice = choose(replicas(log), cold_end_offset=100, cold_leader_epoch=5)
    assert (choice.leading is not None) is fits
    assert bool(choice.warnings) is not fits
    assert choice.unfit == (() if fits else (1,))


def test_a_log_that_begins_above_the_stores_end_is_a_problem() -> None:
    choice = choose(replicas(disk_log(300, local=200)), cold_end_offset=100, cold_leader_epoch=0)
    assert choice.leading is None
    assert choice.problem is not None
    assert "from 200 to 299" in choice.problem
    # Unless what is between them was deleted.
    assert choose(replicas(disk_log(300, start=200)), cold_end_offset=100, cold_leader_epoch=0).leading is not None


def test_of_equal_logs_that_of_the_first_replica_leads() -> None:
    logs = replicas(disk_log(10), disk_log(10), disk_log(9))
    choice = choose(logs, cold_end_offset=0, cold_leader_epoch=-1, preferred=(3, 2, 1))
    assert choice.leading is not None
    assert (choice.leading.broker_id, choice.brokers) == (2, (2, 1, 3))


def test_open_transactions_are_gathered_by_producer_and_epoch() -> None:
    def where(number: int) -> TopicPartition:
        return TopicPartition(TopicId(TOPIC_ID), number)

    def opened(producer_id: int, epoch: int) -> OpenLogTransaction:
        return OpenLogTransaction(producer_id=producer_id, producer_epoch=epoch, first_offset=3)

    logs = [
        (where(1), disk_log(10, open_transactions=(opened(7, 2), opened(9, 0)))),
        (where(0), disk_log(10, open_transactions=(opened(7, 3),))),
        (where(2), disk_log(10, open_transactions=(opened(7, 3),))),
    ]
    assert unended(logs) == (
        UnendedTransaction(producer_id=7, producer_epoch=2, partitions=(where(1),)),
        UnendedTransaction(producer_id=7, producer_epoch=3, partitions=(where(0), where(2))),
        UnendedTransaction(producer_id=9, producer_epoch=0, partitions=(where(1),)),
    )
