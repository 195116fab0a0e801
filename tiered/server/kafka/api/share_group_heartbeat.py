"""ShareGroupHeartbeat (key 76), version 1: refused, for there are no share groups here (KIP-932).

It is offered so that the log can name who asks: Kafka's share consumer that does not see it in ApiVersions says nothing
more to the broker. The answer is that of a Kafka whose share groups are switched off, UNSUPPORTED_VERSION, at which the
client ends with an error.
"""

from typing import TYPE_CHECKING

from tiered.errors import TieredError, UnsupportedVersion
from tiered.rules.security.acl import Operation
from tiered.server.kafka.authorize import require_group
from tiered.server.kafka.dispatch import Api, Context, Refused
from tiered.server.kafka.error_mapping import error_code

if TYPE_CHECKING:
    from kafka_messages.share_group_heartbeat import Reply, Request, Response


MAX_SHOWN = 100


async def handle(context: Context, request: "Request", reply: "Reply") -> "Response":
    error: TieredError = UnsupportedVersion("share groups are not served here: use a consumer group (KafkaConsumer)")
    try:
        require_group(context, Operation.READ, request.group_id)
        named = ((context.connection.client_id or "")[:MAX_SHOWN], request.group_id[:MAX_SHOWN])
        context.connection.complain_once(
            ("share group", *named),
            "%s, client id %s, is a share consumer of group %s, and share groups (KIP-932) are not served here: "
            "it needs a consumer group, KafkaConsumer in place of KafkaShareConsumer",
            *named,
        )
    except TieredError as refusal:
        error = refusal.without_frames()
    return reply.ShareGroupHeartbeatResponse(
        throttle_time=0,
        error_code=error_code(error),
        error_message=str(error),
        member_id=request.member_id,
        member_epoch=0,
        heartbeat_interval=0,
        assignment=None,
    )


API = Api(76, "ShareGroupHeartbeat", (1, 1), rights="READ on the group", handle=handle, on_replica=Refused())
