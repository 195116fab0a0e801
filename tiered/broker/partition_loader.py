"""Brings partitions from rows and files to life, and lets them go again.

Owns how a local log is fitted to what SQL says of the partition after a crash, a power loss or a lost disk.
Must never change SQL.
"""

import asyncio
import logging
import shutil
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from tiered.broker.partition import Partition, log_config
from tiered.broker.topics import Topic
from tiered.errors import TieredError
from tiered.formats.checkpoint import CommittedSegment
from tiered.formats.producer_snapshot import decode_producers
from tiered.hot.log import Log
from tiered.ids import TopicId, TopicPartition
from tiered.meta import partitions
from tiered.meta.partitions import PartitionRow

if TYPE_CHECKING:
    from tiered.broker.broker import Broker

log = logging.getLogger(__name__)


class PartitionLoader:
    """Opens and closes the local logs of one broker, several at a time."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker

    async def open_new(self, topic: Topic) -> Topic:
        """`topic` with its partitions opened; those it has already stay as they are."""
        first = len(topic.partitions)
        rows = await self._broker.database.run(
            lambda conn: [partitions.load(conn, topic.topic_id, index) for index in range(first, topic.partition_count)]
        )
        opened = await self.open_rows(topic, rows, {})
        return replace(topic, partitions=(*topic.partitions, *opened))

    async def open_rows(
        self, topic: Topic, rows: Sequence[PartitionRow], committed: dict[TopicPartition, list[CommittedSegment]]
    ) -> list[Partition]:
        """The partitions of `rows`, in their order. Raises CorruptFile or CorruptMetadata when data is missing."""
        return list(await asyncio.gather(*(self._open(topic, row, committed) for row in rows)))

    async def _open(
        self, topic: Topic, row: PartitionRow, committed: dict[TopicPartition, list[CommittedSegment]]
    ) -> Partition:
        key = TopicPartition(topic.topic_id, row.partition)
        segments = committed.get(key, [])
        local = await self._broker.disk.run(self._open_log, topic, key, row)
        partition = Partition(
            topic=topic.name,
            topic_partition=key,
            config=topic.config,
            log=local,
            producers={entry.producer_id: entry for entry in local.recovery.producers},
            broker_id=self._broker.broker_id,
            is_current=lambda _: True,  # There is no other broker yet.
            log_start_offset=row.log_start_offset,
            cold_end_offset=row.cold_end_offset,
            committed=segments,
            reserve=self._broker.reserve,
        )
        if segments and _begins_anew(local, row.cold_end_offset):
            await self._continue_after_cold(partition)
        partition.apply_row(row, broker_epoch=self._broker.broker_epoch)
        return partition

    def _open_log(self, topic: Topic, key: TopicPartition, row: PartitionRow) -> Log:
        """A log that ends before what the store holds begins anew there: a lost disk, or a power loss that took
        records which were uploaded but not flushed."""
        return Log.open(
            self._broker.data.log_of(key),
            self._broker.files,
            config=log_config(topic.config),
            log_start_offset=row.log_start_offset,
            first_needed_offset=row.cold_end_offset,
            now_ms=self._broker.clock.now_ms(),
        )

    async def _continue_after_cold(self, partition: Partition) -> None:
        """Producers and leader epochs that only the newest object still knows."""
        try:
            tail = await self._broker.cold_reader.tail(
                partition.committed[-1], topic=partition.topic, partition=partition.topic_partition.partition
            )
        except TieredError as error:
            raise type(error)(
                f"{partition.name}: its local log is lost, and what the newest object knows of its producers cannot "
                f"be read: {error}"
            ) from error
        partition.restart_from_cold(
            producers=decode_producers(tail.producer_snapshot), leader_epochs=tail.leader_epochs
        )
        # Kept before the first append: a crash must not forget producers that a later start could not find again.
        await self._broker.disk.run(
            partition.log.write_snapshot, partition.log.log_end_offset, tuple(partition.producers.values())
        )
        log.warning(
            "%s: the local log begins anew where the store ends, at %d", partition.name, partition.cold_end_offset
        )

    async def remove(self, topic: Topic) -> None:
        """Ends the partitions of a deleted topic and removes their local files."""
        for partition in topic.partitions:
            partition.stop()
        await self._broker.disk.run(self._remove_files, topic)

    def _remove_files(self, topic: Topic) -> None:
        for partition in topic.partitions:
            partition.log.discard()
        shutil.rmtree(self._broker.data.log_root / str(topic.topic_id), ignore_errors=True)

    async def remove_deleted(self, deleted: Sequence[TopicId]) -> None:
        """Removes what a crash left of the local files of deleted topics."""
        here = await self._broker.disk.run(self._broker.data.topics_on_disk)
        for topic_id in set(here) & set(deleted):
            log.info("removing the local files of the deleted topic %s", topic_id)
            await self._broker.disk.run(
                partial(shutil.rmtree, self._broker.data.log_root / str(topic_id), ignore_errors=True)
            )

    async def close_all(self) -> None:
        """Flushes every log and marks it clean, several at a time; one that fails is logged and recovered later."""
        found = list(self._broker.topics.partitions())
        await asyncio.gather(*(self._close(partition) for partition in found))

    async def _close(self, partition: Partition) -> None:
        partition.stop()
        try:
            await self._broker.disk.run(partition.log.close, tuple(partition.producers.values()))
        except OSError as error:
            log.error("%s: not closed cleanly, the next start will recover it: %s", partition.name, error)


def _begins_anew(local: Log, cold_end_offset: int) -> bool:
    """True when nothing local says who had written before `cold_end_offset`: a lost disk, or a tail that was torn
    off below it. After an ordinary roll the closed segment's snapshot does."""
    if local.log_end_offset != cold_end_offset or len(local.segments) != 1:
        return False
    snapshot = local.latest_snapshot(cold_end_offset)
    return not local.leader_epochs.entries or snapshot is None or snapshot[0] != cold_end_offset
