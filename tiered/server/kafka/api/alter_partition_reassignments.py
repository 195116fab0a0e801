"""AlterPartitionReassignments (key 45), versions 0 and 1: moves partitions to other brokers, or cancels that (KIP-455).

The answer says that the moves have begun; ListPartitionReassignments shows those that have not ended. `replicas` of
null cancel. Each partition has its own error; one that stands twice in the request is INVALID_REQUEST. A move that
only drops replicas, or orders them anew, is complete at once. From v1 a request may forbid another replication
factor. Gap: `__consumer_offsets` has no replicas, as its records live in SQL: INVALID_TOPIC_EXCEPTION.
"""

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tiered.broker.control import reassignments
from tiered.broker.control.reassignments import Target
from tiered.errors import InvalidRequest, TieredError
from tiered.ids import TopicPartition
from tiered.rules.security.acl import Operation
from tiered.server.kafka.audited import MAX_ITEMS, AuditEntry, codes_of, summed
from tiered.server.kafka.authorize import require_cluster
from tiered.server.kafka.dispatch import Api, Context, Refused, in_turns
from tiered.server.kafka.error_mapping import NONE, error_code

if TYPE_CHECKING:
    from kafka_messages.alter_partition_reassignments import (
        ReassignablePartition,
        ReassignableTopic,
        Replies,
        Reply,
        Request,
        Response,
    )

Name = tuple[str, int]


async def handle(context: Context, request: "Request", reply: "Reply") -> "Response":
    broker = context.broker
    may_resize = getattr(request, "allow_replication_factor_change", True)
    try:
        require_cluster(context, Operation.ALTER)
    except TieredError as error:
        return reply.AlterPartitionReassignmentsResponse(
            throttle_time=0,
            allow_replication_factor_change=may_resize,
            error_code=error_code(error),
            error_message=str(error),
            responses=[],
        )
    times: Counter[Name] = Counter()
    async for topic, each in in_turns(_partitions(request)):
        times[topic.name, each.partition_index] += 1
    errors: dict[Name, TieredError | None] = {}
    targets: dict[TopicPartition, Target | None] = {}
    names: dict[TopicPartition, Name] = {}
    async for topic, each in in_turns(_partitions(request)):
        name = (topic.name, each.partition_index)
        try:
            if times[name] > 1:
                raise InvalidRequest(f"{topic.name}-{each.partition_index} stands {times[name]} times in the request")
            found = reassignments.named(broker.topics, *name)
        except TieredError as error:
            errors[name] = error.without_frames()
            continue
        targets[found] = None if each.replicas is None else tuple(each.replicas)
        names[found] = name
    code, message = NONE, None
    try:
        outcomes = await broker.reassignments.alter(targets, may_resize=may_resize)
    except TieredError as error:
        code, message = error_code(error), str(error)
        errors |= dict.fromkeys(names.values(), error.without_frames())
    else:
        errors |= {names[found]: error for found, error in outcomes.items()}
    return reply.AlterPartitionReassignmentsResponse(
        throttle_time=0,
        allow_replication_factor_change=may_resize,
        error_code=code,
        error_message=message,
        responses=[
            reply.ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    _answer(reply, each, errors[topic.name, each.partition_index])
                    async for each in in_turns(topic.partitions)
                ],
            )
            async for topic in in_turns(request.topics)
        ],
    )


def _partitions(request: "Request") -> "Iterable[tuple[ReassignableTopic, ReassignablePartition]]":
    return ((topic, each) for topic in request.topics for each in topic.partitions)


def _answer(
    reply: "Reply", asked: "ReassignablePartition", error: TieredError | None
) -> "Replies.ReassignablePartitionResponse":
    return reply.ReassignablePartitionResponse(
        partition_index=asked.partition_index,
        error_code=NONE if error is None else error_code(error),
        error_message=None if error is None else str(error),
    )


def _told(request: "Request", answer: "Response | None") -> Iterable[AuditEntry]:
    whole = NONE if answer is None else int(answer.error_code)
    codes: dict[str, list[int]] = {}
    for each in () if answer is None else answer.responses:
        codes.setdefault(each.name, []).extend(codes_of(each.partitions))
    for topic in request.topics:
        code, partly = summed([whole] if whole else codes.get(topic.name, []))
        moved = {
            str(each.partition_index): each.replicas and list(each.replicas[:MAX_ITEMS])
            for each in topic.partitions[:MAX_ITEMS]
        }
        yield AuditEntry(f"TOPIC:{topic.name}", None if answer is None else code, {"replicas": moved, **partly})


API = Api(
    45,
    "AlterPartitionReassignments",
    (0, 1),
    rights="ALTER on the cluster",
    handle=handle,
    on_replica=Refused(),
    audit=_told,
)
