"""ListPartitionReassignments (key 46), version 0: the partitions that are being moved, from memory.

Null topics mean all of them. Partitions that are not being moved, or do not exist, are left out, as in Kafka.
"""

from typing import TYPE_CHECKING

from tiered.broker.view.image import PartitionRow
from tiered.errors import TieredError
from tiered.rules.security.acl import Operation
from tiered.server.kafka.authorize import require_cluster
from tiered.server.kafka.dispatch import Api, Context, in_turns
from tiered.server.kafka.error_mapping import NONE, error_code

if TYPE_CHECKING:
    from kafka_messages.list_partition_reassignments import Reply, Request, Response


async def handle(context: Context, request: "Request", reply: "Reply") -> "Response":
    broker = context.broker
    try:
        require_cluster(context, Operation.DESCRIBE)
    except TieredError as error:
        return reply.ListPartitionReassignmentsResponse(
            throttle_time=0, error_code=error_code(error), error_message=str(error), topics=[]
        )
    asked = None
    if request.topics is not None:
        names = ((topic.name, index) for topic in request.topics for index in topic.partition_indexes)
        asked = {name async for name in in_turns(names)}
    by_topic: dict[str, list[PartitionRow]] = {}
    async for row in in_turns(broker.reassignments.under_way()):
        topic = broker.topics.find_id(row.topic_id)
        if topic is not None and (asked is None or (topic.name, row.partition) in asked):
            by_topic.setdefault(topic.name, []).append(row)
    return reply.ListPartitionReassignmentsResponse(
        throttle_time=0,
        error_code=NONE,
        error_message=None,
        topics=[
            reply.OngoingTopicReassignment(
                name=name,
                partitions=[
                    reply.OngoingPartitionReassignment(
                        partition_index=row.partition,
                        replicas=row.replicas,
                        adding_replicas=row.adding_replicas,
                        removing_replicas=row.removing_replicas,
                    )
                    for row in sorted(by_topic[name], key=lambda each: each.partition)
                ],
            )
            for name in sorted(by_topic)
        ],
    )


async def of_replica(_context: Context, _request: "Request", reply: "Reply") -> "Response":
    return reply.ListPartitionReassignmentsResponse(throttle_time=0, error_code=NONE, error_message=None, topics=[])


API = Api(
    46, "ListPartitionReassignments", (0, 0), rights="DESCRIBE on the cluster", handle=handle, on_replica=of_replica
)
