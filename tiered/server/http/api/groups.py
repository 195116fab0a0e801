"""`/api/v1/groups`: groups, their members, offsets and lag now and lately; resetting the offsets of an idle one.

A group's coordinator answers for it: other brokers pass the request on to it. Committed offsets come from SQL, so these
answer 503 while it is away; the lag's history comes from any broker's memory.
"""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from aiohttp import web

from tiered.broker.broker import Broker
from tiered.broker.groups.values import GroupSummary
from tiered.broker.partitions.topics import Topic
from tiered.broker.people.consumed_partitions import ConsumedPartition, consumed_partitions
from tiered.broker.people.lag_history import SAMPLES, GroupLag
from tiered.broker.people.offset_reset import reset_offsets
from tiered.errors import InvalidRequest
from tiered.ids import TopicPartition
from tiered.rules.groups.offset_reset import Target, ToEarliest, ToLatest, ToOffset, ToTimestamp
from tiered.rules.partition.partition_state import LogBounds
from tiered.rules.security.acl import Operation, ResourceType
from tiered.server.http.door.keys import BROKER
from tiered.server.http.door.rights import groups_to_see, may_see_group, may_see_topic, require
from tiered.server.http.messages import schema
from tiered.server.http.messages.long_list import json_with_list
from tiered.server.http.messages.parameters import GROUP, json_of, query_number
from tiered.server.http.messages.route import answers_json, no_content, route, tagged
from tiered.server.http.neighbours.answering_broker import (
    answers_of_others,
    coordinator_elsewhere,
    handled_by_coordinator,
    leader_elsewhere,
)
from tiered.server.http.neighbours.forward import Neighbour, ask, forward

TAG = "groups"
MINUTE_MS = 60_000
MAX_MINUTES = 7 * 24 * 60
READ_S = 10.0
"""A time may have to be looked up in the object store."""

_MINUTES = query_number(
    "minutes", f"How far back; {SAMPLES} samples are kept.", minimum=1, maximum=MAX_MINUTES, default=60
)
_TARGET = schema.one_of(
    schema.text(allowed=("earliest", "latest")),
    schema.input_record(
        {"offset": schema.integer(), "timestamp_ms": schema.integer("The first record that is not older.")},
        optional=("offset", "timestamp_ms"),
    ),
)
_RESET = schema.input_record(
    {
        "topic": schema.text(minLength=1, maxLength=249),
        "partitions": schema.array(
            schema.integer(maximum=schema.INT_MAX), "All of the topic's if absent.", max_items=10_000
        ),
        "to": _TARGET,
        "dry_run": schema.boolean("Say what would change, and change nothing."),
    },
    optional=("partitions", "dry_run"),
)
_CHANGE = schema.Form(
    {
        "topic": schema.text(),
        "partition": schema.integer(),
        "before": schema.nullable(schema.integer("Null when nothing was committed.", minimum=-1 - schema.LONG_MAX)),
        "after": schema.integer(),
        "asked": schema.nullable(schema.integer("The offset that was asked for, where the log has it not.")),
    }
)
_CHANGES = schema.record({"offsets": schema.array(_CHANGE.schema), "dry_run": schema.boolean()}, is_open=True)
_SUMMARY: dict[str, schema.Field] = {
    "group_id": schema.text(),
    "kind": (schema.text(allowed=("classic", "consumer")), "kind.value"),
    "state": schema.text(),
    "protocol_type": schema.text(),
}
_COORDINATOR = schema.integer("Which broker it is.")
_LAG_MS = schema.integer(
    "For how long at least the oldest record that the group has not committed is in the log; 0 without a lag. Null "
    "when nothing is committed, and until the broker has watched the partition for a moment."
)
_LISTED = schema.Form(
    {
        **_SUMMARY,
        "members": (schema.integer(), "member_count"),
        "coordinator": _COORDINATOR,
        "lag": schema.nullable(schema.integer("Null when nothing is committed.")),
        "lag_ms": schema.nullable(_LAG_MS),
        "topics": schema.array(schema.text()),
    }
)
_LAG = schema.Form(
    {"lag": schema.integer(), "lag_ms": schema.integer(), "topics": schema.array(schema.text())},
)
_GROUPS = schema.record(
    {
        "groups": schema.array(_LISTED.schema),
        "silent_brokers": schema.array(schema.integer(), "Their groups are missing: they did not answer in time."),
    },
    is_open=True,
)
_MEMBER = schema.Form(
    {
        "member_id": schema.text(),
        "instance_id": schema.nullable(schema.text()),
        "client_id": schema.text(),
        "client_host": schema.text(),
        "assignment": schema.mapping(schema.array(schema.integer()), "Topics and their partitions."),
    }
)
_OFFSET = schema.Form(
    {
        "topic": schema.text(),
        "partition": schema.integer(),
        "committed_offset": (
            schema.nullable(
                schema.integer(
                    "Null for an assigned partition without one; below 0 what the client means by it, which has no "
                    "lag.",
                    minimum=-1 - schema.LONG_MAX,
                )
            ),
            lambda each: each.row and each.row.committed_offset,
        ),
        "metadata": (schema.nullable(schema.text()), lambda each: each.row and each.row.metadata),
        "high_watermark": (schema.integer(), "bounds.high_watermark"),
        "log_start_offset": (schema.integer(), "bounds.log_start_offset"),
        "lag": schema.nullable(schema.integer()),
        "lag_ms": schema.nullable(_LAG_MS),
        "committed_at_ms": (schema.nullable(schema.integer()), lambda each: each.row and each.row.committed_at_ms),
        "member_id": (
            schema.nullable(schema.text("Who reads it now.")),
            lambda each: each.member and each.member.member_id,
        ),
    }
)
_GROUP = schema.Form(
    {
        **_SUMMARY,
        "protocol_name": schema.text(),
        "generation": schema.integer(minimum=-1),
        "coordinator": _COORDINATOR,
        "lag": schema.nullable(schema.integer()),
        "lag_ms": schema.nullable(_LAG_MS),
        "members": schema.array(_MEMBER.schema),
    },
    and_then={"offsets": schema.array(_OFFSET.schema)},
)
_HISTORY = schema.record(
    {
        "interval_ms": schema.integer(),
        "samples": schema.array(
            schema.record(
                {
                    "at_ms": schema.integer(),
                    "lag": schema.nullable(schema.integer("Null while nobody could tell: SQL was away.")),
                }
            )
        ),
    },
    is_open=True,
)


