"""How this broker learns of every change of the control plane, its own included: in one order, from SQL.

Owns the one task that reads the feed and applies it, to the image, the topics and the partitions. Woken by the
database's notifications, by heartbeats that saw a higher number, and by whoever made a change; polling is the
floor. Must never apply a change that SQL did not commit, nor two sets at the same time.

A set is applied in the order of what it can cost: who is in service and who leads first, then what needs the disk.
A local log that cannot be opened does not hold up the others: it is tried again and again.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

from sqlalchemy import Connection

from tiered.broker import committed_rows
from tiered.broker.partition import Partition
from tiered.broker.topics import Topic
from tiered.config import TopicConfig
from tiered.errors import InvalidConfig, MetadataUnavailable, TieredError
from tiered.formats.checkpoint import CommittedSegment
from tiered.ids import TopicId, TopicPartition
from tiered.meta import changes, cluster
from tiered.meta.changes import ChangeSet
from tiered.meta.listener import Listener
from tiered.meta.partitions import PartitionRow
from tiered.meta.topics import TopicRow
from tiered.rules.replica_set import NO_LEADER

if TYPE_CHECKING:
    from tiered.broker.broker import Broker

log = logging.getLogger(__name__)
T = TypeVar("T")

POLL_MS = 2_000
RETRY_MS = 200
CATCH_UP_DEADLINE_MS = 10_000
TOPICS_AT_ONCE = 100
YIELD_EVERY_PARTITIONS = 500


class ChangeFeed:
    """One broker's view of the feed. `begin` applies what the registration saw; `start` follows from there."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._something = asyncio.Event()
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._unopened: dict[TopicPartition, TieredError | OSError] = {}
        self._listener: Listener | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_failing = False

    async def begin(self, everything: ChangeSet) -> None:
        """Applies the catalogue as the registration saw it. Raises what opening a log raised that nobody else holds;
        of others this broker is one replica less, until it can be opened."""
        await self._apply(everything)
        for key, error in self._unopened.items():
            row = self._broker.image.row(key)
            if row is None or len(row.replicas) == 1:
                raise error

    def start(self, group: asyncio.TaskGroup) -> None:
        """Follows the feed until `stop`."""
        loop = asyncio.get_running_loop()

        def wake() -> None:  # Called from the listener's thread.
            with suppress(RuntimeError):  # The loop is closed: nobody listens any more.
                loop.call_soon_threadsafe(self.wake)

        self._listener = self._broker.database.listen(wake)
        self._task = group.create_task(self._follow())

    async def stop(self) -> None:
        """Applies nothing more; who waits for a change is told that it is not known."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._listener is not None:
            await asyncio.to_thread(self._listener.close)
            self._listener = None
        waiting, self._waiting = self._waiting, []
        for number, future in waiting:
            if not future.done():
                future.set_exception(MetadataUnavailable(f"the broker is stopping; change {number} was committed"))

    # What others wait for

    def wake(self) -> None:
        """There may be something new."""
        self._something.set()

    async def commit(self, change: Callable[[Connection], T]) -> T:
        """What `change` returns, once its transaction was committed and this broker has applied it.

        `change` takes a number. Raises what it raises, and what `Database.run` and `caught_up` raise.
        """

        def carry_out(conn: Connection) -> tuple[T, int]:
            value = change(conn)
            # The number's lock is held until the transaction ends: this is still ours.
            return value, cluster.load(conn).change_number

        value, number = await self._broker.database.run(carry_out)
        await self.caught_up(number)
        return value

    async def caught_up(self, number: int) -> None:
        """Returns when this broker has applied every change up to `number`. Raises MetadataUnavailable when that
        takes too long; the changes are committed all the same, and will be applied."""
        if self._broker.image.change_number >= number:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((number, future))
        self.wake()
        try:
            async with asyncio.timeout(CATCH_UP_DEADLINE_MS / 1000.0):
                await future
        except TimeoutError:
            raise MetadataUnavailable(
                f"change {number} was committed, and this broker could not read it yet; look again later"
            ) from None

    async def refresh(self) -> None:
        """Returns when this broker has applied every change that was committed before the call."""
        row = await self._broker.database.read(cluster.load)
        await self.caught_up(row.change_number)

    def check_opened(self, topic_id: UUID) -> None:
        """Raises why a local log of the topic could not be opened, if that is so."""
        for key, error in self._unopened.items():
            if key.topic_id == topic_id:
                raise error

    # The task

    async def _follow(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_MS / 1000.0):
                    await self._something.wait()
            self._something.clear()
            try:
                await self._catch_up()
            except TieredError as error:
                self._broker.counters.feed_failures += 1
                if not self._is_failing:
                    self._is_failing = True
                    log.warning("changes of the cluster cannot be read; tried again and again: %s", error)
            except Exception:
                # A tick boundary: what it was is asked for again, and a bug must not end a broker that serves.
                log.exception("a change of the cluster could not be applied; it is tried again")
            else:
                if self._is_failing:
                    self._is_failing = False
                    log.warning("changes of the cluster are read again")
                continue
            await asyncio.sleep(RETRY_MS / 1000.0)
            if self._waiting:
                self._something.set()

    async def _catch_up(self) -> None:
        image = self._broker.image
        since = image.change_number
        found = await self._broker.database.read(lambda conn: changes.since(conn, since))
        if found.number != since:
            await self._apply(found)
        elif self._unopened:
            await self._open_again()

    # Applying

    async def _apply(self, found: ChangeSet) -> None:
        """Makes this broker's view what `found` says. Safe to repeat, also after a part of it failed."""
        broker = self._broker
        image = broker.image
        if found.broker_configs is not None:
            self._take_settings(found.broker_configs)
        if found.resource_configs is not None:
            broker.resource_configs.take(found.resource_configs)
        if found.security is not None:
            broker.state.security = found.security
            broker.client_quotas.take(found.security.quotas)
            broker.credentials.changed()
        brokers_changed = image.put_brokers(found.brokers, broker.clock.monotonic_ms())
        if found.broker_ids is not None:
            brokers_changed = image.keep_brokers(found.broker_ids) or brokers_changed
        living = {row.topic_id: row for row in found.topics if row.deleted_at_ms is None}
        deleted = [row.topic_id for row in found.topics if row.deleted_at_ms is not None]
        rows = [row for row in found.partitions if row.topic_id in living or broker.topics.find_id(row.topic_id)]
        for row in rows:
            self._count_election(row)
            image.put_row(row)
        committed = committed_rows.by_partition(found.segments)
        touched = await self._apply_rows(rows, committed)
        if brokers_changed:
            broker.replication.brokers_changed()
        broker.replication.rows_applied(touched)
        image.put_slots(found.slots)
        broker.groups.slots_changed(found.slots)
        broker.controller.changed(rows, brokers_changed=brokers_changed)
        for topic_id in deleted:
            await self._remove_topic(topic_id)
        elsewhere = {row.topic_id for row in rows if self._is_misplaced(row)}
        await self._refit(living, elsewhere - living.keys(), committed)
        for partition in touched:
            await self._keep_log_start(partition)
        image.change_number = found.number
        if living or deleted or found.broker_configs is not None or found.security is not None:
            broker.checkpoints.cluster_changed()
        self._tell_waiters()

    def _take_settings(self, stored: Mapping[int | None, Mapping[str, str]]) -> None:
        broker = self._broker
        broker.checkpoints.settings_changed(stored)
        fetchers = broker.settings.num_replica_fetchers
        try:
            broker.state.settings = broker.settings.with_dynamic(
                dynamic_default=stored.get(None, {}), dynamic=stored.get(broker.broker_id, {})
            )
        except InvalidConfig as error:
            if not broker.serving:
                raise
            log.error("the settings of this broker in the catalogue are not allowed, the last ones stay: %s", error)
            return
        broker.disk.resize(broker.settings.num_io_threads)
        if broker.settings.num_replica_fetchers != fetchers:
            broker.replication.rows_applied(list(broker.topics.partitions()))
        for topic in broker.topics:
            self._put(replace(topic, config=self._config_of(topic.name, topic.overrides)))

    def _config_of(self, name: str, overrides: Mapping[str, str]) -> TopicConfig:
        try:
            return TopicConfig.of(overrides, self._broker.settings)
        except InvalidConfig as error:
            if not self._broker.serving:
                raise
            log.error("topic %s: its configs in the catalogue are not allowed, it gets defaults: %s", name, error)
            return TopicConfig.of({}, self._broker.settings)

    def _put(self, topic: Topic) -> None:
        self._broker.topics.put(topic)
        for partition in topic.partitions:
            if partition.config != topic.config:
                partition.configure(topic.config)

    async def _apply_rows(
        self, rows: Iterable[PartitionRow], committed: Mapping[TopicPartition, Sequence[CommittedSegment]]
    ) -> list[Partition]:
        """The open partitions among them, which now are what their rows say."""
        touched = []
        told = dict(committed)
        for number, row in enumerate(rows):
            if number % YIELD_EVERY_PARTITIONS == YIELD_EVERY_PARTITIONS - 1:
                await asyncio.sleep(0)
            partition = self._open_partition(row.topic_partition)
            if partition is None or self._broker.broker_id not in row.replicas:
                continue
            before = (partition.cold_end_offset, partition.log_start_offset, partition.leader_epoch)
            committed_rows.apply(self._broker, partition, told.pop(row.topic_partition, ()))
            if row.leader == self._broker.broker_id and partition.log.log_end_offset < partition.cold_end_offset:
                await self._broker.loader.begin_at_cold_end(partition)
            partition.apply_row(row, broker_epoch=self._broker.broker_epoch)
            touched.append(partition)
            if before != (partition.cold_end_offset, partition.log_start_offset, partition.leader_epoch):
                self._broker.checkpoints.opened(partition)
        for key, segments in told.items():
            partition = self._open_partition(key)
            if partition is not None:
                committed_rows.apply(self._broker, partition, segments)
        return touched

    def _count_election(self, row: PartitionRow) -> None:
        before = self._broker.image.row(row.topic_partition)
        if before is not None and row.leader != NO_LEADER and row.leader_epoch > before.leader_epoch:
            self._broker.counters.leader_elections += 1

    def _open_partition(self, key: TopicPartition) -> Partition | None:
        topic = self._broker.topics.find_id(key.topic_id)
        return None if topic is None else topic.hosted(key.partition)

    def _is_misplaced(self, row: PartitionRow) -> bool:
        """Whether this broker has the partition's log and should not, or should and has not."""
        return (self._broker.broker_id in row.replicas) != (self._open_partition(row.topic_partition) is not None)

    async def _remove_topic(self, topic_id: UUID) -> None:
        broker = self._broker
        broker.image.remove_topic(topic_id)
        for key in [key for key in self._unopened if key.topic_id == topic_id]:
            del self._unopened[key]
        topic = broker.topics.find_id(topic_id)
        if topic is None:
            return
        broker.topics.remove(topic)
        broker.replication.removed(topic.partitions)
        await broker.loader.remove(topic)

    async def _refit(
        self,
        living: Mapping[UUID, TopicRow],
        elsewhere: Iterable[UUID],
        committed: Mapping[TopicPartition, Sequence[CommittedSegment]],
    ) -> None:
        """Puts the topics that are new or changed, and those whose partitions came to this broker or left it."""
        wanted = [self._topic_of(row) for row in living.values()]
        wanted += [topic for topic_id in elsewhere if (topic := self._broker.topics.find_id(topic_id)) is not None]
        for first in range(0, len(wanted), TOPICS_AT_ONCE):
            some = wanted[first : first + TOPICS_AT_ONCE]
            await asyncio.gather(*(self._fit(topic, committed) for topic in some))

    def _topic_of(self, row: TopicRow) -> Topic:
        current = self._broker.topics.find_id(row.topic_id)
        return Topic(
            name=row.name,
            topic_id=TopicId(row.topic_id),
            partition_count=row.partition_count,
            config=self._config_of(row.name, row.configs),
            overrides=row.configs,
            partitions=() if current is None else current.partitions,
            replication_factor=row.replication_factor,
        )

    async def _fit(self, topic: Topic, committed: Mapping[TopicPartition, Sequence[CommittedSegment]]) -> None:
        """Puts `topic` with the partitions that this broker is to hold, opened; lets go of others."""
        broker = self._broker
        held = {row.partition: row for row in broker.image.rows_of(topic.topic_id) if broker.broker_id in row.replicas}
        leaving = tuple(each for each in topic.partitions if each.topic_partition.partition not in held)
        opened = await self._open(
            topic, [row for row in held.values() if topic.hosted(row.partition) is None], committed
        )
        kept = [each for each in topic.partitions if each.topic_partition.partition in held]
        partitions = sorted([*kept, *opened], key=lambda each: each.topic_partition.partition)
        self._put(replace(topic, partitions=tuple(partitions)))
        broker.replication.rows_applied(opened)
        if leaving:
            broker.replication.removed(leaving)
            await broker.loader.remove_partitions(leaving)

    async def _open(
        self,
        topic: Topic,
        rows: Sequence[PartitionRow],
        committed: Mapping[TopicPartition, Sequence[CommittedSegment]],
    ) -> list[Partition]:
        """Those of `rows` whose logs could be opened; why others could not is kept."""
        found = await asyncio.gather(*(self._open_one(topic, row, committed) for row in rows))
        return [partition for partition in found if partition is not None]

    async def _open_one(
        self, topic: Topic, row: PartitionRow, committed: Mapping[TopicPartition, Sequence[CommittedSegment]]
    ) -> Partition | None:
        broker = self._broker
        try:
            partition = await broker.loader.open(topic, row, committed.get(row.topic_partition))
        except (TieredError, OSError) as error:
            if row.topic_partition not in self._unopened:
                log.error("%s-%d cannot be opened; it is tried again: %s", topic.name, row.partition, error)
            self._unopened[row.topic_partition] = error
            broker.failed_replicas.add(row.topic_partition)
            return None
        if self._unopened.pop(row.topic_partition, None) is not None:
            broker.failed_replicas.discard(row.topic_partition)
        partition.apply_row(row, broker_epoch=broker.broker_epoch)
        broker.checkpoints.opened(partition)
        return partition

    async def _open_again(self) -> None:
        for topic_id in {key.topic_id for key in self._unopened}:
            topic = self._broker.topics.find_id(topic_id)
            if topic is not None:
                await self._fit(topic, {})

    async def _keep_log_start(self, partition: Partition) -> None:
        """The disk's copy of where the log starts. Behind, it is made good at the next start."""
        local = partition.log
        if local.log_start_offset < partition.log_start_offset <= local.log_end_offset:
            try:
                await self._broker.disk.run(local.set_log_start_offset, partition.log_start_offset)
            except TieredError as error:
                log.warning("%s: where its log starts cannot be kept on disk: %s", partition.name, error)

    def _tell_waiters(self) -> None:
        number = self._broker.image.change_number
        waiting, self._waiting = self._waiting, []
        for wanted, future in waiting:
            if wanted > number:
                self._waiting.append((wanted, future))
            elif not future.done():
                future.set_result(None)
