"""GetTelemetrySubscriptions (key 71) and PushTelemetry (key 72), version 0: metrics of clients (KIP-714).

Clients ask what they are to push, and push it as often as they were told; `/metrics` shows it. No right is needed, as
in Kafka. Sums are asked for as totals, not as differences: a client may change its broker at any time.
"""

from typing import TYPE_CHECKING

from tiered.broker.people.client_metrics import COMPRESSIONS, MAX_BYTES
from tiered.server.kafka.dispatch import Api, Context
from tiered.server.kafka.error_mapping import TELEMETRY_CODES

if TYPE_CHECKING:
    from kafka_messages import get_telemetry_subscriptions, push_telemetry


async def subscriptions(
    context: Context, request: "get_telemetry_subscriptions.Request", reply: "get_telemetry_subscriptions.Reply"
) -> "get_telemetry_subscriptions.Response":
    outcome, instance_id, asked = context.broker.client_metrics.subscribe(
        request.client_instance_id, str(context.connection.principal), _facts(context)
    )
    return reply.GetTelemetrySubscriptionsResponse(
        throttle_time=0,
        error_code=TELEMETRY_CODES[outcome],
        client_instance_id=instance_id,
        subscription_id=asked.subscription_id,
        accepted_compression_types=COMPRESSIONS,
        push_interval=asked.interval_ms,
        telemetry_max_bytes=MAX_BYTES,
        delta_temporality=False,
        requested_metrics=asked.metrics,
    )


async def push(
    context: Context, request: "push_telemetry.Request", reply: "push_telemetry.Reply"
) -> "push_telemetry.Response":
    outcome = await context.broker.client_metrics.push(
        request.client_instance_id,
        str(context.connection.principal),
        _facts(context),
        subscription_id=request.subscription_id,
        is_leaving=request.terminating,
        compression=request.compression_type,
        data=bytes(request.metrics),
    )
    return reply.PushTelemetryResponse(throttle_time=0, error_code=TELEMETRY_CODES[outcome])


def _facts(context: Context) -> dict[str, str]:
    connection = context.connection
    name, _, version = connection.client_software.partition(" ")
    return {
        "client_id": (context.client_id or "")[:255],
        "client_software_name": name,
        "client_software_version": version,
        "client_source_address": connection.host,
        "client_source_port": "",
    }


SUBSCRIPTIONS_API = Api(71, "GetTelemetrySubscriptions", (0, 0), rights="none", handle=subscriptions)
PUSH_API = Api(72, "PushTelemetry", (0, 0), rights="none", handle=push)
