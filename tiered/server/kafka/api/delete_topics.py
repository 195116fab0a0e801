"""DeleteTopics (key 20), versions 1 to 6: by name, and from v6 by topic id.

The topic is gone for clients when this answers; its objects are deleted after the purge grace, and when no pin holds
them. POLICY_VIOLATION, with the snapshot's name, where a snapshot holds any of it.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING
from uuid import UUID

from tiered.errors import InvalidRequest, TieredError
from tiered.ids import NO_TOPIC_ID
from tiered.rules.security.acl import Operation
from tiered.server.kafka import throttling
from tiered.server.kafka.audited import AuditEntry, aligned
from tiered.server.kafka.authorize import require_topic, require_topic_by_id
from tiered.server.kafka.dispatch import Api, Context, Refused, in_turns
from tiered.server.kafka.error_mapping import NONE, error_code

if TYPE_CHECKING:
    from kafka_messages.delete_topics import Replies, Reply, Request, Response


async def handle(context: Context, request: "Request", reply: "Reply") -> "Response":
    if context.api_version >= 6:
        wanted = ((topic.name, topic.topic_id) for topic in request.topics)
    else:
        wanted = ((name, None) for name in request.topic_names)
    mutations = throttling.Mutations(context, strict_from_version=5)
    responses = [await _one(context, reply, name, topic_id, mutations) async for name, topic_id in in_turns(wanted)]
    return reply.DeleteTopicsResponse(throttle_time=mutations.throttle(), responses=responses)


async def _one(
    context: Context, reply: "Reply", name: str | None, topic_id: UUID | None, mutations: throttling.Mutations
) -> "Replies.DeletableTopicResult":
    topics = context.broker.topics
    by_id = topic_id is not None and topic_id != NO_TOPIC_ID
    code, message = NONE, None
    try:
        if by_id and name is not None:
            raise InvalidRequest("a topic is deleted by name or by id, not by both")
        if by_id:
            topic = topics.by_id(topic_id)
            require_topic_by_id(context, Operation.DELETE, topic)
        elif name is not None:
            require_topic(context, Operation.DELETE, name)
            topic = topics.by_name(name)
        else:
            raise InvalidRequest("a topic is deleted by name or by id")
        name, topic_id = topic.name, topic.topic_id
        mutations.take(topic.partition_count)
        await context.broker.admin.delete_topic(topic)
    except TieredError as error:
        code, message = error_code(error), str(error)
    return reply.DeletableTopicResult(name=name, topic_id=topic_id, error_code=code, error_message=message)


def _told(request: "Request", answer: "Response | None") -> Iterable[AuditEntry]:
    named = getattr(request, "topics", None)
    asked = request.topic_names if named is None else [each.name or str(each.topic_id) for each in named]
    for name, code in aligned(asked, answer and answer.responses):
        yield AuditEntry(f"TOPIC:{name}", code)


API = Api(20, "DeleteTopics", (1, 6), rights="DELETE on the topic", handle=handle, on_replica=Refused(), audit=_told)
