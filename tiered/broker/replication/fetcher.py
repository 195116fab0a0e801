"""Follows partitions that one other broker leads: asks, writes what comes, asks again.

Owns one connection and the order of its questions, one at a time for all partitions together. Must never write what
was not asked in the partition's present leader epoch, from where its log ends (R8): an answer that comes late is
dropped.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from uuid import UUID

from tiered.broker.context import BrokerContext
from tiered.broker.partitions.partition import Partition
from tiered.broker.partitions.replica_log import checked_runs
from tiered.broker.partitions.role import Role
from tiered.broker.replication.catch_up import CatchUp
from tiered.broker.replication.channel import Channels, ReplicaChannel
from tiered.broker.view.feed import ChangeFeed
from tiered.broker.view.image import ClusterImage
from tiered.config.setting import LONG_MAX
from tiered.errors import Corrupt, LogDirFailed, RequestTimedOut, TieredError
from tiered.ids import InSyncReplica, TopicId, TopicPartition
from tiered.rules.replication.divergence import Divergence, last_fetched_epoch
from tiered.runtime import Clock
from tiered.wire.fetch import FetchPartition, FetchPartitionResult, FetchRequest, FetchResponse, FetchTopic
from tiered.wire.fetch.values import HIGH_WATERMARK_NOT_SENT

log = logging.getLogger(__name__)

NONE, OFFSET_OUT_OF_RANGE, NOT_LEADER, FENCED_LEADER_EPOCH = 0, 1, 6, 74
OFFSET_MOVED_TO_TIERED_STORAGE = 109
FIRST_REST_MS = 10.0
"""After an election leader and followers learn of it within moments of each other."""
DISK_REST_MS = 1_000.0
CORRUPT_REST_MS = 5_000.0
STORE_REST_MS = 1_000.0
LAST_WORD_MS = 50.0
"""A question under way is given so long to be answered before it is broken off for another."""
YIELD_BYTES = 1 << 20
LONGEST_PAUSE_MS = 1_000.0
"""Whoever waits asks again after this long: another rate holds from then on, for what was taken before too."""


class ReplicationThrottle:
    """How fast replicas that are being added may be filled: bytes that were taken are paid for in time, at the rate of
    the moment. Nothing is dropped."""

    def __init__(self, clock: Clock, bytes_per_second: Callable[[], int]) -> None:
        self._clock = clock
        self._bytes_per_second = bytes_per_second
        self._owed_bytes = 0.0
        self._reckoned_ms = clock.monotonic_ms()

    def pause_ms(self, size_bytes: int) -> float:
        """How long to wait, and then to ask again, after `size_bytes` have been taken; 0 when nothing is owed."""
        rate = self._bytes_per_second()
        now_ms = self._clock.monotonic_ms()
        paid_bytes = (now_ms - self._reckoned_ms) * rate / 1000.0
        self._reckoned_ms = now_ms
        self._owed_bytes = 0.0 if rate >= LONG_MAX else max(0.0, self._owed_bytes - paid_bytes) + size_bytes
        return min(LONGEST_PAUSE_MS, self._owed_bytes * 1000.0 / rate)


class Followed:
    """One partition that is followed, and when it is asked for again."""

    __slots__ = ("failures", "is_left", "partition", "rest_until_ms")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.rest_until_ms = 0.0
        self.failures = 0
        self.is_left = False
        """An answer that comes now is dropped."""


@dataclass(frozen=True, slots=True)
class Question:
    """A Fetch and its partitions: `followed` has the shape of the request's topics and their partitions."""

    request: FetchRequest
    followed: list[list[Followed]] = field(default_factory=list)


