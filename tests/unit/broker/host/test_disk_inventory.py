"""What a stopped broker's folder holds, as a restore is told of it."""

from pathlib import Path
from uuid import UUID

from tests.unit.hot.log_files import append, batch, open_log
from tiered.broker.host.data_folder import DataFolder
from tiered.broker.host.disk_inventory import report_of
from tiered.ids import TopicId, TopicPartition

HERE = TopicPartition(TopicId(UUID(int=7)), 0)


def test_a_leader_that_wrote_nothing_in_its_epoch_is_further_than_one_that_wrote_more_before(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    folder.become_owned("a-cluster", 1)
    log = open_log(folder.log_of(HERE))
    append(log, batch(2), epoch=1)
    log.begin_leader_epoch(4, leaves_word=True)
    del log
    folder.release()
    (described,) = report_of(tmp_path, now_ms=0).logs
    assert described.leader_epochs == ((1, 0), (4, 2))
    assert described.reach == (4, 2)
