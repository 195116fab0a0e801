"""Brings partitions from rows and files to life, and lets them go again.

Owns how a local log is fitted to what SQL says of the partition after a crash, a power loss or a lost disk.
Must never change SQL.
"""

import asyncio
import logging
import shutil
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from tiered import open_files
from tiered.broker.context import BrokerContext
from tiered.broker.partitions.log_settings import log_config
from tiered.broker.partitions.partition import Partition
from tiered.broker.partitions.role import Role
from tiered.broker.partitions.topics import Topic, Topics
from tiered.broker.tiering.committed_rows import committed_segment
from tiered.broker.view.image import ClusterImage
from tiered.cold.chunks.reader import ColdReader
from tiered.errors import LogDirFailed, MissingOffsets, TieredError
from tiered.formats import object_key
from tiered.formats.checkpoint import CommittedSegment
from tiered.formats.producer_snapshot import decode_producers
from tiered.hot.log import Log
from tiered.hot.opening import open_log, write_again
from tiered.hot.side_files import FULL
from tiered.ids import TopicId, TopicPartition
from tiered.meta import segments
from tiered.meta.partitions import PartitionRow
from tiered.rules.segments import reconcile
from tiered.rules.segments.restore_plan import opens_first_after_restore
from tiered.runtime import in_turns

log = logging.getLogger(__name__)

TRUNCATION_POLL_S = 0.02
HELP_AFTER_MS = 1_000


