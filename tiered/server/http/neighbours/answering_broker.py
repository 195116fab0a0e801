"""Chooses the broker that answers a request: this one or another.

Owns the choice, read off the cluster's image. A partition's leader answers for it; while it has none, a replica here
says what it knows. A group's coordinator answers for it. A request that was passed on already is answered here or not
at all, so that two brokers with different images never send it back and forth.
"""

import asyncio
from collections.abc import Callable
from functools import wraps
from typing import Any

from aiohttp import web

from tiered.broker.broker import Broker
from tiered.broker.partitions.topics import Topic
from tiered.errors import NotLeader
from tiered.ids import TopicPartition
from tiered.server.http.door.keys import BROKER
from tiered.server.http.messages.origin import is_forwarded
from tiered.server.http.messages.parameters import BROKER_ID, Text
from tiered.server.http.messages.route import Handler
from tiered.server.http.messages.schema import Schema
from tiered.server.http.neighbours.forward import Neighbour, Reply, ask_all, ask_twice, forward


def leader_elsewhere(request: web.Request, topic: Topic, number: int, *, only_to_ask: bool = False) -> Neighbour | None:
    """The leader of the partition; None when this broker answers for it. With `only_to_ask` also for a request that was
    passed on: a question of this broker is no further hop.

    Raises NotLeader when it has no leader and no replica here, and UnknownTopicOrPartition.
    """
    broker = request.app[BROKER]
    hosted = topic.hosted(number)
    if hosted is None and not 0 <= number < topic.partition_count:
        topic.partition(number)
    leader = broker.image.leader_of(TopicPartition(topic.topic_id, number))
    if leader is not None and leader.broker_id == broker.broker_id:
        return None
    if leader is not None and (only_to_ask or not is_forwarded(request)):
        return neighbour(leader)
    if leader is None and hosted is not None:
        return None
    who = "nobody leads it now" if leader is None else f"broker {leader.broker_id} does"
    raise NotLeader(f"{topic.name}-{number} is not led by broker {broker.broker_id}: {who}; try again in a moment")


def coordinator_elsewhere(request: web.Request, group_id: str) -> Neighbour | None:
    """The group's coordinator; None when this broker is it, or must say that it is not.

    Raises CoordinatorNotAvailable while the group has none.
    """
    if is_forwarded(request):
        return None
    holder = request.app[BROKER].groups.coordinator_elsewhere(group_id)
    return None if holder is None else neighbour(holder)


def handled_by(whose: Callable[[web.Request], Neighbour | None]) -> Callable[[Handler], Handler]:
    """Has a handler run by the broker that `whose` finds; by this one where that is None."""

    def decorate(handler: Handler) -> Handler:
        @wraps(handler)
        async def run(request: web.Request) -> web.StreamResponse:
            to = whose(request)
            return await (handler(request) if to is None else forward(request, to))

        return run

    return decorate


def handled_by_coordinator(group: Text) -> Callable[[Handler], Handler]:
    """Has a handler run by the coordinator of the group that the path names."""
    return handled_by(lambda request: coordinator_elsewhere(request, group.of(request)))


def broker_elsewhere(request: web.Request) -> Neighbour | None:
    """The broker that the path names; None when it is this one, or is not in service."""
    asked, broker = BROKER_ID.of(request), request.app[BROKER]
    row = next((row for row in broker.image.live() if row.broker_id == asked), None)
    is_here = row is None or asked == broker.broker_id or is_forwarded(request)
    return None if is_here else neighbour(row)


def other_brokers(broker: Broker) -> list[Neighbour]:
    """Every other broker in service."""
    return [neighbour(row) for row in broker.image.live() if row.broker_id != broker.broker_id]


async def answers_of_others(request: web.Request, path: str) -> tuple[dict[int, Any], list[int]]:
    """The answers of all other brokers, by id, and the ids of those that were too late. Never asks for a broker."""
    if is_forwarded(request):
        return {}, []
    asked = other_brokers(request.app[BROKER])
    answers = await ask_all(request, asked, path)
    return answers, sorted(each.broker_id for each in asked if each.broker_id not in answers)


async def replies_of_others(request: web.Request, path: str, expected: Schema) -> dict[int, Reply]:
    """The reply of every other broker in service, by id: each is asked twice before it counts as silent."""
    if is_forwarded(request):
        return {}
    neighbours = other_brokers(request.app[BROKER])
    replies = await asyncio.gather(*(ask_twice(request, to, path, expected) for to in neighbours))
    return {to.broker_id: reply for to, reply in zip(neighbours, replies, strict=True)}


def neighbour(row: Any) -> Neighbour:
    """The broker of this row, as far as requests to it go."""
    return Neighbour(
        broker_id=row.broker_id, http_host=row.http_host, http_port=row.http_port, is_secure=row.http_is_secure
    )
