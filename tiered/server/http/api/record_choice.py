"""Which partitions, positions and keys a request for records names.

Owns the parameters that the tail, the newest records and the search share. Must never read a record.
"""

import re
from collections.abc import Iterable

from aiohttp import web

from tiered.broker.partitions.topics import Topic
from tiered.broker.people.record_reader import Wanted
from tiered.errors import InvalidRequest, UnknownTopicOrPartition
from tiered.server.http.messages import schema
from tiered.server.http.messages.parameters import query_text

LAST_EVENT_ID = "Last-Event-ID"
_POSITION = re.compile(r"([0-9]{1,10}):([0-9]{1,19})\Z", re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,10}\Z", re.ASCII)

PARTITIONS = query_text("partition", "Some partitions, as 0 or 0,3,4. All of them if absent.", max_length=1100)
KEY = query_text("key", "Only records with exactly this key (UTF-8).", max_length=10_000)
KEY_PREFIX = query_text("key_prefix", "Only records whose key begins so (UTF-8).", max_length=10_000)
LAST_ID = query_text("last_event_id", "As the header Last-Event-ID, for clients that cannot set it.", max_length=4000)


def chosen_partitions(request: web.Request, topic: Topic) -> list[int] | None:
    """The partitions that the query names; None for all of them."""
    text = PARTITIONS.find(request)
    if text is None:
        return None
    numbers = text.split(",")
    if not all(_NUMBER.match(number) for number in numbers) or len(set(numbers)) != len(numbers):
        raise InvalidRequest(f"partition is {text[:80]!r}: it must be partition numbers, each once, like 0 or 0,3,4")
    for number in numbers:
        if int(number) >= topic.partition_count:
            raise UnknownTopicOrPartition(f"{topic.name} has no partition {number}; it has {topic.partition_count}")
    return [int(number) for number in numbers]


def last_positions(request: web.Request, topic: Topic) -> dict[int, int]:
    """The positions in Last-Event-ID; empty without one."""
    header, query = request.headers.get(LAST_EVENT_ID), LAST_ID.find(request)
    text = query if header is None else header
    if not text:
        return {}
    positions: dict[int, int] = {}
    for part in text.split(","):
        match = _POSITION.match(part)
        if match is None or int(match[1]) in positions or int(match[2]) > schema.LONG_MAX:
            raise InvalidRequest(f"{LAST_EVENT_ID} is {text[:80]!r}: it must be the id of an event, like 0:15,1:7")
        if int(match[1]) >= topic.partition_count:
            raise InvalidRequest(
                f"{LAST_EVENT_ID} names partition {match[1]}, which {topic.name} does not have (any more): begin anew"
            )
        positions[int(match[1])] = int(match[2])
    return positions


def event_id_of(positions: Iterable[tuple[int, int]]) -> str:
    """The id of an event from which a client resumes at these positions."""
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(positions))


def wanted_keys(request: web.Request) -> Wanted | None:
    """The filter by key that the query means; None lets everything through."""
    key, prefix = KEY.find(request), KEY_PREFIX.find(request)
    if key is not None and prefix is not None:
        raise InvalidRequest("key and key_prefix are two filters for one thing: give one of them")
    if key is not None:
        exact = key.encode()
        return lambda record: record.key == exact
    if prefix is not None:
        beginning = prefix.encode()
        return lambda record: record.key is not None and record.key.startswith(beginning)
    return None
