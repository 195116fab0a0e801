"""Client quotas from outside: describe them and change them.

Owns how each request is put. Must never judge a value: the broker does.
"""

import math
from collections.abc import Mapping
from typing import Any

from tiered.peer.answers import CorruptAnswer, require_success, the_only
from tiered.peer.cluster import Cluster

DESCRIBE_CLIENT_QUOTAS, ALTER_CLIENT_QUOTAS = 48, 49
_EXACT, _DEFAULT = 0, 1

Entity = Mapping[str, str | None]
"""Names by type of entity, which is `user`, `client-id` or `ip`; None is the default for all others."""


async def describe_quotas(cluster: Cluster, entity: Entity) -> list[tuple[Entity, Mapping[str, float]]]:
    """Each entity that has these parts, with its quotas; all of them for an empty one."""
    answer = await cluster.request(
        DESCRIBE_CLIENT_QUOTAS,
        lambda make: make.DescribeClientQuotasRequest(
            components=[
                make.ComponentData(entity_type=kind, match_type=_DEFAULT if name is None else _EXACT, match=name)
                for kind, name in entity.items()
            ],
            strict=False,
        ),
    )
    require_success(answer, "the quotas were not described")
    entries = answer.entries or ()
    if not all(math.isfinite(each.value) for entry in entries for each in entry.values):
        raise CorruptAnswer("a broker tells of a quota that is no number")
    return [
        ({each.entity_type: each.entity_name for each in entry.entity}, {each.key: each.value for each in entry.values})
        for entry in entries
    ]


async def alter_quotas(
    cluster: Cluster, entity: Entity, values: Mapping[str, float | None], *, validate_only: bool = False
) -> None:
    """Sets the quotas of one entity; None takes one away. Raises BrokerError with the broker's reason."""

    def request(make: Any) -> Any:
        parts = [make.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()]
        changes = [make.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()]
        return make.AlterClientQuotasRequest(
            entries=[make.EntryData(entity=parts, ops=changes)], validate_only=validate_only
        )

    found = the_only((await cluster.request(ALTER_CLIENT_QUOTAS, request)).entries, "entity")
    require_success(found, "the quotas were not changed")
