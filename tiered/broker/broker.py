"""One broker: its data folder, its stores, its view of the cluster and the work that never ends.

Owns the composition and the order of start and stop. Must never decide anything about one partition: that
is the work of `partition`, `segment_lifecycle`, `applier` and `admin`.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from sqlalchemy import Connection

from tiered import open_files
from tiered.account import OwnersShares
from tiered.broker.admin import Admin
from tiered.broker.applier import ChangeApplier
from tiered.broker.context import BrokerContext, BrokerState
from tiered.broker.control.controller import Controller
from tiered.broker.control.handover import hand_over
from tiered.broker.control.heartbeats import Heartbeats
from tiered.broker.control.reassignments import Reassignments
from tiered.broker.control.registration import WILDCARD_ADDRESSES, Registration
from tiered.broker.control.seen_changes import NOTE_INTERVAL_MS, SeenChanges
from tiered.broker.groups.checkpoints import GroupCheckpointWriter
from tiered.broker.groups.coordinator import GroupCoordinator
from tiered.broker.groups.slots import HeldSlots
from tiered.broker.host.data_folder import DataFolder
from tiered.broker.host.disk_reserve import DiskReserve
from tiered.broker.host.producer_ids import ProducerIds
from tiered.broker.host.resource_configs import ResourceConfigs
from tiered.broker.partitions.agenda import PartitionAgenda
from tiered.broker.partitions.batch_checks import LongValidations
from tiered.broker.partitions.failed_replicas import FailedReplicas
from tiered.broker.partitions.leadership_check import LeadershipCheck
from tiered.broker.partitions.partition import Partition
from tiered.broker.partitions.topics import OFFSETS_TOPIC, Topic, Topics
from tiered.broker.people.client_metrics import ClientMetrics
from tiered.broker.people.lag_history import LagHistory
from tiered.broker.people.log_bounds import KnownLogBounds
from tiered.broker.people.partition_totals import MAX_NAMES, PartitionTotals, partition_totals
from tiered.broker.people.record_reader import RecordReader
from tiered.broker.people.record_search import RecordSearches
from tiered.broker.people.record_writer import RecordWriter
from tiered.broker.people.sql_reports import SqlReports
from tiered.broker.reconcile.findings import Findings
from tiered.broker.reconcile.rounds import Reconciler
from tiered.broker.replaceable_parts import BrokerParts
from tiered.broker.replication.answer import FollowerAnswers
from tiered.broker.replication.catch_up import CatchUp
from tiered.broker.replication.channel import Channels, PeerChannels
from tiered.broker.replication.fetcher import ReplicaFetcher, ReplicationThrottle
from tiered.broker.replication.isr_changes import IsrChanges
from tiered.broker.replication.replication import Replication
from tiered.broker.rounds.housekeeping import Housekeeping, Tick
from tiered.broker.rounds.partition_rounds import PartitionRounds
from tiered.broker.rounds.sweeps import Sweeps
from tiered.broker.security.access import Access
from tiered.broker.security.acls import Acls
from tiered.broker.security.audit import AuditLog
from tiered.broker.security.authentication import Authentication
from tiered.broker.security.client_quotas import ClientQuotas
from tiered.broker.security.credentials import Credentials
from tiered.broker.tiering import tier_plan
from tiered.broker.tiering.checkpoints import CheckpointWriter
from tiered.broker.tiering.clock_watch import ClockWatch
from tiered.broker.tiering.cold_pacing import ColdPacing
from tiered.broker.tiering.compaction import CompactionRounds
from tiered.broker.tiering.joining import Joining
from tiered.broker.tiering.partition_loader import PartitionLoader
from tiered.broker.tiering.pins import Pins
from tiered.broker.tiering.retention import RetentionRounds
from tiered.broker.tiering.segment_lifecycle import SegmentLifecycle
from tiered.broker.tiering.store_look import look_at_store
from tiered.broker.tiering.store_owner import StoreOwner
from tiered.broker.tiering.tier_reader import TierReader
from tiered.broker.tiering.upload_pipeline import UploadPipeline
from tiered.broker.transactions.broker_channel import PeerTransactionChannels, TransactionChannels
from tiered.broker.transactions.coordinator import TransactionCoordinator
from tiered.broker.transactions.marker_sender import MarkerSender
from tiered.broker.transactions.marker_writer import MarkerWriter
from tiered.broker.transactions.verification import Verifications
from tiered.broker.view import store_reach
from tiered.broker.view.changes import Changes
from tiered.broker.view.feed import ChangeFeed
from tiered.broker.view.image import ClusterImage
from tiered.broker.view.store_reach import StoreReach
from tiered.cold.chunks.cache import ChunkCache
from tiered.cold.chunks.reader import ColdReader
from tiered.cold.opening import open_store
from tiered.cold.own_store import OwnStore
from tiered.config import BrokerSettings, ServeOptions, TopicConfig
from tiered.config.client_security import with_login
from tiered.config.listeners import ListenerOptions
from tiered.config.security import check_authentication
from tiered.errors import StaleBrokerEpoch, StoreTrouble, TieredError
from tiered.hot.file_system import RealFileSystem
from tiered.hot.flusher import Flusher
from tiered.ids import TopicId
from tiered.meta import brokers, liveness
from tiered.meta.engine import Database
from tiered.meta.security import Security
from tiered.metrics import CountersState
from tiered.runtime import BlockingPool, Clock

log = logging.getLogger(__name__)

LAST_WORDS_MS = 5_000
REPORT_INTERVAL_MS = 5_000
SETTLE_INTERVAL_MS = 1_000
RESIGN_INTERVAL_MS = 500
# As fast as anybody can append, they take some 50 MiB more until then.
PRODUCERS_INTERVAL_MS = 5_000


class Broker:
    """One broker. Between `start` and `stop` its parts may be used by both doors."""

    def __init__(self, options: ServeOptions, clock: Clock, parts: BrokerParts | None = None) -> None:
        """Takes the data folder's lock; raises AlreadyRunning when another process has it."""
        parts = parts or BrokerParts()
        self.options = options
        self.clock = clock
        self.state = BrokerState(settings=options.settings)
        settings, tiering = options.settings, options.settings.tiering
        self.counters = CountersState()
        self.broker_id = options.broker_id
        self.rack = options.rack
        self.is_alone = parts.database is None and options.meta_url.startswith("sqlite")
        check_authentication(settings.authentication, options.listeners, options.inter_broker, is_alone=self.is_alone)
        self.access = Access(state=self.state)
        # Neither connects to anything yet. A URL that is none must leave no lock behind.
        self.database = parts.database or Database.open(options.meta_url)
        store = parts.store or open_store(options.store_url, timeout_ms=tiering.tiered_store_timeout_ms)
        self.store = OwnStore(store, clock)
        self.data = DataFolder(options.data_dir)
        self.reserve = DiskReserve(self.data)
        self.disk = BlockingPool("disk", threads=settings.limits.num_io_threads)
        self.uploads = BlockingPool("upload", threads=tiering.tiered_upload_concurrency + 1)
        self.context = BrokerContext(
            broker_id=self.broker_id,
            rack=self.rack,
            options=options,
            is_alone=self.is_alone,
            clock=clock,
            counters=self.counters,
            database=self.database,
            store=self.store,
            data=self.data,
            reserve=self.reserve,
            files=parts.files or RealFileSystem(),
            disk=self.disk,
            uploads=self.uploads,
            flusher=Flusher(self.disk, clock),
            state=self.state,
        )
        self.started_monotonic_ms = clock.monotonic_ms()
        self.waiting_partitions = OwnersShares()
        """How many partitions the fetches that wait ask for; Fetch keeps the count."""
        self.must_stop = asyncio.Event()
        self.replaced: StaleBrokerEpoch | None = None
        """Why this process must stop, once another one has taken its place."""
        self._advertised: dict[str, tuple[str, int]] = {}
        """What clients of each listener are told; under `""` those of the first one."""
        self._downloads = BlockingPool("download", threads=tiering.tiered_cold_read_concurrency)
        self._cache = ChunkCache(
            self.data.cache,
            max_bytes=tiering.tiered_cache_bytes,
            pool=self._downloads,
            max_bytes_in_flight=tiering.tiered_cold_read_bytes_in_flight,
            loads_at_once=tiering.tiered_cold_read_concurrency,
        )
        self._cold_pacing = ColdPacing(self._cache, self.counters, clock, most=tiering.tiered_cold_read_concurrency)
        self.cold_reader = ColdReader(self.store, self._cache, self._downloads)
        self.validation = LongValidations()
        self.reader = TierReader(self.cold_reader, self.disk, self.counters)
        self.records = RecordReader(self.reader, clock)
        self.searches = RecordSearches(self.reader, clock, lambda: self.state.settings.http.tiered_http_max_searches)

        context, state = self.context, self.state
        topics, image = self.topics, self.image = Topics(), ClusterImage()
        feed = self.feed = ChangeFeed(context=context, image=image)
        self.changes = Changes(feed=feed)
        self.resource_configs = ResourceConfigs(lambda: state.settings)
        self.client_metrics = ClientMetrics(clock, self.resource_configs, lambda: state.settings)
        self.client_quotas = ClientQuotas(clock, lambda: state.settings)
        self.leadership_check = LeadershipCheck(feed=feed)
        self.registration = Registration(context=context, boot_id=parts.boot_id)
        agenda = PartitionAgenda()
        self.loader = PartitionLoader(
            changed=agenda.changed,
            context=context,
            topics=topics,
            image=image,
            cold_reader=self.cold_reader,
            log_failed=self.registration.log_failed,
            has_failed_log=self.registration.has_failed_log,
        )
        self.store_reach = StoreReach(context=context, image=image, feed=feed)
        self.failed_replicas = FailedReplicas(
            context=context, topics=topics, image=image, feed=feed, reach=self.store_reach
        )

        self.credentials = Credentials(state=state, feed=feed, changes=self.changes)
        self.authentication = Authentication(
            options=options, clock=clock, state=state, credentials=self.credentials, is_alone=self.is_alone
        )
        self.audit = AuditLog(context=context, access=self.access)
        self.acls = Acls(context=context, feed=feed, changes=self.changes, access=self.access)

        among_brokers = with_login(options.inter_broker_security, settings.authentication)
        self.channels: Channels = parts.channels or PeerChannels(
            self.broker_id, options.inter_broker.name, among_brokers
        )
        self.transaction_channels: TransactionChannels = parts.transaction_channels or PeerTransactionChannels(
            self.broker_id, topics=topics, listener=options.inter_broker.name, security=among_brokers
        )
        isr_changes = IsrChanges(context=context, topics=topics, image=image, feed=feed)
        self.throttle = ReplicationThrottle(clock, lambda: state.settings.cluster.follower_replication_throttled_rate)
        self.replication = Replication(
            context=context,
            topics=topics,
            image=image,
            isr_changes=isr_changes,
            answers=FollowerAnswers(context=context, topics=topics, image=image, isr_changes=isr_changes),
            fetcher=self._fetcher,
        )
        self._catch_up = CatchUp(
            context=context, cold_reader=self.cold_reader, rows_applied=self.replication.rows_applied
        )

        self.checkpoints = CheckpointWriter(
            context=context, topics=topics, image=image, resource_configs=self.resource_configs
        )
        self.store_owner = StoreOwner(context=context, checkpoints=self.checkpoints)
        findings = Findings()
        clock_watch = self.clock_watch = ClockWatch(context=context)
        lifecycle = self.lifecycle = SegmentLifecycle(
            context=context,
            image=image,
            feed=feed,
            changes=self.changes,
            checkpoints=self.checkpoints,
            clock_watch=clock_watch,
            first_lost_offset=findings.first_lost_offset,
        )
        self.joining = Joining(
            context=context, topics=topics, checkpoints=self.checkpoints, feed=feed, lifecycle=lifecycle
        )
        self.upload_pipeline = UploadPipeline(
            context=context, topics=topics, lifecycle=lifecycle, uploaded=self.joining.uploaded
        )
        self.retention = RetentionRounds(context=context, topics=topics, lifecycle=lifecycle, clock_watch=clock_watch)
        self.compaction = CompactionRounds(context=context, topics=topics, image=image)
        self.reconciler = Reconciler(context=context, topics=topics, image=image, findings=findings)
        self.pins = Pins(context=context)
        slots = HeldSlots()
        self.group_checkpoints = GroupCheckpointWriter(context=context, slots=slots)
        self.reports = SqlReports(context=context, topics=topics)
        self._seen = SeenChanges(context=context, went_back=self.metadata_went_back)
        self.producer_ids = ProducerIds(self.database, note=self._seen.note)
        self.record_writer = RecordWriter(context=context)
        self.groups = GroupCoordinator(
            context=context,
            topics=topics,
            image=image,
            access=self.access,
            resource_configs=self.resource_configs,
            group_checkpoints=self.group_checkpoints,
            slots=slots,
        )
        self.marker_writer = MarkerWriter(
            context=context, topics=topics, slots=slots, offsets_decided=self.groups.offsets_decided
        )
        self.transactions = TransactionCoordinator(
            context=context,
            slots=slots,
            slot_of=self.groups.slot,
            is_ours=self.groups.is_ours,
            commits=self.groups.offsets.commits,
            producer_ids=self.producer_ids,
            markers=MarkerSender(
                context=context,
                image=image,
                topics=topics,
                channels=self.transaction_channels,
                write_here=self.marker_writer.write,
            ),
        )
        self.verifications = Verifications(
            context=context,
            here=self.transactions,
            coordinator_elsewhere=self.groups.coordinator_elsewhere,
            channels=self.transaction_channels,
        )
        self.groups.on_slots_changed = self.transactions.slots_changed
        self.log_bounds = KnownLogBounds(context=context, topics=topics, image=image)
        self.lag = LagHistory(context=context, topics=topics, image=image, log_bounds=self.log_bounds)

        self.reassignments = Reassignments(context=context, topics=topics, image=image, feed=feed)
        self.controller = Controller(
            context=context,
            topics=topics,
            image=image,
            feed=feed,
            checkpoints=self.checkpoints,
            reassignments=self.reassignments,
            balance_slots=self.groups.balance_slots,
        )
        self.heartbeats = Heartbeats(
            context=context, image=image, feed=feed, controller=self.controller, reach=self.store_reach,
            was_replaced=self.was_replaced,
        )  # fmt: skip
        self.applier = ChangeApplier(
            access=self.access,
            context=context,
            topics=topics,
            image=image,
            loader=self.loader,
            failed_replicas=self.failed_replicas,
            resource_configs=self.resource_configs,
            client_quotas=self.client_quotas,
            credentials=self.credentials,
            replication=self.replication,
            checkpoints=self.checkpoints,
            groups=self.groups,
            controller=self.controller,
        )
        feed.apply = self.applier.apply
        feed.is_unfinished = self.applier.is_retry_due
        self.admin = Admin(
            context=context,
            topics=topics,
            image=image,
            feed=feed,
            changes=self.changes,
            applier=self.applier,
            resource_configs=self.resource_configs,
            lifecycle=lifecycle,
        )
        self._rounds = PartitionRounds(
            agenda=agenda, context=context, topics=topics, reports=self.reports, upload_pipeline=self.upload_pipeline,
            disk_failed=self.disk_failed,
        )  # fmt: skip
        self._sweeps = Sweeps(context=context, lifecycle=lifecycle)
        self._housekeeping = Housekeeping(counters=self.counters)

    def _fetcher(self, leader_id: int, number: int) -> ReplicaFetcher:
        return ReplicaFetcher(
            leader_id=leader_id,
            number=number,
            context=self.context,
            image=self.image,
            feed=self.feed,
            channels=self.channels,
            incarnation_id=self.registration.incarnation_id,
            throttle=self.throttle,
            catch_up=self._catch_up,
            disk_failed=self.disk_failed,
        )

    def _ticks(self) -> Sequence[Tick]:
        state, tiering, logs = self.state, self.state.settings.tiering, self.state.settings.log
        return (
            Tick(tiering.tiered_upload_interval_ms, self._rounds.look, "rolling and uploads"),
            Tick(tiering.tiered_checkpoint_interval_ms, self.checkpoints.write_stale, "checkpoints"),
            Tick(tiering.tiered_group_checkpoint_interval_ms, self.group_checkpoints.tick, "group checkpoints"),
            Tick(tiering.tiered_group_checkpoint_interval_ms, self.checkpoints.look_at_pins, "looking for pins"),
            Tick(self.store_owner.interval_ms, self.store_owner.tick, "looking whose the object store is"),
            Tick(logs.log_retention_check_interval_ms, self.retention.round, "retention"),
            Tick(lambda: state.settings.log.log_cleaner_backoff_ms, self.compaction.round, "compaction"),
            Tick(tiering.tiered_sweep_interval_ms, self.joining.round, "joining small segments"),
            Tick(tiering.tiered_sweep_interval_ms, self._sweeps.own, "sweeping the object store"),
            Tick(tiering.tiered_sweep_interval_ms, self._sweeps.for_all, "sweeping for all brokers"),
            Tick(SETTLE_INTERVAL_MS, self.changes.settle, "settling unknown outcomes"),
            Tick(NOTE_INTERVAL_MS, self._seen.note, "noting what was seen"),
            Tick(store_reach.TICK_MS, self.store_reach.tick, "telling whether the object store is within reach"),
            Tick(RESIGN_INTERVAL_MS, self.failed_replicas.resign, "giving up failed replicas"),
            Tick(logs.producer_id_expiration_check_interval_ms, self._rounds.expire_producers, "producer expiry"),
            Tick(PRODUCERS_INTERVAL_MS, self._rounds.bound_producers, "bounding producers"),
            Tick(REPORT_INTERVAL_MS, self.reports.write, "reports"),
            Tick(state.settings.http.tiered_lag_sample_interval_ms, self.lag.sample, "sampling the groups' lag"),
        )

    # What changes while the broker runs, for the doors

    @property
    def settings(self) -> BrokerSettings:
        """The settings in force now, dynamic ones included."""
        return self.state.settings

    @property
    def security(self) -> Security:
        """The rules and credentials in force now."""
        return self.state.security

    @property
    def cluster_id(self) -> str:
        """Empty until the broker is registered."""
        return self.state.cluster_id

    @property
    def broker_epoch(self) -> int:
        """-1 until the broker is registered."""
        return self.state.broker_epoch

    @property
    def serving(self) -> bool:
        """Between the end of `start` and the beginning of `stop`."""
        return self.state.serving

    @property
    def store_trouble(self) -> StoreTrouble | None:
        """What keeps this broker from the object store: the newest operation's trouble, else the last look's."""
        return self.store.trouble or self.store_reach.trouble

    # Start and stop

    async def start(
        self,
        tasks: asyncio.TaskGroup,
        *,
        advertised: tuple[str, int],
        http: tuple[str, int] | None = None,
        listeners: Sequence[ListenerOptions] = (),
    ) -> None:
        """Ready to serve when it returns. Raises TieredError that says what to do.

        The object store is looked at once, and not needed: a broker starts while S3 is away.
        """
        self._advertised = {"": advertised, **{each.name: each.advertised for each in listeners}}
        await asyncio.to_thread(self.reserve.look)
        # Before the others count on this broker.
        warning = open_files.require_enough(open_files.limit(), await asyncio.to_thread(self.data.log_count))
        if warning is not None:
            log.warning("%s", warning)
        self.audit.start(tasks)
        # Before the others count on this broker; a store that is slow to answer costs the time that SQL takes anyway.
        _, look = await asyncio.gather(
            asyncio.to_thread(self.database.migrate), look_at_store(self.store, self.uploads)
        )
        await self._seen.begin()
        await self.store_owner.check_before_registration(look)
        registered = await self.registration.register(
            advertised=advertised, http=http, listeners=listeners,
            store_trouble=None if look.has_answered else self.store.trouble or StoreTrouble.AWAY,
        )  # fmt: skip
        self.state.cluster_id, self.state.broker_epoch = registered.cluster_id, registered.broker_epoch
        self.state.facts = {
            "broker.id": str(self.broker_id),
            "node.id": str(self.broker_id),
            "broker.rack": self.rack,
            "log.dirs": str(self.data.log_root),
            "advertised.listeners": ",".join(
                f"{each.name}://{each.advertised[0]}:{each.advertised[1]}"
                for each in listeners or [ListenerOptions(host=advertised[0], port=advertised[1])]
            ),
        }
        # From here on the others count on this broker, however long its logs take.
        self.heartbeats.start(tasks)
        await self.cold_reader.start(tasks)
        self._cold_pacing.start(tasks)
        self.changes.start(tasks)
        await self.loader.remove_strays(registered.tombstones, registered.everything.partitions)
        await self.applier.begin(registered.everything)
        self._list_offsets_topic()
        await self.store_owner.check_before_ready(look)
        self.replication.start(tasks)
        self.feed.start(tasks)
        self.transactions.start(tasks)
        await self.groups.start(tasks)
        self.controller.start(tasks)
        self.upload_pipeline.start(tasks)
        self._housekeeping.start(tasks, self._ticks())
        self.reconciler.start(tasks)
        self.state.serving = True

    @property
    def cold_loads_allowed(self) -> int:
        """Loads from the store that may run at once now; fewer than configured beside a tail that would feel them."""
        return self._cache.turns.allowed

    async def hand_over(self) -> None:
        """The beginning of a controlled shutdown: others lead what this broker led, which still answers."""
        await self.heartbeats.stop()
        await self.controller.stop()
        await hand_over(context=self.context, topics=self.topics, image=self.image, feed=self.feed, groups=self.groups)

    def begin_stop(self) -> None:
        """From here on no write is taken; answers in progress still go out."""
        self.state.serving = False
        self.groups.begin_stop()
        for partition in self.topics.partitions():
            partition.stop()

    async def stop(self) -> None:
        """Flushes and closes everything; what cannot be done is logged, and made good at the next start."""
        await self.heartbeats.stop()
        await self.controller.stop()
        await self.reconciler.stop()
        await asyncio.gather(self._housekeeping.stop(), self.upload_pipeline.stop())
        await self.replication.stop()
        await self.transactions.stop()
        self.transaction_channels.close()
        await self.groups.stop()
        await self.feed.stop()
        await self.audit.stop()
        is_flushed = await self.loader.close_all()
        for step in (
            self.checkpoints.write_stale, self.group_checkpoints.write_last, self.reports.write_all, self._leave,
            self.store_owner.leave,
        ):  # fmt: skip
            try:
                async with asyncio.timeout(LAST_WORDS_MS / 1000.0):
                    await step()
            except TimeoutError:
                log.warning("at shutdown: a store did not answer in time; the next start makes it good")
            except TieredError as error:
                log.warning("at shutdown: %s", error)
        await self._seen.note()
        if is_flushed:
            await self.registration.logs_flushed()
        else:
            await self.disk.run(self.registration.log_failed)
        await self._cold_pacing.stop()
        await self.cold_reader.stop()
        await self.database.close()
        await asyncio.to_thread(self._close_pools)
        self.data.release()

    async def abandon(self) -> None:
        """Lets go of everything as a process that dies would: no flush, no mark of a clean end, no last word to a
        store. A call that a thread is in the middle of is carried out; uploads and downloads are not waited for."""
        self.begin_stop()
        self.transaction_channels.close()
        await self._cold_pacing.stop()
        await self.cold_reader.stop()
        await asyncio.to_thread(self._let_go)

    def _let_go(self) -> None:
        self.store.close()
        for pool in (self._downloads, self.uploads, self.validation):
            pool.close(wait=False)
        self.credentials.close()
        self.access.close()
        self.disk.close()
        self.compaction.close(wait=False)
        self.joining.close(wait=False)
        self.records.close()
        self.searches.close()
        for partition in self.topics.partitions():
            partition.log.discard()
        self.database.close_sync()
        self.data.release()

    def _close_pools(self) -> None:
        # First the store, so that requests to one that is away are not repeated any more.
        self.store.close()
        for pool in (self._downloads, self.uploads, self.disk, self.records, self.compaction, self.credentials):
            pool.close()
        self.access.close()
        self.searches.close()
        self.joining.close()
        self.validation.close()

    def was_replaced(self, error: StaleBrokerEpoch) -> None:
        """Stops this process: another one has registered under its id."""
        log.critical("stopping: %s", error)
        self.begin_stop()
        self.replaced = error
        self.must_stop.set()

    def metadata_went_back(self, reason: str) -> None:
        """Serves no partition any more: what the metadata store says of them may be older than what is in their logs
        (R14)."""
        if self.broker_epoch != -1:  # A start that is refused ends with these words.
            log.critical("%s", reason)
        self.state.metadata_went_back = reason
        for partition in self.topics.partitions():
            partition.halt(reason, is_logged=True)

    def disk_failed(self, partition: Partition) -> None:
        """The partition's log met an I/O error: others take over what it leads."""
        if partition.topic_partition in self.failed_replicas:
            return
        self.failed_replicas.add(partition.topic_partition)
        log.error("%s: %s", partition.name, partition.log.failed or "its disk failed")

    async def _leave(self) -> None:
        """Out of service until the next registration; the controller's lease is free at once."""

        def leave(conn: Connection) -> None:
            liveness.release(conn, broker_id=self.broker_id, broker_epoch=self.broker_epoch)
            brokers.fence(conn, broker_id=self.broker_id, broker_epoch=self.broker_epoch)

        await self.database.run(leave)

    def _list_offsets_topic(self) -> None:
        """It has no log, because offsets live in SQL: `groups.offsets_topic` shows them."""
        overrides = {"cleanup.policy": "compact"}
        self.topics.put(
            Topic(
                name=OFFSETS_TOPIC,
                topic_id=TopicId(uuid5(NAMESPACE_URL, f"tiered:{self.cluster_id}:{OFFSETS_TOPIC}")),
                partition_count=self.settings.groups.offsets_topic_num_partitions,
                config=TopicConfig.of(overrides, self.settings),
                overrides=overrides,
                partitions=(),
                is_internal=True,
            )
        )

    # What both doors ask

    def address_for(self, local_host: str, listener: str = "") -> tuple[str, int]:
        """Where the client that reached us on `local_host` is told to connect; without a listener, on the first one.

        A wildcard address is bound by many names, and none of them is it: then the client is told the one
        that it has found us by.
        """
        host, port = self._advertised.get(listener) or self._advertised[""]
        return (local_host if host in WILDCARD_ADDRESSES else host), port

    async def partition_totals(self) -> PartitionTotals:
        """The sums over all partitions here, as of now. Others are served meanwhile."""
        return await partition_totals(self.topics, self.clock.now_ms())

    def overdue_end_offset(self, partition: Partition) -> int:
        """Offsets from the partition's `cold_end_offset` up to here should be in the object store by now."""
        timeout_ms = self.settings.tiering.tiered_upload_timeout_ms
        return tier_plan.overdue_end_offset(partition, self.clock.now_ms(), timeout_ms)

    def health(self, totals: PartitionTotals) -> dict[str, Any]:
        """`serving`, and what an operator should look at."""
        trouble = self.store_trouble
        return {
            "serving": self.serving,
            "broker": self.broker_id,
            "cluster_id": self.cluster_id,
            "failed_partitions": [*self.topics.unopened_names(), *totals.failed_names][:MAX_NAMES],
            "disk_full": self.reserve.is_low,
            "upload_backlog_bytes": totals.upload_backlog_bytes,
            "upload_backlog_age_ms": totals.upload_backlog_age_ms,
            "disk_only_age_ms": totals.disk_only_age_ms,
            "held_back_partitions": totals.held_back_partitions,
            "held_back_ms": totals.held_back_ms,
            "metadata_went_back": self.state.metadata_went_back is not None,
            "sql_away": self.database.times.is_failing,
            "store_away": trouble is StoreTrouble.AWAY,
            "store_trouble": None if trouble is None else trouble.value,
            "undeletable_objects": self.counters.objects_refused,
            "store_belongs_to": self.store.other_cluster_id,
            "stale_checkpoints": self.checkpoints.stale_count,
            "findings": self.reconciler.findings.by_kind(),
        }
