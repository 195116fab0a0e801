"""`/v3/clusters/{cluster_id}/consumer-groups`: groups, their consumers and lags, in Confluent's shapes.

Lags are held against the high watermark, which is what Confluent calls the log's end here. Committed offsets come
from SQL, so these answer 503 while it is away.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from tiered.broker.broker import Broker
from tiered.broker.groups.values import GroupDescription, GroupKind, GroupSummary, MemberDescription
from tiered.broker.partition import Partition
from tiered.server.http.failures import NoSuchResource
from tiered.server.http.route import Answer, Route, answers_json
from tiered.server.http.schema import boolean, integer, nullable, text
from tiered.server.http.v3 import (
    CLUSTER_ID,
    CLUSTER_PATH,
    CONSUMER_ID,
    GROUP_ID,
    LINK,
    PARTITION_ID,
    TOPIC_NAME,
    Links,
    cluster_of,
    list_schema,
    resource_schema,
)

TAG = "v3 groups"
GROUPS_PATH = CLUSTER_PATH + "/consumer-groups"
GROUP_PATH = GROUPS_PATH + "/{consumer_group_id}"
_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])")
_CONSUMER_OF_NOBODY = ""

_GROUP = resource_schema(
    "KafkaConsumerGroup",
    {
        "consumer_group_id": text(),
        "is_simple": boolean("True for a group that only stores offsets."),
        "partition_assignor": text(),
        "state": text(),
        "type": text(allowed=("CLASSIC", "CONSUMER")),
        "coordinator": LINK,
        "consumers": LINK,
        "lag_summary": LINK,
    },
)
_CONSUMER = resource_schema(
    "KafkaConsumer",
    {
        "consumer_group_id": text(),
        "consumer_id": text(),
        "instance_id": nullable(text()),
        "client_id": text(),
        "assignments": LINK,
    },
)
_ASSIGNMENT = resource_schema(
    "KafkaConsumerAssignment",
    {
        "consumer_group_id": text(),
        "consumer_id": text(),
        "topic_name": text(),
        "partition_id": integer(),
        "partition": LINK,
        "lag": LINK,
    },
)
_LAG = resource_schema(
    "KafkaConsumerLag",
    {
        "consumer_group_id": text(),
        "topic_name": text(),
        "partition_id": integer(),
        "current_offset": integer("The committed offset."),
        "log_end_offset": integer("The high watermark."),
        "lag": integer(),
        "consumer_id": text("Empty when no member reads the partition."),
        "instance_id": nullable(text()),
        "client_id": text(),
    },
)
_LAG_SUMMARY = resource_schema(
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

    partition: Partition
    committed_offset: int
    member: MemberDescription | None

    @property
    def number(self) -> int:
        return self.partition.topic_partition.partition

    @property
    def lag(self) -> int:
        return max(0, self.partition.high_watermark - self.committed_offset)


async def _list(request: web.Request) -> web.Response:
    broker, links = cluster_of(request), Links(request)
    groups = sorted(await broker.groups.list_groups(), key=lambda each: each.group_id)
    items = [_group_fields(broker, links, group, _assignor_in_memory(broker, group)) for group in groups]
    return web.json_response(links.listing("KafkaConsumerGroup", ("consumer-groups",), items))


async def _get(request: web.Request) -> web.Response:
    broker, group = await _described(request)
    return web.json_response(_group_fields(broker, Links(request), group, group.protocol_name))


async def _delete(request: web.Request) -> web.Response:
    await cluster_of(request).groups.delete_group(GROUP_ID.of(request))
    return web.Response(status=204)


async def _consumers(request: web.Request) -> web.Response:
    _, group = await _described(request)
    links = Links(request)
    items = (_consumer_fields(links, group, member) for member in group.members)
    return web.json_response(links.listing("KafkaConsumer", (*_pieces(group), "consumers"), items))


async def _consumer(request: web.Request) -> web.Response:
    _, group = await _described(request)
    return web.json_response(_consumer_fields(Links(request), group, _member(request, group)))


async def _assignments(request: web.Request) -> web.Response:
    _, group = await _described(request)
    member, links = _member(request, group), Links(request)
    items = [
        _assignment_fields(links, group, member, topic, number)
        for topic, numbers in sorted(member.assignment.items())
        for number in numbers
    ]
    pieces = (*_pieces(group), "consumers", member.member_id, "assignments")
    return web.json_response(links.listing("KafkaConsumerAssignment", pieces, items))


async def _lags(request: web.Request) -> web.Response:
    broker, group = await _described(request)
    links = Links(request)
    items = [_lag_fields(links, group, lag) for lag in await _lags_of(broker, group)]
    return web.json_response(links.listing("KafkaConsumerLag", (*_pieces(group), "lags"), items))


async def _lag(request: web.Request) -> web.Response:
    broker, group = await _described(request)
    name, number = TOPIC_NAME.of(request), PARTITION_ID.of(request)
    for lag in await _lags_of(broker, group):
        if (lag.partition.topic, lag.number) == (name, number):
            return web.json_response(_lag_fields(Links(request), group, lag))
    raise NoSuchResource(f"group {group.group_id} has committed no offset for {name[:249]}-{number}")


async def _lag_summary(request: web.Request) -> web.Response:
    broker, group = await _described(request)
    lags = await _lags_of(broker, group)
    if not lags:
        raise NoSuchResource(f"group {group.group_id} has committed no offsets, so it has no lag")
    links, worst = Links(request), max(lags, key=lambda each: each.lag)
    member_id, instance_id, client_id = _names(worst.member)
    fields = {
        "consumer_group_id": group.group_id,
        "max_lag_consumer_id": member_id,
        "max_lag_instance_id": instance_id,
        "max_lag_client_id": client_id,
        "max_lag_topic_name": worst.partition.topic,
        "max_lag_partition_id": worst.number,
        "max_lag": worst.lag,
        "total_lag": sum(each.lag for each in lags),
        "max_lag_consumer": links.link(*_pieces(group), "consumers", member_id),
        "max_lag_partition": links.link("topics", worst.partition.topic, "partitions", worst.number),
    }
    pieces, name = (*_pieces(group), "lag-summary"), f"consumer-group={group.group_id}/lag-summary"
    return web.json_response(links.resource("KafkaConsumerGroupLagSummary", pieces, name, fields))


async def _described(request: web.Request) -> tuple[Broker, GroupDescription]:
    broker = cluster_of(request)
    return broker, await broker.groups.describe(GROUP_ID.of(request))


def _member(request: web.Request, group: GroupDescription) -> MemberDescription:
    asked = CONSUMER_ID.of(request)
    for member in group.members:
        if member.member_id == asked:
            return member
    raise NoSuchResource(f"group {group.group_id} has no member {asked[:200]!r}; its consumers have the ids")


async def _lags_of(broker: Broker, group: GroupDescription) -> Sequence[_Lag]:
    """The group's committed offsets by topic and partition; those of deleted topics are left out."""
    readers = {
        (topic, number): member
        for member in group.members
        for topic, numbers in member.assignment.items()
        for number in numbers
    }
    found = []
    for key, row in (await broker.groups.offsets.fetch(group.group_id)).items():
        topic = broker.topics.find_id(key.topic_id)
        if topic is not None and key.partition < len(topic.partitions):
            found.append(
                _Lag(
                    partition=topic.partitions[key.partition],
                    committed_offset=row.committed_offset,
                    member=readers.get((topic.name, key.partition)),
                )
            )
    return sorted(found, key=lambda each: (each.partition.topic, each.number))


