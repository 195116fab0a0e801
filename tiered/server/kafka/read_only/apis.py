"""The list of APIs that a read replica answers: a new one is one handler and one row here.

Owns the list alone. What it does not list, a client learns from ApiVersions before it asks.
"""

from typing import Any

from tiered.server.kafka.api import (
    alter_configs,
    alter_partition_reassignments,
    api_versions,
    consumer_group_heartbeat,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    elect_leaders,
    find_coordinator,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    produce,
    sasl,
    sync_group,
    unregister_broker,
)
from tiered.server.kafka.api import fetch as broker_fetch
from tiered.server.kafka.features import METADATA_VERSION
from tiered.server.kafka.read_only import fetch, reads, refusals
from tiered.server.kafka.read_only.dispatch import ReadApi, ReadContext

_SERVED: tuple[ReadApi, ...] = (
    ReadApi(of=broker_fetch.API, raw=fetch.handle),
    ReadApi(of=list_offsets.API, handle=reads.list_offsets),
    ReadApi(of=metadata.API, handle=reads.metadata),
    ReadApi(of=describe_cluster.API, handle=reads.describe_cluster),
    ReadApi(of=describe_configs.API, handle=reads.describe_configs),
    ReadApi(of=find_coordinator.API, handle=reads.find_coordinator),
    ReadApi(of=offset_fetch.API, handle=reads.offset_fetch),
    ReadApi(of=list_groups.API, handle=reads.list_groups),
    ReadApi(of=list_partition_reassignments.API, handle=reads.list_partition_reassignments),
    ReadApi(of=sasl.HANDSHAKE_API, handle=reads.sasl_handshake),
    ReadApi(of=sasl.AUTHENTICATE_API, handle=reads.sasl_authenticate),
    ReadApi(of=produce.API, raw=refusals.produce),
    ReadApi(of=init_producer_id.API, handle=refusals.init_producer_id),
    ReadApi(of=delete_records.API, handle=refusals.delete_records),
    ReadApi(of=create_topics.API, handle=refusals.create_topics),
    ReadApi(of=delete_topics.API, handle=refusals.delete_topics),
    ReadApi(of=create_partitions.API, handle=refusals.create_partitions),
    ReadApi(of=alter_configs.API, handle=refusals.alter_configs),
    ReadApi(of=alter_configs.INCREMENTAL_API, handle=refusals.incremental_alter_configs),
    ReadApi(of=elect_leaders.API, handle=refusals.elect_leaders),
    ReadApi(of=alter_partition_reassignments.API, handle=refusals.alter_partition_reassignments),
    ReadApi(of=unregister_broker.API, handle=refusals.unregister_broker),
    ReadApi(of=join_group.API, handle=refusals.join_group),
    ReadApi(of=sync_group.API, handle=refusals.sync_group),
    ReadApi(of=heartbeat.API, handle=refusals.heartbeat),
    ReadApi(of=leave_group.API, handle=refusals.leave_group),
    ReadApi(of=consumer_group_heartbeat.API, handle=refusals.consumer_group_heartbeat),
    ReadApi(of=offset_commit.API, handle=refusals.offset_commit),
    ReadApi(of=offset_delete.API, handle=refusals.offset_delete),
    ReadApi(of=delete_groups.API, handle=refusals.delete_groups),
)


def read_apis() -> tuple[ReadApi, ...]:
    """Every API of a read replica; ApiVersions lists exactly these."""
    own = api_versions.api_versions(each.of for each in _SERVED)
    table = sorted([*(each.of for each in _SERVED), own], key=lambda api: api.key)

    async def versions(context: ReadContext, request: Any, reply: Any) -> Any:
        return api_versions.answer(context.connection, context.api_version, request, reply, table, (METADATA_VERSION,))

    return (*_SERVED, ReadApi(of=own, handle=versions))
