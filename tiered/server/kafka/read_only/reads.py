"""What a read replica tells: its one broker, topics, offsets and configs; and that no group has committed anything.

Metadata, DescribeCluster, ListOffsets, DescribeConfigs, ListPartitionReassignments and ApiVersions as a broker answers
them, for what is in the bucket. This process is the leader of every partition, without a leader epoch: clients compare
none. Topics are not created by asking for them. FindCoordinator names this process, OffsetFetch has no offsets and
ListGroups no groups: librdkafka asks for the coordinator whenever there is a `group.id`, which it demands of each
consumer, and would report a refusal to those that only assign.
"""

import logging
from collections.abc import Sequence
from typing import Any

from tiered.config import ConfigEntry, describe_broker, describe_topic, for_clients
from tiered.errors import InvalidRequest, LogDirFailed, TieredError, UnsupportedVersion
from tiered.formats.checkpoint import TopicEntry
from tiered.ids import NO_TOPIC_ID
from tiered.server.kafka.api import sasl
from tiered.server.kafka.api.describe_cluster import BROKERS
from tiered.server.kafka.api.describe_configs import MAX_ENTRIES, described
from tiered.server.kafka.api.find_coordinator import GROUP
from tiered.server.kafka.api.list_offsets import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    FIRST_VERSION,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
)
from tiered.server.kafka.api.offset_fetch import FIRST_VERSION_WITH_GROUPS, FIRST_VERSION_WITH_TOPIC_IDS
from tiered.server.kafka.config_resources import BROKER, TOPIC
from tiered.server.kafka.dispatch import in_turns
from tiered.server.kafka.error_mapping import NONE, error_code
from tiered.server.kafka.read_only.dispatch import ReadContext

log = logging.getLogger(__name__)

NO_OFFSET = -1
NO_LEADER_EPOCH = -1
NOT_ASKED = -(1 << 31)


async def metadata(context: ReadContext, request: Any, reply: Any) -> Any:
    catalogue = context.replica.catalogue
    if request.topics is None or (context.api_version == 0 and not request.topics):
        topics = [_topic(context, reply, topic) async for topic in in_turns(catalogue)]
    else:
        wanted = dict.fromkeys((getattr(each, "topic_id", None), each.name) for each in request.topics)
        topics = [_asked(context, reply, topic_id, name) async for topic_id, name in in_turns(wanted)]
    host, port = context.replica.address_for(context.connection.local_host, context.connection.listener.name)
    return reply.MetadataResponse(
        throttle_time=0,
        brokers=[
            reply.MetadataResponseBroker(
                node_id=context.replica.broker_id, host=host, port=port, rack=context.replica.rack
            )
        ],
        cluster_id=context.replica.cluster_id,
        controller_id=context.replica.broker_id,
        topics=topics,
        cluster_authorized_operations=NOT_ASKED,
        error_code=NONE,
    )


def _asked(context: ReadContext, reply: Any, topic_id: Any, name: str | None) -> Any:
    """One topic of the request, by name or (v12+) by id."""
    catalogue = context.replica.catalogue
    try:
        if topic_id is not None and topic_id != NO_TOPIC_ID:
            return _topic(context, reply, catalogue.by_id(topic_id))
        if name is None:
            raise InvalidRequest("a topic is asked for by name or by id")
        return _topic(context, reply, catalogue.by_name(name))
    except TieredError as error:
        return reply.MetadataResponseTopic(
            error_code=error_code(error),
            name=name if name is not None or context.api_version >= 12 else "",
            topic_id=topic_id,
            is_internal=False,
            partitions=[],
        )


def _topic(context: ReadContext, reply: Any, topic: TopicEntry) -> Any:
    here = (context.replica.broker_id,)
    return reply.MetadataResponseTopic(
        error_code=NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=False,
        partitions=[
            reply.MetadataResponsePartition(
                error_code=NONE,
                partition_index=number,
                leader_id=context.replica.broker_id,
                leader_epoch=NO_LEADER_EPOCH,
                replica_nodes=here,
                isr_nodes=here,
                offline_replicas=(),
            )
            for number in range(topic.partition_count)
        ],
    )


