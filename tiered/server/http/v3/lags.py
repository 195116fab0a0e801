"""How far consumer groups are behind, by partition and in all, in Confluent's shapes.

Lags are held against the high watermark, which is what Confluent calls the log's end here. Answered by the group's
coordinator. Committed offsets come from SQL, so these answer 503 while it is away.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from tiered.broker.broker import Broker
from tiered.broker.groups.values import GroupDescription, MemberDescription
from tiered.server.http.door.rights import may_see_topic
from tiered.server.http.messages.failures import NoSuchResource
from tiered.server.http.messages.route import answers_json, route, tagged
from tiered.server.http.messages.schema import integer, nullable, text
from tiered.server.http.neighbours.elsewhere import at_coordinator
from tiered.server.http.v3.groups import GROUP_PATH, OF_GROUP, TAG, described, pieces_of
from tiered.server.http.v3.resources import (
    GROUP_ID,
    LINK,
    PARTITION_ID,
    TOPIC_NAME,
    Links,
    Resource,
)

_CONSUMER_OF_NOBODY = ""

_LAG = Resource(
    "KafkaConsumerLag",
    {
        "consumer_group_id": text(),
        "topic_name": (text(), "topic"),
        "partition_id": (integer(), "number"),
        "current_offset": (integer("The committed offset."), "committed_offset"),
        "log_end_offset": (integer("The high watermark."), "high_watermark"),
        "lag": integer(),
        "consumer_id": text("Empty when no member reads the partition."),
        "instance_id": nullable(text()),
        "client_id": text(),
    },
)
_LAG_SUMMARY = Resource(
    "KafkaConsumerGroupLagSummary",
    {
        "consumer_group_id": text(),
        "max_lag_consumer_id": text(),
        "max_lag_instance_id": nullable(text()),
        "max_lag_client_id": text(),
        "max_lag_topic_name": text(),
        "max_lag_partition_id": integer(),
        "max_lag": integer(),
        "total_lag": integer(),
        "max_lag_consumer": LINK,
        "max_lag_partition": LINK,
    },
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lag:
    """A committed offset held against its partition; `member` reads it, if anybody does."""

    topic: str
    number: int
    high_watermark: int
    committed_offset: int
    member: MemberDescription | None

    @property
    def lag(self) -> int:
        return max(0, self.high_watermark - self.committed_offset)


async def _lags(request: web.Request) -> web.Response:
    """The group's lag by partition."""
    broker, group = await described(request)
    links = Links(request)
    items = [_lag_fields(links, group, lag) for lag in await _lags_of(request, broker, group)]
    return await links.listing(_LAG, (*pieces_of(group), "lags"), items)


async def _lag(request: web.Request) -> web.Response:
    """The group's lag in one partition."""
    broker, group = await described(request)
    name, number = TOPIC_NAME.of(request), PARTITION_ID.of(request)
    for lag in await _lags_of(request, broker, group):
        if (lag.topic, lag.number) == (name, number):
            return web.json_response(_lag_fields(Links(request), group, lag))
    raise NoSuchResource(f"group {group.group_id} has committed no offset for {name[:249]}-{number}")


async def _lag_summary(request: web.Request) -> web.Response:
    """The group's lag in all, and where it is largest."""
    broker, group = await described(request)
    lags = await _lags_of(request, broker, group)
    if not lags:
        raise NoSuchResource(f"group {group.group_id} has committed no offsets, so it has no lag")
    links, worst = Links(request), max(lags, key=lambda each: each.lag)
    member_id, instance_id, client_id = _names(worst.member)
    fields = {
        "consumer_group_id": group.group_id,
        "max_lag_consumer_id": member_id,
        "max_lag_instance_id": instance_id,
        "max_lag_client_id": client_id,
        "max_lag_topic_name": worst.topic,
        "max_lag_partition_id": worst.number,
        "max_lag": worst.lag,
        "total_lag": sum(each.lag for each in lags),
        "max_lag_consumer": links.link(*pieces_of(group), "consumers", member_id),
        "max_lag_partition": links.link("topics", worst.topic, "partitions", worst.number),
    }
    pieces, name = (*pieces_of(group), "lag-summary"), f"consumer-group={group.group_id}/lag-summary"
    return web.json_response(links.resource(_LAG_SUMMARY, pieces, name, None, **fields))


async def _lags_of(request: web.Request, broker: Broker, group: GroupDescription) -> Sequence[_Lag]:
    """The group's committed offsets by topic and partition; not those of topics that are deleted, or that the client
    may not describe."""
    readers = {
        (topic, number): member
        for member in group.members
        for topic, numbers in member.assignment.items()
        for number in numbers
    }
    stored = await broker.groups.offsets.fetch(group.group_id)
    positions = await broker.positions.of(stored)
    found = []
    for key, row in stored.items():
        topic = broker.topics.find_id(key.topic_id)
        if topic is not None and key in positions and row.is_position and may_see_topic(request, topic.name):
            found.append(
                _Lag(
                    topic=topic.name,
                    number=key.partition,
                    high_watermark=positions[key].high_watermark,
                    committed_offset=row.committed_offset,
                    member=readers.get((topic.name, key.partition)),
                )
            )
    return sorted(found, key=lambda each: (each.topic, each.number))


def _names(member: MemberDescription | None) -> tuple[str, str | None, str]:
    """(member id, instance id, client id)"""
    return (
        (_CONSUMER_OF_NOBODY, None, "") if member is None else (member.member_id, member.instance_id, member.client_id)
    )


def _lag_fields(links: Links, group: GroupDescription, lag: _Lag) -> Mapping[str, Any]:
    topic = lag.topic
    member_id, instance_id, client_id = _names(lag.member)
    return links.resource(
        _LAG,
        (*pieces_of(group), "lags", topic, "partitions", lag.number),
        f"consumer-group={group.group_id}/lag={topic}/partition={lag.number}",
        lag,
        consumer_group_id=group.group_id,
        consumer_id=member_id,
        instance_id=instance_id,
        client_id=client_id,
    )


ROUTES = tagged(
    TAG,
    route(
        "GET",
        GROUP_PATH + "/lag-summary",
        at_coordinator(GROUP_ID, _lag_summary),
        answers_json(_LAG_SUMMARY.schema),
        *OF_GROUP,
    ),
    route("GET", GROUP_PATH + "/lags", at_coordinator(GROUP_ID, _lags), answers_json(_LAG.list_schema), *OF_GROUP),
    route(
        "GET",
        GROUP_PATH + "/lags/{topic_name}/partitions/{partition_id}",
        at_coordinator(GROUP_ID, _lag),
        answers_json(_LAG.schema),
        *OF_GROUP,
        TOPIC_NAME,
        PARTITION_ID,
    ),
)
