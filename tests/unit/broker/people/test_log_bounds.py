"""How far a partition is that no replica here knows: by its row, and by its leader's last report."""

from pathlib import Path
from uuid import UUID

from tests.unit.broker.context import surroundings
from tiered.broker.partitions.topics import Topics
from tiered.broker.people.log_bounds import KnownLogBounds
from tiered.broker.view.image import ClusterImage
from tiered.ids import TopicId, TopicPartition
from tiered.meta.partitions import PartitionRow
from tiered.rules.partition.partition_state import LogBounds

KEY = TopicPartition(TopicId(UUID(int=1)), 0)


async def test_a_partition_elsewhere_is_no_less_far_than_its_row_says(tmp_path: Path) -> None:
    image = ClusterImage()
    image.put_row(
        PartitionRow(
            topic_id=KEY.topic_id,
            partition=0,
            leader=2,
            leader_epoch=1,
            partition_epoch=1,
            isr=(),
            replicas=(2,),
            log_start_offset=3,
            cold_end_offset=20,
            change_number=1,
        )
    )
    async with surroundings(tmp_path) as made:
        positions = KnownLogBounds(context=made.context, topics=Topics(), image=image)
        assert positions.known_here(KEY) is None
        nobody = TopicPartition(KEY.topic_id, 1)
        assert await positions.of([KEY, nobody]) == {KEY: LogBounds(log_start_offset=3, high_watermark=20)}
        assert positions.reported(KEY, 25).high_watermark == 25
