"""`/v3/clusters/{cluster_id}/consumer-groups`: groups, their consumers and their lags, in Confluent's shapes.

A group is described by its coordinator: other brokers pass the request on to it. Groups that are not in memory and
committed offsets come from SQL, so these may answer 503 while it is away. Lags are held against the high watermark,
which is what Confluent calls the log's end here.
"""

import re
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from tiered.broker.broker import Broker
from tiered.broker.groups.values import GroupDescription, GroupKind, GroupSummary, MemberDescription
from tiered.broker.people.consumed_partitions import ConsumedPartition, consumed_partitions
from tiered.server.http.door.rights import groups_to_see, may_see_group, may_see_topic
from tiered.server.http.messages.failures import NoSuchResource
from tiered.server.http.messages.origin import is_forwarded
from tiered.server.http.messages.parameters import CONSUMER_ID, GROUP_ID, PARTITION_ID, TOPIC_NAME
from tiered.server.http.messages.route import answers_json, no_content, route, tagged
from tiered.server.http.messages.schema import boolean, integer, nullable, text
from tiered.server.http.neighbours.answering_broker import handled_by_coordinator, other_brokers
from tiered.server.http.neighbours.forward import ask_everybody
from tiered.server.http.v3.resources import CLUSTER_PATH, LINK, Below, Links, Resource, cluster_of

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

_LAG = Resource(
    "KafkaConsumerLag",
    {
        "consumer_group_id": text(),
        "topic_name": (text(), "topic"),
        "partition_id": (integer(), "partition"),
        "current_offset": (integer("The committed offset."), "row.committed_offset"),
        "log_end_offset": (integer("The high watermark."), "bounds.high_watermark"),
        "lag": integer(),
        "consumer_id": (text("Empty when no member reads the partition."), lambda lag: _reader_of(lag)[0]),
        "instance_id": (nullable(text()), lambda lag: _reader_of(lag)[1]),
        "client_id": (text(), lambda lag: _reader_of(lag)[2]),
    },
)
_LAG_SUMMARY = Resource(
    "KafkaConsumerGroupLagSummary",
    {
        "consumer_group_id": text(),
        "max_lag_consumer_id": (text(), lambda lag: _reader_of(lag)[0]),
        "max_lag_instance_id": (nullable(text()), lambda lag: _reader_of(lag)[1]),
        "max_lag_client_id": (text(), lambda lag: _reader_of(lag)[2]),
        "max_lag_topic_name": (text(), "topic"),
        "max_lag_partition_id": (integer(), "partition"),
        "max_lag": (integer(), "lag"),
        "total_lag": integer(),
        "max_lag_consumer": LINK,
        "max_lag_partition": LINK,
    },
)


async def _list(request: web.Request) -> web.StreamResponse:
    """Every group. Each broker lists the groups that it coordinates. If one does not answer, the answer is 503."""
    broker, links = cluster_of(request), Links(request)
    # What is shown of them is made as it is sent: it takes ten times as much memory.
    items: dict[str, GroupSummary | Mapping[str, Any]] = {
        group.group_id: group
        async for group in broker.groups.list_groups(groups_to_see(request))
        if may_see_group(request, group.group_id)
    }
    if not is_forwarded(request):
        path = f"/v3/clusters/{broker.cluster_id}/consumer-groups"
        for answer in (await ask_everybody(request, other_brokers(broker), path)).values():
            items.update((str(each["consumer_group_id"]), each) for each in answer["data"])

    def fields(group: GroupSummary | Mapping[str, Any]) -> Mapping[str, Any]:
        if isinstance(group, GroupSummary):
            return _group_fields(broker, links, group, _assignor_in_memory(broker, group))
        return group

    return await links.listing(_GROUP, ("consumer-groups",), (fields(items[group_id]) for group_id in sorted(items)))


@handled_by_coordinator(GROUP_ID)
async def _get(request: web.Request) -> web.Response:
    """One group."""
    broker, group = await _described(request)
    return web.json_response(_group_fields(broker, Links(request), group, group.protocol_name))


@handled_by_coordinator(GROUP_ID)
async def _delete(request: web.Request) -> web.Response:
    """Delete a group without members, and its offsets."""
    await cluster_of(request).groups.delete_group(GROUP_ID.of(request))
    return web.Response(status=204)


@handled_by_coordinator(GROUP_ID)
async def _consumers(request: web.Request) -> web.StreamResponse:
    """The members of a group."""
    _, group = await _described(request)
    links = Links(request)
    items = (_consumer_fields(links, group, member) for member in group.members)
    return await links.listing(_CONSUMER, (*_pieces_of(group), "consumers"), items)


@handled_by_coordinator(GROUP_ID)
async def _consumer(request: web.Request) -> web.Response:
    """One member."""
    _, group = await _described(request)
    return web.json_response(_consumer_fields(Links(request), group, _member(request, group)))


@handled_by_coordinator(GROUP_ID)
async def _assignments(request: web.Request) -> web.StreamResponse:
    """The partitions that a member reads."""
    _, group = await _described(request)
    member, links = _member(request, group), Links(request)
    items = [
        _assignment_fields(links, group, member, topic, number)
        for topic, numbers in sorted(member.assignment.items())
        if may_see_topic(request, topic)
        for number in numbers
    ]
    pieces = (*_pieces_of(group), "consumers", member.member_id, "assignments")
    return await links.listing(_ASSIGNMENT, pieces, items)


