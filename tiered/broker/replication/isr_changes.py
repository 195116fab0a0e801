"""Changes of the ISR by its leader: a follower that has caught up joins, one that lags for too long leaves.

Owns the compare-and-swaps of all partitions led here, gathered into one transaction at a time. From the moment at
which one is sent until it is known how it ended, both sides of it count for the high watermark (R3). Must never
take an unknown outcome for a failure, nor settle it by a read: a statement that waits for a lock can commit after
the read (rule 7).
"""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress

from tiered.broker.context import BrokerContext
from tiered.broker.partitions.leadership import Leadership
from tiered.broker.partitions.partition import Partition
from tiered.broker.partitions.topics import Topics
from tiered.broker.view.feed import ChangeFeed
from tiered.broker.view.image import ClusterImage
from tiered.errors import (
    CorruptMetadata,
    IneligibleReplica,
    MetadataOutcomeUnknown,
    TieredError,
    UnknownTopicOrPartition,
)
from tiered.ids import InSyncReplica, TopicPartition
from tiered.meta import partitions
from tiered.meta.partitions import IsrChange, PartitionRow
from tiered.rules.replication import isr
from tiered.rules.replication.isr import Members
from tiered.runtime import in_turns, jittered_backoff_ms

log = logging.getLogger(__name__)

DEADLINE_MS = 3_000
FIRST_BACKOFF_MS, MAX_BACKOFF_MS = 50.0, 2_000.0
MIN_LOOK_MS, MAX_LOOK_MS = 50.0, 5_000.0
CHANGES_AT_ONCE = 2_000


