"""Following a topic: records of several partitions as they come, from any offset on, for one listener.

Reads the replicas that this broker holds, its own followers' too, as far as they know what is committed.

Owns where the listener stands in each of them. Nothing is queued here: a listener that is slow is simply read
for later, so what it costs is one page of records. Must never skip a record without saying so.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from tiered.account import current_owner
from tiered.broker.context import BrokerContext, BrokerState
from tiered.broker.partitions.fetch_wait import Watch
from tiered.broker.partitions.partition import Partition
from tiered.broker.partitions.topics import Topic, Topics
from tiered.broker.people.record_reader import Limits, RecordReader, Render, Undecodable, Wanted
from tiered.errors import Corrupt, InvalidRequest, OffsetOutOfRange, Retriable
from tiered.ids import TopicId
from tiered.rules.partition import read_plan

# Each event names a position in every partition, so there is a bound to how many there may be.
MAX_PARTITIONS = 100
PAGE = Limits(max_records=500, max_bytes=128 << 10, max_ms=200.0)
# No event announces a new partition, or that a topic goes without one of its partitions being followed.
LOOK_MS = 1_000.0
# After a wake-up: so that a busy topic is read in pages and not record by record.
GATHER_MS = 10.0
REST_MS = 1_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Missed:
    """Offsets of one partition, `to_offset` not among them."""

    partition: int
    from_offset: int
    to_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TailRecords:
    """Records of one partition: (offset, rendered). Everything below `next_offset` has been looked at."""

    partition: int
    records: tuple[tuple[int, bytes], ...]
    next_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Behind:
    """News for the listener besides records. `reason` is one of

    deleted (retention or DeleteRecords was faster), truncated (the log ends below the position), undecodable,
    slow (the listener is; nothing is lost unless `skipped`), unavailable (read later), cut_off (it ends here).
    """

    reason: str
    message: str
    skipped: bool
    missed: tuple[Missed, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """Nothing comes any more. `reason` is topic_deleted, too_many_partitions, unreadable, shutting_down or refused."""

    reason: str
    message: str


Event: TypeAlias = TailRecords | Behind | Ended


def check_count(topic: Topic, count: int) -> None:
    """Raises InvalidRequest when `count` partitions of the topic are more than one listener or search may have."""
    if count > MAX_PARTITIONS:
        raise InvalidRequest(
            f"{MAX_PARTITIONS} partitions at most are read together, {topic.name} has {topic.partition_count}: choose "
            "some with partition=0,1,2"
        )


def ended(state: BrokerState, topic: Topic | None, name: str) -> Ended | None:
    """Why nothing of the topic can be followed any more; None while it can."""
    if not state.serving:
        return Ended(reason="shutting_down", message="the broker stops; connect again with the last event's id")
    if topic is None:
        return Ended(reason="topic_deleted", message=f"topic {name} was deleted")
    return None


class LocalTopicTail:
    """One listener. `positions` is where it stands: the next offset that it has not seen, by partition. Which
    partitions these are does not change."""

    def __init__(
        self,
        topic: Topic,
        *,
        context: BrokerContext,
        topics: Topics,
        records: RecordReader,
        positions: Mapping[int, int],
        committed_only: bool,
        wanted: Wanted | None,
        render: Callable[[int], Render],
    ) -> None:
        self.positions = dict(positions)
        self._context = context
        self._topics = topics
        self._records = records
        self._owner = current_owner()  # What is read later is read in a task, which is nobody's.
        self.topic_id: TopicId = topic.topic_id
        self._name = topic.name
        self._committed_only = committed_only
        self._wanted = wanted
        self._render = render
        self._turn = 0
        self._rest_until_ms: dict[int, float] = {}
        self._absent_since_ms: dict[int, float] = {}

    async def next(self, timeout_ms: float) -> Event | None:
        """The next item; None when there is none for `timeout_ms`, though `positions` may have moved."""
        clock = self._context.clock
        deadline_ms = clock.monotonic_ms() + timeout_ms
        while True:
            topic = self._topics.find_id(self.topic_id)
            end = ended(self._context.state, topic, self._name)
            if end is not None:
                return end
            assert topic is not None
            for number in self._in_turn():
                event = await self._read(topic, number)
                if event is not None:
                    return event
                if clock.monotonic_ms() >= deadline_ms:
                    return None
            # Between this look and the wait nothing may be awaited, or an append could come unnoticed.
            if not any(self._has_news(topic, number) for number in self.positions):
                left_ms = deadline_ms - clock.monotonic_ms()
                if left_ms <= 0:
                    return None
                hosted = (topic.hosted(number) for number in self.positions)
                watch = Watch(partition.waiters for partition in hosted if partition is not None)
                if await watch.change(min(left_ms, LOOK_MS)):
                    await asyncio.sleep(GATHER_MS / 1000.0)
            else:
                await asyncio.sleep(0)  # A read that finds nothing may never have waited.

    def _in_turn(self) -> list[int]:
        """All partitions, beginning with another one each time, so that a busy one does not starve the others."""
        numbers = sorted(self.positions)
        self._turn = (self._turn + 1) % len(numbers)
        return numbers[self._turn :] + numbers[: self._turn]

    def _end_offset(self, topic: Topic, number: int) -> int:
        partition = topic.hosted(number)
        if partition is None:
            return self.positions[number]
        return partition.last_stable_offset if self._committed_only else partition.high_watermark

    def _has_news(self, topic: Topic, number: int) -> bool:
        """True when a read would give something: records, or the reason why there are none."""
        if self._context.clock.monotonic_ms() < self._rest_until_ms.get(number, 0.0):
            return False
        partition, offset = topic.hosted(number), self.positions[number]
        if partition is None:
            # One that was just added is in the image a moment before it is open here.
            now_ms = self._context.clock.monotonic_ms()
            return now_ms - self._absent_since_ms.setdefault(number, now_ms) >= REST_MS
        self._absent_since_ms.pop(number, None)
        if offset < self._end_offset(topic, number):
            return True
        # All that the listener has seen is committed. A new leader hears so from its followers, a follower from its
        # leader; only a leader knows that its log ends below.
        return partition.leadership is not None and offset > partition.log.log_end_offset

    async def _read(self, topic: Topic, number: int) -> Event | None:
        if not self._has_news(topic, number):
            return None
        partition, offset = topic.hosted(number), self.positions[number]
        if partition is None:
            return self._unavailable(
                number, f"{topic.name}-{number} is held by other brokers, and none of them leads it"
            )
        try:
            page = await self._records.read(
                partition,
                offset,
                limits=PAGE,
                committed_only=self._committed_only,
                render=self._render(number),
                wanted=self._wanted,
                owner=self._owner,
            )
        except OffsetOutOfRange:
            return self._moved(partition, number)
        except Undecodable as error:
            return self._skipped(number, error.end_offset, "undecodable", str(error))
        except Corrupt as error:
            return Ended(reason="unreadable", message=str(error))
        except Retriable as error:
            return self._unavailable(number, str(error))
        self._rest_until_ms.pop(number, None)
        self.positions[number] = page.next_offset
        if not page.records:
            return None
        return TailRecords(partition=number, records=page.records, next_offset=page.next_offset)

    def _moved(self, partition: Partition, number: int) -> Behind | None:
        """The log no longer holds the position: it goes to the nearest one that it holds."""
        offset = self.positions[number]
        plan = partition.plan_read(offset, committed_only=self._committed_only)
        if not isinstance(plan, read_plan.OutsideLog):
            return None
        if offset < plan.log_start_offset:
            message = f"offsets {offset} to {plan.log_start_offset - 1} were deleted before they could be sent"
            return self._skipped(number, plan.log_start_offset, "deleted", message)
        if partition.leadership is None:
            return None
        message = f"the log ends at {plan.log_end_offset}, below the position {offset}; it goes on from its end"
        return self._skipped(number, plan.log_end_offset, "truncated", message)

    def _skipped(self, number: int, to_offset: int, reason: str, message: str) -> Behind:
        missed = Missed(partition=number, from_offset=self.positions[number], to_offset=to_offset)
        self.positions[number] = to_offset
        return Behind(reason=reason, message=message, skipped=True, missed=(missed,))

    def _unavailable(self, number: int, message: str) -> Behind | None:
        """Told once; then the partition is tried again until it can be read."""
        is_told = number in self._rest_until_ms
        self._rest_until_ms[number] = self._context.clock.monotonic_ms() + REST_MS
        if is_told:
            return None
        return Behind(reason="unavailable", message=f"tried again: {message}", skipped=False, missed=())
