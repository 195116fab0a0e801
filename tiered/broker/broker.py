"""One broker: its data folder, its stores, its topics and the work that never ends.

Owns the composition and the order of start and stop. Must never decide anything about one partition: that
is the work of `partition`, `segment_lifecycle` and `admin`.
"""

import asyncio
import logging
from dataclasses import dataclass, replace
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from sqlalchemy import Connection

from tiered.broker import tier_plan
from tiered.broker.admin import Admin
from tiered.broker.changes import Changes
from tiered.broker.checkpoints import CheckpointWriter
from tiered.broker.data_folder import DataFolder
from tiered.broker.disk_reserve import DiskReserve
from tiered.broker.groups.coordinator import GroupCoordinator
from tiered.broker.housekeeping import Housekeeping
from tiered.broker.lag_history import LagHistory
from tiered.broker.partition import Partition
from tiered.broker.partition_loader import PartitionLoader
from tiered.broker.producer_ids import ProducerIds
from tiered.broker.record_reader import RecordReader
from tiered.broker.record_writer import RecordWriter
from tiered.broker.reports import Reports
from tiered.broker.segment_lifecycle import SegmentLifecycle, committed_segment
from tiered.broker.tier_reader import TierReader
from tiered.broker.topics import OFFSETS_TOPIC, Topic, Topics
from tiered.cold.byte_budget import ByteBudget
from tiered.cold.chunk_cache import ChunkCache
from tiered.cold.object_store import open_store
from tiered.cold.reader import ColdReader
from tiered.cold.timed_store import TimedStore
from tiered.config import BrokerSettings, ServeOptions, TopicConfig
from tiered.errors import InvalidConfig, StaleBrokerEpoch, TieredError
from tiered.formats.checkpoint import CommittedSegment
from tiered.hot.file_system import RealFileSystem
from tiered.hot.flusher import Flusher
from tiered.ids import TopicId, TopicPartition
from tiered.meta import brokers, cluster, partitions, segments, settings, topics
from tiered.meta.engine import Database
from tiered.meta.partitions import PartitionRow
from tiered.meta.segments import SegmentRow
from tiered.meta.topics import TopicRow
from tiered.metrics import CountersState
from tiered.runtime import BlockingPool, Clock, new_uuid

log = logging.getLogger(__name__)

TOPICS_AT_ONCE = 100
LAST_WORDS_MS = 5_000
RECOMPRESSING_BYTES = 128 << 20
WILDCARD_ADDRESSES = ("0.0.0.0", "::")  # noqa: S104 - compared with, never bound