class IsrChanges:
    """One task that looks at followers and asks SQL."""

    def __init__(self, *, context: BrokerContext, feed: ChangeFeed, image: ClusterImage, topics: Topics) -> None:
        self._context = context
        self._feed = feed
        self._image = image
        self._topics = topics
        self._something = asyncio.Event()
        self._wanted: dict[TopicPartition, Partition] = {}
        """Partitions with a follower that could join."""
        self._unsettled: dict[TopicPartition, tuple[Partition, Leadership]] = {}
        """Changes whose outcome is unknown."""
        self._failures = 0

    def caught_up(self, partition: Partition) -> None:
        """A follower of the partition may have caught up: it is looked at soon. Cheap, and harmless to repeat."""
        self._wanted[partition.topic_partition] = partition
        self._something.set()

    async def run(self) -> None:
        """Until it is cancelled."""
        loop = asyncio.get_running_loop()
        look_at = loop.time()
        while True:
            now = loop.time()
            if now >= look_at:
                look_at = now + self._look_interval_ms() / 1000.0
                await self._look_for_laggards()
            if not self._unsettled:
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(look_at):
                        await self._something.wait()
            self._something.clear()
            try:
                is_done = await self.round()
            except Exception:
                # A tick boundary: a bug in one change must not end those of all partitions.
                log.exception("changes of the ISR failed; they are tried again")
                is_done = False
            self._failures = 0 if is_done else self._failures + 1
            if not is_done:
                pause_ms = jittered_backoff_ms(self._failures, first_ms=FIRST_BACKOFF_MS, max_ms=MAX_BACKOFF_MS)
                await asyncio.sleep(pause_ms / 1000.0)

    def _look_interval_ms(self) -> float:
        return min(max(self._context.settings.cluster.replica_lag_time_max_ms / 2, MIN_LOOK_MS), MAX_LOOK_MS)

    async def _look_for_laggards(self) -> None:
        now_ms = self._context.clock.monotonic_ms()
        async for partition in in_turns(self._topics.partitions()):
            leadership = partition.leadership
            if leadership is None or len(leadership.committed) <= leadership.min_isr:
                continue
            leaving = self._leaving(partition, leadership, now_ms)
            if leaving:
                self.caught_up(partition)

    async def round(self) -> bool:
        """Sends what is due, in one transaction; False when something has to be tried again."""
        settling = list(self._settling())
        fresh = list(self._proposals()) if len(settling) < CHANGES_AT_ONCE else []
        if not settling and not fresh:
            return True
        changes = [change for _, _, change in (*settling, *fresh)]
        try:
            answers = await self._context.database.run(
                lambda conn: partitions.change_isrs(
                    conn,
                    broker_id=self._context.broker_id,
                    broker_epoch=self._context.state.broker_epoch,
                    changes=changes,
                ),
                deadline_ms=DEADLINE_MS,
            )
        except MetadataOutcomeUnknown as error:
            self._context.counters.isr_change_failures += len(changes)
            log.warning(
                "it is not known whether %d changes of the ISR happened; settling them: %s", len(changes), error
            )
            for partition, leadership, _ in fresh:
                self._unsettled[partition.topic_partition] = partition, leadership
            return False
        except TieredError as error:
            self._context.counters.isr_change_failures += len(changes)
            log.info("%d changes of the ISR were not made: %s", len(changes), error)
            for partition, leadership, _ in fresh:  # Nothing was changed by this call; earlier ones stay open.
                self._give_up(partition, leadership)
            return False
        except BaseException:
            # Cancelled, or a bug: either way nobody knows what became of it.
            for partition, leadership, _ in fresh:
                self._unsettled[partition.topic_partition] = partition, leadership
            raise
        results = [
            self._take(partition, leadership, answer)
            for (partition, leadership, _), answer in zip((*settling, *fresh), answers, strict=True)
        ]
        return all(results)

    # What to send

    def _settling(self) -> Iterator[tuple[Partition, Leadership, IsrChange]]:
        """For each unknown outcome the swap that changes nothing but the epoch: when it has happened, or somebody
        else's has, the open one can happen no more."""
        for key, (partition, leadership) in list(self._unsettled.items()):
            if partition.leadership is not leadership or leadership.pending is None:
                del self._unsettled[key]  # A newer row has told, or another leader epoch has begun.
                continue
            yield partition, leadership, _change(partition, leadership, leadership.committed)

    def _proposals(self) -> Iterator[tuple[Partition, Leadership, IsrChange]]:
        wanted, self._wanted = self._wanted, {}
        now_ms = self._context.clock.monotonic_ms()
        for number, (key, partition) in enumerate(wanted.items()):
            leadership = partition.leadership
            if number >= CHANGES_AT_ONCE or (leadership is not None and leadership.pending is not None):
                self._wanted[key] = partition
                continue
            if leadership is None or partition.row is None:
                continue
            members = self._wanted_members(partition, leadership, now_ms)
            if members != leadership.committed:
                leadership.propose(members, partition.row.partition_epoch)
                yield partition, leadership, _change(partition, leadership, members)

    def _wanted_members(self, partition: Partition, leadership: Leadership, now_ms: float) -> Members:
        members = leadership.committed
        for broker_id in leadership.replicas:
            known = leadership.fetched_by(broker_id)
            if known is None:
                continue
            follower = InSyncReplica(broker_id, known.broker_epoch)
            if self._image.is_current(follower) and leadership.may_join(follower, partition.high_watermark):
                members = isr.joined(members, follower)
        return isr.without(members, self._leaving(partition, leadership, now_ms), leadership.min_isr)

    def _leaving(self, partition: Partition, leadership: Leadership, now_ms: float) -> Members:
        """The members to remove from the ISR: first placeholders of dead processes, then followers that lag."""
        is_current = self._image.is_current
        gone = tuple(each for each in leadership.committed if each != leadership.me and not is_current(each))
        lagging = leadership.lagging(
            partition.log.log_end_offset, now_ms, self._context.settings.cluster.replica_lag_time_max_ms
        )
        return (*gone, *(member for member in lagging if member not in gone))

    # What came of it

    def _take(self, partition: Partition, leadership: Leadership, answer: PartitionRow | TieredError) -> bool:
        """Takes one answer over; False when the partition has to be asked about again."""
        if isinstance(answer, PartitionRow):
            self._unsettled.pop(partition.topic_partition, None)
            self._count(leadership.committed, answer.isr)
            partition.apply_row(answer, broker_epoch=self._context.state.broker_epoch)
            return True
        self._context.counters.isr_change_failures += 1
        log.info("%s: the ISR was not changed: %s", partition.name, answer)
        match answer:
            case CorruptMetadata():
                partition.halt(str(answer))
            case IneligibleReplica() | UnknownTopicOrPartition():
                self._unsettled.pop(partition.topic_partition, None)
                self._give_up(partition, leadership)
                return False
            case _:
                # Another broker has changed the row: the pending change cannot happen any more, and only the feed tells
                # the ISR. Until then both sides count.
                self._unsettled.pop(partition.topic_partition, None)
                self._feed.wake()
        return True

    def _give_up(self, partition: Partition, leadership: Leadership) -> None:
        """The change has certainly not happened."""
        if partition.leadership is leadership and partition.topic_partition not in self._unsettled:
            leadership.settle()
            partition.advance_high_watermark()
            self.caught_up(partition)

    def _count(self, before: Members, after: Sequence[InSyncReplica]) -> None:
        self._context.counters.isr_shrinks += sum(member not in after for member in before)
        self._context.counters.isr_expands += sum(member not in before for member in after)


def _change(partition: Partition, leadership: Leadership, members: Members) -> IsrChange:
    where = partition.topic_partition
    return IsrChange(
        topic_id=where.topic_id,
        partition=where.partition,
        leader_epoch=leadership.leader_epoch,
        expected_partition_epoch=leadership.pending_since_epoch,
        isr=members,
    )
