"""What a read replica refuses, each in the form of its API: everything that changes something, or keeps it here.

POLICY_VIOLATION, with a message that says whom to ask wherever the protocol has room for one. InitProducerId alone is
answered with CLUSTER_AUTHORIZATION_FAILED: on every other code an idempotent producer asks again for ever. What is
asked is not looked at, so nothing of it can be carried out.
"""

from typing import Any

from tiered.errors import MalformedRequest
from tiered.server.kafka.api.join_group import FIRST_VERSION_WITH_PROTOCOL_TYPE, NO_GENERATION
from tiered.server.kafka.api.produce import MAX_PARTITIONS, NO_ACKS
from tiered.server.kafka.dispatch import framed
from tiered.server.kafka.error_mapping import error_code
from tiered.server.kafka.read_only.dispatch import RawRead, ReadContext
from tiered.server.kafka.transport.outbox import Parts
from tiered.wire import produce as codec
from tiered.wire.error_codes import CLUSTER_AUTHORIZATION_FAILED
from tiered.wire.produce import PartitionResult, TopicResult


def _said(context: ReadContext) -> tuple[int, str]:
    """(error code, message)"""
    refusal = context.replica.refusal()
    return error_code(refusal), str(refusal)


# Records


def produce(request: RawRead) -> Parts:
    """Raises ReadOnly for acks=0: a closed connection is how that client learns of it."""
    replica, version = request.context.replica, request.context.api_version
    asked = codec.decode_produce_request(request.buffer, request.position, request.end, version)
    count = sum(len(topic.partitions) for topic in asked.topics)
    if count > MAX_PARTITIONS:
        raise MalformedRequest(f"a Produce request carries more than {MAX_PARTITIONS} batches; split it")
    replica.counters.requests["Produce"] += 1
    replica.counters.produce_errors += count
    if asked.acks == NO_ACKS:
        raise replica.refusal()
    code, message = _said(request.context)
    results = [
        TopicResult(
            topic.name,
            topic.topic_id,
            [PartitionResult(index, code, error_message=message) for index, _, _ in topic.partitions],
        )
        for topic in asked.topics
    ]
    body = codec.encode_produce_response(results, version, node_endpoints=())
    return framed(codec.API_KEY, version, request.correlation_id, body)


async def init_producer_id(_context: ReadContext, _request: Any, reply: Any) -> Any:
    return reply.InitProducerIdResponse(
        throttle_time=0, error_code=CLUSTER_AUTHORIZATION_FAILED, producer_id=-1, producer_epoch=-1
    )


