"""OffsetCommit (key 8), versions 2 to 10: a group's positions, stored in SQL before the answer goes out.

The coordinator decides by the member's generation or epoch who may commit; without a member (generation -1)
anybody may while the group is empty. Topics are named by id from version 10 on. A partition that does not
exist or a note longer than `offset.metadata.max.bytes` fails for itself alone. Any offset is stored, as Kafka does:
some clients commit -1 and -2 to mean the end and the beginning. While SQL is away every partition gets
COORDINATOR_NOT_AVAILABLE, which clients take as "again". Ignored, as Kafka does: `retention_time_ms` of versions 2
to 4 (offsets go by `offsets.retention.minutes`).

While SQL stores one commit the connection's next requests are handled: a consumer that commits after each poll
has all its commits in the next transaction, and its heartbeats do not wait behind a transaction for each of them.
"""

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from tiered.errors import TieredError
from tiered.rules.security.acl import Operation
from tiered.server.kafka.authorize import require_group
from tiered.server.kafka.dispatch import Api, Context, Later, Refused, in_turns
from tiered.server.kafka.error_mapping import NONE, error_code
from tiered.server.kafka.offset_entries import read_entries

if TYPE_CHECKING:
    from kafka_messages.offset_commit import Reply, Request, Response

FIRST_VERSION_WITH_TOPIC_IDS = 10


async def handle(context: Context, request: "Request", reply: "Reply") -> "Response | Later":
    codes: dict[tuple[int, int], int] = {}
    try:
        require_group(context, Operation.READ, request.group_id)
        by_id = context.api_version >= FIRST_VERSION_WITH_TOPIC_IDS
        entries = await read_entries(context, request.topics, codes, by_id=by_id)
        coordinator = context.broker.groups
        fence = await coordinator.check_commit(
            request.group_id,
            request.member_id,
            getattr(request, "group_instance_id", None),
            request.generation_id_or_member_epoch,
        )
        stored = coordinator.offsets.submit(fence, entries)
    except TieredError as error:
        return await _reply(request, reply, codes, error_code(error))
    return Later(stored, partial(_reply_when_stored, request, reply, codes, stored))


async def _reply_when_stored(
    request: "Request", reply: "Reply", codes: dict[tuple[int, int], int], stored: "asyncio.Future[None]"
) -> "Response":
    code = NONE
    try:
        await stored
    except TieredError as error:
        code = error_code(error)
    return await _reply(request, reply, codes, code)


async def _reply(request: "Request", reply: "Reply", codes: dict[tuple[int, int], int], code: int) -> "Response":
    topics = []
    async for number, topic in in_turns(enumerate(request.topics)):
        results = [
            reply.OffsetCommitResponsePartition(
                # A partition with an error of its own reports it, unless the whole request failed.
                partition_index=asked.partition_index,
                error_code=code or codes.get((number, place), NONE),
            )
            async for place, asked in in_turns(enumerate(topic.partitions))
        ]
        topics.append(
            reply.OffsetCommitResponseTopic(
                name=getattr(topic, "name", ""), topic_id=getattr(topic, "topic_id", None), partitions=results
            )
        )
    return reply.OffsetCommitResponse(throttle_time=0, topics=topics)


API = Api(
    8, "OffsetCommit", (2, 10), rights="READ on the group, READ on each topic", handle=handle, on_replica=Refused()
)
