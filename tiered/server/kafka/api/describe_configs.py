"""DescribeConfigs (key 32), versions 1 to 4: topic and broker settings with their sources (KIP-226).

Resources: TOPIC (2) and BROKER (4; an empty name means the cluster-wide defaults). Values are the real,
effective ones; secrets are null. Unknown keys are left out, as Kafka does; null or no keys mean all.
"""

from collections.abc import Sequence
from typing import Any

from tiered.config import ConfigEntry
from tiered.errors import InvalidRequest, PolicyViolation, TieredError
from tiered.rules.acl import Operation
from tiered.server.kafka.authorize import require_cluster, require_topic
from tiered.server.kafka.dispatch import Api, Context, in_turns
from tiered.server.kafka.error_mapping import NONE, error_code

TOPIC, BROKER = 2, 4
# In one answer: the settings of some thousand topics, which may be a thousand times the bytes of the request.
MAX_ENTRIES = 200_000


async def handle(context: Context, request: Any, reply: Any) -> Any:
    results = []
    entries_left = MAX_ENTRIES
    async for asked in in_turns(request.resources):
        code, message, configs = NONE, "", []
        try:
            if entries_left <= 0:
                raise PolicyViolation(f"an answer holds {MAX_ENTRIES} settings at most; ask for fewer resources")
            # librdkafka sends an empty list for "all", Java a null one; nobody asks for none.
            names = set(asked.configuration_keys or ())
            entries = entries_of(context, asked.resource_type, asked.resource_name)
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


def entries_of(context: Context, resource_type: int, resource_name: str) -> Sequence[ConfigEntry]:
    """Every setting of the resource; InvalidRequest for resources that are not here."""
    admin = context.broker.admin
    if resource_type == TOPIC:
        require_topic(context, Operation.DESCRIBE_CONFIGS, resource_name)
        return admin.describe_topic(context.broker.topics.by_name(resource_name))
    if resource_type == BROKER:
        require_cluster(context, Operation.DESCRIBE_CONFIGS)
        check_broker(context, resource_name)
        return admin.describe_broker(resource_name)
    raise InvalidRequest(f"resource type {resource_type} has no settings here; 2 (topic) and 4 (broker) do")


def check_broker(context: Context, resource_name: str) -> None:
    """InvalidRequest unless `resource_name` is this broker's id or empty (the cluster-wide default)."""
    if resource_name not in ("", str(context.broker.broker_id)):
        raise InvalidRequest(f"broker {resource_name} is not this one; ask broker {resource_name} itself")


def described(reply: Any, request: Any, entry: ConfigEntry) -> Any:
    """One setting as the request wants it shown."""
    synonyms = entry.synonyms if getattr(request, "include_synonyms", False) else ()
    return reply.DescribeConfigsResourceResult(
        name=entry.name,
        value=None if entry.is_sensitive else entry.value,
        read_only=entry.read_only,
        config_source=int(entry.source),
        is_sensitive=entry.is_sensitive,
        synonyms=[
            reply.DescribeConfigsSynonym(name=each.name, value=each.value, source=int(each.source)) for each in synonyms
        ],
        config_type=int(entry.type),
        documentation=entry.documentation if getattr(request, "include_documentation", False) else None,
    )


API = Api(key=32, name="DescribeConfigs", min_version=1, max_version=4, handle=handle)