async def groups(request: web.Request) -> web.StreamResponse:
    """Every group with its state and lag.

    Every broker tells of those that it coordinates; a broker that does not answer in time is named.
    """
    broker = request.app[BROKER]
    scope = groups_to_see(request)
    lags = {} if scope.is_nothing else await broker.lag.current()
    # What is shown of them is made as it is sent: it takes ten times as much memory.
    by_id: dict[str, GroupSummary | Mapping[str, Any]] = {
        each.group_id: each async for each in broker.groups.list_groups(scope) if may_see_group(request, each.group_id)
    }
    answers, silent = await answers_of_others(request, "/api/v1/groups")
    # Two brokers may both answer for a slot that is moving from one to the other.
    by_id |= {str(each["group_id"]): each for answer in answers.values() for each in answer["groups"]}

    def fields(group: GroupSummary | Mapping[str, Any]) -> Mapping[str, Any]:
        shown = _listed(broker, group, lags.get(group.group_id)) if isinstance(group, GroupSummary) else group
        return {**shown, "topics": [name for name in shown["topics"] if may_see_topic(request, name)]}

    items = (fields(by_id[group_id]) for group_id in sorted(by_id))
    return await json_with_list(request, {"silent_brokers": silent}, "groups", items)


def _listed(broker: Broker, group: GroupSummary, lag: GroupLag | None) -> Mapping[str, Any]:
    known = {"lag": None, "lag_ms": None, "topics": []} if lag is None else _LAG.of(lag)
    return _LISTED.of(group, coordinator=broker.broker_id, **known)


@handled_by_coordinator(GROUP)
async def group(request: web.Request) -> web.StreamResponse:
    """One group with its members, offsets and lag."""
    broker = request.app[BROKER]
    group_id = GROUP.of(request)
    described = await broker.groups.describe(group_id)
    stored = await broker.groups.offsets.fetch(group_id)
    found = await consumed_partitions(described, stored, topics=broker.topics, log_bounds=broker.log_bounds)
    offsets = [each for each in found if may_see_topic(request, each.topic)]
    lags = [each.lag for each in offsets if each.lag is not None]
    waits_ms = [_lag_ms(broker, partition) for partition in offsets]
    known_waits_ms = [wait_ms for wait_ms in waits_ms if wait_ms is not None]
    fields = _GROUP.of(
        described,
        group_id=group_id,
        coordinator=broker.broker_id,
        lag=sum(lags) if lags else None,
        lag_ms=max(known_waits_ms, default=None),
        members=[_MEMBER.of(each, assignment=_seen(request, each.assignment)) for each in described.members],
    )
    items = (_OFFSET.of(shown, lag_ms=wait_ms) for shown, wait_ms in zip(offsets, waits_ms, strict=True))
    return await json_with_list(request, fields, "offsets", items)


def _lag_ms(broker: Broker, consumed: ConsumedPartition) -> int | None:
    topic = broker.topics.find(consumed.topic)
    if topic is None or consumed.row is None or not consumed.lag:
        return consumed.lag
    return broker.lag.lag_ms(TopicPartition(topic.topic_id, consumed.partition), consumed.row.committed_offset)


