"""A bucket that a cluster is restored from."""

from dataclasses import replace
from pathlib import Path
from uuid import UUID

from tests.golden import regenerate as golden
from tests.unit.cold.stored_segments import PARTITION, TOPIC_ID, store_segment
from tiered.cold.bucket import checkpoints, group_checkpoints
from tiered.cold.bucket.contents import read_bucket
from tiered.cold.local import LocalStore
from tiered.formats.checkpoint import ClusterCheckpoint, PartitionCheckpoint, TopicEntry
from tiered.formats.pin_entries import PinnedOffsets
from tiered.formats.producer_snapshot import ProducerEntry, encode_producers
from tiered.rules.segments.restore_plan import RestorePlan, plan_restore

CLUSTER = "cluster-1"
GONE = UUID(int=5)
SNAPSHOT = replace(
    golden.cluster_checkpoint_with_pins().pins[0],
    topic_id=TOPIC_ID,
    ranges=(PinnedOffsets(partition=PARTITION, start_offset=10, end_offset=50),),
)
PARALLEL = 2


class Bucket:
    """A topic of four partitions, of which the last has a segment; a deleted topic's head; a group."""

    def __init__(self, folder: Path) -> None:
        self.store = LocalStore(folder / "bucket")
        producers = encode_producers([ProducerEntry(producer_id=77, producer_epoch=0)])
        self.segment = store_segment(self.store, folder, range(50), producer_snapshot=producers).committed
        topic = TopicEntry(name="orders", topic_id=TOPIC_ID, partition_count=4, configs={}, replication_factor=1)
        checkpoints.write_cluster_checkpoint(
            self.store,
            ClusterCheckpoint(version=7, cluster_id=CLUSTER, topics=(topic,), pins=(SNAPSHOT,)),
        )
        self.head = PartitionCheckpoint(
            version=0,
            cluster_id=CLUSTER,
            topic="orders",
            topic_id=TOPIC_ID,
            partition=PARTITION,
            partition_count=4,
            log_start_offset=10,
            cold_end_offset=50,
            leader_epoch=3,
            pages=(),
            segments=(self.segment,),
        )
        self.write(self.head)
        self.write(replace(self.head, topic="gone", topic_id=GONE))
        group_checkpoints.write_group_checkpoint(self.store, replace(golden.group_checkpoint(), cluster_id=CLUSTER))

    def write(self, head: PartitionCheckpoint) -> None:
        checkpoints.write_partition_checkpoint(self.store, head)

    def plan(self) -> RestorePlan:
        return plan_restore(read_bucket(self.store, parallel=PARALLEL), (1,))
