"""AlterConfigs (key 33), versions 0 to 2, and IncrementalAlterConfigs (key 44), versions 0 to 1.

AlterConfigs replaces all overrides of a resource; the incremental one sets (0), deletes (1), appends to (2) or
subtracts from (3) single settings, the latter two for lists only (KIP-339). Each resource is checked as a
whole: one bad value changes nothing of it. `validate_only` changes nothing at all.
Which kinds of resources there are stands in `config_resources`.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tiered.config import ConfigChange, ConfigOperation
from tiered.errors import InvalidRequest, TieredError
from tiered.rules.security.acl import Operation
from tiered.server.kafka.audited import MAX_ITEMS, AuditEntry, aligned
from tiered.server.kafka.config_resources import Alteration, resource_for
from tiered.server.kafka.dispatch import Api, Context, Refused, in_turns
from tiered.server.kafka.error_mapping import NONE, error_code

if TYPE_CHECKING:
    from kafka_messages import alter_configs, incremental_alter_configs

_OPERATIONS = {int(operation): operation for operation in ConfigOperation}


async def replace_all(
    context: Context, request: "alter_configs.Request", reply: "alter_configs.Reply"
) -> "alter_configs.Response":
    """A null value means the default, as in Kafka."""
    responses = []
    async for asked in in_turns(request.resources):
        changes = [(each.name, 0, each.value) for each in asked.configs if each.value is not None]
        responses.append(await _one(context, reply, asked, changes, request.validate_only, keep_others=False))
    return reply.AlterConfigsResponse(throttle_time=0, responses=responses)


async def change_some(
    context: Context, request: "incremental_alter_configs.Request", reply: "incremental_alter_configs.Reply"
) -> "incremental_alter_configs.Response":
    responses = []
    async for asked in in_turns(request.resources):
        changes = [(each.name, each.config_operation, each.value) for each in asked.configs]
        responses.append(await _one(context, reply, asked, changes, request.validate_only, keep_others=True))
    return reply.IncrementalAlterConfigsResponse(throttle_time=0, responses=responses)


async def _one(
    context: Context,
    reply: "alter_configs.Reply | incremental_alter_configs.Reply",
    asked: "alter_configs.AlterConfigsResource | incremental_alter_configs.AlterConfigsResource",
    changes: Sequence[tuple[str, int, str | None]],
    validate_only: bool,
    *,
    keep_others: bool,
) -> Any:
    code, message = NONE, None
    try:
        steps = _steps(changes)
        kind = resource_for(context, Operation.ALTER_CONFIGS, asked.resource_type, asked.resource_name)
        await kind.alter(
            context,
            Alteration(name=asked.resource_name, steps=steps, is_whole=not keep_others, validate_only=validate_only),
        )
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


_CONFIGURED = {2: "TOPIC", 4: "BROKER", 8: "BROKER_LOGGER", 16: "CLIENT_METRICS", 32: "GROUP"}


def _told(request: "alter_configs.Request", answer: "alter_configs.Response | None") -> Iterable[AuditEntry]:
    for each, code in aligned(request.resources, answer and answer.responses):
        resource = f"{_CONFIGURED.get(each.resource_type, each.resource_type)}:{each.resource_name}"
        yield AuditEntry(resource, code, {"configs": sorted(config.name[:100] for config in each.configs[:MAX_ITEMS])})


API = Api(
    33,
    "AlterConfigs",
    (0, 2),
    rights="ALTER_CONFIGS on the topic or the group; on the cluster for all else",
    handle=replace_all,
    on_replica=Refused(),
    audit=_told,
)
INCREMENTAL_API = Api(
    44,
    "IncrementalAlterConfigs",
    (0, 1),
    rights="ALTER_CONFIGS on the topic or the group; on the cluster for all else",
    handle=change_some,
    on_replica=Refused(),
    audit=_told,
)
