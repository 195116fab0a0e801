"""`/v3/clusters/{cluster_id}/consumer-groups`: groups and their consumers, in Confluent's shapes.

A group is described by its coordinator: other brokers pass the request on to it. Groups that are not in memory come
from SQL, so these may answer 503 while it is away. Lags: `lags`.
"""

import re
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from tiered.broker.broker import Broker
from tiered.broker.groups.values import GroupDescription, GroupKind, GroupSummary, MemberDescription
from tiered.server.http.door.rights import may_see_group, may_see_topic
from tiered.server.http.messages.failures import NoSuchResource
from tiered.server.http.messages.origin import is_forwarded
from tiered.server.http.messages.route import answers_json, no_content, route, tagged
from tiered.server.http.messages.schema import boolean, integer, nullable, text
from tiered.server.http.neighbours.elsewhere import at_coordinator, others
from tiered.server.http.neighbours.forward import ask_everybody
from tiered.server.http.v3.resources import (
    CLUSTER_ID,
    CLUSTER_PATH,
    CONSUMER_ID,
    GROUP_ID,
    LINK,
    Below,
    Links,
    Resource,
    cluster_of,
)

TAG = "v3 groups"
GROUPS_PATH = CLUSTER_PATH + "/consumer-groups"
GROUP_PATH = GROUPS_PATH + "/{consumer_group_id}"
_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])")

_GROUP = Resource(
    "KafkaConsumerGroup",
    {
        "consumer_group_id": (text(), "group_id"),
        "is_simple": (
            boolean("True for a group that only stores offsets."),
            lambda group: group.kind is GroupKind.CLASSIC and not group.protocol_type,
        ),
        "partition_assignor": text(),
        "state": (text(), lambda group: _WORD.sub("_", group.state).upper()),
        "type": (text(allowed=("CLASSIC", "CONSUMER")), lambda group: group.kind.value.upper()),
        "coordinator": LINK,
        "consumers": Below(("consumers",)),
        "lag_summary": Below(("lag-summary",)),
    },
    optional=("coordinator",),
)
_CONSUMER = Resource(
    "KafkaConsumer",
    {
        "consumer_group_id": text(),
        "consumer_id": (text(), "member_id"),
        "instance_id": nullable(text()),
        "client_id": text(),
        "assignments": Below(("assignments",)),
    },
)
_ASSIGNMENT = Resource(
    "KafkaConsumerAssignment",
    {
        "consumer_group_id": text(),
        "consumer_id": (text(), "member_id"),
        "topic_name": text(),
        "partition_id": integer(),
        "partition": LINK,
        "lag": LINK,
    },
)


async def _list(request: web.Request) -> web.Response:
    """Every group.

    Every broker lists those that it coordinates. One that does not answer makes the whole a 503.
    """
    broker, links = cluster_of(request), Links(request)
    items = [
        _group_fields(broker, links, group, _assignor_in_memory(broker, group))
        for group in await broker.groups.list_groups()
    ]
    if not is_forwarded(request):
        path = f"/v3/clusters/{broker.cluster_id}/consumer-groups"
        for answer in (await ask_everybody(request, others(broker), path)).values():
            items += answer["data"]
    items = [each for each in items if may_see_group(request, str(each["consumer_group_id"]))]
    items.sort(key=lambda each: str(each["consumer_group_id"]))
    return await links.listing(_GROUP, ("consumer-groups",), items)


async def _get(request: web.Request) -> web.Response:
    """One group."""
    broker, group = await described(request)
    return web.json_response(_group_fields(broker, Links(request), group, group.protocol_name))


async def _delete(request: web.Request) -> web.Response:
    """Delete a group without members, and its offsets."""
    await cluster_of(request).groups.delete_group(GROUP_ID.of(request))
    return web.Response(status=204)


async def _consumers(request: web.Request) -> web.Response:
    """The members of a group."""
    _, group = await described(request)
    links = Links(request)
    items = (_consumer_fields(links, group, member) for member in group.members)
    return await links.listing(_CONSUMER, (*pieces_of(group), "consumers"), items)


async def _consumer(request: web.Request) -> web.Response:
    """One member."""
    _, group = await described(request)
    return web.json_response(_consumer_fields(Links(request), group, _member(request, group)))


