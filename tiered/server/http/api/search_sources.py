"""Where a search reads: partitions led here from their logs, those led elsewhere by a search of their leader.

Owns the sources of one search, which end with it. Each gives one step at a time, and the next when that was taken: what
is found for a client that does not read stays small. Must never make a search of another broker's from one that was
passed on.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any
from urllib.parse import quote, urlencode

from aiohttp import web

from tiered.broker.partitions.topics import Topic
from tiered.broker.people.record_reader import ReadCost
from tiered.broker.people.record_search import Place, Sought, Step, Trouble
from tiered.errors import TieredError
from tiered.rules.security.quotas import QuotaKey
from tiered.server.http.api.record_choice import event_id_of
from tiered.server.http.door.keys import BROKER
from tiered.server.http.door.quotas import rest_while_owed
from tiered.server.http.neighbours.answering_broker import leader_elsewhere
from tiered.server.http.neighbours.event_stream import EventSplitter, ReadEvent
from tiered.server.http.neighbours.forward import Neighbour, Unreachable, asking

Steps = asyncio.Queue[Step | None]


@asynccontextmanager
async def open_sources(
    request: web.Request,
    topic: Topic,
    numbers: Sequence[int],
    sought: Sought,
    positions: Mapping[int, int],
    *,
    query: Mapping[str, str],
    steps: Steps,
    charge: Callable[[ReadCost], None],
) -> AsyncIterator[None]:
    """Within the block the sources put their steps into `steps`, and None behind the last. `query` is what leaders
    elsewhere are asked for, besides partitions and positions; `charge` takes what is read here."""
    here: list[int] = []
    elsewhere: dict[Neighbour, list[int]] = {}
    troubles: list[Trouble] = []
    for number in numbers:
        try:
            leader = leader_elsewhere(request, topic, number)
        except TieredError as error:
            troubles.append(Trouble(partition=number, message=str(error)))
            continue
        (here if leader is None else elsewhere.setdefault(leader, [])).append(number)

    async def run() -> None:
        if troubles:
            await steps.put(Step(places={}, troubles=tuple(troubles)))
        async with asyncio.TaskGroup() as sources:
            sources.create_task(_read_here(request, topic, here, sought, positions, charge=charge, steps=steps))
            for to, its in elsewhere.items():
                path = _path(topic, its, positions, query)
                sources.create_task(_read_elsewhere(request, topic, to, its, path, steps=steps))
        await steps.put(None)

    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(run())
        try:
            yield
        finally:
            running.cancel()


async def _read_here(
    request: web.Request,
    topic: Topic,
    numbers: Sequence[int],
    sought: Sought,
    positions: Mapping[int, int],
    *,
    charge: Callable[[ReadCost], None],
    steps: Steps,
) -> None:
    """It rests while its principal owes too much of what `charge` has counted."""
    async with aclosing(request.app[BROKER].searches.steps(topic, numbers, sought, positions, charge)) as pieces:
        async for step in pieces:
            await steps.put(step)
            await rest_while_owed(request, QuotaKey.CONSUMER_BYTE_RATE)
            await rest_while_owed(request, QuotaKey.REQUEST_PERCENTAGE)


async def _read_elsewhere(
    request: web.Request, topic: Topic, to: Neighbour, numbers: Sequence[int], path: str, *, steps: Steps
) -> None:
    reader = LeadersEvents(topic, to, numbers)
    try:
        async with asking(request, to, "GET", path) as answer:
            if answer.status != 200:
                message = (await answer.content.read(1000)).decode("utf-8", "replace")
                raise Unreachable(f"broker {to.broker_id} answers {answer.status}: {message}")
            splitter = EventSplitter()
            async for data in answer.content.iter_any():
                for event in splitter.feed(data):
                    step = reader.step(event)
                    if step is not None:
                        await steps.put(step)
        reader.require_ended()
    except TieredError as error:
        left = [number for number in numbers if number not in reader.finished]
        await steps.put(
            Step(places={}, troubles=tuple(Trouble(partition=number, message=str(error)) for number in left))
        )


class LeadersEvents:
    """The events of another broker's search as steps of this one. No event is believed that speaks of a partition which
    that broker was not to look at."""

    def __init__(self, topic: Topic, to: Neighbour, numbers: Sequence[int]) -> None:
        self._numbers = frozenset(numbers)
        self._end: Mapping[str, Any] | None = None
        self.finished: set[int] = set()
        self._topic_id = str(topic.topic_id)
        self._to = to
        self._looked_records = 0
        self._read_bytes = 0

    def step(self, event: ReadEvent) -> Step | None:
        """None where it says nothing. Raises Unreachable for one that is of another topic or another version."""
        if event.name not in ("match", "progress", "trouble", "end"):
            return None
        try:
            fields = json.loads(event.data)
            if event.name == "match":
                records = ((self._partition(fields), int(fields["offset"]), event.data),)
                return Step(records=records, places={})
            if event.name == "trouble":
                trouble = Trouble(partition=self._partition(fields), message=str(fields["message"]))
                return Step(places={}, troubles=(trouble,))
            if fields["topic_id"] != self._topic_id:
                raise Unreachable(f"broker {self._to.broker_id} has another topic of this name")
            if event.name == "end":
                self._end = fields
            return self._moved(fields)
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise Unreachable(
                f"broker {self._to.broker_id} writes its search in another form: is it of another version?"
            ) from error

    def require_ended(self) -> None:
        """Returns when its last event says that it has looked as far as it was to look. Raises Unreachable."""
        if self._end is None:
            raise Unreachable(f"broker {self._to.broker_id} has broken off its search; go on with it in a moment")
        if self._end.get("reason") in ("refused", "topic_deleted", "shutting_down"):
            raise Unreachable(
                f"broker {self._to.broker_id} has ended its search: {str(self._end.get('message'))[:200]}; go on with "
                "it in a moment"
            )

    def _moved(self, fields: Mapping[str, Any]) -> Step:
        places = {
            self._partition(place): Place(
                **{name: int(place[name]) for name in ("start_offset", "next_offset", "end_offset")},
                is_cut=place.get("is_cut", False) is True,
            )
            for place in fields["partitions"]
        }
        self.finished = {number for number, place in places.items() if place.next_offset >= place.end_offset}
        looked_before, read_before = self._looked_records, self._read_bytes
        self._looked_records, self._read_bytes = int(fields["looked_records"]), int(fields["read_bytes"])
        looked_records, read_bytes = self._looked_records - looked_before, self._read_bytes - read_before
        return Step(places=places, looked_records=looked_records, read_bytes=read_bytes)

    def _partition(self, fields: Mapping[str, Any]) -> int:
        if fields["partition"] not in self._numbers:
            raise ValueError("a partition that this broker was not to look at")
        return int(fields["partition"])


def _path(topic: Topic, numbers: Sequence[int], positions: Mapping[int, int], query: Mapping[str, str]) -> str:
    resumed = event_id_of((number, positions[number]) for number in numbers if number in positions)
    parameters = {**query, "partition": ",".join(map(str, numbers)), **({"last_event_id": resumed} if resumed else {})}
    return f"/api/v1/topics/{quote(topic.name, safe='')}/search?{urlencode(parameters, quote_via=quote)}"
