"""What a path names, found in the broker's view.

Owns the few lookups that several routes share. Must never change anything.
"""

from aiohttp import web

from tiered.broker.partitions.topics import Topic
from tiered.errors import InvalidRequest
from tiered.server.http.door.keys import BROKER
from tiered.server.http.messages.parameters import TOPIC


def topic_of(request: web.Request) -> Topic:
    """The topic that the path names; raises InvalidTopic, UnknownTopicOrPartition."""
    return request.app[BROKER].topics.by_name(TOPIC.of(request))


def topic_with_records(request: web.Request) -> Topic:
    """The same, but not one whose records live in SQL; raises InvalidRequest for that."""
    topic = topic_of(request)
    if topic.is_internal:
        raise InvalidRequest(f"topic {topic.name} is internal and has no log; committed offsets are at /api/v1/groups")
    return topic
