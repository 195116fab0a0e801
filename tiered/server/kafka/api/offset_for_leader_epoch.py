"""OffsetForLeaderEpoch (key 23), versions 2 to 4: where a leader epoch ended, for truncation checks (KIP-320).

An epoch that this log never had answers (-1, -1), as Kafka does. Only the leader answers.
"""

from typing import TYPE_CHECKING

from tiered.errors import TieredError
from tiered.rules.security.acl import CLUSTER_NAME, Operation, ResourceType
from tiered.server.kafka.authorize import may, require_topic
from tiered.server.kafka.dispatch import Api, Context, in_turns
from tiered.server.kafka.error_mapping import NONE, error_code

if TYPE_CHECKING:
    from kafka_messages.offset_for_leader_epoch import Reply, Request, Response


async def handle(context: Context, request: "Request", reply: "Reply") -> "Response":
    topics = []
    is_broker = may(context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
    async for topic in in_turns(request.topics):
        partitions = []
        async for asked in in_turns(topic.partitions):
            code, leader_epoch, end_offset = NONE, -1, -1
            try:
                if not is_broker:
                    require_topic(context, Operation.DESCRIBE, topic.topic)
                known = context.broker.topics.by_name(topic.topic)
                if known.is_internal:
                    # Its offsets only grow, under one epoch: no client has read what was cut off.
                    log = await context.broker.groups.offsets_topic.loaded(asked.partition)
                    leader_epoch, end_offset = 0, log.end_offset
                else:
                    partition = known.partition(asked.partition)
                    partition.check_leader_epoch(asked.current_leader_epoch)
                    partition.require_leader()
                    leader_epoch, end_offset = partition.end_of_leader_epoch(asked.leader_epoch)
            except TieredError as error:
                code = error_code(error)
            partitions.append(
                reply.EpochEndOffset(
                    error_code=code, partition=asked.partition, leader_epoch=leader_epoch, end_offset=end_offset
                )
            )
        topics.append(reply.OffsetForLeaderTopicResult(topic=topic.topic, partitions=partitions))
    return reply.OffsetForLeaderEpochResponse(throttle_time=0, topics=topics)


API = Api(23, "OffsetForLeaderEpoch", (2, 4), rights="DESCRIBE on the topic", handle=handle)