def _assignor_in_memory(broker: Broker, group: GroupSummary) -> str:
    found = broker.groups.find(group.group_id)
    return "" if found is None else found.describe().protocol_name


def _pieces(group: GroupDescription) -> tuple[object, ...]:
    return ("consumer-groups", group.group_id)


def _names(member: MemberDescription | None) -> tuple[str, str | None, str]:
    """(member id, instance id, client id)"""
    return (
        (_CONSUMER_OF_NOBODY, None, "") if member is None else (member.member_id, member.instance_id, member.client_id)
    )


def _group_fields(
    broker: Broker, links: Links, group: GroupSummary | GroupDescription, assignor: str
) -> Mapping[str, Any]:
    pieces = ("consumer-groups", group.group_id)
    return links.resource(
        "KafkaConsumerGroup",
        pieces,
        f"consumer-group={group.group_id}",
        {
            "consumer_group_id": group.group_id,
            "is_simple": group.kind is GroupKind.CLASSIC and not group.protocol_type,
            "partition_assignor": assignor,
            "state": _WORD.sub("_", group.state).upper(),
            "type": group.kind.value.upper(),
            "coordinator": links.link("brokers", broker.broker_id),
            "consumers": links.link(*pieces, "consumers"),
            "lag_summary": links.link(*pieces, "lag-summary"),
        },
    )


