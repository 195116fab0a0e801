"""ApiVersions (key 18), versions 0 to 4: what this broker serves, derived from the dispatch table.

An unknown version is answered in version 0 with UNSUPPORTED_VERSION and the whole list (KIP-511). Software names are
checked as Kafka does (v3+), and features are listed (v3+), each at its one level.
"""

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from tiered.errors import InvalidRequest
from tiered.server.kafka.dispatch import Api, Context
from tiered.server.kafka.error_mapping import error_code
from tiered.server.kafka.transport.connection import Connection
from tiered.wire.error_codes import NONE, UNSUPPORTED_VERSION

if TYPE_CHECKING:
    from kafka_messages.api_versions import Reply, Request, Response

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?\Z")


class Feature(NamedTuple):
    name: str
    level: int


METADATA_VERSION: Final = Feature("metadata.version", 29)
"""That of Kafka 4.2 (4.2-IV1): what tools take for the version of the cluster."""
GROUP_VERSION: Final = Feature("group.version", 1)
"""The consumer groups of KIP-848."""

TRANSACTION_VERSION: Final = Feature("transaction.version", 2)
"""Each end of a transaction raises its producer's epoch, and batches put their partitions into it (KIP-890). Clients
choose that protocol by this level; those that know the first one alone go on with it."""

FEATURES: Final = (GROUP_VERSION, METADATA_VERSION, TRANSACTION_VERSION)
"""Those whose behaviour this broker has (KIP-584), at the one level at which it has it: none can be raised, lowered or
taken away. Left out is what is not served: share groups, streams groups, KRaft itself."""
EPOCH: Final = 2
"""Of this list; another list has a higher one, for clients keep what came with the highest."""

TELEMETRY = frozenset((71, 72))
"""Told of while there is a subscription to clients' metrics alone, as Kafka tells of them where somebody receives them:
clients that are told ask at once, and librdkafka writes a line to stderr each time."""


def api_versions(others: Iterable[Api]) -> Api:
    """The row of ApiVersions for a table that holds `others` and this one."""

    async def handle(context: Context, request: "Request", reply: "Reply") -> "Response":
        told = (
            table if context.broker.client_metrics.is_wanted else [each for each in table if each.key not in TELEMETRY]
        )
        return answer(context.connection, context.api_version, request, reply, told, FEATURES)

    async def of_replica(context: Context, request: "Request", reply: "Reply") -> "Response":
        return answer(context.connection, context.api_version, request, reply, table, (METADATA_VERSION,))

    own = Api(18, "ApiVersions", (0, 4), rights="none", handle=handle, on_replica=of_replica)
    table = sorted([*others, own], key=lambda api: api.key)
    return own


def answer(
    connection: Connection,
    api_version: int,
    request: "Request | None",
    reply: "Reply",
    table: Sequence[Api],
    features: Sequence[Feature],
) -> "Response":
    """The reply that lists `table` and `features`; `request` is None for a version that is not served."""
    code = NONE
    if request is None:
        code = UNSUPPORTED_VERSION
    elif api_version >= 3:
        name, version = request.client_software_name, request.client_software_version
        if _SOFTWARE.match(name) and _SOFTWARE.match(version):
            connection.client_software = f"{name} {version}"[:120]
        else:
            code = error_code(InvalidRequest("client software name or version"))
    return reply.ApiVersionsResponse(
        error_code=code,
        api_keys=[
            reply.ApiVersion(api_key=api.key, min_version=api.versions[0], max_version=api.versions[1]) for api in table
        ],
        throttle_time=0,
        supported_features=[
            reply.SupportedFeatureKey(name=each.name, min_version=each.level, max_version=each.level)
            for each in features
        ],
        finalized_features_epoch=EPOCH,
        finalized_features=[
            reply.FinalizedFeatureKey(name=each.name, max_version_level=each.level, min_version_level=each.level)
            for each in features
        ],
    )