class Broker:
    """A single broker. Between `start` and `stop` its parts may be used by both doors."""

    def __init__(self, options: ServeOptions, clock: Clock) -> None:
        """Takes the data folder's lock; raises AlreadyRunning when another process has it."""
        self.options = options
        self.clock = clock
        self.settings: BrokerSettings = options.settings
        self.counters = CountersState()
        self.broker_id = options.broker_id
        self.rack = options.rack
        self.topics = Topics()
        # Neither connects to anything yet. A URL that is none must leave no lock behind.
        self.database = Database.open(options.meta_url)
        self.store = TimedStore(open_store(options.store_url, timeout_ms=self.settings.tiered_store_timeout_ms), clock)
        self.data = DataFolder(options.data_dir)
        self.reserve = DiskReserve(self.data)
        self.files = RealFileSystem()
        self.cluster_id = ""
        self.broker_epoch = -1
        self.change_number = 0
        self.started_monotonic_ms = clock.monotonic_ms()
        self.serving = False
        self.waiting_partitions = 0
        """How many partitions the fetches that wait ask for; Fetch keeps the count."""
        self.must_stop = asyncio.Event()
        self.replaced: StaleBrokerEpoch | None = None
        """Why this process must stop, once another one has taken its place."""
        self.facts: dict[str, str | None] = {}
        self._advertised = ("", 0)

        self.disk = BlockingPool("disk", threads=self.settings.num_io_threads)
        self.uploads = BlockingPool("upload", threads=self.settings.tiered_upload_concurrency + 1)
        self._downloads = BlockingPool("download", threads=self.settings.tiered_cold_read_concurrency)
        self._cache = ChunkCache(
            self.data.cache,
            max_bytes=self.settings.tiered_cache_bytes,
            pool=self._downloads,
            max_bytes_in_flight=self.settings.tiered_cold_read_bytes_in_flight,
        )
        self.cold_reader = ColdReader(self.store, self._cache, self._downloads)
        self.recompressing = ByteBudget(RECOMPRESSING_BYTES)
        """What requests may hold while their batches get the codec of their topic."""
        self.flusher = Flusher(self.disk, clock)
        self.reader = TierReader(self.cold_reader, self.disk, self.counters)
        self.records = RecordReader(self.reader, clock)
        self.loader = PartitionLoader(self)
        self.lifecycle = SegmentLifecycle(self)
        self.checkpoints = CheckpointWriter(self)
        self.reports = Reports(self)
        self.changes = Changes(self)
        self.admin = Admin(self)
        self.producer_ids = ProducerIds(self.database)
        self.record_writer = RecordWriter(self)
        self.groups = GroupCoordinator(self)
        self.lag = LagHistory(self)
        self._housekeeping = Housekeeping(self)

    # Start and stop

    async def start(self, tasks: asyncio.TaskGroup, *, advertised: tuple[str, int]) -> None:
        """Ready to serve when it returns. Raises TieredError that says what to do.

        The object store is not asked: a broker starts while S3 is away.
        """
        self._advertised = advertised
        await asyncio.to_thread(self.reserve.look)
        await asyncio.to_thread(self.database.migrate)
        known = await self.database.run(self._register)
        self.data.become_owned(self.cluster_id, self.broker_id)
        self.facts = {
            "broker.id": str(self.broker_id),
            "node.id": str(self.broker_id),
            "broker.rack": self.rack,
            "log.dirs": str(self.data.log_root),
            "advertised.listeners": f"PLAINTEXT://{advertised[0]}:{advertised[1]}",
        }
        by_topic: dict[TopicId, list[PartitionRow]] = {}
        for row in known.partitions:
            by_topic.setdefault(TopicId(row.topic_id), []).append(row)
        committed = self._committed_by_partition(known.segments)
        await self.cold_reader.start(tasks)
        self.changes.start(tasks)
        await self.loader.remove_deleted(known.tombstones)
        for first in range(0, len(known.topics), TOPICS_AT_ONCE):
            some = known.topics[first : first + TOPICS_AT_ONCE]
            await asyncio.gather(*(self._open_topic(row, by_topic[TopicId(row.topic_id)], committed) for row in some))
        self._list_offsets_topic()
        await self.groups.start(tasks)
        self._housekeeping.start(tasks)
        self.serving = True

    def begin_stop(self) -> None:
        """From here on no write is taken; answers in progress still go out."""
        self.serving = False
        self.groups.begin_stop()
        for partition in self.topics.partitions():
            partition.stop()

    async def stop(self) -> None:
        """Flushes and closes everything; what cannot be done is logged, and made good at the next start."""
        await self._housekeeping.stop()
        await self.groups.stop()
        await self.loader.close_all()
        for step in (self.checkpoints.write_stale, self.reports.write, self._fence):
            try:
                async with asyncio.timeout(LAST_WORDS_MS / 1000.0):
                    await step()
            except TimeoutError:
                log.warning("at shutdown: a store did not answer in time; the next start makes it good")
            except TieredError as error:
                log.warning("at shutdown: %s", error)
        await self.cold_reader.stop()
        await self.database.close()
        await asyncio.to_thread(self._close_pools)
        self.data.release()

    async def abandon(self) -> None:
        """Lets go of everything as a process that dies would: no flush, no mark of a clean end, no last word to a
        store. What a thread is in the middle of is carried out; nobody waits for uploads and downloads.
        """
        self.begin_stop()
        await self.cold_reader.stop()
        await asyncio.to_thread(self._let_go)

    def _let_go(self) -> None:
        self.store.close()
        for pool in (self._downloads, self.uploads):
            pool.close(wait=False)
        self.disk.close()
        self.records.close()
        for partition in self.topics.partitions():
            partition.log.discard()
        self.database.close_sync()
        self.data.release()

    def _close_pools(self) -> None:
        # First the store, so that requests to one that is away are not repeated any more.
        self.store.close()
        for pool in (self._downloads, self.uploads, self.disk, self.records):
            pool.close()

    async def heartbeat(self) -> None:
        """Says that this process lives; stops it when another one has registered under its id."""
        now_ms = self.clock.now_ms()
        try:
            await self.database.run(
                lambda conn: brokers.heartbeat(
                    conn, broker_id=self.broker_id, broker_epoch=self.broker_epoch, now_ms=now_ms
                )
            )
        except StaleBrokerEpoch as error:
            log.critical("stopping: %s", error)
            self.begin_stop()
            self.replaced = error
            self.must_stop.set()

    def _register(self, conn: Connection) -> "_Known":
        """One transaction: this process becomes the broker of its id and goes on leading its partitions."""
        now_ms = self.clock.now_ms()
        self.cluster_id = cluster.ensure(conn, cluster_id=str(new_uuid()), now_ms=now_ms).cluster_id
        # Refused before anything is changed: a registration would stop the broker that belongs here.
        self.data.require_own(self.cluster_id, self.broker_id)
        for row in partitions.load_all(conn):
            if row.leader != self.broker_id:
                raise InvalidConfig(
                    f"the catalogue belongs to broker {row.leader}: start with --broker-id {row.leader}, or give this "
                    "broker a --meta URL of its own (clusters of several brokers are not served yet)"
                )
        host, port = self._advertised
        self.broker_epoch = brokers.register(
            conn,
            broker_id=self.broker_id,
            host=host,
            port=port,
            boot_id=str(new_uuid()),
            clean_epoch=None,
            rack=self.rack,
        ).broker_epoch
        stored = settings.load_all(conn)
        self.settings = self.settings.with_dynamic(
            dynamic_default=stored.get(None, {}), dynamic=stored.get(self.broker_id, {})
        )
        self.change_number = cluster.load(conn).change_number
        return _Known(
            topics=topics.load_all(conn),
            partitions=partitions.load_all(conn),
            segments=segments.load_committed(conn, replica=self.broker_id),
            tombstones=tuple(TopicId(row.topic_id) for row in topics.list_tombstones(conn)),
        )

    async def _fence(self) -> None:
        await self.database.run(
            lambda conn: brokers.fence(conn, broker_id=self.broker_id, broker_epoch=self.broker_epoch)
        )

    def _committed_by_partition(self, rows: tuple[SegmentRow, ...]) -> dict[TopicPartition, list[CommittedSegment]]:
        found: dict[TopicPartition, list[CommittedSegment]] = {}
        for row in rows:
            key = TopicPartition(TopicId(row.topic_id), row.partition)
            found.setdefault(key, []).append(committed_segment(row))
        return found

    async def _open_topic(
        self, row: TopicRow, rows: list[PartitionRow], committed: dict[TopicPartition, list[CommittedSegment]]
    ) -> None:
        topic = Topic(
            name=row.name,
            topic_id=TopicId(row.topic_id),
            partition_count=row.partition_count,
            config=TopicConfig.of(row.configs, self.settings),
            overrides=row.configs,
            partitions=(),
        )
        opened = await self.loader.open_rows(topic, rows, committed)
        for partition in opened:
            self.checkpoints.opened(partition)
        self.topics.put(replace(topic, partitions=tuple(opened)))

    def _list_offsets_topic(self) -> None:
        """Clients look for this topic; it has no log, because offsets live in SQL."""
        overrides = {"cleanup.policy": "compact"}
        self.topics.put(
            Topic(
                name=OFFSETS_TOPIC,
                topic_id=TopicId(uuid5(NAMESPACE_URL, f"tiered:{self.cluster_id}:{OFFSETS_TOPIC}")),
                partition_count=self.settings.offsets_topic_num_partitions,
                config=TopicConfig.of(overrides, self.settings),
                overrides=overrides,
                partitions=(),
                is_internal=True,
            )
        )

    # What both doors ask

    def address_for(self, local_host: str) -> tuple[str, int]:
        """Where the client that reached us on `local_host` is told to connect.

        A wildcard address is bound by many names, and none of them is it: then the client is told the one
        that it has found us by.
        """
        host, port = self._advertised
        return (local_host if host in WILDCARD_ADDRESSES else host), port

    def cluster_changed(self, change_number: int) -> None:
        """Topics or their configs are other than the bucket's checkpoint says."""
        self.change_number = max(self.change_number, change_number)
        self.checkpoints.cluster_changed()

    def upload_backlog(self) -> tuple[int, int]:
        """(bytes of closed segments that wait for their upload, age of the oldest in ms)"""
        now_ms = self.clock.now_ms()
        partitions_ = list(self.topics.partitions())
        oldest = min(
            (at for each in partitions_ if (at := tier_plan.oldest_waiting_ms(each)) is not None), default=now_ms
        )
        return sum(tier_plan.overdue_bytes(each, now_ms) for each in partitions_), max(0, now_ms - oldest)

    def overdue_end_offset(self, partition: Partition) -> int:
        """Offsets from the partition's `cold_end_offset` up to here should be in the object store by now."""
        return tier_plan.overdue_end_offset(partition, self.clock.now_ms(), self.settings.tiered_upload_timeout_ms)

    def health(self) -> dict[str, Any]:
        """`serving`, and what an operator should look at."""
        failed = [partition.name for partition in self.topics.partitions() if partition.log.failed]
        backlog_bytes, backlog_age_ms = self.upload_backlog()
        return {
            "serving": self.serving,
            "broker": self.broker_id,
            "cluster_id": self.cluster_id,
            "failed_partitions": failed[:100],
            "disk_full": self.reserve.is_low,
            "upload_backlog_bytes": backlog_bytes,
            "upload_backlog_age_ms": backlog_age_ms,
            "sql_away": self.database.times.is_failing,
            "store_away": self.store.times.is_failing,
            "stale_checkpoints": self.checkpoints.stale_count,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """What SQL knows when a broker starts."""

    topics: tuple[TopicRow, ...]
    partitions: tuple[PartitionRow, ...]
    segments: tuple[SegmentRow, ...]
    tombstones: tuple[TopicId, ...]
