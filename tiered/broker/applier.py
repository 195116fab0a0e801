"""Applies a change of the control plane to this broker: to its image, its topics, its partitions and its parts.

Owns the order in which a set is applied: who is in service and who leads first, then what needs the disk. Must never
read the feed itself, nor let one partition block the others: a partition that cannot be opened, or cannot become what
SQL says, is closed, answers with the reason, and is tried again.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from tiered.broker.context import BrokerContext
from tiered.broker.control.controller import Controller
from tiered.broker.groups.coordinator import GroupCoordinator
from tiered.broker.host.resource_configs import ResourceConfigs
from tiered.broker.partitions.failed_replicas import FailedReplicas
from tiered.broker.partitions.partition import Partition
from tiered.broker.partitions.topics import Topic, Topics, Unopened
from tiered.broker.replication.replication import Replication
from tiered.broker.security.access import Access
from tiered.broker.security.client_quotas import ClientQuotas
from tiered.broker.security.credentials import Credentials
from tiered.broker.tiering import committed_rows
from tiered.broker.tiering.checkpoints import CheckpointWriter
from tiered.broker.tiering.partition_loader import PartitionLoader
from tiered.broker.view.image import ClusterImage
from tiered.config import TopicConfig
from tiered.config.broker import broker_setting
from tiered.errors import CorruptMetadata, InvalidConfig, TieredError
from tiered.formats.checkpoint import CommittedSegment
from tiered.ids import TopicId, TopicPartition
from tiered.meta.changes import ChangeSet
from tiered.meta.partitions import PartitionRow
from tiered.meta.topics import TopicRow
from tiered.rules.replication.replica_set import NO_LEADER
from tiered.runtime import in_turns

log = logging.getLogger(__name__)

TOPICS_AT_ONCE = 100
MAX_NAMED = 20
"""Settings in one line of the log."""
FIRST_RETRY_MS = 2_000.0
MAX_RETRY_MS = 60_000.0
"""Logs that cannot be opened are tried again after pauses that double up to this: a try may read a whole log."""


class ChangeApplier:
    """Applies one set at a time: `begin` what the registration saw, then what the feed reads."""

    def __init__(
        self,
        *,
        access: Access,
        context: BrokerContext,
        checkpoints: CheckpointWriter,
        client_quotas: ClientQuotas,
        controller: Controller,
        credentials: Credentials,
        failed_replicas: FailedReplicas,
        groups: GroupCoordinator,
        image: ClusterImage,
        loader: PartitionLoader,
        replication: Replication,
        resource_configs: ResourceConfigs,
        topics: Topics,
    ) -> None:
        self._access = access
        self._context = context
        self._checkpoints = checkpoints
        self._client_quotas = client_quotas
        self._controller = controller
        self._credentials = credentials
        self._failed_replicas = failed_replicas
        self._groups = groups
        self._image = image
        self._loader = loader
        self._replication = replication
        self._resource_configs = resource_configs
        self._topics = topics
        self._retry_at_ms = 0.0
        self._retries = 0
        self._broker_configs: Mapping[int | None, Mapping[str, str]] | None = None
        """As they were taken last."""

    async def begin(self, everything: ChangeSet) -> None:
        """Applies the catalogue as the registration saw it. Partitions that cannot be opened do not end the start."""
        await self._apply(everything, committed_rows.by_partition(everything.segments))

    def check_opened(self, topic_id: UUID) -> None:
        """Raises why a local log of the topic could not be opened, if that is so."""
        topic = self._topics.find_id(topic_id)
        for error in () if topic is None else topic.unopened.values():
            raise error

    def is_retry_due(self) -> bool:
        """Whether a local log that could not be opened is to be tried again now."""
        return bool(self._topics.with_unopened()) and self._context.clock.monotonic_ms() >= self._retry_at_ms

    async def apply(self, found: ChangeSet) -> None:
        """Makes this broker's view what `found` says. Safe to repeat, also after a part of it failed. A set without
        news is the time to try again what could not be opened."""
        if found.number != self._image.change_number:
            await self._apply(found, {})
        elif self.is_retry_due():
            await self._open_again()

    async def _apply(
        self, found: ChangeSet, committed_before: Mapping[TopicPartition, Sequence[CommittedSegment]]
    ) -> None:
        """`committed_before` has all committed segments of partitions that are to be opened. Those of others are asked
        for: a set that has only changes says nothing of what was committed before."""
        image = self._image
        # The change of a group's configs comes with all of a broker's, as they were.
        settings_changed = found.broker_configs is not None and found.broker_configs != self._broker_configs
        if found.broker_configs is not None and settings_changed:
            await self._take_settings(found.broker_configs)
        if found.resource_configs is not None:
            self._resource_configs.take(found.resource_configs)
        if found.security is not None:
            await self._access.take(found.security.acls)
            self._context.state.security = found.security
            self._client_quotas.take(found.security.quotas)
            self._credentials.changed()
        brokers_changed = image.put_brokers(found.brokers, self._context.clock.monotonic_ms())
        if found.broker_ids is not None:
            brokers_changed = image.keep_brokers(found.broker_ids) or brokers_changed
        living = {row.topic_id: row for row in found.topics if row.deleted_at_ms is None}
        deleted = [row.topic_id for row in found.topics if row.deleted_at_ms is not None]
        rows = [row for row in found.partitions if row.topic_id in living or self._topics.find_id(row.topic_id)]
        rows = [row for row in rows if not self._has_fault(row)]
        for row in rows:
            self._count_election(row)
            image.put_row(row)
        touched = await self._apply_rows(rows, committed_rows.by_partition(found.segments))
        if brokers_changed:
            self._replication.brokers_changed()
        self._replication.rows_applied(touched)
        image.put_slots(found.slots)
        self._groups.slots_changed(found.slots)
        self._controller.changed(rows, brokers_changed=brokers_changed)
        for topic_id in deleted:
            await self._remove_topic(topic_id)
        elsewhere = {row.topic_id for row in rows if self._is_misplaced(row)}
        await self._refit(living, elsewhere - living.keys(), committed_before)
        if living or settings_changed:
            self._controller.configs_changed(living, of_all=settings_changed)
        for partition in touched:
            await self._keep_log_start(partition)
        image.change_number = found.number
        if living or deleted or found.broker_configs is not None or found.security is not None:
            self._checkpoints.cluster_changed()

    async def _take_settings(self, stored: Mapping[int | None, Mapping[str, str]]) -> None:
        self._broker_configs = stored
        self._checkpoints.settings_changed(stored)
        self._warn_of_ignored(stored)
        before = self._context.settings
        try:
            self._context.state.settings = self._context.settings.with_dynamic(
                dynamic_default=stored.get(None, {}), dynamic=stored.get(self._context.broker_id, {})
            )
        except InvalidConfig as error:
            if not self._context.state.serving:
                raise
            log.error(
                "the settings of this broker in the metadata store are not allowed, the last ones stay: %s", error
            )
            return
        self._context.disk.resize(self._context.settings.limits.num_io_threads)
        if self._context.settings.cluster.num_replica_fetchers != before.cluster.num_replica_fetchers:
            self._replication.rows_applied(list(self._topics.partitions()))
        if TopicConfig.of({}, self._context.settings) == TopicConfig.of({}, before):
            return  # Nor are the defaults of topics others.
        async for topic_id in in_turns([topic.topic_id for topic in self._topics]):
            topic = self._topics.find_id(topic_id)
            if topic is not None:
                self._put(replace(topic, config=self._config_of(topic.name, topic.overrides, topic)))

    def _warn_of_ignored(self, stored: Mapping[int | None, Mapping[str, str]]) -> None:
        own_id = self._context.broker_id
        ignored = [
            name
            for scope in (None, own_id)
            for name in stored.get(scope, {})
            if not broker_setting(name).may_change_at_run_time(for_all=scope is None)
        ]
        if ignored:
            log.warning(
                "the metadata store has settings that a broker takes at its start alone, or each for itself; they have "
                "no effect there, and can be deleted as others are: %s", ", ".join(ignored[:MAX_NAMED]),
            )  # fmt: skip

    def _config_of(self, name: str, overrides: Mapping[str, str], current: Topic | None) -> TopicConfig:
        """The effective configs. Where SQL's are not allowed, those in force stay: none of the topic's partitions is
        opened then, so the defaults of a topic that is new here delete nothing."""
        try:
            return TopicConfig.of(overrides, self._context.settings)
        except InvalidConfig as error:
            log.error(
                "topic %s: its configs in the metadata store are not allowed, the last ones stay: %s", name, error
            )
            return TopicConfig.of({}, self._context.settings) if current is None else current.config

    def _put(self, topic: Topic) -> None:
        """From here on its partitions are known. Those that were opened while the metadata store was found to have gone
        back (R14) serve nothing either."""
        went_back = self._context.state.metadata_went_back
        self._topics.put(topic)
        for partition in topic.partitions:
            if went_back is not None and partition.halted is None:
                partition.halt(went_back, is_logged=True)
            if partition.config != topic.config:
                partition.configure(topic.config)

    async def _apply_rows(
        self, rows: Iterable[PartitionRow], committed: Mapping[TopicPartition, Sequence[CommittedSegment]]
    ) -> list[Partition]:
        """The open partitions among them, which now are what their rows say. One that cannot be is closed."""
        touched = []
        told = dict(committed)
        async for row in in_turns(rows):
            partition = self._open_partition(row.topic_partition)
            if partition is None or self._context.broker_id not in row.replicas:
                continue
            try:
                await self._apply_row(partition, row, told.pop(row.topic_partition, ()))
            except Exception as error:  # noqa: BLE001 - ends one partition, and is logged there
                await self._close(partition, error)
            else:
                touched.append(partition)
        for key, segments in told.items():
            partition = self._open_partition(key)
            if partition is None:
                continue
            try:
                committed_rows.apply(self._checkpoints, partition, segments)
            except Exception as error:  # noqa: BLE001 - ends one partition, and is logged there
                await self._close(partition, error)
        return [partition for partition in touched if not partition.closed]

    async def _apply_row(self, partition: Partition, row: PartitionRow, committed: Sequence[CommittedSegment]) -> None:
        before = (partition.cold_end_offset, partition.log_start_offset, partition.leader_epoch)
        committed_rows.apply(self._checkpoints, partition, committed)
        if row.leader == self._context.broker_id and partition.log.log_end_offset < partition.cold_end_offset:
            await self._loader.begin_at_cold_end(partition)
        partition.apply_row(row, broker_epoch=self._context.state.broker_epoch)
        if before != (partition.cold_end_offset, partition.log_start_offset, partition.leader_epoch):
            self._checkpoints.opened(partition)

    async def _close(self, partition: Partition, error: Exception) -> None:
        """Closes a partition that cannot become what SQL says: it is opened anew from what SQL says then."""
        key = partition.topic_partition
        topic = self._topics.find_id(key.topic_id)
        assert topic is not None, partition.name
        unopened = {**topic.unopened, key.partition: self._unopened(topic, key.partition, error)}
        others = tuple(other for other in topic.partitions if other is not partition)
        self._topics.put(replace(topic, partitions=others, unopened=unopened))
        self._replication.removed([partition])
        await self._loader.close(partition)

    def _unopened(self, topic: Topic, number: int, error: Exception) -> Unopened:
        """Why the partition is not open, to be kept. The log says it once."""
        reason = (
            error
            if isinstance(error, TieredError | OSError)
            else CorruptMetadata(f"{error!r} was not foreseen; see this broker's log")
        )
        if number not in topic.unopened:
            name = f"{topic.name}-{number}"
            traceback = None if reason is error else error
            log.error("%s cannot be opened; it is tried again: %s", name, reason, exc_info=traceback)
        self._failed_replicas.add(TopicPartition(topic.topic_id, number))
        reason.__cause__ = reason.__context__ = None  # Frames hold what keeps the error.
        return reason.with_traceback(None)

    def _has_fault(self, row: PartitionRow) -> bool:
        """Whether nobody can read the row. Its partition halts, and the image keeps what it had."""
        if not row.fault:
            return False
        partition = self._open_partition(row.topic_partition)
        if partition is not None and partition.halted is None:
            partition.halt(row.fault)
        if self._image.row(row.topic_partition) is None:
            self._image.put_row(row)
        return True

    def _count_election(self, row: PartitionRow) -> None:
        before = self._image.row(row.topic_partition)
        if before is not None and row.leader != NO_LEADER and row.leader_epoch > before.leader_epoch:
            self._context.counters.leader_elections += 1

    def _open_partition(self, key: TopicPartition) -> Partition | None:
        topic = self._topics.find_id(key.topic_id)
        return None if topic is None else topic.hosted(key.partition)

    def _is_misplaced(self, row: PartitionRow) -> bool:
        """Whether this broker has the partition's log and should not, or should and has not."""
        return (self._context.broker_id in row.replicas) != (self._open_partition(row.topic_partition) is not None)

    async def _remove_topic(self, topic_id: UUID) -> None:
        self._image.remove_topic(topic_id)
        topic = self._topics.find_id(topic_id)
        if topic is None:
            return
        self._topics.remove(topic)
        self._replication.removed(topic.partitions)
        for number in topic.unopened:
            self._failed_replicas.discard(TopicPartition(topic.topic_id, number))
        try:
            await self._loader.remove(topic)
        except (TieredError, OSError) as error:
            log.warning("topic %s: its files stay until the next start: %s", topic.name, error)

    async def _refit(
        self,
        living: Mapping[UUID, TopicRow],
        elsewhere: Iterable[UUID],
        committed: Mapping[TopicPartition, Sequence[CommittedSegment]],
    ) -> None:
        """Puts the topics that are new or changed, and those whose partitions came to this broker or left it."""
        wanted = [self._topic_of(row) for row in living.values()]
        wanted += [topic for topic_id in elsewhere if (topic := self._topics.find_id(topic_id)) is not None]
        for first in range(0, len(wanted), TOPICS_AT_ONCE):
            some = wanted[first : first + TOPICS_AT_ONCE]
            await self._fit(some, committed)

    def _topic_of(self, row: TopicRow) -> Topic:
        current = self._topics.find_id(row.topic_id)
        return Topic(
            name=row.name,
            topic_id=TopicId(row.topic_id),
            partition_count=row.partition_count,
            config=self._config_of(row.name, row.configs, current),
            overrides=row.configs,
            partitions=() if current is None else current.partitions,
            replication_factor=row.replication_factor,
            unopened={} if current is None else current.unopened,
        )

    async def _fit(self, some: Sequence[Topic], committed: Mapping[TopicPartition, Sequence[CommittedSegment]]) -> None:
        """Puts each topic with the partitions that this broker is to hold, opened; lets go of others."""
        held = {
            topic.topic_id: {
                row.partition: row
                for row in self._image.rows_of(topic.topic_id)
                if self._context.broker_id in row.replicas
            }
            for topic in some
        }
        opened, unopened = await self._open(
            [
                (topic, row)
                for topic in some
                for row in held[topic.topic_id].values()
                if topic.hosted(row.partition) is None
            ],
            committed,
        )
        for topic in some:
            added, rows = opened.get(topic.topic_id, []), held[topic.topic_id]
            leaving = tuple(each for each in topic.partitions if each.topic_partition.partition not in rows)
            kept = [each for each in topic.partitions if each.topic_partition.partition in rows]
            partitions = sorted([*kept, *added], key=lambda each: each.topic_partition.partition)
            failed = unopened.get(topic.topic_id, {})
            for row in self._image.rows_of(topic.topic_id):
                if row.fault:
                    failed[row.partition] = self._unopened(topic, row.partition, CorruptMetadata(row.fault))
            for number in topic.unopened.keys() - failed.keys():
                self._failed_replicas.discard(TopicPartition(topic.topic_id, number))
            self._put(replace(topic, partitions=tuple(partitions), unopened=failed))
            self._replication.rows_applied(added)
            if leaving:
                self._replication.removed(leaving)
                try:
                    await self._loader.remove_partitions(leaving)
                except (TieredError, OSError) as error:
                    log.warning("topic %s: files of partitions that left stay: %s", topic.name, error)

    async def _open(
        self,
        wanted: Sequence[tuple[Topic, PartitionRow]],
        committed: Mapping[TopicPartition, Sequence[CommittedSegment]],
    ) -> tuple[Mapping[UUID, list[Partition]], Mapping[UUID, dict[int, Unopened]]]:
        """By topic, the partitions whose logs could be opened, and by number why the others could not."""
        found = await self._loader.open(wanted, committed)
        opened: dict[UUID, list[Partition]] = {}
        unopened: dict[UUID, dict[int, Unopened]] = {}
        async for (topic, row), partition in in_turns(zip(wanted, found, strict=True)):
            try:
                if not isinstance(partition, Partition):
                    raise partition
                TopicConfig.of(topic.overrides, self._context.settings)
                partition.apply_row(row, broker_epoch=self._context.state.broker_epoch)
            except Exception as error:  # noqa: BLE001 - ends one partition, and is logged there
                reason = self._unopened(topic, row.partition, error)
                unopened.setdefault(row.topic_id, {})[row.partition] = reason
                if isinstance(partition, Partition):
                    await self._loader.close(partition)
                continue
            self._checkpoints.opened(partition)
            opened.setdefault(row.topic_id, []).append(partition)
        return opened, unopened

    async def _open_again(self) -> None:
        await self._fit(self._topics.with_unopened(), {})
        is_left = bool(self._topics.with_unopened())
        pause_ms = min(MAX_RETRY_MS, FIRST_RETRY_MS * 2.0**self._retries)
        self._retries = min(self._retries + 1, 10) if is_left else 0
        self._retry_at_ms = self._context.clock.monotonic_ms() + pause_ms if is_left else 0.0

    async def _keep_log_start(self, partition: Partition) -> None:
        """The disk's copy of where the log starts. Behind, it is made good at the next start."""
        local = partition.log
        if local.log_start_offset < partition.log_start_offset <= local.log_end_offset:
            try:
                await self._context.disk.run(local.set_log_start_offset, partition.log_start_offset)
            except TieredError as error:
                log.warning("%s: where its log starts cannot be kept on disk: %s", partition.name, error)
