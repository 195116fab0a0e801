"""Which partitions the next round looks at, and that none is forgotten."""

from pathlib import Path

from tests.unit.broker.replication.replicas import replica
from tiered.broker.partitions.agenda import AT_ONCE, PartitionAgenda
from tiered.broker.partitions.partition import Partition
from tiered.rules.partition.rolling import NEVER_MS


def three(folder: Path) -> tuple[Partition, Partition, Partition]:
    return replica(folder, 1), replica(folder, 2), replica(folder, 3)


def test_what_happened_is_taken_once_in_the_order_in_which_it_happened(tmp_path: Path) -> None:
    first, second, third = three(tmp_path)
    agenda = PartitionAgenda()
    for each in (third, first, second, first):
        agenda.changed(each)
    assert agenda.take(0) == [third, first, second]
    assert agenda.take(10**15) == []


def test_a_partition_is_taken_at_its_time_until_somebody_says_when_to_look_again(tmp_path: Path) -> None:
    first, second, third = three(tmp_path)
    agenda = PartitionAgenda()
    agenda.look_again(first, 200)
    agenda.look_again(second, 100)
    agenda.look_again(third, NEVER_MS)
    assert (agenda.take(99), agenda.take(100), agenda.take(101)) == ([], [second], [second])
    assert agenda.take(200) == [first, second]
    agenda.look_again(second, 300)
    agenda.look_again(first, NEVER_MS + 1)
    assert (agenda.take(299), agenda.take(300)) == ([], [second])
    agenda.look_again(second, AT_ONCE)
    assert agenda.take(0) == [second]


def test_what_happens_before_its_time_neither_hastens_nor_ends_it(tmp_path: Path) -> None:
    first, second, _ = three(tmp_path)
    agenda = PartitionAgenda()
    agenda.look_again(first, 100)
    agenda.look_again(second, 50)
    agenda.changed(first)
    assert agenda.take(0) == [first]
    agenda.look_again(second, 150)
    assert (agenda.take(99), agenda.take(100)) == ([], [first])
