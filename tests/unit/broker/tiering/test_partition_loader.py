"""Opening a local log again, after a disk has failed it once."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.broker.tiering.tiers import tiers
from tests.unit.hot.faulty_file_system import FaultyFileSystem
from tiered.broker.tiering.partition_loader import PartitionLoader
from tiered.errors import LogDirFailed


async def test_a_log_whose_opening_failed_is_written_again_before_it_is_tried_again(tmp_path: Path) -> None:
    fs = FaultyFileSystem(stash=tmp_path / "stash")
    failed: list[None] = []
    async with tiers(tmp_path) as made:
        left = made.partition.log
        left.discard()
        loader = PartitionLoader(
            changed=lambda partition: None,
            context=replace(made.context, files=fs),
            cold_reader=made.cold_reader,
            image=made.image,
            log_failed=lambda: failed.append(None),
            has_failed_log=lambda: bool(failed),
            topics=made.topics,
        )
        topic = made.topics.by_name(made.partition.topic)
        (row,) = made.image.rows_of(topic.topic_id)
        path = left.segments[-1].path
        with Path(path).open("ab") as file:
            file.write(b"torn")
        fs.fail("sync", name_part=Path(path).name, times=1)
        with pytest.raises(LogDirFailed):
            await loader.open(topic, row, ())
        assert failed == [None]
        fs.unwritten.sync_failed(path, 0)  # It had never been on the disk.
        opened = await loader.open(topic, row, ())
        opened.log.flush()
        assert fs.unwritten.drop() == []
        assert opened.log.log_end_offset == left.log_end_offset
        opened.log.discard()
