"""DeleteRecords (key 21), versions 0 to 2: moves `log_start_offset` up, in both tiers.

-1 means the high watermark; an offset above it is OFFSET_OUT_OF_RANGE. The answer comes after SQL has the
new start, so a restart cannot take it back. Objects wholly below it are deleted after the purge grace, and when no
pin holds them. POLICY_VIOLATION where a snapshot holds records that would go.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tiered.errors import TieredError
from tiered.rules.security.acl import Operation
from tiered.server.kafka.audited import MAX_ITEMS, AuditEntry, codes_of, summed
from tiered.server.kafka.authorize import require_topic
from tiered.server.kafka.dispatch import Api, Context, Refused, in_turns
from tiered.server.kafka.error_mapping import NONE, error_code

if TYPE_CHECKING:
    from kafka_messages.delete_records import Reply, Request, Response


async def handle(context: Context, request: "Request", reply: "Reply") -> "Response":
    topics = []
    async for topic in in_turns(request.topics):
        partitions = []
        async for asked in in_turns(topic.partitions):
            code, low_watermark = NONE, -1
            try:
                require_topic(context, Operation.DELETE, topic.name)
                known = context.broker.topics.by_name(topic.name)
                low_watermark = await context.broker.admin.delete_records_of(known, asked.partition_index, asked.offset)
            except TieredError as error:
                code = error_code(error)
            partitions.append(
                reply.DeleteRecordsPartitionResult(
                    partition_index=asked.partition_index, low_watermark=low_watermark, error_code=code
                )
            )
        topics.append(reply.DeleteRecordsTopicResult(name=topic.name, partitions=partitions))
    return reply.DeleteRecordsResponse(throttle_time=0, topics=topics)


def _told(request: "Request", answer: "Response | None") -> Iterable[AuditEntry]:
    sums: list[tuple[int | None, dict[str, object]]] = [(None, {}) for _ in request.topics]
    if answer is not None:
        sums = [summed(codes_of(each.partitions)) for each in answer.topics]
    for topic, (code, partly) in zip(request.topics, sums, strict=False):
        before = {str(each.partition_index): each.offset for each in topic.partitions[:MAX_ITEMS]}
        yield AuditEntry(f"TOPIC:{topic.name}", code, {"before_offsets": before, **partly})


API = Api(21, "DeleteRecords", (0, 2), rights="DELETE on the topic", handle=handle, on_replica=Refused(), audit=_told)