def _seen(request: web.Request, assignment: Mapping[str, Sequence[int]]) -> dict[str, list[int]]:
    return {topic: list(numbers) for topic, numbers in assignment.items() if may_see_topic(request, topic)}


@handled_by_coordinator(GROUP)
async def delete(request: web.Request) -> web.Response:
    """Delete a group without members, and its offsets."""
    await request.app[BROKER].groups.delete_group(GROUP.of(request))
    return web.Response(status=204)


async def lag(request: web.Request) -> web.StreamResponse:
    """The group's lag over the last minutes."""
    broker = request.app[BROKER]
    group_id = GROUP.of(request)
    since_ms = broker.clock.now_ms() - _MINUTES.of(request) * MINUTE_MS
    samples = broker.lag.history(group_id, since_ms=since_ms)
    if not samples:
        to = coordinator_elsewhere(request, group_id)
        if to is not None:
            return await forward(request, to)
        await broker.groups.describe(group_id)
    return web.json_response(
        {
            "group_id": group_id,
            "interval_ms": broker.settings.http.tiered_lag_sample_interval_ms,
            "samples": [{"at_ms": each.at_ms, "lag": each.lag} for each in samples],
        }
    )


@handled_by_coordinator(GROUP)
async def reset(request: web.Request) -> web.Response:
    """Move the committed offsets of a group without members.

    An offset outside the log becomes the nearest inside it; `asked` says so. 409 while the group has members.
    """
    body = await json_of(request, _RESET)
    broker = request.app[BROKER]
    require(request, Operation.READ, ResourceType.TOPIC, body["topic"])
    topic = broker.topics.by_name(body["topic"])
    dry_run = body.get("dry_run", False)
    changes = await reset_offsets(
        broker.groups,
        GROUP.of(request),
        topic,
        body.get("partitions"),
        _target(body["to"]),
        dry_run=dry_run,
        logs=_Logs(request),
    )
    offsets = [_CHANGE.of(each, topic=topic.name) for each in changes]
    return web.json_response({"offsets": offsets, "dry_run": dry_run})


def _target(to: str | dict[str, int]) -> Target:
    match to:
        case "earliest":
            return ToEarliest()
        case str():
            return ToLatest()
        case {"offset": offset} if len(to) == 1:
            return ToOffset(offset=offset)
        case {"timestamp_ms": timestamp_ms} if len(to) == 1:
            return ToTimestamp(timestamp_ms=timestamp_ms)
        case _:
            raise InvalidRequest("to must have one of offset and timestamp_ms, or be earliest or latest")


class _Logs:
    """The offsets that partitions' logs hold, from their leaders: from memory where this broker leads, else over HTTP.
    The questions are pages of records with at most one record in them, which every broker serves anyway."""

    def __init__(self, request: web.Request) -> None:
        self._request = request

    async def bounds(self, topic: Topic, number: int) -> LogBounds:
        """The offsets that the partition's log holds for readers now. Raises NotLeader, Unreachable."""
        leader = leader_elsewhere(self._request, topic, number, only_to_ask=True)
        if leader is None:
            partition = topic.partition(number)
            return LogBounds(log_start_offset=partition.log_start_offset, high_watermark=partition.high_watermark)
        page = await self._page(leader, topic, number, "offset=latest")
        return LogBounds(log_start_offset=page["log_start_offset"], high_watermark=page["high_watermark"])

    async def offset_for_timestamp(self, topic: Topic, number: int, timestamp_ms: int) -> int | None:
        """The first offset whose record is not older; None when all are. Raises as `bounds`, and what a read of the
        log raises."""
        leader = leader_elsewhere(self._request, topic, number, only_to_ask=True)
        if leader is None:
            found = await self._request.app[BROKER].reader.offset_for_timestamp(topic.partition(number), timestamp_ms)
            return None if found is None else found[0]
        page = await self._page(leader, topic, number, f"timestamp_ms={timestamp_ms}")
        return int(page["records"][0]["offset"]) if page["records"] else None

    async def _page(self, leader: Neighbour, topic: Topic, number: int, where: str) -> Any:
        query = f"partition={number}&limit=1&field_bytes=0&{where}"
        path = f"/api/v1/topics/{quote(topic.name, safe='')}/records?{query}"
        return await ask(self._request, leader, path, patience_s=READ_S)


ROUTES = tagged(
    TAG,
    route("GET", "/api/v1/groups", groups, answers_json(_GROUPS)),
    route("GET", "/api/v1/groups/{group}", group, answers_json(_GROUP.schema)),
    route("DELETE", "/api/v1/groups/{group}", delete, no_content("Gone.")),
    route("GET", "/api/v1/groups/{group}/lag", lag, answers_json(_HISTORY), _MINUTES),
    route("POST", "/api/v1/groups/{group}/offsets/reset", reset, answers_json(_CHANGES), body=_RESET),
)
