"""ConsumerGroupHeartbeat (key 68), versions 0 and 1: the one request that members of KIP-848 groups live by.

Epoch 0 joins, -1 leaves, -2 leaves for a while (static members). A null field is "as before", and so is a null
assignment in the answer. From v1 on the client makes its member id, and may subscribe by a pattern in RE2's syntax
(INVALID_REGULAR_EXPRESSION); in v0 the broker makes the id of a member that joins without one. The assignors are
`uniform` and `range` (UNSUPPORTED_ASSIGNOR). The first such member of a classic group of consumers turns it into a
KIP-848 group; one of another type is GROUP_ID_NOT_FOUND. The rack is kept and shown, and no assignor looks at it.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tiered.errors import InvalidRequest, TieredError
from tiered.ids import NO_TOPIC_ID, TopicId
from tiered.rules.groups.assignors import Partitions
from tiered.rules.groups.consumer_heartbeat import Heartbeat, check_count
from tiered.rules.groups.consumer_member import JOIN
from tiered.rules.security.acl import Operation
from tiered.runtime import new_uuid
from tiered.server.kafka.authorize import require_group, require_topic
from tiered.server.kafka.dispatch import Api, Context, Refused, in_turns
from tiered.server.kafka.error_mapping import NONE, error_code

if TYPE_CHECKING:
    from kafka_messages.consumer_group_heartbeat import Reply, Request, Response, TopicPartitions

FIRST_VERSION_WITH_PATTERNS = 1
MAX_PARTITIONS = 100_000
"""That one member may name."""


async def handle(context: Context, request: "Request", reply: "Reply") -> "Response":
    try:
        require_group(context, Operation.READ, request.group_id)
        check_count(len(request.subscribed_topic_names or ()))  # Before the rights are asked for each of them.
        async for name in in_turns(request.subscribed_topic_names or ()):
            require_topic(context, Operation.DESCRIBE, name)
        answer = await context.broker.groups.consumer.heartbeat(_heartbeat(context, request))
    except TieredError as error:
        return reply.ConsumerGroupHeartbeatResponse(
            throttle_time=0,
            error_code=error_code(error),
            error_message=str(error),
            member_id=request.member_id,
            member_epoch=0,
            heartbeat_interval=0,
            assignment=None,
        )
    assignment = None
    if answer.assignment is not None:
        assignment = reply.Assignment(
            topic_partitions=[
                reply.TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
                for topic_id, partitions in answer.assignment.items()
            ]
        )
    return reply.ConsumerGroupHeartbeatResponse(
        throttle_time=0,
        error_code=NONE,
        error_message=None,
        member_id=answer.member_id,
        member_epoch=answer.epoch,
        heartbeat_interval=answer.heartbeat_interval_ms,
        assignment=assignment,
    )


def _heartbeat(context: Context, request: "Request") -> Heartbeat:
    """Raises InvalidRequest."""
    member_id = request.member_id
    if context.api_version < FIRST_VERSION_WITH_PATTERNS and request.member_epoch == JOIN and not member_id:
        member_id = str(new_uuid())
    return Heartbeat(
        group_id=request.group_id,
        member_id=member_id,
        epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack=request.rack_id,
        client_id=context.connection.client_id or "",
        client_host=f"/{context.connection.host}",
        principal=context.connection.principal,
        host=context.connection.host,
        rebalance_timeout_ms=request.rebalance_timeout,
        topics=None if request.subscribed_topic_names is None else frozenset(request.subscribed_topic_names),
        pattern=getattr(request, "subscribed_topic_regex", None),
        assignor=request.server_assignor,
        owned=None if request.topic_partitions is None else _partitions(request.topic_partitions),
    )


def _partitions(named: "Sequence[TopicPartitions]") -> Partitions:
    if sum(max(1, len(topic.partitions)) for topic in named) > MAX_PARTITIONS:
        raise InvalidRequest(f"a member names {MAX_PARTITIONS} partitions at most")
    found: dict[TopicId, set[int]] = {}
    for topic in named:
        if topic.partitions:
            found.setdefault(TopicId(topic.topic_id or NO_TOPIC_ID), set()).update(topic.partitions)
    return {topic_id: frozenset(partitions) for topic_id, partitions in found.items()}


API = Api(
    68,
    "ConsumerGroupHeartbeat",
    (0, 1),
    rights="READ on the group, DESCRIBE on each topic that it names; a pattern means those that may be described",
    handle=handle,
    on_replica=Refused(),
)
