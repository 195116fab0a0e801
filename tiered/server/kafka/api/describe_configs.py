"""DescribeConfigs (key 32), versions 1 to 4: settings of resources with their sources (KIP-226).

Which kinds of resources there are stands in `config_resources`. Values are the real,
effective ones; secrets are null. Unknown keys are left out, as Kafka does; null or no keys mean all.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tiered.config import ConfigEntry, describe_broker, for_clients
from tiered.errors import InvalidRequest, PolicyViolation, TieredError
from tiered.rules.security.acl import Operation
from tiered.server.kafka.config_resources import BROKER, TOPIC, resource_for
from tiered.server.kafka.dispatch import Api, Context, in_turns, replica_of
from tiered.server.kafka.error_mapping import NONE, error_code

if TYPE_CHECKING:
    from kafka_messages.describe_configs import Replies, Reply, Request, Response

# In one answer: the settings of some thousand topics, which may be a thousand times the bytes of the request.
MAX_ENTRIES = 200_000


Find = Callable[[int, str], Sequence[ConfigEntry]]
"""(kind of resource, name) -> its settings"""


async def handle(context: Context, request: "Request", reply: "Reply") -> "Response":
    def find(code: int, name: str) -> Sequence[ConfigEntry]:
        return resource_for(context, Operation.DESCRIBE_CONFIGS, code, name).describe(context, name)

    return await _answer(request, reply, find)


async def of_replica(context: Context, request: "Request", reply: "Reply") -> "Response":
    return await _answer(request, reply, lambda code, name: _entries(context, code, name))


async def _answer(request: "Request", reply: "Reply", find: Find) -> "Response":
    results = []
    entries_left = MAX_ENTRIES
    async for asked in in_turns(request.resources):
        code, message, configs = NONE, "", []
        try:
            if entries_left <= 0:
                raise PolicyViolation(f"an answer holds {MAX_ENTRIES} settings at most; ask for fewer resources")
            # librdkafka sends an empty list for "all", Java a null one; no client asks for none.
            names = set(asked.configuration_keys or ())
            entries = find(asked.resource_type, asked.resource_name)
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


def described(reply: "Reply", request: "Request", entry: ConfigEntry) -> "Replies.DescribeConfigsResourceResult":
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


def _entries(context: Context, resource_type: int, resource_name: str) -> Sequence[ConfigEntry]:
    replica = replica_of(context)
    if resource_type == TOPIC:
        return for_clients(replica.describe(replica.topics.by_name(resource_name)))
    if resource_type == BROKER and resource_name in ("", str(replica.broker_id)):
        return describe_broker(replica.settings) if resource_name else ()
    raise InvalidRequest("a read replica knows the configs of topics (2) and its own settings (4)")


API = Api(
    32,
    "DescribeConfigs",
    (1, 4),
    rights="DESCRIBE_CONFIGS on the topic or the group; on the cluster for all else",
    handle=handle,
    on_replica=of_replica,
)