def _consumer_fields(links: Links, group: GroupDescription, member: MemberDescription) -> Mapping[str, Any]:
    pieces = (*_pieces(group), "consumers", member.member_id)
    return links.resource(
        "KafkaConsumer",
        pieces,
        f"consumer-group={group.group_id}/consumer={member.member_id}",
        {
            "consumer_group_id": group.group_id,
            "consumer_id": member.member_id,
            "instance_id": member.instance_id,
            "client_id": member.client_id,
            "assignments": links.link(*pieces, "assignments"),
        },
    )


def _assignment_fields(
    links: Links, group: GroupDescription, member: MemberDescription, topic: str, number: int
) -> Mapping[str, Any]:
    pieces = (*_pieces(group), "consumers", member.member_id, "assignments", topic, "partitions", number)
    return links.resource(
        "KafkaConsumerAssignment",
        pieces,
        f"consumer-group={group.group_id}/consumer={member.member_id}/assignment={topic}/partition={number}",
        {
            "consumer_group_id": group.group_id,
            "consumer_id": member.member_id,
            "topic_name": topic,
            "partition_id": number,
            "partition": links.link("topics", topic, "partitions", number),
            "lag": links.link(*_pieces(group), "lags", topic, "partitions", number),
        },
    )


def _lag_fields(links: Links, group: GroupDescription, lag: _Lag) -> Mapping[str, Any]:
    topic = lag.partition.topic
    member_id, instance_id, client_id = _names(lag.member)
    return links.resource(
        "KafkaConsumerLag",
        (*_pieces(group), "lags", topic, "partitions", lag.number),
        f"consumer-group={group.group_id}/lag={topic}/partition={lag.number}",
        {
            "consumer_group_id": group.group_id,
            "topic_name": topic,
            "partition_id": lag.number,
            "current_offset": lag.committed_offset,
            "log_end_offset": lag.partition.high_watermark,
            "lag": lag.lag,
            "consumer_id": member_id,
            "instance_id": instance_id,
            "client_id": client_id,
        },
    )


_OF_GROUP = (CLUSTER_ID, GROUP_ID)
_CONSUMER_PATH = GROUP_PATH + "/consumers/{consumer_id}"

ROUTES = (
    Route(
        method="GET",
        path=GROUPS_PATH,
        handler=_list,
        tag=TAG,
        summary="Every group.",
        parameters=(CLUSTER_ID,),
        answers=answers_json(list_schema(_GROUP)),
    ),
    Route(
        method="GET",
        path=GROUP_PATH,
        handler=_get,
        tag=TAG,
        summary="One group.",
        parameters=_OF_GROUP,
        answers=answers_json(_GROUP),
    ),
    Route(
        method="DELETE",
        path=GROUP_PATH,
        handler=_delete,
        tag=TAG,
        summary="Delete a group without members, and its offsets.",
        parameters=_OF_GROUP,
        answers={204: Answer(description="Gone.")},
    ),
    Route(
        method="GET",
        path=GROUP_PATH + "/consumers",
        handler=_consumers,
        tag=TAG,
        summary="The members of a group.",
        parameters=_OF_GROUP,
        answers=answers_json(list_schema(_CONSUMER)),
    ),
    Route(
        method="GET",
        path=_CONSUMER_PATH,
        handler=_consumer,
        tag=TAG,
        summary="One member.",
        parameters=(*_OF_GROUP, CONSUMER_ID),
        answers=answers_json(_CONSUMER),
    ),
    Route(
        method="GET",
        path=_CONSUMER_PATH + "/assignments",
        handler=_assignments,
        tag=TAG,
        summary="The partitions that a member reads.",
        parameters=(*_OF_GROUP, CONSUMER_ID),
        answers=answers_json(list_schema(_ASSIGNMENT)),
    ),
    Route(
        method="GET",
        path=GROUP_PATH + "/lag-summary",
        handler=_lag_summary,
        tag=TAG,
        summary="The group's lag in all, and where it is largest.",
        parameters=_OF_GROUP,
        answers=answers_json(_LAG_SUMMARY),
    ),
    Route(
        method="GET",
        path=GROUP_PATH + "/lags",
        handler=_lags,
        tag=TAG,
        summary="The group's lag by partition.",
        parameters=_OF_GROUP,
        answers=answers_json(list_schema(_LAG)),
    ),
    Route(
        method="GET",
        path=GROUP_PATH + "/lags/{topic_name}/partitions/{partition_id}",
        handler=_lag,
        tag=TAG,
        summary="The group's lag in one partition.",
        parameters=(*_OF_GROUP, TOPIC_NAME, PARTITION_ID),
        answers=answers_json(_LAG),
    ),
)
