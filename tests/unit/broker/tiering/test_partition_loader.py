"""Opening local logs: many at once, and one again after a disk has failed it."""

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.broker.tiering.tiers import Tiers, open_all, tiers
from tests.unit.hot.faulty_file_system import FaultyFileSystem
from tiered.broker.context import BrokerContext
from tiered.broker.tiering import partition_loader
from tiered.broker.tiering.partition_loader import PartitionLoader
from tiered.errors import LogDirFailed
from tiered.hot.file_system import RealFileSystem
from tiered.runtime import BlockingPool

WAIT_S = 30


def loader_of(
    made: Tiers,
    context: BrokerContext,
    *,
    log_failed: Callable[[], None] = lambda: None,
    has_failed_log: Callable[[], bool] = lambda: False,
) -> PartitionLoader:
    """Another loader of the same partitions, whose logs are let go of."""
    for partition in made.partitions:
        partition.log.discard()
    return PartitionLoader(
        changed=lambda partition: None,
        context=context,
        cold_reader=made.cold_reader,
        image=made.image,
        log_failed=log_failed,
        has_failed_log=has_failed_log,
        topics=made.topics,
    )


class SlowFirstLog(RealFileSystem):
    """A disk on which the log of partition 0 is not found before all others have been."""

    def __init__(self, others: int) -> None:
        self._others = threading.Semaphore(0)
        self._count = others

    def sizes(self, directory: str) -> dict[str, int]:
        found = super().sizes(directory)
        if Path(directory).name != "0":
            self._others.release()
            return found
        for _ in range(self._count):
            assert self._others.acquire(timeout=WAIT_S), "the others wait for this one"
        return found


async def test_a_log_that_takes_long_to_open_holds_up_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_loader, "HELP_AFTER_MS", 10)
    async with tiers(tmp_path, partition_count=3) as made:
        two = BlockingPool("two", threads=2)
        loader = loader_of(made, replace(made.context, files=SlowFirstLog(others=2), disk=two))
        topic = made.topics.by_name(made.partition.topic)
        opened = await open_all(loader, topic, made.image.rows_of(topic.topic_id))
        assert [each.topic_partition.partition for each in opened] == [0, 1, 2]
        assert [each.log.log_end_offset for each in opened] == [each.log.log_end_offset for each in made.partitions]
        for partition in opened:
            partition.log.discard()
        two.close()


async def test_more_logs_are_opened_than_calls_may_wait_for_the_disk(tmp_path: Path) -> None:
    async with tiers(tmp_path, partition_count=5) as made:
        few = BlockingPool("few", threads=1, max_waiting=1)
        loader = loader_of(made, replace(made.context, disk=few))
        topic = made.topics.by_name(made.partition.topic)
        opened = await open_all(loader, topic, made.image.rows_of(topic.topic_id))
        assert len(opened) == 5
        for partition in opened:
            partition.log.discard()
        few.close()


async def test_a_log_whose_opening_failed_is_written_again_before_it_is_tried_again(tmp_path: Path) -> None:
    fs = FaultyFileSystem(stash=tmp_path / "stash")
    failed: list[None] = []
    async with tiers(tmp_path) as made:
        left = made.partition.log
        loader = loader_of(
            made,
            replace(made.context, files=fs),
            log_failed=lambda: failed.append(None),
            has_failed_log=lambda: bool(failed),
        )
        topic = made.topics.by_name(made.partition.topic)
        (row,) = made.image.rows_of(topic.topic_id)
        path = left.segments[-1].path
        with Path(path).open("ab") as file:
            file.write(b"torn")
        fs.fail("sync", name_part=Path(path).name, times=1)
        (refused,) = await loader.open([(topic, row)], {})
        assert isinstance(refused, LogDirFailed)
        assert failed == [None]
        fs.unwritten.sync_failed(path, 0)  # It had never been on the disk.
        (opened,) = await open_all(loader, topic, [row])
        opened.log.flush()
        assert fs.unwritten.drop() == []
        assert opened.log.log_end_offset == left.log_end_offset
        opened.log.discard()
