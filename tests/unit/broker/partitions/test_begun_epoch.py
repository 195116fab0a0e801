"""A leader leaves word of its epoch on its disk where no record may ever tell of it, and a follower has none."""

from pathlib import Path

from tests.support.partition_appends import append, batch
from tests.unit.broker.replication.replicas import EPOCHS, replica, row
from tiered.broker.partitions.partition import Partition
from tiered.hot.marks import BEGUN_EPOCH_FILE, decode_begun_epoch


def word_of(made: Partition) -> tuple[int, int] | None:
    path = Path(made.log.directory) / BEGUN_EPOCH_FILE
    return decode_begun_epoch(path.read_bytes()) if path.exists() else None


def led(made: Partition, epoch: int, leader: int = 1, replicas: tuple[int, ...] = (1, 2, 3)) -> None:
    made.apply_row(row(leader=leader, epoch=epoch, isr=replicas, replicas=replicas), broker_epoch=EPOCHS[1])


def test_word_is_left_where_earlier_records_may_become_visible_and_goes_when_another_one_leads(tmp_path: Path) -> None:
    made = replica(tmp_path, 1)
    led(made, 0)
    assert word_of(made) is None, "there is nothing to lose"
    append(made, batch("not visible yet"))
    led(made, 1)
    assert word_of(made) == (1, 1)
    led(made, 2, leader=2)
    assert word_of(made) is None
    made.log.close()


def test_word_is_left_after_an_epoch_in_which_nobody_wrote(tmp_path: Path) -> None:
    made = replica(tmp_path, 1)
    led(made, 0)
    append(made, batch("visible"))
    made.high_watermark = 1
    led(made, 1)
    assert word_of(made) is None, "all that others can have is a longer copy of this log"
    led(made, 2)
    assert word_of(made) == (2, 1)
    made.log.close()


def test_the_only_replica_leaves_no_word(tmp_path: Path) -> None:
    made = replica(tmp_path, 1, min_insync_replicas=1)
    led(made, 0, replicas=(1,))
    append(made, batch("one"))
    led(made, 5, replicas=(1,))
    assert word_of(made) is None
    made.log.close()