async def delete_records(context: ReadContext, request: Any, reply: Any) -> Any:
    code, _ = _said(context)
    return reply.DeleteRecordsResponse(
        throttle_time=0,
        topics=[
            reply.DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    reply.DeleteRecordsPartitionResult(
                        partition_index=each.partition_index, low_watermark=-1, error_code=code
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


# Topics, configs and brokers


async def create_topics(context: ReadContext, request: Any, reply: Any) -> Any:
    code, message = _said(context)
    return reply.CreateTopicsResponse(
        throttle_time=0,
        topics=[
            reply.CreatableTopicResult(
                name=topic.name,
                topic_id=None,
                error_code=code,
                error_message=message,
                num_partitions=-1,
                replication_factor=-1,
                configs=None if context.api_version >= 5 else [],
            )
            for topic in request.topics
        ],
    )


async def delete_topics(context: ReadContext, request: Any, reply: Any) -> Any:
    code, message = _said(context)
    if context.api_version >= 6:
        asked = [(topic.name, topic.topic_id) for topic in request.topics]
    else:
        asked = [(name, None) for name in request.topic_names]
    return reply.DeleteTopicsResponse(
        throttle_time=0,
        responses=[
            reply.DeletableTopicResult(name=name, topic_id=topic_id, error_code=code, error_message=message)
            for name, topic_id in asked
        ],
    )


async def create_partitions(context: ReadContext, request: Any, reply: Any) -> Any:
    code, message = _said(context)
    return reply.CreatePartitionsResponse(
        throttle_time=0,
        results=[
            reply.CreatePartitionsTopicResult(name=topic.name, error_code=code, error_message=message)
            for topic in request.topics
        ],
    )


async def alter_configs(context: ReadContext, request: Any, reply: Any) -> Any:
    return reply.AlterConfigsResponse(throttle_time=0, responses=_unaltered(context, request, reply))


async def incremental_alter_configs(context: ReadContext, request: Any, reply: Any) -> Any:
    return reply.IncrementalAlterConfigsResponse(throttle_time=0, responses=_unaltered(context, request, reply))


def _unaltered(context: ReadContext, request: Any, reply: Any) -> list[Any]:
    code, message = _said(context)
    return [
        reply.AlterConfigsResourceResponse(
            error_code=code,
            error_message=message,
            resource_type=each.resource_type,
            resource_name=each.resource_name,
        )
        for each in request.resources
    ]


async def elect_leaders(context: ReadContext, request: Any, reply: Any) -> Any:
    code, message = _said(context)
    return reply.ElectLeadersResponse(
        throttle_time=0,
        error_code=code,
        replica_election_results=[
            reply.ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    reply.PartitionResult(partition_id=index, error_code=code, error_message=message)
                    for index in topic.partitions
                ],
            )
            for topic in request.topic_partitions or ()
        ],
    )


async def alter_partition_reassignments(context: ReadContext, request: Any, reply: Any) -> Any:
    code, message = _said(context)
    return reply.AlterPartitionReassignmentsResponse(
        throttle_time=0,
        allow_replication_factor_change=getattr(request, "allow_replication_factor_change", True),
        error_code=code,
        error_message=message,
        responses=[],
    )


async def unregister_broker(context: ReadContext, _request: Any, reply: Any) -> Any:
    code, message = _said(context)
    return reply.UnregisterBrokerResponse(throttle_time=0, error_code=code, error_message=message)


# Groups


async def join_group(context: ReadContext, request: Any, reply: Any) -> Any:
    code, _ = _said(context)
    return reply.JoinGroupResponse(
        throttle_time=0,
        error_code=code,
        generation_id=NO_GENERATION,
        protocol_type=None,
        protocol_name=None if context.api_version >= FIRST_VERSION_WITH_PROTOCOL_TYPE else "",
        leader="",
        member_id=request.member_id,
        members=[],
    )


async def sync_group(context: ReadContext, _request: Any, reply: Any) -> Any:
    code, _ = _said(context)
    return reply.SyncGroupResponse(
        throttle_time=0, error_code=code, protocol_type=None, protocol_name=None, assignment=b""
    )


async def heartbeat(context: ReadContext, _request: Any, reply: Any) -> Any:
    code, _ = _said(context)
    return reply.HeartbeatResponse(throttle_time=0, error_code=code)


async def leave_group(context: ReadContext, _request: Any, reply: Any) -> Any:
    code, _ = _said(context)
    return reply.LeaveGroupResponse(throttle_time=0, error_code=code, members=[])


async def consumer_group_heartbeat(context: ReadContext, request: Any, reply: Any) -> Any:
    code, message = _said(context)
    return reply.ConsumerGroupHeartbeatResponse(
        throttle_time=0,
        error_code=code,
        error_message=message,
        member_id=request.member_id,
        member_epoch=0,
        heartbeat_interval=0,
        assignment=None,
    )


async def offset_commit(context: ReadContext, request: Any, reply: Any) -> Any:
    code, _ = _said(context)
    return reply.OffsetCommitResponse(
        throttle_time=0,
        topics=[
            reply.OffsetCommitResponseTopic(
                name=getattr(topic, "name", None),
                topic_id=getattr(topic, "topic_id", None),
                partitions=[
                    reply.OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


async def offset_delete(context: ReadContext, _request: Any, reply: Any) -> Any:
    code, _ = _said(context)
    return reply.OffsetDeleteResponse(error_code=code, throttle_time=0, topics=[])


async def delete_groups(context: ReadContext, request: Any, reply: Any) -> Any:
    code, _ = _said(context)
    return reply.DeleteGroupsResponse(
        throttle_time=0,
        results=[reply.DeletableGroupResult(group_id=each, error_code=code) for each in request.groups_names],
    )