@handled_by_coordinator(GROUP_ID)
async def _lags(request: web.Request) -> web.StreamResponse:
    """The group's lag by partition."""
    broker, group = await _described(request)
    links = Links(request)
    items = [_lag_fields(links, group, lag) for lag in await _lags_of(request, broker, group)]
    return await links.listing(_LAG, (*_pieces_of(group), "lags"), items)


@handled_by_coordinator(GROUP_ID)
async def _lag(request: web.Request) -> web.Response:
    """The group's lag in one partition."""
    broker, group = await _described(request)
    name, number = TOPIC_NAME.of(request), PARTITION_ID.of(request)
    for lag in await _lags_of(request, broker, group):
        if (lag.topic, lag.partition) == (name, number):
            return web.json_response(_lag_fields(Links(request), group, lag))
    raise NoSuchResource(f"group {group.group_id} has committed no offset for {name[:249]}-{number}")


@handled_by_coordinator(GROUP_ID)
async def _lag_summary(request: web.Request) -> web.Response:
    """The group's lag in all, and where it is largest."""
    broker, group = await _described(request)
    lags = await _lags_of(request, broker, group)
    if not lags:
        raise NoSuchResource(f"group {group.group_id} has committed no offsets, so it has no lag")
    links, worst = Links(request), max(lags, key=_lag_in)
    fields = links.resource(
        _LAG_SUMMARY,
        (*_pieces_of(group), "lag-summary"),
        worst,
        consumer_group_id=group.group_id,
        total_lag=sum(map(_lag_in, lags)),
        max_lag_consumer=links.link(*_pieces_of(group), "consumers", _reader_of(worst)[0]),
        max_lag_partition=links.link("topics", worst.topic, "partitions", worst.partition),
    )
    return web.json_response(fields)


async def _lags_of(request: web.Request, broker: Broker, group: GroupDescription) -> list[ConsumedPartition]:
    """The group's committed offsets by topic and partition; not those of topics that are deleted, or that the client
    may not describe."""
    stored = await broker.groups.offsets.fetch(group.group_id)
    found = await consumed_partitions(group, stored, topics=broker.topics, log_bounds=broker.log_bounds)
    return [each for each in found if each.lag is not None and may_see_topic(request, each.topic)]


def _lag_in(standing: ConsumedPartition) -> int:
    return standing.lag or 0


def _reader_of(standing: ConsumedPartition) -> tuple[str, str | None, str]:
    """(member id, instance id, client id)"""
    member = standing.member
    return ("", None, "") if member is None else (member.member_id, member.instance_id, member.client_id)


async def _described(request: web.Request) -> tuple[Broker, GroupDescription]:
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


def _pieces_of(group: GroupSummary | GroupDescription) -> tuple[object, ...]:
    """Where the group is under the cluster."""
    return ("consumer-groups", group.group_id)


def _group_fields(
    broker: Broker, links: Links, group: GroupSummary | GroupDescription, assignor: str
) -> Mapping[str, Any]:
    coordinator = broker.groups.slot_leader(broker.groups.slot(group.group_id))
    return links.resource(
        _GROUP,
        _pieces_of(group),
        group,
        partition_assignor=assignor,
        coordinator=links.link("brokers", coordinator) if coordinator >= 0 else None,
    )


def _consumer_fields(links: Links, group: GroupDescription, member: MemberDescription) -> Mapping[str, Any]:
    pieces = (*_pieces_of(group), "consumers", member.member_id)
    return links.resource(_CONSUMER, pieces, member, consumer_group_id=group.group_id)


def _assignment_fields(
    links: Links, group: GroupDescription, member: MemberDescription, topic: str, number: int
) -> Mapping[str, Any]:
    pieces = (*_pieces_of(group), "consumers", member.member_id, "assignments", topic, "partitions", number)
    return links.resource(
        _ASSIGNMENT,
        pieces,
        member,
        consumer_group_id=group.group_id,
        topic_name=topic,
        partition_id=number,
        partition=links.link("topics", topic, "partitions", number),
        lag=links.link(*_pieces_of(group), "lags", topic, "partitions", number),
    )


def _lag_fields(links: Links, group: GroupDescription, lag: ConsumedPartition) -> Mapping[str, Any]:
    pieces = (*_pieces_of(group), "lags", lag.topic, "partitions", lag.partition)
    return links.resource(_LAG, pieces, lag, consumer_group_id=group.group_id)


_CONSUMER_PATH = GROUP_PATH + "/consumers/{consumer_id}"
_LAG_PATH = GROUP_PATH + "/lags/{topic_name}/partitions/{partition_id}"

ROUTES = tagged(
    TAG,
    route("GET", GROUPS_PATH, _list, answers_json(_GROUP.list_schema)),
    route("GET", GROUP_PATH, _get, answers_json(_GROUP.schema)),
    route("DELETE", GROUP_PATH, _delete, no_content("Gone.")),
    route("GET", GROUP_PATH + "/consumers", _consumers, answers_json(_CONSUMER.list_schema)),
    route("GET", _CONSUMER_PATH, _consumer, answers_json(_CONSUMER.schema)),
    route("GET", _CONSUMER_PATH + "/assignments", _assignments, answers_json(_ASSIGNMENT.list_schema)),
    route("GET", GROUP_PATH + "/lag-summary", _lag_summary, answers_json(_LAG_SUMMARY.schema)),
    route("GET", GROUP_PATH + "/lags", _lags, answers_json(_LAG.list_schema)),
    route("GET", _LAG_PATH, _lag, answers_json(_LAG.schema)),
)