async def describe_cluster(context: ReadContext, request: Any, reply: Any) -> Any:
    replica = context.replica
    code, message = NONE, None
    endpoint_type = getattr(request, "endpoint_type", BROKERS)
    if endpoint_type != BROKERS:
        message = "there is no separate controller quorum; ask for endpoint type 1 (brokers)"
        code = error_code(UnsupportedVersion(message))
    host, port = replica.address_for(context.connection.local_host, context.connection.listener.name)
    return reply.DescribeClusterResponse(
        throttle_time=0,
        error_code=code,
        error_message=message,
        endpoint_type=endpoint_type,
        cluster_id=replica.cluster_id,
        controller_id=replica.broker_id,
        brokers=[
            reply.DescribeClusterBroker(
                broker_id=replica.broker_id, host=host, port=port, rack=replica.rack, is_fenced=False
            )
        ],
    )


async def list_offsets(context: ReadContext, request: Any, reply: Any) -> Any:
    topics = []
    async for topic in in_turns(request.topics):
        partitions = []
        async for asked in in_turns(topic.partitions):
            code, timestamp_ms, offset = NONE, -1, NO_OFFSET
            try:
                timestamp_ms, offset = await _offset(context, topic.name, asked)
            except TieredError as error:
                code = error_code(error)
            except OSError as error:
                message = f"{topic.name}-{asked.partition_index} cannot be read from the chunk cache: {error}"
                log.error("%s", message)
                code = error_code(LogDirFailed(message))
            partitions.append(
                reply.ListOffsetsPartitionResponse(
                    partition_index=asked.partition_index,
                    error_code=code,
                    timestamp=timestamp_ms,
                    offset=offset,
                    leader_epoch=NO_LEADER_EPOCH,
                )
            )
        topics.append(reply.ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
    return reply.ListOffsetsResponse(throttle_time=0, topics=topics)


async def _offset(context: ReadContext, topic: str, asked: Any) -> tuple[int, int]:
    """(timestamp in ms or -1, offset or -1)"""
    replica, wanted = context.replica, asked.timestamp
    partition = replica.catalogue.partition(replica.catalogue.by_name(topic), asked.partition_index)
    if context.api_version < FIRST_VERSION.get(wanted, 1) or wanted < EARLIEST_PENDING_UPLOAD:
        raise UnsupportedVersion(f"timestamp {wanted} means nothing in ListOffsets version {context.api_version}")
    start, end = partition.log_start_offset, partition.cold_end_offset
    special = {
        LATEST: end,
        EARLIEST: start,
        EARLIEST_LOCAL: end,
        LATEST_TIERED: end - 1 if end > start else NO_OFFSET,
        EARLIEST_PENDING_UPLOAD: end,
    }
    if wanted in special:
        return -1, special[wanted]
    if wanted == MAX_TIMESTAMP:
        found = await replica.max_timestamp(partition)
    else:
        found = await replica.offset_for_timestamp(partition, wanted)
    return (-1, NO_OFFSET) if found is None else (found[1], found[0])


async def describe_configs(context: ReadContext, request: Any, reply: Any) -> Any:
    results = []
    entries_left = MAX_ENTRIES
    async for asked in in_turns(request.resources):
        code, message, configs = NONE, "", []
        try:
            if entries_left <= 0:
                raise InvalidRequest(f"an answer holds {MAX_ENTRIES} settings at most; ask for fewer resources")
            names = set(asked.configuration_keys or ())
            entries = _entries(context, asked.resource_type, asked.resource_name)
            configs = [described(reply, request, entry) for entry in entries if not names or entry.name in names]
            entries_left -= len(configs)
        except TieredError as error:
            code, message = error_code(error), str(error)
        results.append(
            reply.DescribeConfigsResult(
                error_code=code,
                error_message=message,
                resource_type=asked.resource_type,
                resource_name=asked.resource_name,
                configs=configs,
            )
        )
    return reply.DescribeConfigsResponse(throttle_time=0, results=results)


def _entries(context: ReadContext, resource_type: int, resource_name: str) -> Sequence[ConfigEntry]:
    replica = context.replica
    if resource_type == TOPIC:
        settings = replica.settings.with_dynamic(dynamic_default=replica.catalogue.cluster_settings, dynamic={})
        return for_clients(describe_topic(replica.catalogue.by_name(resource_name).configs, settings))
    if resource_type == BROKER and resource_name in ("", str(replica.broker_id)):
        return describe_broker(replica.settings) if resource_name else ()
    raise InvalidRequest("a read replica knows the configs of topics (2) and its own settings (4)")


# Who asks


async def sasl_handshake(context: ReadContext, request: Any, reply: Any) -> Any:
    return sasl.shaken(context.replica, context.connection, context.api_version, request, reply)


async def sasl_authenticate(context: ReadContext, request: Any, reply: Any) -> Any:
    return await sasl.heard(context.replica, context.connection, request, reply)


# Groups, of which there are none


async def find_coordinator(context: ReadContext, request: Any, reply: Any) -> Any:
    code, message = NONE, None
    host, port = context.replica.address_for(context.connection.local_host, context.connection.listener.name)
    node_id = context.replica.broker_id
    if getattr(request, "key_type", GROUP) != GROUP:
        refusal = context.replica.refusal()
        code, message, host, port, node_id = error_code(refusal), str(refusal), "", -1, -1
    if context.api_version < 4:
        return reply.FindCoordinatorResponse(
            throttle_time=0, error_code=code, error_message=message, node_id=node_id, host=host, port=port
        )
    return reply.FindCoordinatorResponse(
        throttle_time=0,
        coordinators=[
            reply.Coordinator(key=key, node_id=node_id, host=host, port=port, error_code=code, error_message=message)
            for key in request.coordinator_keys
        ],
    )


async def offset_fetch(context: ReadContext, request: Any, reply: Any) -> Any:
    if context.api_version < FIRST_VERSION_WITH_GROUPS:
        topics = [
            reply.OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    reply.OffsetFetchResponsePartition(**_no_offset(index)) for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ]
        return reply.OffsetFetchResponse(throttle_time=0, topics=topics, error_code=NONE)
    named_by = "topic_id" if context.api_version >= FIRST_VERSION_WITH_TOPIC_IDS else "name"
    groups = [
        reply.OffsetFetchResponseGroup(
            group_id=group.group_id,
            topics=[
                reply.OffsetFetchResponseTopics(
                    **{named_by: getattr(topic, named_by)},
                    partitions=[
                        reply.OffsetFetchResponsePartitions(**_no_offset(index)) for index in topic.partition_indexes
                    ],
                )
                for topic in group.topics or ()
            ],
            error_code=NONE,
        )
        for group in request.groups
    ]
    return reply.OffsetFetchResponse(throttle_time=0, groups=groups)


def _no_offset(index: int) -> dict[str, Any]:
    return {
        "partition_index": index,
        "committed_offset": NO_OFFSET,
        "committed_leader_epoch": NO_LEADER_EPOCH,
        "metadata": "",
        "error_code": NONE,
    }


async def list_groups(_context: ReadContext, _request: Any, reply: Any) -> Any:
    return reply.ListGroupsResponse(throttle_time=0, error_code=NONE, groups=[])


async def list_partition_reassignments(_context: ReadContext, _request: Any, reply: Any) -> Any:
    return reply.ListPartitionReassignmentsResponse(throttle_time=0, error_code=NONE, error_message=None, topics=[])
