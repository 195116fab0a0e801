"""The shapes of Confluent's REST API v3: resources with a kind, their links, and lists of them.

Owns names, links and schemas that the modules beside it share. Source: confluentinc/kafka-rest, api/v3/openapi.yaml.
Gaps: no ACLs and no reassignments (their links are there, as clients expect, and lead nowhere), and no pages: a
list is always whole.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from aiohttp import web

from tiered.broker.broker import Broker
from tiered.server.http.door.keys import BROKER
from tiered.server.http.messages.failures import NoSuchResource
from tiered.server.http.messages.long_list import json_with_list
from tiered.server.http.messages.origin import origin_of
from tiered.server.http.messages.parameters import CLUSTER_ID
from tiered.server.http.messages.schema import Field, Form, array, nullable, record, text

CLUSTER_PATH = "/v3/clusters/{cluster_id}"

LINK = record({"related": text("A URL.")})
_METADATA = record({"self": text("A URL."), "resource_name": nullable(text())}, optional=("resource_name",))
_LIST_METADATA = record({"self": text("A URL."), "next": nullable(text())})


@dataclass(frozen=True, slots=True)
class Below:
    """A field that links to what these pieces name below the resource itself."""

    pieces: tuple[object, ...]


class Resource:
    """One kind of resource: its schema, that of a list of them, and where its fields are found."""

    def __init__(self, kind: str, fields: Mapping[str, Field | Below], *, optional: Sequence[str] = ()) -> None:
        self.kind = kind
        self.below = {name: each.pieces for name, each in fields.items() if isinstance(each, Below)}
        self.form = Form(
            {name: LINK if isinstance(each, Below) else each for name, each in fields.items()}, optional=optional
        )
        self.schema = record(
            {
                "kind": text(allowed=(kind,)),
                "metadata": _METADATA,
                "cluster_id": text(),
                **self.form.schema["properties"],
            },
            optional=optional,
        )
        self.list_schema = record(
            {"kind": text(allowed=(kind + "List",)), "metadata": _LIST_METADATA, "data": array(self.schema)}
        )


def cluster_of(request: web.Request) -> Broker:
    """The broker, when the path names its cluster."""
    broker = request.app[BROKER]
    asked = CLUSTER_ID.of(request)
    if asked != broker.cluster_id:
        raise NoSuchResource(f"cluster {asked!r} cannot be found: this one is {broker.cluster_id}")
    return broker


class Links:
    """URLs under the cluster, as the client reached it."""

    def __init__(self, request: web.Request) -> None:
        self._request = request
        self._origin = origin_of(request)
        self.cluster_id = request.app[BROKER].cluster_id

    def url(self, *pieces: object) -> str:
        """The URL of what these pieces name: `url("topics", name)`."""
        path = "".join("/" + quote(str(piece), safe="") for piece in pieces)
        return f"{self._origin}/v3/clusters/{self.cluster_id}{path}"

    def link(self, *pieces: object) -> dict[str, str]:
        return {"related": self.url(*pieces)}

    def resource(self, resource: Resource, pieces: Sequence[object], value: object, **given: Any) -> dict[str, Any]:
        """One resource, which is where these pieces say."""
        below = {field: self.link(*pieces, *more) for field, more in resource.below.items()}
        return {
            "kind": resource.kind,
            "metadata": {
                "self": self.url(*pieces),
                "resource_name": f"crn:///kafka={self.cluster_id}{_name_of(pieces)}",
            },
            "cluster_id": self.cluster_id,
            **resource.form.of(value, **below, **given),
        }

    async def listing(
        self, resource: Resource, pieces: Sequence[object], items: Iterable[Mapping[str, Any] | None]
    ) -> web.StreamResponse:
        """A whole list of resources of this kind, without those that are None."""
        metadata = {"self": self.url(*pieces), "next": None}
        return await json_with_list(
            self._request, {"kind": f"{resource.kind}List", "metadata": metadata}, "data", items
        )


def _name_of(pieces: Sequence[object]) -> str:
    """What follows the cluster in a resource's name: /topic=orders/partition=0 for topics, orders, partitions, 0."""
    name = ""
    for each in range(0, len(pieces), 2):
        kind, *value = map(str, pieces[each : each + 2])
        kind = "broker=*/config" if kind == "broker-configs" else kind.removesuffix("s")
        name += "/" + "=".join([kind, *value])
    return name
