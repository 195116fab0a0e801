"""CreatePartitions (key 37), versions 0 to 3: more partitions for a topic; never fewer."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tiered.errors import TieredError
from tiered.rules.security.acl import Operation
from tiered.server.kafka import throttling
from tiered.server.kafka.api.create_topics import check_partitions
from tiered.server.kafka.audited import AuditEntry, aligned
from tiered.server.kafka.authorize import require_topic
from tiered.server.kafka.dispatch import Api, Context, Refused, in_turns
from tiered.server.kafka.error_mapping import NONE, error_code

if TYPE_CHECKING:
    from kafka_messages.create_partitions import Reply, Request, Response


async def handle(context: Context, request: "Request", reply: "Reply") -> "Response":
    results = []
    mutations = throttling.Mutations(context, strict_from_version=3)
    async for asked in in_turns(request.topics):
        code, message = NONE, None
        try:
            require_topic(context, Operation.ALTER, asked.name)
            topic = context.broker.topics.by_name(asked.name)
            assignments = None if asked.assignments is None else [tuple(each.broker_ids) for each in asked.assignments]
            check_partitions(context.broker, max(0, asked.count - topic.partition_count))
            if not request.validate_only:
                mutations.take(max(0, asked.count - topic.partition_count))
            await context.broker.admin.create_partitions(
                topic, asked.count, assignments, validate_only=request.validate_only
            )
        except TieredError as error:
            code, message = error_code(error), str(error)
        results.append(reply.CreatePartitionsTopicResult(name=asked.name, error_code=code, error_message=message))
    return reply.CreatePartitionsResponse(throttle_time=mutations.throttle(), results=results)


def _told(request: "Request", answer: "Response | None") -> Iterable[AuditEntry]:
    for each, code in aligned(request.topics, answer and answer.results):
        yield AuditEntry(f"TOPIC:{each.name}", code, {"partitions": each.count})


API = Api(37, "CreatePartitions", (0, 3), rights="ALTER on the topic", handle=handle, on_replica=Refused(), audit=_told)
