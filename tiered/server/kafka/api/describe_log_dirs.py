"""DescribeLogDirs (key 35), versions 1 to 4: local bytes of each partition, and of the disk (v4).

Sizes count the local tier; what the object store holds is in the metadata store (`tiered segments`, v_segments).
"""

from typing import TYPE_CHECKING

from tiered.broker.partitions.partition import Partition
from tiered.errors import TieredError
from tiered.rules.security.acl import Operation
from tiered.server.kafka.authorize import require_cluster
from tiered.server.kafka.dispatch import Api, Context, in_turns
from tiered.server.kafka.error_mapping import NONE, error_code

if TYPE_CHECKING:
    from kafka_messages.describe_log_dirs import Replies, Reply, Request, Response


async def handle(context: Context, request: "Request", reply: "Reply") -> "Response":
    broker = context.broker
    try:
        require_cluster(context, Operation.DESCRIBE)
    except TieredError as error:
        return reply.DescribeLogDirsResponse(throttle_time=0, error_code=error_code(error), results=[])
    wanted = None if request.topics is None else {each.topic: set(each.partitions) for each in request.topics}
    topics = []
    async for topic in in_turns(broker.topics):
        if wanted is not None and topic.name not in wanted:
            continue
        indexes = None if wanted is None else wanted[topic.name]
        partitions = [
            _described(reply, partition)
            for partition in topic.partitions
            if not indexes or partition.topic_partition.partition in indexes
        ]
        if partitions:
            topics.append(reply.DescribeLogDirsTopic(name=topic.name, partitions=partitions))
    total_bytes, usable_bytes = broker.data.disk_bytes()
    return reply.DescribeLogDirsResponse(
        throttle_time=0,
        error_code=NONE,
        results=[
            reply.DescribeLogDirsResult(
                error_code=NONE,
                log_dir=str(broker.data.log_root),
                topics=topics,
                total_bytes=total_bytes,
                usable_bytes=usable_bytes,
            )
        ],
    )


def _described(reply: "Reply", partition: Partition) -> "Replies.DescribeLogDirsPartition":
    return reply.DescribeLogDirsPartition(
        partition_index=partition.topic_partition.partition,
        partition_size=partition.log.size_bytes,
        offset_lag=0,
        is_future_key=False,
    )


API = Api(35, "DescribeLogDirs", (1, 4), rights="DESCRIBE on the cluster", handle=handle)
