"""The list of served APIs: a new one is one file in `api/` and one row here."""

from tiered.server.kafka.api import (
    alter_configs,
    api_versions,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_log_dirs,
    fetch,
    find_coordinator,
    init_producer_id,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    produce,
)
from tiered.server.kafka.dispatch import Api

_SERVED: tuple[Api, ...] = (
    produce.API,
    fetch.API,
    list_offsets.API,
    metadata.API,
    find_coordinator.API,
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
    describe_cluster.API,
)


def served_apis() -> tuple[Api, ...]:
    """Every API of this broker; ApiVersions lists exactly these."""
    return (*_SERVED, api_versions.api_versions(_SERVED))
