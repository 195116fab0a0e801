"""What a replica believes of its own log after a restart: nothing beyond what it can know."""

from pathlib import Path

from tests.support.partition_appends import append, batch
from tests.unit.broker.replication.replicas import replica, restarted, row, tell


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
