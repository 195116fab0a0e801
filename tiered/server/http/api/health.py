"""`/healthz`: the process is alive. `/readyz`: it serves, and its disk, SQL and object store do too.

`/readyz` answers 200 while produce and fetch work here, and names what does not in its body: losing SQL or the
object store stops neither, and other brokers' trouble is not this one's. A broker that is fenced is not ready.
"""

from aiohttp import web

from tiered.errors import StoreTrouble
from tiered.rules.security.acl import CLUSTER_NAME, Operation, ResourceType
from tiered.server.http.door.keys import BROKER
from tiered.server.http.door.rights import PRINCIPAL, may
from tiered.server.http.messages.route import Answer, answers_json, route, tagged
from tiered.server.http.messages.schema import array, boolean, integer, mapping, nullable, record, text
from tiered.server.http.metrics.cluster_view import VIEWS, health_of

HEALTH = record(
    {
        "serving": boolean("False while the broker starts or stops."),
        "broker": integer("This broker's number."),
        "cluster_id": text(),
        "failed_partitions": array(text(), "Those here that cannot be opened, or whose disk failed; the first 100."),
        "metadata_went_back": boolean(
            "True where the metadata store has lost what was seen in it: no partition is served."
        ),
        "disk_full": boolean("True while writes are refused to keep a reserve."),
        "upload_backlog_bytes": integer("Bytes of closed segments that wait for their upload."),
        "disk_only_age_ms": integer("Age of the oldest record led here that the object store does not have."),
        "held_back_partitions": integer(
            "Partitions led here in which an open transaction has kept readers of committed records waiting for longer "
            "than 3 s."
        ),
        "held_back_ms": integer("How long at the longest, since the transaction's first record; 0 without any."),
        "store_away": boolean("True while the object store does not answer."),
        "store_trouble": nullable(
            text("Why the newest operation of the object store failed.", allowed=[each.value for each in StoreTrouble])
        ),
        "undeletable_objects": integer("Objects that the store does not let this broker delete."),
        "store_belongs_to": text("The other cluster that the object store belongs to: nothing is uploaded then."),
        "findings": mapping(integer(), "What reconciling and scrubbing found and have not seen mended, by kind."),
        "stale_checkpoints": integer("Checkpoints in the bucket that are older than what they describe."),
        "fenced": boolean("True while the cluster holds this broker for out of service: it leads nothing."),
        "controller_id": integer("-1 while no broker has the controller's lease.", minimum=-1),
        "live_brokers": array(integer()),
        "fenced_brokers": array(integer()),
        "offline_partitions": integer("Without a leader, in the whole cluster."),
        "under_replicated_partitions": integer("With a replica that is not in sync, in the whole cluster."),
        "under_min_isr_partitions": integer("Those that refuse writes with acks=all, in the whole cluster."),
        "feed_lag": integer("Numbers of the cluster's changes that this broker has not applied yet."),
    },
    is_open=True,
)


# Of partitions: a client without a login or the right to describe the cluster learns only how many there are.
_NAMES = ("failed_partitions", "offline", "under_replicated", "under_min_isr")


async def _healthz(_request: web.Request) -> web.Response:
    """Says that the process is alive."""
    return web.json_response({"status": "alive"})


async def _readyz(request: web.Request) -> web.Response:
    """Says whether the broker serves, and what an operator should look at."""
    broker = request.app[BROKER]
    health = health_of(broker, await request.app[VIEWS].of(broker), await broker.partition_totals())
    status = 200 if health["serving"] and not health["fenced"] and not health["metadata_went_back"] else 503
    is_stranger = broker.settings.authentication.tiered_http_authentication != "none" and PRINCIPAL not in request
    if is_stranger or not may(request, Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        health = {**health, **{name: [] for name in _NAMES}}
    return web.json_response(health, status=status)


ROUTES = tagged(
    "service",
    route("GET", "/healthz", _healthz, answers_json(record({"status": text(allowed=("alive",))}))),
    route(
        "GET",
        "/readyz",
        _readyz,
        {
            200: Answer(description="It serves.", schema=HEALTH),
            503: Answer(description="It starts, stops, is fenced, or its metadata store went back.", schema=HEALTH),
        },
    ),
)