async def _assignments(request: web.Request) -> web.Response:
    """The partitions that a member reads."""
    _, group = await described(request)
    member, links = _member(request, group), Links(request)
    items = [
        _assignment_fields(links, group, member, topic, number)
        for topic, numbers in sorted(member.assignment.items())
        if may_see_topic(request, topic)
        for number in numbers
    ]
    pieces = (*pieces_of(group), "consumers", member.member_id, "assignments")
    return await links.listing(_ASSIGNMENT, pieces, items)


async def described(request: web.Request) -> tuple[Broker, GroupDescription]:
    """The broker and the group that the path names."""
    broker = cluster_of(request)
    return broker, await broker.groups.describe(GROUP_ID.of(request))


def _member(request: web.Request, group: GroupDescription) -> MemberDescription:
    asked = CONSUMER_ID.of(request)
    for member in group.members:
        if member.member_id == asked:
            return member
    raise NoSuchResource(f"group {group.group_id} has no member {asked[:200]!r}; its consumers have the ids")


def _assignor_in_memory(broker: Broker, group: GroupSummary) -> str:
    found = broker.groups.find(group.group_id)
    return "" if found is None else found.describe().protocol_name


def pieces_of(group: GroupDescription) -> tuple[object, ...]:
    """Where the group is under the cluster."""
    return ("consumer-groups", group.group_id)


def _group_fields(
    broker: Broker, links: Links, group: GroupSummary | GroupDescription, assignor: str
) -> Mapping[str, Any]:
    pieces = ("consumer-groups", group.group_id)
    coordinator = broker.groups.slot_leader(broker.groups.slot(group.group_id))
    return links.resource(
        _GROUP,
        pieces,
        f"consumer-group={group.group_id}",
        group,
        partition_assignor=assignor,
        coordinator=links.link("brokers", coordinator) if coordinator >= 0 else None,
    )


def _consumer_fields(links: Links, group: GroupDescription, member: MemberDescription) -> Mapping[str, Any]:
    pieces = (*pieces_of(group), "consumers", member.member_id)
    name = f"consumer-group={group.group_id}/consumer={member.member_id}"
    return links.resource(_CONSUMER, pieces, name, member, consumer_group_id=group.group_id)


def _assignment_fields(
    links: Links, group: GroupDescription, member: MemberDescription, topic: str, number: int
) -> Mapping[str, Any]:
    pieces = (*pieces_of(group), "consumers", member.member_id, "assignments", topic, "partitions", number)
    return links.resource(
        _ASSIGNMENT,
        pieces,
        f"consumer-group={group.group_id}/consumer={member.member_id}/assignment={topic}/partition={number}",
        member,
        consumer_group_id=group.group_id,
        topic_name=topic,
        partition_id=number,
        partition=links.link("topics", topic, "partitions", number),
        lag=links.link(*pieces_of(group), "lags", topic, "partitions", number),
    )


OF_GROUP = (CLUSTER_ID, GROUP_ID)
_CONSUMER_PATH = GROUP_PATH + "/consumers/{consumer_id}"

ROUTES = tagged(
    TAG,
    route("GET", GROUPS_PATH, _list, answers_json(_GROUP.list_schema), CLUSTER_ID),
    route("GET", GROUP_PATH, at_coordinator(GROUP_ID, _get), answers_json(_GROUP.schema), *OF_GROUP),
    route("DELETE", GROUP_PATH, at_coordinator(GROUP_ID, _delete), no_content("Gone."), *OF_GROUP),
    route(
        "GET",
        GROUP_PATH + "/consumers",
        at_coordinator(GROUP_ID, _consumers),
        answers_json(_CONSUMER.list_schema),
        *OF_GROUP,
    ),
    route(
        "GET",
        _CONSUMER_PATH,
        at_coordinator(GROUP_ID, _consumer),
        answers_json(_CONSUMER.schema),
        *OF_GROUP,
        CONSUMER_ID,
    ),
    route(
        "GET",
        _CONSUMER_PATH + "/assignments",
        at_coordinator(GROUP_ID, _assignments),
        answers_json(_ASSIGNMENT.list_schema),
        *OF_GROUP,
        CONSUMER_ID,
    ),
)
