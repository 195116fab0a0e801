"""Requests about topics, and about configs of topics, brokers and groups, as commands and tests send them.

Owns how each is put. Must never judge an answer: the results go back as they came, one for each topic.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from tiered.peer.cluster import Cluster

_CREATE_TOPICS, _DELETE_TOPICS, _DELETE_RECORDS, _DESCRIBE_CONFIGS, _INCREMENTAL_ALTER_CONFIGS = 19, 20, 21, 32, 44
TOPIC_RESOURCE, BROKER_RESOURCE, GROUP_RESOURCE = 2, 4, 32
_SET, _DELETE = 0, 1
BROKERS_DEFAULT = -1
TIMEOUT_MS = 30_000


async def create_topics(
    cluster: Cluster,
    names: Sequence[str],
    *,
    partitions: int = BROKERS_DEFAULT,
    replication_factor: int = BROKERS_DEFAULT,
    configs: Mapping[str, str],
    validate_only: bool = False,
) -> Sequence[Any]:
    """A result for each name, with `error_code` and `error_message`."""
    answer = await cluster.request(
        _CREATE_TOPICS,
        lambda make: make.CreateTopicsRequest(
            topics=tuple(
                make.CreatableTopic(
                    name=name,
                    num_partitions=partitions,
                    replication_factor=replication_factor,
                    assignments=(),
                    configs=tuple(make.CreatableTopicConfig(name=key, value=configs[key]) for key in configs),
                )
                for name in names
            ),
            timeout=TIMEOUT_MS,
            validate_only=validate_only,
        ),
    )
    return list(answer.topics)


async def delete_topics(cluster: Cluster, names: Sequence[str]) -> Sequence[Any]:
    """A result for each name, with `error_code` and perhaps `error_message`."""
    answer = await cluster.request(
        _DELETE_TOPICS,
        lambda make: make.DeleteTopicsRequest(
            topics=tuple(make.DeleteTopicState(name=name, topic_id=None) for name in names),
            topic_names=tuple(names),
            timeout=TIMEOUT_MS,
        ),
    )
    return list(answer.responses)


async def alter_configs(
    cluster: Cluster,
    name: str,
    configs: Mapping[str, str | None],
    *,
    resource_type: int = TOPIC_RESOURCE,
    validate_only: bool = False,
    broker_id: int | None = None,
) -> Sequence[Any]:
    """The results, one of them. Sets configs of a resource; None takes one back to its default.

    The broker `broker_id` is asked, or any.
    """
    answer = await cluster.request(
        _INCREMENTAL_ALTER_CONFIGS,
        lambda make: make.IncrementalAlterConfigsRequest(
            resources=(
                make.AlterConfigsResource(
                    resource_type=resource_type,
                    resource_name=name,
                    configs=tuple(
                        make.AlterableConfig(
                            name=config, config_operation=_DELETE if value is None else _SET, value=value
                        )
                        for config, value in configs.items()
                    ),
                ),
            ),
            validate_only=validate_only,
        ),
        broker_id=broker_id,
    )
    return list(answer.responses)


async def describe_configs(
    cluster: Cluster,
    names: Sequence[str],
    *,
    keys: Sequence[str] | None = None,
    resource_type: int = TOPIC_RESOURCE,
    documented: bool = False,
    broker_id: int | None = None,
) -> Sequence[Any]:
    """A result for each name, with its `configs`; `keys` None means all of them.

    The broker `broker_id` is asked, or any.
    """
    answer = await cluster.request(
        _DESCRIBE_CONFIGS,
        lambda make: make.DescribeConfigsRequest(
            resources=tuple(
                make.DescribeConfigsResource(resource_type=resource_type, resource_name=name, configuration_keys=keys)
                for name in names
            ),
            include_synonyms=False,
            include_documentation=documented,
        ),
        broker_id=broker_id,
    )
    return list(answer.results)


async def delete_records(
    cluster: Cluster, topic: str, before: Mapping[int, int], *, leader_id: int
) -> Mapping[int, tuple[int, int]]:
    """The error code and the new log start offset of each partition in `before`, all led by that broker."""
    answer = await cluster.request(
        _DELETE_RECORDS,
        lambda make: make.DeleteRecordsRequest(
            topics=(
                make.DeleteRecordsTopic(
                    name=topic,
                    partitions=tuple(
                        make.DeleteRecordsPartition(partition_index=number, offset=offset)
                        for number, offset in before.items()
                    ),
                ),
            ),
            timeout=TIMEOUT_MS,
        ),
        broker_id=leader_id,
    )
    return {
        each.partition_index: (each.error_code, each.low_watermark)
        for described in answer.topics
        if described.name == topic
        for each in described.partitions
    }