class PartitionLoader:
    """Opens and closes the local logs of one broker, several at a time."""

    def __init__(
        self,
        *,
        context: BrokerContext,
        changed: Callable[[Partition], None],
        cold_reader: ColdReader,
        image: ClusterImage,
        log_failed: Callable[[], None],
        has_failed_log: Callable[[], bool],
        topics: Topics,
    ) -> None:
        self._context = context
        self._changed = changed
        self._cold_reader = cold_reader
        self._image = image
        self._log_failed = log_failed
        self._has_failed_log = has_failed_log
        self._topics = topics

    async def open(
        self,
        wanted: Sequence[tuple[Topic, PartitionRow]],
        committed: Mapping[TopicPartition, Sequence[CommittedSegment]],
    ) -> Sequence[Partition | Exception]:
        """The partition of each row, without a role yet, or why it cannot be opened: LogDirFailed, MetadataUnavailable,
        and CorruptFile or CorruptMetadata when data is missing. `committed` are their segments in the store; those of
        others are asked for."""
        await self._make_folders(row.topic_partition for _, row in wanted)
        logs = await self._open_logs(wanted)
        found: dict[int, Partition | Exception] = {}
        with_store: list[tuple[int, Log]] = []
        async for index, local in in_turns(enumerate(logs)):
            topic, row = wanted[index]
            if not isinstance(local, Log):
                found[index] = local
            elif row.cold_end_offset > row.log_start_offset or row.topic_partition in committed:
                with_store.append((index, local))
            else:
                found[index] = self._partition(topic, row, local, ())

        async def fit(index: int, local: Log) -> None:
            topic, row = wanted[index]
            try:
                found[index] = await self._with_store(topic, row, local, committed.get(row.topic_partition))
            except Exception as error:  # noqa: BLE001 - one partition's, and the caller logs it
                local.discard()
                found[index] = error

        async def explain(index: int, error: MissingOffsets) -> None:
            topic, row = wanted[index]
            found[index] = await self._explained(topic, row, error)

        missing = [(index, error) for index, error in found.items() if isinstance(error, MissingOffsets)]
        await asyncio.gather(
            *(fit(index, local) for index, local in with_store), *(explain(index, error) for index, error in missing)
        )
        return [found[index] for index in range(len(wanted))]

    async def _make_folders(self, keys: Iterable[TopicPartition]) -> None:
        """Makes the folders of each topic's logs with one sync for all. Where that fails, each log makes its own when
        it is opened, or says why it cannot."""
        names: dict[TopicId, list[str]] = {}
        for key in keys:
            names.setdefault(key.topic_id, []).append(str(key.partition))

        async def make(topic_id: TopicId, partitions: Sequence[str]) -> None:
            parent = str(self._context.data.log_root / str(topic_id))
            with suppress(OSError):
                await self._context.disk.run(self._context.files.make_directories, parent, partitions)

        await asyncio.gather(*(make(topic_id, partitions) for topic_id, partitions in names.items()))

    async def _open_logs(self, wanted: Sequence[tuple[Topic, PartitionRow]]) -> Sequence[Log | Exception]:
        """Each log, or why it cannot be opened: not so many that no files are left for all else. One thread opens them
        one by one, and another one helps whenever that has gone on for `HELP_AFTER_MS` more: with little to read,
        threads only wait for one another."""
        found: dict[int, Log | Exception] = {}
        room = open_files.for_logs(self._topics.hosted_count)
        waiting = deque(range(min(room, len(wanted))))
        for index, (topic, row) in enumerate(wanted[room:], room):
            name = f"the log of {topic.name}-{row.partition} is not opened"
            found[index] = LogDirFailed(open_files.out_of_files(name))

        def open_waiting() -> None:
            with suppress(IndexError):  # None is left.
                while not self._context.disk.is_closing():
                    index = waiting.popleft()
                    found[index] = self._opened_log(*wanted[index])

        helpers: list[asyncio.Future[None]] = []
        while waiting and len(helpers) < self._context.settings.limits.num_io_threads:
            helpers.append(asyncio.ensure_future(self._context.disk.run(open_waiting)))
            await asyncio.wait(helpers, timeout=HELP_AFTER_MS / 1000.0)
        await asyncio.gather(*helpers)
        return [found[index] for index in range(len(wanted))]

    def _opened_log(self, topic: Topic, row: PartitionRow) -> Log | Exception:
        try:
            return self._open_log(topic, row.topic_partition, row)
        except Exception as error:  # noqa: BLE001 - one partition's, and the caller logs it
            return error

    def _partition(
        self, topic: Topic, row: PartitionRow, local: Log, committed: Sequence[CommittedSegment]
    ) -> Partition:
        return Partition(
            topic=topic.name,
            topic_partition=row.topic_partition,
            config=topic.config,
            log=local,
            producers={entry.producer_id: entry for entry in local.recovery.producers},
            broker_id=self._context.broker_id,
            is_current=self._image.is_current,
            log_start_offset=row.log_start_offset,
            cold_end_offset=row.cold_end_offset,
            committed=committed,
            reserve=self._context.reserve,
            changed=self._changed,
        )

    async def _with_store(
        self, topic: Topic, row: PartitionRow, local: Log, committed: Sequence[CommittedSegment] | None
    ) -> Partition:
        if committed is None:
            committed = await self._load_committed(row)
        partition = self._partition(topic, row, local, committed)
        if committed and self._must_be_whole(row) and local.log_end_offset == row.cold_end_offset:
            if _begins_anew(local, row.cold_end_offset):
                await self._continue_after_cold(partition, row.leader_epoch)
            elif any(each.current_transaction_first_offset is not None for each in local.recovery.producers):
                await self._end_transactions(partition)
        return partition

    async def _load_committed(self, row: PartitionRow) -> list[CommittedSegment]:
        rows = await self._context.database.run(
            lambda conn: segments.list_committed(conn, row.topic_id, row.partition, from_offset=row.log_start_offset)
        )
        # Later commits come with the feed.
        return [committed_segment(each) for each in rows if each.end_offset <= row.cold_end_offset]

    async def _explained(self, topic: Topic, row: PartitionRow, missing: MissingOffsets) -> MissingOffsets:
        """The error, with what people can do. The bucket may have what the database forgot, and nobody may be told to
        delete that."""
        prefix = object_key.partition_segments_prefix(topic.name, row.topic_id, row.partition)
        first_key = f"{prefix}{missing.start_offset:020}"
        are_nowhere = False
        try:
            listed = await self._context.uploads.run(lambda: self._context.store.list(prefix, start_after=first_key))
            stored = [item.key for item in reconcile.listed_segments(listed)]
            stored = [key for key in stored if key.base_offset < missing.end_offset]
        except TieredError as error:
            way_out = (
                f"Nobody can see now whether the object store has them ({error}): delete nothing. Put missing segment "
                "files back if there is a copy of them, and see to the object store"
            )
        else:
            are_nowhere = not stored
            way_out = (
                "The object store has no object of them either. Put the missing segment files back; or accept the loss "
                f"of what is missing: POST /api/v1/topics/{topic.name}/partitions/{row.partition}/delete-records with "
                f'{{"before_offset": {missing.end_offset}}}'
            )
            if stored:
                end_offset = max(key.end_offset for key in stored)
                way_out = (
                    f"But the object store has objects of offsets {stored[0].base_offset} to {end_offset - 1}: the "
                    "database has lost what it had committed (a restored backup, or a standby that was not "
                    "synchronous). Delete neither objects nor offsets. Bring back the database's newest state, or see "
                    "what a restore from the bucket would take over (`tiered restore --plan`)"
                )
        return MissingOffsets(
            f"{missing}. {way_out}",
            start_offset=missing.start_offset,
            end_offset=missing.end_offset,
            are_nowhere=are_nowhere,
        )

    def _must_be_whole(self, row: PartitionRow) -> bool:
        """Whether nobody else could bring what is missing here: a follower gets it from its leader."""
        return row.leader == self._context.broker_id

    def _open_log(self, topic: Topic, key: TopicPartition, row: PartitionRow) -> Log:
        """A leader's log that ends before what the store holds begins anew there: a lost disk, or a power loss that
        took records which were uploaded but not flushed. Raises LogDirFailed, CorruptFile."""
        if self._has_failed_log():  # Perhaps this one, at an earlier try.
            directory = str(self._context.data.log_of(key))
            write_again(self._context.files, directory, is_stopping=self._context.disk.is_closing)
        try:
            opened = open_log(
                self._context.data.log_of(key),
                self._context.files,
                config=log_config(topic.config),
                log_start_offset=row.log_start_offset,
                # A follower's log may begin anywhere below what the store holds, and end there: it fetches the rest.
                first_needed_offset=row.cold_end_offset if self._must_be_whole(row) else None,
                now_ms=self._context.clock.now_ms(),
                is_stopping=self._context.disk.is_closing,
            )
        except LogDirFailed as error:
            if not (
                isinstance(error.__cause__, OSError) and error.__cause__.errno in (*FULL, *open_files.OUT_OF_FILES)
            ):
                self._log_failed()
            raise
        opened.on_failure = self._log_failed
        return opened

    async def _continue_after_cold(self, partition: Partition, leader_epoch: int) -> None:
        """Producers and leader epochs that only the newest object still knows."""
        try:
            tail = await self._cold_reader.tail(partition.place_of(partition.committed[-1]))
        except TieredError as error:
            raise type(error)(
                f"{partition.name}: its local log is lost, and what the newest object knows of its producers cannot "
                f"be read: {error}"
            ) from error
        partition.restart_from_cold(
            producers=decode_producers(tail.producer_snapshot), leader_epochs=tail.leader_epochs
        )
        # Kept before the first append: a crash must not forget what a later start could not find again.
        await self._context.disk.run(partition.log.keep_leader_epochs)
        await self._keep_producers(partition)
        is_planned = opens_first_after_restore(
            leader_epoch=leader_epoch, newest_stored_epoch=max((epoch for epoch, _ in tail.leader_epochs), default=-1)
        )
        log.log(
            logging.INFO if is_planned else logging.WARNING,
            "%s: the local log begins anew where the store ends, at %d%s",
            partition.name, partition.cold_end_offset, ", as the restore has planned" if is_planned else "",
        )  # fmt: skip

    async def _end_transactions(self, partition: Partition) -> None:
        """The log was torn where the store ends, and with it the ends of transactions that reach into the store. They
        had ended (T1), and nobody is going to end them again."""
        partition.restart_from_cold(producers=tuple(partition.producers.entries.values()), leader_epochs=())
        await self._keep_producers(partition)
        log.warning("%s: transactions that had ended lost their end with the log's", partition.name)

    async def _keep_producers(self, partition: Partition) -> None:
        producers = tuple(partition.producers.entries.values())
        await self._context.disk.run(partition.log.write_snapshot, partition.log.log_end_offset, producers)

    async def begin_at_cold_end(self, partition: Partition) -> None:
        """Begins a log anew where the store ends, without knowing more of its past than the metadata store does.

        For an unclean election that gave the lead to a log which ends before that: what is in the store counts.
        Raises LogDirFailed.
        """
        while partition.is_truncating:
            await asyncio.sleep(TRUNCATION_POLL_S)
        end_offset = partition.cold_end_offset
        newest = partition.committed_segment_at(end_offset - 1)
        log.warning(
            "%s: an unclean election chose a log that ends at %d; it begins anew where the store ends, at %d",
            partition.name, partition.log.log_end_offset, end_offset,
        )  # fmt: skip
        is_follower = partition.role is Role.FOLLOWER
        if is_follower:
            partition.begin_truncation()
        try:
            await self._context.disk.run(partition.log.truncate_fully_and_start_at, end_offset)
        finally:
            if is_follower:
                partition.log_truncated(())
        epochs = () if newest is None else ((newest.leader_epoch, newest.base_offset),)
        partition.restart_from_cold(producers=(), leader_epochs=epochs)
        await self._context.disk.run(partition.log.keep_leader_epochs)

    async def remove(self, topic: Topic) -> None:
        """Ends the partitions of a deleted topic and removes their local files."""
        self._end(topic.partitions)
        await self._context.disk.run(self._remove_files, topic.partitions)
        await self._context.disk.run(
            partial(shutil.rmtree, self._context.data.log_root / str(topic.topic_id), ignore_errors=True)
        )

    async def remove_partitions(self, partitions: Sequence[Partition]) -> None:
        """Ends partitions that other brokers hold from now on, and removes their local files."""
        self._end(partitions)
        await self._context.disk.run(self._remove_files, partitions)

    def _end(self, partitions: Sequence[Partition]) -> None:
        for partition in partitions:
            partition.stop()

    def _remove_files(self, partitions: Sequence[Partition]) -> None:
        for partition in partitions:
            partition.log.discard()
            shutil.rmtree(self._context.data.log_of(partition.topic_partition), ignore_errors=True)

    async def remove_strays(self, deleted: Collection[TopicId], rows: Iterable[PartitionRow]) -> None:
        """Removes what an earlier process left of deleted topics, and of partitions that others hold by now.

        A topic that the metadata store never heard of stays: the metadata store may be the one that is wrong.
        """
        here = set(await self._context.disk.run(self._context.data.topics_on_disk))
        root = self._context.data.log_root
        strays = [root / str(topic_id) for topic_id in here & set(deleted)]
        strays += [
            self._context.data.log_of(row.topic_partition)
            for row in rows
            if row.topic_id in here and not row.fault and self._context.broker_id not in row.replicas
        ]
        for path in strays:
            try:
                if await self._context.disk.run(path.exists):
                    log.info("removing local files that nobody asks for any more: %s", path)
                    await self._context.disk.run(partial(shutil.rmtree, path, ignore_errors=True))
            except OSError as error:
                log.warning("local files that nobody asks for any more stay: %s: %s", path, error)

    async def close_all(self) -> bool:
        """Flushes every log and marks it clean, several at a time; one that fails is logged and recovered later.

        Whether everything is on the disk.
        """
        found = list(self._topics.partitions())
        return all(await asyncio.gather(*(self.close(partition) for partition in found)))

    async def close(self, partition: Partition) -> bool:
        """Flushes one log and marks it clean; whether everything is on the disk."""
        partition.stop()
        try:
            await self._context.disk.run(partition.log.close, tuple(partition.producers.entries.values()))
        except (TieredError, OSError) as error:
            log.error("%s: not closed cleanly, the next start will recover it: %s", partition.name, error)
            return False
        return partition.log.failed is None


def _begins_anew(local: Log, cold_end_offset: int) -> bool:
    """True when nothing local says who had written before `cold_end_offset`, where the log ends: a lost disk, or a tail
    that was torn off below it. After an ordinary roll the closed segment's snapshot does."""
    if len(local.segments) != 1:
        return False
    snapshot = local.latest_snapshot(cold_end_offset)
    return not local.leader_epochs.entries or snapshot is None or snapshot[0] != cold_end_offset
