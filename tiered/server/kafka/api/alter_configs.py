"""AlterConfigs (key 33), versions 0 to 2, and IncrementalAlterConfigs (key 44), versions 0 to 1.

AlterConfigs replaces all overrides of a resource; the incremental one sets (0), deletes (1), appends to (2) or
subtracts from (3) single settings, the latter two for lists only (KIP-339). Each resource is checked as a
whole: one bad value changes nothing of it. `validate_only` changes nothing at all.
"""

from collections.abc import Sequence
from typing import Any

from tiered.config import ConfigChange, ConfigOperation
from tiered.errors import InvalidRequest, TieredError
from tiered.rules.acl import Operation
from tiered.server.kafka.api.describe_configs import BROKER, TOPIC, check_broker
from tiered.server.kafka.authorize import require_cluster, require_topic
from tiered.server.kafka.dispatch import Api, Context, in_turns
from tiered.server.kafka.error_mapping import NONE, error_code

_OPERATIONS = {int(operation): operation for operation in ConfigOperation}


async def replace_all(context: Context, request: Any, reply: Any) -> Any:
    """A null value means the default, as in Kafka."""
    responses = []
    async for asked in in_turns(request.resources):
        changes = [(each.name, 0, each.value) for each in asked.configs if each.value is not None]
        responses.append(await _one(context, reply, asked, changes, request.validate_only, keep_others=False))
    return reply.AlterConfigsResponse(throttle_time=0, responses=responses)


async def change_some(context: Context, request: Any, reply: Any) -> Any:
    responses = []
    async for asked in in_turns(request.resources):
        changes = [(each.name, each.config_operation, each.value) for each in asked.configs]
        responses.append(await _one(context, reply, asked, changes, request.validate_only, keep_others=True))
    return reply.IncrementalAlterConfigsResponse(throttle_time=0, responses=responses)


async def _one(
    context: Context,
    reply: Any,
    asked: Any,
    changes: Sequence[tuple[str, int, str | None]],
    validate_only: bool,
    *,
    keep_others: bool,
) -> Any:
    code, message = NONE, None
    admin = context.broker.admin
    try:
        steps = _steps(changes)
        if asked.resource_type == TOPIC:
            require_topic(context, Operation.ALTER_CONFIGS, asked.resource_name)
            topic = context.broker.topics.by_name(asked.resource_name)
            await admin.alter_topic(topic, steps, keep_others=keep_others, validate_only=validate_only)
        elif asked.resource_type == BROKER:
            require_cluster(context, Operation.ALTER_CONFIGS)
            check_broker(context, asked.resource_name)
            await admin.alter_broker(asked.resource_name, steps, keep_others=keep_others, validate_only=validate_only)
        else:
            raise InvalidRequest(f"resource type {asked.resource_type} cannot be altered; 2 (topic) and 4 (broker) can")
    except TieredError as error:
        code, message = error_code(error), str(error)
    return reply.AlterConfigsResourceResponse(
        error_code=code, error_message=message, resource_type=asked.resource_type, resource_name=asked.resource_name
    )


def _steps(changes: Sequence[tuple[str, int, str | None]]) -> list[ConfigChange]:
    if len({name for name, _, _ in changes}) != len(changes):
        raise InvalidRequest("a setting stands twice in the request")
    steps = []
    for name, code, value in changes:
        operation = _OPERATIONS.get(code)
        if operation is None:
            raise InvalidRequest(f"{name}: operation {code} is unknown; 0 to 3 set, delete, append and subtract")
        steps.append(ConfigChange(name=name, operation=operation, value=value))
    return steps


API = Api(key=33, name="AlterConfigs", min_version=0, max_version=2, handle=replace_all)
INCREMENTAL_API = Api(key=44, name="IncrementalAlterConfigs", min_version=0, max_version=1, handle=change_some)
