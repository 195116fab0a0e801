"""ListConfigResources (key 74), versions 0 to 1: names of resources that have configs, by kind (KIP-1142).

Version 0 asks for subscriptions to clients' metrics; later no kinds mean all. Subscriptions and groups are listed if a
config is set for them. A kind that has no configs is UNSUPPORTED_VERSION, as in Kafka.
"""

from typing import TYPE_CHECKING

from tiered.errors import TieredError, UnsupportedVersion
from tiered.rules.security.acl import Operation
from tiered.server.kafka.authorize import require_cluster
from tiered.server.kafka.config_resources import CLIENT_METRICS, CONFIG_RESOURCES
from tiered.server.kafka.dispatch import Api, Context, in_turns
from tiered.server.kafka.error_mapping import NONE, error_code

if TYPE_CHECKING:
    from kafka_messages.list_config_resources import Replies, Reply, Request, Response


async def handle(context: Context, request: "Request", reply: "Reply") -> "Response":
    code = NONE
    found: list[Replies.ConfigResource] = []
    try:
        require_cluster(context, Operation.DESCRIBE_CONFIGS)
        kinds = request.resource_types or CONFIG_RESOURCES if context.api_version else (CLIENT_METRICS,)
        for kind in dict.fromkeys(kinds):
            if kind not in CONFIG_RESOURCES:
                raise UnsupportedVersion(f"resource type {kind} has no configs")
            # Of a copy: in a pause topics may come and go.
            names = list(CONFIG_RESOURCES[kind].names(context))
            found += [reply.ConfigResource(resource_name=name, resource_type=kind) async for name in in_turns(names)]
    except TieredError as error:
        code, found = error_code(error), []
    return reply.ListConfigResourcesResponse(throttle_time=0, error_code=code, config_resources=found)


API = Api(74, "ListConfigResources", (0, 1), rights="DESCRIBE_CONFIGS on the cluster", handle=handle)
