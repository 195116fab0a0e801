"""What a replica believes of its own log after a restart: nothing beyond what it can know."""

from pathlib import Path

from tests.support.partition_appends import append, batch
from tests.unit.broker.replication.replicas import EPOCHS, replica, row, tell
from tiered.broker.host.disk_reserve import DiskReserve
from tiered.broker.partitions.log_settings import log_config
from tiered.broker.partitions.partition import Partition
from tiered.hot.file_system import RealFileSystem
from tiered.hot.log import Log


def restarted(before: Partition, *, cold_end_offset: int) -> Partition:
    """The same log in another process, after the store got everything up to `cold_end_offset`."""
    before.log.close()
    log = Log.open(before.log.directory, RealFileSystem(), config=log_config(before.config), now_ms=0)
    reserve: DiskReserve = before._reserve
    return Partition(
        topic=before.topic,
        topic_partition=before.topic_partition,
        config=before.config,
        log=log,
        producers={},
        broker_id=before.broker_id,
        is_current=lambda member: EPOCHS.get(member.broker_id) == member.broker_epoch,
        log_start_offset=0,
        cold_end_offset=cold_end_offset,
        committed=(),
        reserve=reserve,
    )


def test_a_follower_does_not_take_the_stores_end_for_its_own_high_watermark(tmp_path: Path) -> None:
    """Its records below may be those of a leader that was replaced before they were committed."""
    before = replica(tmp_path, 1)
    tell(before, row())
    append(before, batch("never", "committed", "here"))
    again = restarted(before, cold_end_offset=2)
    tell(again, row(leader=2, epoch=1))
    assert again.high_watermark == 0
    again.learn_high_watermark(2)
    assert again.high_watermark == 2


def test_a_leader_knows_that_what_is_in_the_store_is_committed(tmp_path: Path) -> None:
    before = replica(tmp_path, 1)
    tell(before, row())
    append(before, batch("a", "b", "c"))
    again = restarted(before, cold_end_offset=2)
    tell(again, row(leader=1, epoch=1))
    assert again.high_watermark == 2
    assert again.is_withheld
