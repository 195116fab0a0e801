"""Single replicas of one partition, without a broker around them: a log on disk, and the rows that it is told."""

from collections.abc import Callable
from pathlib import Path
from uuid import UUID

from tiered.broker.host.data_folder import DataFolder
from tiered.broker.host.disk_reserve import DiskReserve
from tiered.broker.partitions.log_settings import log_config
from tiered.broker.partitions.partition import Partition
from tiered.broker.partitions.replica_log import checked_runs
from tiered.config import TopicConfig
from tiered.hot.file_system import RealFileSystem
from tiered.hot.opening import open_log
from tiered.ids import InSyncReplica, TopicId, TopicPartition
from tiered.meta.partitions import PartitionRow
from tiered.rules.replication.divergence import last_fetched_epoch

TOPIC_ID = TopicId(UUID(int=7))
EPOCHS = {1: 101, 2: 102, 3: 103}
"""The registration of each broker."""


def row(
    *,
    leader: int = 1,
    epoch: int = 0,
    partition_epoch: int | None = None,
    isr: tuple[int, ...] = (1, 2, 3),
    replicas: tuple[int, ...] = (1, 2, 3),
    number: int | None = None,
    log_start_offset: int = 0,
) -> PartitionRow:
    """A row whose partition epoch and change number go with its leader epoch, unless they are given."""
    partition_epoch = 10 * epoch if partition_epoch is None else partition_epoch
    return PartitionRow(
        topic_id=TOPIC_ID,
        partition=0,
        leader=leader,
        leader_epoch=epoch,
        partition_epoch=partition_epoch,
        isr=tuple(InSyncReplica(broker_id, EPOCHS[broker_id]) for broker_id in isr),
        replicas=replicas,
        log_start_offset=log_start_offset,
        cold_end_offset=0,
        change_number=100 + partition_epoch if number is None else number,
    )


def replica(
    root: Path,
    broker_id: int,
    is_current: Callable[[InSyncReplica], bool] = lambda member: EPOCHS.get(member.broker_id) == member.broker_epoch,
    topic: str = "t",
    /,
    **configs: int,
) -> Partition:
    """An empty replica in role none."""
    config = TopicConfig(**{"min_insync_replicas": 2, **configs})  # type: ignore[arg-type]
    log = open_log(root / f"log-{broker_id}", RealFileSystem(), config=log_config(config), now_ms=0)
    return Partition(
        topic=topic,
        topic_partition=TopicPartition(TOPIC_ID, 0),
        config=config,
        log=log,
        producers={},
        broker_id=broker_id,
        is_current=is_current,
        log_start_offset=0,
        cold_end_offset=0,
        committed=(),
        reserve=DiskReserve(DataFolder(root / f"data-{broker_id}")),
        changed=lambda partition: None,
    )


def restarted(before: Partition, *, cold_end_offset: int) -> Partition:
    """The same log in another process, after the store got everything up to `cold_end_offset`."""
    before.log.close()
    log = open_log(before.log.directory, RealFileSystem(), config=log_config(before.config), now_ms=0)
    reserve: DiskReserve = before._reserve
    return Partition(
        topic=before.topic,
        topic_partition=before.topic_partition,
        config=before.config,
        log=log,
        producers={entry.producer_id: entry for entry in log.recovery.producers},
        broker_id=before.broker_id,
        is_current=lambda member: EPOCHS.get(member.broker_id) == member.broker_epoch,
        log_start_offset=0,
        cold_end_offset=cold_end_offset,
        committed=(),
        reserve=reserve,
        changed=lambda partition: None,
    )


def tell(partition: Partition, told: PartitionRow) -> None:
    partition.apply_row(told, broker_epoch=EPOCHS[partition.broker_id])


def fetch(leader: Partition, follower: Partition, *, now_ms: float = 0.0) -> None:
    """One question and its answer, with all that is there."""
    offset = follower.log.log_end_offset
    leader.note_fetch(InSyncReplica(follower.broker_id, EPOCHS[follower.broker_id]), offset, now_ms)
    found = leader.log.read(offset, 1 << 20, end_offset=leader.log.log_end_offset)
    if found is not None:
        runs = checked_runs(
            memoryview(bytearray(found.read())),
            expected_offset=offset,
            latest_epoch=last_fetched_epoch(follower.log.leader_epochs, offset),
            leader_epoch=leader.leader_epoch,
            name=follower.name,
            unproven_offsets=max(0, leader.log.times_proven_from(offset) - offset),
        )
        begins = leader.log.segment_base_offset(offset) == offset
        follower.append_fetched(runs, begins_segment=begins, now_ms=0)
    follower.learn_high_watermark(leader.high_watermark)
