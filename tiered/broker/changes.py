"""Changes of the catalogue that people ask for: one at a time, each to its end, and none left in the air.

Owns the turn, and the knowledge that SQL may hold something this broker does not know yet: a COMMIT whose
answer never came, or a disk that refused what SQL had taken. Must never decide what a change is: `admin` does.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

from sqlalchemy import Connection

from tiered.broker.topics import Topic
from tiered.config import TopicConfig
from tiered.errors import (
    Invalid,
    LogDirFailed,
    MetadataOutcomeUnknown,
    MetadataUnavailable,
    OutOfRange,
    ShuttingDown,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from tiered.ids import TopicId
from tiered.meta import cluster, partitions, settings, topics
from tiered.meta.partitions import PartitionRow
from tiered.meta.topics import TopicRow

if TYPE_CHECKING:
    from tiered.broker.broker import Broker

log = logging.getLogger(__name__)
T = TypeVar("T")


class Changes:
    """Runs changes as tasks of the broker's group: a client that goes away does not leave half of one behind."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._group: asyncio.TaskGroup | None = None
        self._turn = asyncio.Lock()
        self.outcome_unknown = False
        """SQL may hold more than this broker knows: the next change, or `settle`, looks first."""

    def start(self, group: asyncio.TaskGroup) -> None:
        self._group = group

    async def run(self, change: Callable[[], Awaitable[T]]) -> T:
        """What `change` returns or raises, once all changes before it have ended. Cancelling this wait does not
        cancel the change. Raises MetadataUnavailable when an unknown outcome cannot be settled first."""
        if self._group is None:
            raise ShuttingDown("the broker is not up; ask again")
        result: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        result.add_done_callback(_retrieve)
        self._group.create_task(self._carry_out(change, result))
        return await asyncio.shield(result)

    async def settle(self) -> None:
        """Takes over what SQL holds, if that is in doubt. Raises MetadataUnavailable while SQL is away."""
        if self.outcome_unknown:
            await self.run(_nothing)

    async def _carry_out(self, change: Callable[[], Awaitable[T]], result: "asyncio.Future[T]") -> None:
        try:
            async with self._turn:
                if self.outcome_unknown:
                    self.outcome_unknown = not await self._take_over()
                value = await change()
        except asyncio.CancelledError:
            result.set_exception(ShuttingDown("the broker is stopping; ask again after the restart"))
            raise
        except Exception as error:  # noqa: BLE001 - given to the waiter as it is, not swallowed
            self.outcome_unknown = self.outcome_unknown or not _changed_nothing(error)
            result.set_exception(error)
        else:
            result.set_result(value)

    async def _take_over(self) -> bool:
        """Makes this broker's view what SQL says it is. False when the disk still refuses a part of it: that must
        not keep people from deleting what fills the disk."""
        broker = self._broker
        # Whatever may still be committed holds the feed's lock. Behind it the outcome is known; a read alone could
        # come before a COMMIT that is under way, and would take its change for one that never happened.
        await broker.database.run(cluster.take_number)
        known = await broker.database.read(_load)
        living = {row.topic_id for row in known.topics}
        for topic in broker.topics:
            if topic.topic_id not in living and not topic.is_internal:
                broker.topics.remove(topic)
                await broker.loader.remove(topic)
        complete = True
        wanted = broker.settings.with_dynamic(
            dynamic_default=known.settings.get(None, {}), dynamic=known.settings.get(broker.broker_id, {})
        )
        broker.settings = wanted
        for row in known.topics:
            current = broker.topics.find_id(row.topic_id) or _unopened(row)
            config = TopicConfig.of(row.configs, wanted)
            current = replace(current, config=config, overrides=row.configs, partition_count=row.partition_count)
            for partition in current.partitions:
                partition.configure(config)
            if len(current.partitions) < current.partition_count:
                try:
                    current = await broker.loader.open_new(current)
                except LogDirFailed as error:
                    log.error("topic %s is in the catalogue and cannot be opened: %s", row.name, error)
                    complete = False
                    continue
            broker.topics.put(current)
            for partition in current.partitions:
                where = partition.topic_partition
                start = known.partitions[where.topic_id, where.partition].log_start_offset
                if start > partition.log_start_offset:
                    await broker.lifecycle.moved_log_start(partition, start)
        broker.cluster_changed(known.change_number)
        log.info("settled an unknown outcome: topics, settings and log starts are as SQL has them")
        return complete


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    topics: tuple[TopicRow, ...]
    partitions: dict[tuple[UUID, int], PartitionRow]
    settings: dict[int | None, dict[str, str]]
    change_number: int


def _load(conn: Connection) -> _Known:
    return _Known(
        topics=topics.load_all(conn),
        partitions={(row.topic_id, row.partition): row for row in partitions.load_all(conn)},
        settings={scope: dict(values) for scope, values in settings.load_all(conn).items()},
        change_number=cluster.load(conn).change_number,
    )


def _unopened(row: TopicRow) -> Topic:
    return Topic(
        name=row.name,
        topic_id=TopicId(row.topic_id),
        partition_count=row.partition_count,
        config=TopicConfig(),
        overrides=row.configs,
        partitions=(),
    )


def _changed_nothing(error: Exception) -> bool:
    """True when `error` says for certain that SQL is as it was, or that this broker knows all of it."""
    if isinstance(error, MetadataOutcomeUnknown):
        return False
    return isinstance(error, Invalid | OutOfRange | MetadataUnavailable | UnknownTopicOrPartition | UnknownTopicId)


def _retrieve(result: "asyncio.Future[T]") -> None:
    """A failure whose waiter went away is no bug to complain of."""
    if not result.cancelled():
        result.exception()


async def _nothing() -> None:
    """The change that only settles."""
