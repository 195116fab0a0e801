"""UpdateFeatures (key 57), versions 0 to 2: nothing can be changed, because each feature has the one level it has.

A feature at its own level is a success that does nothing, as in Kafka; any other level, and a feature that is not
known, is INVALID_UPDATE_VERSION. As in Kafka, one that fails fails the whole request.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tiered.errors import TieredError
from tiered.rules.security.acl import CLUSTER_NAME, Operation
from tiered.server.kafka.api.api_versions import FEATURES
from tiered.server.kafka.audited import MAX_ITEMS, AuditEntry
from tiered.server.kafka.authorize import require_cluster
from tiered.server.kafka.dispatch import Api, Context
from tiered.server.kafka.error_mapping import error_code
from tiered.wire.error_codes import INVALID_UPDATE_VERSION, NONE

if TYPE_CHECKING:
    from kafka_messages.update_features import FeatureUpdateKey, Reply, Request, Response


async def handle(context: Context, request: "Request", reply: "Reply") -> "Response":
    code, message = NONE, None
    try:
        require_cluster(context, Operation.ALTER)
        message = next(filter(None, map(_refusal, request.feature_updates)), None)
        code = NONE if message is None else INVALID_UPDATE_VERSION
    except TieredError as error:
        code, message = error_code(error), str(error)
    return reply.UpdateFeaturesResponse(
        throttle_time=0,
        error_code=code,
        error_message=message,
        results=[
            reply.UpdatableFeatureResult(feature=each.feature, error_code=NONE, error_message=None)
            for each in (request.feature_updates if code == NONE else ())
        ],
    )


def _refusal(update: "FeatureUpdateKey") -> str | None:
    name = update.feature[:80]
    level = next((each.level for each in FEATURES if each.name == update.feature), None)
    if level is None:
        return f"Invalid update version {update.max_version_level} for feature {name}: it is not known here"
    if level != update.max_version_level:
        return f"Invalid update version {update.max_version_level} for feature {name}: it is {level}, and stays that"
    return None


def _told(request: "Request", answer: "Response | None") -> Iterable[AuditEntry]:
    levels = {each.feature[:100]: each.max_version_level for each in request.feature_updates[:MAX_ITEMS]}
    yield AuditEntry(
        f"CLUSTER:{CLUSTER_NAME}", None if answer is None else int(answer.error_code), {"features": levels}
    )


API = Api(57, "UpdateFeatures", (0, 2), rights="ALTER on the cluster", handle=handle, audit=_told)
