"""DescribeQuorum (key 55), versions 0 to 2: the controller and the other brokers, in the words of KRaft.

There is no quorum: SQL keeps the metadata, and the broker that holds the controller's lease looks after the cluster. So
it is the leader and the only voter, and the other brokers in service are observers. The high watermark is the number of
the last change that this broker has applied; how far others are is not known here, which is -1. A partition is
answered once, however often it stands in the request.
"""

from typing import TYPE_CHECKING

from tiered.errors import TieredError, UnknownTopicOrPartition
from tiered.rules.security.acl import Operation
from tiered.server.kafka.authorize import require_cluster
from tiered.server.kafka.dispatch import Api, Context, in_turns, without_repeats
from tiered.server.kafka.error_mapping import NONE, error_code
from tiered.server.kafka.listed_brokers import controller_id, named_brokers

if TYPE_CHECKING:
    from kafka_messages.describe_quorum import Replies, Reply, Request, Response

METADATA_TOPIC = "__cluster_metadata"
METADATA_PARTITION = 0
NO_EPOCH = 0
UNKNOWN = -1


async def handle(context: Context, request: "Request", reply: "Reply") -> "Response":
    try:
        require_cluster(context, Operation.DESCRIBE)
    except TieredError as error:
        return reply.DescribeQuorumResponse(error_code=error_code(error), error_message=str(error), topics=[], nodes=[])
    leader = controller_id(context)
    by_topic: dict[str, list[Replies.PartitionData]] = {}
    named = (
        (topic.topic_name, partition.partition_index) for topic in request.topics for partition in topic.partitions
    )
    async for name, index in in_turns(without_repeats(named)):
        by_topic.setdefault(name, []).append(_described(context, reply, leader, name, index))
    topics = [
        reply.TopicData(topic_name=name, partitions=partitions) async for name, partitions in in_turns(by_topic.items())
    ]
    return reply.DescribeQuorumResponse(
        error_code=NONE, error_message=None, topics=topics, nodes=_voters(context, reply, leader)
    )


def _described(context: Context, reply: "Reply", leader: int, topic: str, index: int) -> "Replies.PartitionData":
    image = context.broker.image
    code, message = NONE, None
    if (topic, index) != (METADATA_TOPIC, METADATA_PARTITION):
        message = f"only the partition {METADATA_TOPIC}-{METADATA_PARTITION} has a quorum"
        code, leader = error_code(UnknownTopicOrPartition(message)), UNKNOWN
    known = code == NONE
    return reply.PartitionData(
        partition_index=index,
        error_code=code,
        error_message=message,
        leader_id=leader,
        leader_epoch=NO_EPOCH if known else UNKNOWN,
        high_watermark=image.change_number if known else UNKNOWN,
        current_voters=[_replica(context, reply, leader)] if known else [],
        observers=[
            _replica(context, reply, each.broker_id) for each in image.live() if known and each.broker_id != leader
        ],
    )


def _replica(context: Context, reply: "Reply", broker_id: int) -> "Replies.ReplicaState":
    broker = context.broker
    is_known = broker_id in (broker.broker_id, controller_id(context))
    return reply.ReplicaState(
        replica_id=broker_id,
        replica_directory_id=None,
        log_end_offset=broker.image.change_number if is_known else UNKNOWN,
        last_fetch_timestamp=UNKNOWN,
        last_caught_up_timestamp=UNKNOWN,
    )


def _voters(context: Context, reply: "Reply", leader: int) -> "list[Replies.Node]":
    return [
        reply.Node(
            node_id=each.broker_id,
            listeners=[reply.Listener(name=context.connection.listener.name, host=each.host, port=each.port)],
        )
        for each in named_brokers(context)
        if each.broker_id == leader
    ]


API = Api(55, "DescribeQuorum", (0, 2), rights="DESCRIBE on the cluster", handle=handle)
