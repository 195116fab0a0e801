"""The list of served APIs: a new one is one file in `api/` and one row here."""

from tiered.server.kafka.api import (
    alter_configs,
    api_versions,
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
    fetch,
    find_coordinator,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_offsets,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
)
from tiered.server.kafka.dispatch import Api

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
    delete_groups.API,
    create_topics.API,
    delete_topics.API,
    delete_records.API,
    init_producer_id.API,
    offset_for_leader_epoch.API,
    describe_configs.API,
    alter_configs.API,
    alter_configs.INCREMENTAL_API,
    describe_log_dirs.API,
    create_partitions.API,
    offset_delete.API,
    describe_cluster.API,
    consumer_group_heartbeat.API,
    consumer_group_describe.API,
)


def served_apis() -> tuple[Api, ...]:
    """Every API of this broker; ApiVersions lists exactly these."""
    return (*_SERVED, api_versions.api_versions(_SERVED))
