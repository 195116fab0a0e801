"""What the asker of a page about access lacks, so that the page can say it before anything is tried.

Owns the form of that answer. It gives no right and takes none: `door.rights` decides.
"""

from typing import Any

from aiohttp import web

from tiered.rules.security.acl import CLUSTER_NAME, Operation, ResourceType
from tiered.rules.security.missing_right import giving_command, lacks
from tiered.server.http.door.rights import may, rights_of
from tiered.server.http.messages import schema

MISSING_RIGHT = schema.nullable(
    schema.record(
        {
            "sentence": schema.text("Who lacks which right."),
            "command": schema.nullable(schema.text("What an administrator may run to give it.")),
        },
        is_open=True,
        description="The right that the asker lacks to change any of it; null where nothing is missing.",
    )
)


def missing_right(request: web.Request, operation: Operation) -> dict[str, Any] | None:
    """What the request's principal lacks where it may not do `operation` on the cluster."""
    rights = rights_of(request)
    if rights is None or may(request, operation, ResourceType.CLUSTER, CLUSTER_NAME):
        return None
    right = (rights.principal, operation, ResourceType.CLUSTER, CLUSTER_NAME)
    return {"sentence": lacks(*right), "command": giving_command(*right) if rights.principal else None}