class ReplicaFetcher:
    """One of this broker's connections to one leader."""

    def __init__(
        self,
        *,
        context: BrokerContext,
        catch_up: CatchUp,
        channels: Channels,
        disk_failed: Callable[[Partition], None],
        feed: ChangeFeed,
        image: ClusterImage,
        incarnation_id: UUID,
        throttle: ReplicationThrottle,
        leader_id: int,
        number: int,
    ) -> None:
        self._context = context
        self._catch_up = catch_up
        self._channels = channels
        self._give_up = disk_failed
        self._feed = feed
        self._image = image
        self._incarnation_id = incarnation_id
        self._throttle = throttle
        self.leader_id = leader_id
        self.number = number
        self._followed: dict[TopicPartition, Followed] = {}
        self._changed = asyncio.Event()
        self._is_asking = False
        self._last_word: asyncio.TimerHandle | None = None
        self._is_broken_off = False
        self._channel: ReplicaChannel | None = None
        self._failures = 0

    def __len__(self) -> int:
        return len(self._followed)

    # What is followed

    def follow(self, partition: Partition) -> None:
        """Asks for the partition from now on; its row is new, so what kept it from being asked for is over."""
        known = self._followed.get(partition.topic_partition)
        if known is not None and known.partition is partition:
            if known.rest_until_ms:
                known.rest_until_ms = 0.0
                self._interrupt()
            return
        self.leave(partition.topic_partition)
        self._followed[partition.topic_partition] = Followed(partition)
        self._interrupt()

    def leave(self, key: TopicPartition) -> None:
        """Asks for the partition no more; an answer under way is dropped."""
        left = self._followed.pop(key, None)
        if left is not None:
            left.is_left = True

    def reconnect(self) -> None:
        """The leader is another process now, or at another address."""
        self._failures = 0
        if self._channel is not None:
            self._channel.close()
        self._changed.set()

    def _interrupt(self) -> None:
        """Lets the next question be asked soon: the leader may keep this one for half a second."""
        self._changed.set()
        if self._is_asking and self._last_word is None:
            self._last_word = asyncio.get_running_loop().call_later(LAST_WORD_MS / 1000.0, self._break_off)

    def _break_off(self) -> None:
        """The connection ends with the question, or its answer would be taken for the next one's."""
        self._is_broken_off = True
        self._close()

    # The task

    async def run(self) -> None:
        """Until it is cancelled."""
        try:
            while True:
                try:
                    await self._ask_once()
                except TieredError as error:
                    await self._pause(error)
                except Exception:
                    # A connection's boundary: a bug in one answer must not end all following for good.
                    log.exception("following broker %d failed; trying again", self.leader_id)
                    await self._pause(None)
        finally:
            self._close()

    async def _pause(self, error: TieredError | None) -> None:
        self._close()
        self._failures += 1
        self._context.counters.replication_fetch_failures += 1
        if self._failures == 1 and error is not None:
            log.info("broker %d cannot be followed, trying again: %s", self.leader_id, error)
        rest_ms = min(
            self._context.settings.cluster.replica_fetch_backoff_ms,
            FIRST_REST_MS * 2.0 ** min(self._failures, 10),
        )
        self._changed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(max(1.0, rest_ms) / 1000.0):
                await self._changed.wait()

    def _close(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    async def _ask_once(self) -> None:
        self._changed.clear()
        question, wait_ms = self._build()
        if not question.followed:
            with suppress(TimeoutError):
                async with asyncio.timeout(None if wait_ms is None else wait_ms / 1000.0):
                    await self._changed.wait()
            return
        if self._channel is None:
            leader = self._image.brokers.get(self.leader_id)
            if leader is None:
                raise RequestTimedOut(f"broker {self.leader_id} is not registered")
            self._channel = await self._channels.open(leader)
            if self._changed.is_set():
                return  # There is more to ask for than when the question was made.
        answer = await self._exchange(self._channel, question.request)
        if answer is None:
            return
        self._failures = 0
        await self._take(question, answer)

    async def _exchange(self, channel: ReplicaChannel, request: FetchRequest) -> FetchResponse | None:
        """The answer, or None when another question has become more urgent. The channel has a time limit."""
        self._is_asking, self._is_broken_off = True, False
        try:
            return await channel.fetch(request)
        except TieredError:
            if self._is_broken_off:
                return None
            raise
        finally:
            self._is_asking = False
            if self._last_word is not None:
                self._last_word.cancel()
                self._last_word = None

    # The question

    def _build(self) -> tuple[Question, float | None]:
        """The next Fetch, and in how many milliseconds a resting partition may be asked for; None if none rests."""
        settings = self._context.settings
        now_ms = self._context.clock.monotonic_ms()
        wait_ms: float | None = None
        # By the number of the topic's id, for UUID's own hash costs more than all else here.
        by_topic: dict[int, tuple[TopicId, list[FetchPartition], list[Followed]]] = {}
        for key, followed in self._followed.items():
            partition = followed.partition
            if partition.role is not Role.FOLLOWER or partition.is_truncating:
                continue
            if self._is_left_to_others(partition):
                self._rest(followed, DISK_REST_MS)
            elif followed.rest_until_ms <= now_ms and self._is_added(partition):
                self._rest(followed, self._throttle.pause_ms(0))
            if followed.rest_until_ms > now_ms:
                left_ms = followed.rest_until_ms - now_ms
                wait_ms = left_ms if wait_ms is None else min(wait_ms, left_ms)
                continue
            log_ = partition.log
            end_offset = log_.log_end_offset
            topic = by_topic.get(key.topic_id.int)
            if topic is None:
                topic = by_topic[key.topic_id.int] = key.topic_id, [], []
            topic[2].append(followed)
            topic[1].append(
                FetchPartition(
                    key.partition,
                    partition.leader_epoch,
                    end_offset,
                    last_fetched_epoch(log_.leader_epochs, end_offset),
                    log_.local_log_start_offset,
                    settings.cluster.replica_fetch_max_bytes,
                    None,
                    # Consumers here want to hear of committed records without waiting for the next one.
                    partition.high_watermark if len(partition.waiters) else HIGH_WATERMARK_NOT_SENT,
                )
            )
        max_wait_ms = settings.cluster.replica_fetch_wait_max_ms
        request = FetchRequest(
            replica_id=self._context.broker_id,
            replica_epoch=self._context.state.broker_epoch,
            max_wait_ms=max_wait_ms if wait_ms is None else min(max_wait_ms, 1 + int(wait_ms)),
            min_bytes=1,
            max_bytes=settings.cluster.replica_fetch_response_max_bytes,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=[FetchTopic(None, topic_id, asked) for topic_id, asked, _ in by_topic.values()],
            replica_incarnation=self._incarnation_id,
        )
        return Question(request, [followed for _, _, followed in by_topic.values()]), wait_ms

    # The answer

    async def _take(self, question: Question, answer: FetchResponse) -> None:
        taken_bytes = 0
        to_flush: list[Partition] = []
        for followed, asked, result in list(self._pairs(question, answer)):
            if not self._is_fresh(followed, asked):
                continue
            try:
                appended_bytes = await self._take_one(followed, asked, result)
            except LogDirFailed as error:
                self._disk_failed(followed, error)
                continue
            except Corrupt as error:
                log.error("%s", error)
                self._rest(followed, CORRUPT_REST_MS)
                continue
            except TieredError as error:
                log.warning("%s cannot be followed now: %s", followed.partition.name, error)
                self._rest(followed, STORE_REST_MS)
                continue
            except Exception:
                # A bug that one partition shows must not keep those behind it from being followed.
                log.exception("%s cannot be followed, in an unforeseen way", followed.partition.name)
                self._rest(followed, CORRUPT_REST_MS)
                continue
            if appended_bytes:
                if len(self._followed) > 1 and not followed.is_left:
                    # Behind the others, which may have got nothing because of it.
                    key = followed.partition.topic_partition
                    self._followed[key] = self._followed.pop(key)
                if followed.partition.needs_flush:
                    to_flush.append(followed.partition)
                taken_bytes += appended_bytes
                if taken_bytes >= YIELD_BYTES:
                    taken_bytes = 0
                    await asyncio.sleep(0)
        for partition in to_flush:
            with suppress(TieredError):  # The log itself remembers, and the next append says so.
                await self._context.flusher.flushed(partition.log, partition.log.log_end_offset)

    def _pairs(
        self, question: Question, answer: FetchResponse
    ) -> Iterator[tuple[Followed, FetchPartition, FetchPartitionResult]]:
        """Pairs of question and answer: a leader answers in the order of the question. Anything else is skipped."""
        for topic, followed, answered in zip(question.request.topics, question.followed, answer.topics, strict=False):
            if answered.topic_id != topic.topic_id:
                continue
            for each, asked, result in zip(followed, topic.partitions, answered.partitions, strict=False):
                if result.partition_index == asked.partition:
                    yield each, asked, result

    def _is_fresh(self, followed: Followed, asked: FetchPartition) -> bool:
        """Whether the partition still is as it was when it was asked for (R8)."""
        partition = followed.partition
        return (
            not followed.is_left
            and partition.role is Role.FOLLOWER
            and not partition.is_truncating
            and partition.leader_epoch == asked.current_leader_epoch
            and partition.row is not None
            and partition.row.leader == self.leader_id
            and partition.log.log_end_offset == asked.fetch_offset
        )

    async def _take_one(self, followed: Followed, asked: FetchPartition, result: FetchPartitionResult) -> int:
        """How many bytes were written. Raises TieredError."""
        partition, code = followed.partition, result.error_code
        if code == NONE and result.diverging_epoch is None:
            followed.failures = 0
            return self._append(followed, asked, result)
        if code == NONE:
            assert result.diverging_epoch is not None
            await self._catch_up.truncate(partition, Divergence(*result.diverging_epoch))
        elif code == OFFSET_MOVED_TO_TIERED_STORAGE:
            if not await self._catch_up.begin_after_cold(partition):
                self._rest_longer(followed)  # The feed has not told yet what the store holds.
        elif code == OFFSET_OUT_OF_RANGE:
            if not await self._catch_up.begin_at_log_start(partition, result.log_start_offset):
                self._rest_longer(followed)
        else:
            if code in (NOT_LEADER, FENCED_LEADER_EPOCH):
                self._feed.wake()
            self._rest_longer(followed)
        return 0

    def _append(self, followed: Followed, asked: FetchPartition, result: FetchPartitionResult) -> int:
        partition = followed.partition
        appended_bytes = 0
        records = result.records
        if records is not None and len(records) > 0:  # type: ignore[arg-type]
            runs = checked_runs(
                memoryview(records),  # type: ignore[arg-type]
                expected_offset=asked.fetch_offset,
                latest_epoch=asked.last_fetched_epoch,
                leader_epoch=asked.current_leader_epoch,
                name=partition.name,
                unproven_offsets=result.preferred_read_replica,
            )
            begins_segment = result.last_stable_offset == asked.fetch_offset
            partition.append_fetched(runs, begins_segment=begins_segment, now_ms=self._context.clock.now_ms())
            appended_bytes = sum(run.size_bytes for run in runs)
            self._context.counters.replication_bytes_in += appended_bytes
            if self._is_added(partition):
                self._rest(followed, self._throttle.pause_ms(appended_bytes))
        partition.learn_high_watermark(result.high_watermark)
        return appended_bytes

    def _is_added(self, partition: Partition) -> bool:
        row = partition.row
        return row is not None and self._context.broker_id in row.adding_replicas

    def _is_left_to_others(self, partition: Partition) -> bool:
        """Whether the disk is full, and the partition goes on without this replica: fetched, it would be in sync again.
        A replica that still counts as in sync fetches as long as there is any room, for the others wait for it."""
        me = InSyncReplica(self._context.broker_id, self._context.state.broker_epoch)
        return self._context.reserve.is_short and (partition.row is None or me not in partition.row.isr)

    def _rest(self, followed: Followed, rest_ms: float) -> None:
        if rest_ms > 0:
            followed.rest_until_ms = self._context.clock.monotonic_ms() + rest_ms

    def _rest_longer(self, followed: Followed) -> None:
        """Each time in a row twice as long."""
        followed.failures += 1
        longest_ms = max(1.0, self._context.settings.cluster.replica_fetch_backoff_ms)
        self._rest(followed, min(longest_ms, FIRST_REST_MS * 2.0 ** min(followed.failures - 1, 10)))

    def _disk_failed(self, followed: Followed, error: LogDirFailed) -> None:
        """A full disk is waited for. After any other failure nothing can be known of what is on it (rule 8)."""
        partition = followed.partition
        self._context.counters.disk_errors += 1
        if partition.log.failed is None:
            log.warning("%s: what the leader sent could not be written: %s", partition.name, error)
            self._rest(followed, DISK_REST_MS)
            return
        log.error("%s: this replica stops until the broker is restarted: %s", partition.name, error)
        self.leave(partition.topic_partition)
        self._give_up(partition)
