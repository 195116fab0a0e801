"""Following a topic whose partitions are led by several brokers, for one listener: one stream out of many.

Owns the listener's position in all partitions, and the sources: partitions led here from their logs, those led
elsewhere from their leader's own tail, one connection for each leader. When leadership moves, the stream goes on from
the same positions at the new leader. A position moves only when its event is taken, and each source holds one event
until then: nothing is lost or repeated by a change, and a slow listener costs one page a source. A request that another
broker passed on is served from the logs here alone.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from aiohttp import web

from tiered.broker.partitions.topics import Topic
from tiered.broker.people.tail import (
    LOOK_MS,
    MAX_PARTITIONS,
    REST_MS,
    Behind,
    Ended,
    Event,
    LocalTopicTail,
    Missed,
    TailRecords,
    ended,
)
from tiered.errors import TieredError
from tiered.ids import TopicPartition
from tiered.server.http.api.partition_facts import facts_of
from tiered.server.http.door.keys import BROKER
from tiered.server.http.messages.origin import is_forwarded
from tiered.server.http.neighbours.answering_broker import neighbour
from tiered.server.http.neighbours.event_stream import EventSplitter, ReadEvent
from tiered.server.http.neighbours.forward import Neighbour, Unreachable, asking

HERE = -1
"""The source that reads this broker's own logs. Others have their broker's id."""
_BEGINNING = re.compile(rb'\{"partition": (\d+), "offset": (\d+),')
# The listener is told by this broker how slow it is; and a connection that breaks is made again.
_NOT_PASSED_ON = ("slow", "cut_off")
_FINAL = ("topic_deleted", "unreadable")

LocalTail = Callable[[Topic, Mapping[int, int]], LocalTopicTail]


class _Taken(NamedTuple):
    """One item of a source: an event, or only positions that moved."""

    source: "_Source"
    event: Event | None
    positions: Mapping[int, int]


class _Source:
    """Where some partitions are read from, while their leaders stay."""

    def __init__(self, key: int, partitions: frozenset[int]) -> None:
        self.key = key
        self.partitions = partitions
        self.task: asyncio.Task[None] | None = None
        self.tail: LocalTopicTail | None = None


class TopicTail:
    """One listener. `positions` is where it stands: the next offset that it has not seen, by partition."""

    def __init__(
        self,
        request: web.Request,
        topic: Topic,
        tasks: asyncio.TaskGroup,
        *,
        positions: Mapping[int, int],
        takes_new_partitions: bool,
        committed_only: bool,
        local: LocalTail,
        query: Mapping[str, str],
    ) -> None:
        """`query` is what leaders elsewhere are asked for, besides partitions and positions."""
        self.positions = dict(positions)
        self.topic_id = topic.topic_id
        self._request = request
        self._broker = request.app[BROKER]
        self._name = topic.name
        self._tasks = tasks
        self._takes_new_partitions = takes_new_partitions
        self._committed_only = committed_only
        self._local = local
        self._query = query
        self._sources: dict[int, _Source] = {}
        self._queue: asyncio.Queue[_Taken] = asyncio.Queue(maxsize=1)

    def close(self) -> None:
        """Ends every source."""
        for key in list(self._sources):
            self._drop(key)

    async def next(self, timeout_ms: float) -> Event | None:
        """The next item; None when there is none for `timeout_ms`, though `positions` may have moved."""
        clock = self._broker.clock
        deadline_ms = clock.monotonic_ms() + timeout_ms
        while True:
            topic = self._broker.topics.find_id(self.topic_id)
            end = ended(self._broker.state, topic, self._name)
            if end is not None:
                return end
            assert topic is not None
            if self._takes_new_partitions and topic.partition_count > MAX_PARTITIONS:
                message = f"{topic.name} has {topic.partition_count} partitions now: choose some with partition=0,1,2"
                return Ended(reason="too_many_partitions", message=message)
            self._take_new_partitions(topic)
            self._follow_leaders(topic)
            left_ms = deadline_ms - clock.monotonic_ms()
            if left_ms <= 0:
                return None
            event = await self._take(min(left_ms, LOOK_MS))
            if event is not None:
                return event

    async def lag(self) -> tuple[Missed, ...]:
        """The positions that the listener has not seen yet, by partition."""
        topic = self._broker.topics.find_id(self.topic_id)
        if topic is None:
            return ()
        facts = {each["partition"]: each for each in await facts_of(self._request, topic)}
        end = "last_stable_offset" if self._committed_only else "high_watermark"
        ends = ((number, at, facts[number][end]) for number, at in self.positions.items() if number in facts)
        return tuple(Missed(partition=number, from_offset=at, to_offset=end) for number, at, end in ends if end > at)

    def skip(self, missed: Iterable[Missed]) -> None:
        """Goes on behind what was missed."""
        for each in missed:
            self.positions[each.partition] = each.to_offset
        self.close()

    # Who is read from

    def _take_new_partitions(self, topic: Topic) -> None:
        """From their start, so that nothing of them is missed."""
        if self._takes_new_partitions:
            for row in self._broker.image.rows_of(topic.topic_id):
                self.positions.setdefault(row.partition, row.log_start_offset)

    def _follow_leaders(self, topic: Topic) -> None:
        """Ends the sources whose partitions are others now, and begins those that are missing."""
        wanted: dict[int, set[int]] = {}
        for number in self.positions:
            wanted.setdefault(self._leader_of(topic, number), set()).add(number)
        for key, source in list(self._sources.items()):
            if source.partitions != frozenset(wanted.get(key, ())):
                self._drop(key)
        alone = set(wanted) == {HERE}
        here = self._sources.get(HERE)
        if here is not None and (here.task is None) != alone:
            self._drop(HERE)
        for key, partitions in wanted.items():
            if key not in self._sources:
                self._begin(topic, _Source(key, frozenset(partitions)), alone=alone)

    def _leader_of(self, topic: Topic, number: int) -> int:
        leader = self._broker.image.leader_of(TopicPartition(topic.topic_id, number))
        if leader is None or leader.broker_id == self._broker.broker_id or is_forwarded(self._request):
            return HERE
        return leader.broker_id

    def _begin(self, topic: Topic, source: _Source, *, alone: bool) -> None:
        self._sources[source.key] = source
        positions = {number: self.positions[number] for number in source.partitions}
        if source.key == HERE:
            source.tail = self._local(topic, positions)
            if not alone:
                source.task = self._tasks.create_task(self._pump_here(source, source.tail))
            return
        to = neighbour(self._broker.image.brokers[source.key])
        source.task = self._tasks.create_task(self._pump_elsewhere(source, to, positions))

    def _drop(self, key: int) -> None:
        """Events that the source gave and nobody took come again from the next source."""
        task = self._sources.pop(key).task
        if task is not None:
            task.cancel()

    async def _take(self, timeout_ms: float) -> Event | None:
        here = self._sources.get(HERE)
        if here is not None and here.task is None and here.tail is not None:
            event = await here.tail.next(timeout_ms)
            self.positions.update(here.tail.positions)
            return event
        try:
            async with asyncio.timeout(timeout_ms / 1000.0):
                taken = await self._queue.get()
        except TimeoutError:
            return None
        if self._sources.get(taken.source.key) is not taken.source:
            return None
        self.positions.update(taken.positions)
        return taken.event

    # Reading

    async def _pump_here(self, source: _Source, tail: LocalTopicTail) -> None:
        told: Mapping[int, int] = {}
        while True:
            event = await tail.next(LOOK_MS)
            if event is not None or told != tail.positions:
                told = dict(tail.positions)
                await self._queue.put(_Taken(source, event, told))
            if isinstance(event, Ended):
                return

    async def _pump_elsewhere(self, source: _Source, to: Neighbour, positions: dict[int, int]) -> None:
        """Tells of a leader that cannot be read once, and tries it until it can, or another one leads."""
        is_told = False
        while True:
            try:
                async with asking(self._request, to, "GET", self._path(positions)) as answer:
                    if answer.status != 200:
                        said = (await answer.content.read(1000)).decode("utf-8", "replace")
                        raise Unreachable(f"broker {to.broker_id} answers {answer.status}: {said}")
                    splitter = EventSplitter()
                    async for data in answer.content.iter_any():
                        is_told = False
                        for event, moved in events_of(splitter.feed(data), to, self.topic_id):
                            positions.update(moved)
                            await self._queue.put(_Taken(source, event, moved))
                            if isinstance(event, Ended):
                                return
                message = f"broker {to.broker_id} has ended its tail; it is asked again"
            except TieredError as error:
                message = f"tried again: {error}"
            if not is_told:
                is_told = True
                behind = Behind(reason="unavailable", message=message, skipped=False, missed=())
                await self._queue.put(_Taken(source, behind, {}))
            await asyncio.sleep(REST_MS / 1000.0)

    def _path(self, positions: Mapping[int, int]) -> str:
        numbers = sorted(positions)
        query = {
            **self._query,
            "partition": ",".join(map(str, numbers)),
            "last_event_id": ",".join(f"{number}:{positions[number]}" for number in numbers),
        }
        return f"/api/v1/topics/{quote(self._name, safe='')}/tail?{urlencode(query, quote_via=quote)}"


@asynccontextmanager
async def open_tail(request: web.Request, topic: Topic, **named: Any) -> AsyncIterator[TopicTail]:
    """A listener whose sources end with the block."""
    async with asyncio.TaskGroup() as tasks:
        tail = TopicTail(request, topic, tasks, **named)
        try:
            yield tail
        finally:
            tail.close()


def events_of(
    read: Iterable[ReadEvent], to: Neighbour, topic_id: object
) -> Iterable[tuple[Event | None, dict[int, int]]]:
    """A leader's events for this listener, with the positions after each; adjacent records become one event."""
    partition, last_id = -1, ""
    records: list[tuple[int, bytes]] = []
    for each in [*read, None]:
        match = _BEGINNING.match(each.data) if each is not None and each.name == "record" else None
        if records and (match is None or int(match[1]) != partition):
            yield _found(partition, records, last_id)
            records = []
        if each is None:
            return
        if match is not None:
            partition, last_id = int(match[1]), each.event_id
            records.append((int(match[2]), each.data))
            continue
        if each.name == "record":
            raise Unreachable(f"broker {to.broker_id} writes records in another form: is it of another version?")
        event = _other(each, to, topic_id)
        if event is not None or each.event_id:
            yield event, positions_in(each.event_id)


def _found(partition: int, records: list[tuple[int, bytes]], last_id: str) -> tuple[Event, dict[int, int]]:
    moved = positions_in(last_id)
    return TailRecords(partition=partition, records=tuple(records), next_offset=moved[partition]), moved


def _other(each: ReadEvent, to: Neighbour, topic_id: object) -> Event | None:
    if each.name not in ("start", "behind", "end"):
        return None
    said = json.loads(each.data)
    if each.name == "start":
        if said["topic_id"] != str(topic_id):
            raise Unreachable(f"broker {to.broker_id} has another topic of this name")
        return None
    if each.name == "end":
        if said["reason"] not in _FINAL:
            raise Unreachable(f"broker {to.broker_id}: {said['message']}")
        return Ended(reason=said["reason"], message=said["message"])
    if said["reason"] in _NOT_PASSED_ON:
        return None
    missed = tuple(Missed(**each_missed) for each_missed in said["partitions"])
    return Behind(reason=said["reason"], message=said["message"], skipped=said["skipped"], missed=missed)


def positions_in(event_id: str) -> dict[int, int]:
    """The positions that the id of an event of ours names."""
    pairs = (part.partition(":") for part in event_id.split(",") if part)
    return {int(partition): int(offset) for partition, _, offset in pairs}
