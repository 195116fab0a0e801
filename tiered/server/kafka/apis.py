"""The list of served APIs: a new one is one file in `api/` and one row here."""

from dataclasses import replace
from typing import Any

from tiered.server.kafka.api import (
    acls,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    api_versions,
    client_quotas,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    elect_leaders,
    fetch,
    find_coordinator,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sasl,
    sync_group,
    telemetry,
    unregister_broker,
    update_features,
    user_scram_credentials,
)
from tiered.server.kafka.dispatch import Api, Context, MessageHandler, Refused, replica_of
from tiered.server.kafka.error_mapping import error_code
from tiered.wire.refusal import refusal

_SERVED: tuple[Api, ...] = (
    produce.API,
    fetch.API,
    list_offsets.API,
    metadata.API,
    offset_commit.API,
    offset_fetch.API,
    find_coordinator.API,
    join_group.API,
    sync_group.API,
    heartbeat.API,
    leave_group.API,
    list_groups.API,
    describe_groups.API,
    sasl.HANDSHAKE_API,
    sasl.AUTHENTICATE_API,
    delete_groups.API,
    create_topics.API,
    delete_topics.API,
    delete_records.API,
    init_producer_id.API,
    offset_for_leader_epoch.API,
    acls.DESCRIBE_API,
    acls.CREATE_API,
    acls.DELETE_API,
    describe_configs.API,
    alter_configs.API,
    alter_configs.INCREMENTAL_API,
    alter_replica_log_dirs.API,
    describe_log_dirs.API,
    create_partitions.API,
    elect_leaders.API,
    alter_partition_reassignments.API,
    list_partition_reassignments.API,
    offset_delete.API,
    client_quotas.DESCRIBE_API,
    client_quotas.ALTER_API,
    user_scram_credentials.DESCRIBE_API,
    user_scram_credentials.ALTER_API,
    describe_quorum.API,
    update_features.API,
    describe_cluster.API,
    describe_producers.API,
    unregister_broker.API,
    consumer_group_heartbeat.API,
    consumer_group_describe.API,
    describe_topic_partitions.API,
    telemetry.SUBSCRIPTIONS_API,
    telemetry.PUSH_API,
    list_config_resources.API,
)


def served_apis() -> tuple[Api, ...]:
    """Every API of this broker; ApiVersions lists exactly these."""
    return (*_SERVED, api_versions.api_versions(_SERVED))


def replica_apis() -> tuple[Api, ...]:
    """Every API of a read replica, as its row says; ApiVersions lists exactly these."""
    rows = [_on_replica(api) for api in _SERVED if api.on_replica is not None]
    return (*rows, _on_replica(api_versions.api_versions(rows)))


def _on_replica(api: Api) -> Api:
    how: Any = _refusing(api.key, api.on_replica) if isinstance(api.on_replica, Refused) else api.on_replica
    return replace(api, raw=how) if api.raw is not None else replace(api, handle=how, audit=None)


def _refusing(key: int, refused: Refused) -> MessageHandler:
    """Nothing of the request is looked at, so nothing of it can be carried out."""

    async def handle(context: Context, request: Any, _reply: Any) -> Any:
        error = replica_of(context).refusal()
        code = error_code(error) if refused.code is None else refused.code
        parts = 2 * context.broker.settings.limits.tiered_max_partitions
        return refusal(key, context.api_version, request, code, str(error), max_parts=parts)

    return handle
