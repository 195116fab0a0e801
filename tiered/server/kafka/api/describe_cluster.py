"""DescribeCluster (key 60), versions 0 to 2: the brokers and the controller. Endpoint type 1 (brokers) only.

Anybody who is let in may ask, as with Kafka; what the principal may do to the cluster is told on request. From v2 a
request may ask for brokers that are out of service as well (KIP-1073).
"""

from typing import TYPE_CHECKING

from tiered.errors import UnsupportedVersion
from tiered.rules.security.acl import ResourceType
from tiered.server.kafka.authorize import authorized_operations
from tiered.server.kafka.dispatch import Api, Context
from tiered.server.kafka.error_mapping import NONE, error_code
from tiered.server.kafka.listed_brokers import controller_id, described_brokers

if TYPE_CHECKING:
    from kafka_messages.describe_cluster import Reply, Request, Response

BROKERS = 1


async def handle(context: Context, request: "Request", reply: "Reply") -> "Response":
    brokers = described_brokers(context, fenced=getattr(request, "include_fenced_brokers", False))
    operations = authorized_operations(
        context, ResourceType.CLUSTER, asked=request.include_cluster_authorized_operations
    )
    code, message = NONE, None
    endpoint_type = getattr(request, "endpoint_type", BROKERS)
    if endpoint_type != BROKERS:
        message = "there is no separate controller quorum; ask for endpoint type 1 (brokers)"
        code = error_code(UnsupportedVersion(message))
    return reply.DescribeClusterResponse(
        throttle_time=0,
        error_code=code,
        error_message=message,
        endpoint_type=endpoint_type,
        cluster_id=context.broker.cluster_id,
        controller_id=controller_id(context),
        brokers=[
            reply.DescribeClusterBroker(
                broker_id=each.broker_id, host=each.host, port=each.port, rack=each.rack, is_fenced=each.is_fenced
            )
            for each in brokers
        ],
        cluster_authorized_operations=operations,
    )


API = Api(60, "DescribeCluster", (0, 2), rights="none", handle=handle, on_replica=handle)
