"""The principal of an HTTP request, and its rights: the same principals and access control lists as Kafka's protocol
has.

Owns the table of the rights that each route needs. A route that is not in it may be used by super users alone. The
handler that reads a body checks the names in it, with `require`; lists are filtered with `may`. A request that another
broker passed on has the rights of whom it came from, and no other: the one that passes it on says who that was, and
must be a super user to be believed. Must never say whether something is there before it has looked at the rights.
"""

import ipaddress
from dataclasses import dataclass
from urllib.parse import quote, unquote

from aiohttp import web

from tiered.broker.security.access import Rights
from tiered.broker.security.authentication import Login
from tiered.errors import ClusterNotAuthorized, InvalidConfig
from tiered.rules.security.acl import CLUSTER_NAME, Operation, ResourceType
from tiered.rules.security.authorization import EVERYTHING, NameScope
from tiered.rules.security.principal import ANONYMOUS, Principal, parse_principal
from tiered.rules.security.sasl.failures import AuthenticationFailed
from tiered.server.http.door.keys import BROKER
from tiered.server.http.messages.origin import is_forwarded
from tiered.server.http.messages.route import Handler
from tiered.server.kafka.authorize import refusal

PRINCIPAL: web.RequestKey[Principal] = web.RequestKey("principal", Principal)
"""Where authentication puts a request's `Principal`; ANONYMOUS where nobody is asked."""
ON_BEHALF_OF = "X-Tiered-On-Behalf-Of"
"""Of a request between brokers: the client's principal and its address, each percent-encoded."""
LOGIN: web.RequestKey[Login] = web.RequestKey("login", Login)
"""What it has proved, where it has logged in."""
_RIGHTS: web.RequestKey[tuple[Rights | None]] = web.RequestKey("rights", tuple)

_ASKED_FOR: web.RequestKey[list[str]] = web.RequestKey("asked_for", list)


@dataclass(frozen=True, slots=True)
class Need:
    """An operation, on the cluster or on what the path names with `parameter`.

    With `is_somewhere` on any resource of the kind: before a body is read that names some, for which the handler asks.
    """

    operation: Operation
    kind: ResourceType = ResourceType.CLUSTER
    parameter: str = ""
    is_somewhere: bool = False


def _topic(operation: Operation, parameter: str = "topic") -> tuple[Need, ...]:
    return (Need(operation, ResourceType.TOPIC, parameter),)


def _group(operation: Operation, parameter: str = "group") -> tuple[Need, ...]:
    return (Need(operation, ResourceType.GROUP, parameter),)


def _transaction(operation: Operation) -> tuple[Need, ...]:
    return (Need(operation, ResourceType.TRANSACTIONAL_ID, "transactional_id"),)


_WRITES_TRANSACTIONS = (Need(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, is_somewhere=True),)
_V3 = "/v3/clusters/{cluster_id}"
_V3_TOPIC = _V3 + "/topics/{topic_name}"
_PARTITION = "/partitions/{partition_id}"
_CONSUMER = "/consumers/{consumer_id}"
_V3_GROUP = _V3 + "/consumer-groups/{consumer_group_id}"
_V3_BROKER = _V3 + "/brokers/{broker_id}"
_SEES_CLUSTER = (Need(Operation.DESCRIBE),)
_CHANGES_CLUSTER = (Need(Operation.ALTER),)
OPEN: tuple[Need, ...] = ()
"""Nothing, or the handler asks for what it needs, or leaves out what may not be seen."""

RIGHTS: dict[str, tuple[Need, ...]] = {
    "GET /": OPEN,
    "GET /console/{folder}/{file}": OPEN,
    "GET /openapi.json": OPEN,
    "GET /api/v1/session": OPEN,
    "GET /healthz": OPEN,
    "GET /readyz": OPEN,
    "GET /metrics": _SEES_CLUSTER,
    "GET /api/v1/cluster": _SEES_CLUSTER,
    "GET /api/v1/brokers/{broker_id}": _SEES_CLUSTER,
    "GET /api/v1/brokers/{broker_id}/partitions": _SEES_CLUSTER,
    "GET /api/v1/acls": _SEES_CLUSTER,
    "POST /api/v1/acls": _CHANGES_CLUSTER,
    "POST /api/v1/acls/remove": _CHANGES_CLUSTER,
    "GET /api/v1/users": _SEES_CLUSTER,
    "POST /api/v1/users": _CHANGES_CLUSTER,
    "PUT /api/v1/users/{user}/password": _CHANGES_CLUSTER,
    "DELETE /api/v1/users/{user}": _CHANGES_CLUSTER,
    "GET /api/v1/quotas": (Need(Operation.DESCRIBE_CONFIGS),),
    "PATCH /api/v1/quotas": (Need(Operation.ALTER_CONFIGS),),
    "GET /api/v1/cost": _SEES_CLUSTER,
    "GET /api/v1/reconcile": _SEES_CLUSTER,
    "GET /api/v1/topics": OPEN,
    "POST /api/v1/topics": OPEN,
    "GET /api/v1/topics/{topic}": _topic(Operation.DESCRIBE),
    "DELETE /api/v1/topics/{topic}": _topic(Operation.DELETE),
    "PATCH /api/v1/topics/{topic}/configs": _topic(Operation.ALTER_CONFIGS),
    "GET /api/v1/topics/{topic}/partitions/{partition}/segments": _topic(Operation.DESCRIBE),
    "GET /api/v1/topics/{topic}/partitions/{partition}/retention": _topic(Operation.DESCRIBE),
    "POST /api/v1/topics/{topic}/partitions/{partition}/delete-records": _topic(Operation.DELETE),
    "GET /api/v1/topics/{topic}/records": _topic(Operation.READ),
    "GET /api/v1/topics/{topic}/newest": _topic(Operation.READ),
    "GET /api/v1/topics/{topic}/search": _topic(Operation.READ),
    "GET /api/v1/topics/{topic}/tail": _topic(Operation.READ),
    "GET /api/v1/groups": OPEN,
    "GET /api/v1/groups/{group}": _group(Operation.DESCRIBE),
    "DELETE /api/v1/groups/{group}": _group(Operation.DELETE),
    "GET /api/v1/groups/{group}/lag": _group(Operation.DESCRIBE),
    "POST /api/v1/groups/{group}/offsets/reset": _group(Operation.READ),
    "GET /api/v1/transactions": OPEN,
    "GET /api/v1/transactions/{transactional_id}": _transaction(Operation.DESCRIBE),
    "POST /api/v1/transactions/{transactional_id}/abort": _transaction(Operation.WRITE),
    "GET /api/v1/snapshots": OPEN,
    "POST /api/v1/snapshots": OPEN,
    "GET /api/v1/snapshots/{snapshot}": OPEN,
    "DELETE /api/v1/snapshots/{snapshot}": OPEN,
    "GET /api/v1/pins": OPEN,
    "POST /api/v1/pins": OPEN,
    "GET /api/v1/pins/{pin}": OPEN,
    "PATCH /api/v1/pins/{pin}": OPEN,
    "DELETE /api/v1/pins/{pin}": OPEN,
    "POST /api/v1/transaction-commits": _WRITES_TRANSACTIONS,
    "POST /api/v1/transaction-aborts": _WRITES_TRANSACTIONS,
    "GET /v3/clusters": OPEN,
    f"GET {_V3}": OPEN,
    f"GET {_V3}/brokers": OPEN,
    f"GET {_V3_BROKER}": OPEN,
    f"GET {_V3_BROKER}/partition-replicas": _SEES_CLUSTER,
    f"GET {_V3}/topics": OPEN,
    f"POST {_V3}/topics": OPEN,
    **{
        f"GET {_V3_TOPIC}{below}": _topic(Operation.DESCRIBE, "topic_name")
        for below in ("", "/partitions", _PARTITION, f"{_PARTITION}/replicas", f"{_PARTITION}/replicas/{{broker_id}}")
    },
    f"DELETE {_V3_TOPIC}": _topic(Operation.DELETE, "topic_name"),
    f"PATCH {_V3_TOPIC}": _topic(Operation.ALTER, "topic_name"),
    f"POST {_V3_TOPIC}/records": _topic(Operation.WRITE, "topic_name"),
    f"GET {_V3}/consumer-groups": OPEN,
    **{
        f"GET {_V3_GROUP}{below}": _group(Operation.DESCRIBE, "consumer_group_id")
        for below in ("", "/consumers", _CONSUMER, f"{_CONSUMER}/assignments", "/lag-summary", "/lags")
    },
    f"DELETE {_V3_GROUP}": _group(Operation.DELETE, "consumer_group_id"),
    f"GET {_V3_GROUP}/lags/{{topic_name}}/partitions/{{partition_id}}": (
        *_group(Operation.DESCRIBE, "consumer_group_id"),
        *_topic(Operation.DESCRIBE, "topic_name"),
    ),
    **{
        f"{method} {path}": (Need(operation, kind, parameter),)
        for configs, kind, parameter in (
            (f"{_V3_TOPIC}/configs", ResourceType.TOPIC, "topic_name"),
            (f"{_V3_BROKER}/configs", ResourceType.CLUSTER, ""),
            (f"{_V3}/broker-configs", ResourceType.CLUSTER, ""),
        )
        for method, path, operation in (
            ("GET", configs, Operation.DESCRIBE_CONFIGS),
            ("POST", f"{configs}:alter", Operation.ALTER_CONFIGS),
            ("GET", f"{configs}/{{name}}", Operation.DESCRIBE_CONFIGS),
            ("PUT", f"{configs}/{{name}}", Operation.ALTER_CONFIGS),
            ("DELETE", f"{configs}/{{name}}", Operation.ALTER_CONFIGS),
        )
    },
}


@web.middleware
async def authorized(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuses what the request's principal may not do. Raises NotAuthorized."""
    if BROKER in request.app:
        _require_needs(request)
    return await handler(request)


def require_again(request: web.Request) -> None:
    """As `authorized`, by the users and rules of now: for a request whose body came late, or that waited in a queue.
    Raises AuthenticationFailed, NotAuthorized."""
    _look_up_anew(request)
    _require_needs(request)


def _require_needs(request: web.Request) -> None:
    resource = request.match_info.route.resource
    if resource is None:
        return
    method = "GET" if request.method == "HEAD" else request.method
    needs = RIGHTS.get(f"{method} {resource.canonical}")
    rights = rights_of(request)
    if needs == _SEES_CLUSTER and ON_BEHALF_OF not in request.headers and is_broker(request):
        needs = OPEN
    if needs is None and rights is not None and not rights.is_super_user:
        raise ClusterNotAuthorized("not allowed: this is for super users alone (super.users)")
    for need in needs or ():
        if need.is_somewhere:
            _require_somewhere(request, need)
            continue
        name = request.match_info[need.parameter] if need.parameter else CLUSTER_NAME
        require(request, need.operation, need.kind, name)


def rights_of(request: web.Request) -> Rights | None:
    """The principal's rights; None where authorization is off. Raises ClusterNotAuthorized when it may not speak for
    another."""
    if _RIGHTS in request:
        return request[_RIGHTS][0]
    access = request.app[BROKER].access
    rights = access.rights(principal_of(request), _address(request))
    told = request.headers.get(ON_BEHALF_OF)
    if rights is not None and told is not None and is_forwarded(request):
        if not (rights.is_super_user or is_broker(request)):
            raise ClusterNotAuthorized(
                f"{ON_BEHALF_OF} is believed of brokers alone: theirs stand in tiered.broker.principals or super.users"
            )
        rights = access.rights(*_told(told))
    request[_RIGHTS] = (rights,)
    return rights


def is_broker(request: web.Request) -> bool:
    """Whether another broker sent the request, by the proof that brokers give each other. It may speak for a client."""
    authentication = request.app[BROKER].authentication
    return authentication.tells_brokers and authentication.is_broker(principal_of(request))


def principal_of(request: web.Request) -> Principal:
    """The principal, as far as this connection shows."""
    found: Principal = request.get(PRINCIPAL, ANONYMOUS)
    return found


def on_behalf_of(request: web.Request) -> dict[str, str]:
    """The header with which this broker passes `request` on; none where nobody asks for rights."""
    rights = rights_of(request)
    if rights is None:
        return {}
    return {ON_BEHALF_OF: f"{quote(rights.principal, safe='')} {quote(rights.host, safe='')}"}


def may(request: web.Request, operation: Operation, kind: ResourceType, name: str) -> bool:
    """For what is left out, not refused."""
    rights = rights_of(request)
    return rights is None or rights.by_name(operation, kind)[name]


def may_see_topic(request: web.Request, name: str) -> bool:
    return may(request, Operation.DESCRIBE, ResourceType.TOPIC, name)


def scope_of(request: web.Request, operation: Operation, kind: ResourceType) -> NameScope:
    """Where a list has to look. `may` is still to be asked of what is there."""
    rights = rights_of(request)
    return EVERYTHING if rights is None else rights.scope(operation, kind)


def groups_to_see(request: web.Request) -> NameScope:
    """Where those are for which `may_see_group` is true."""
    if may(request, Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return EVERYTHING
    return scope_of(request, Operation.DESCRIBE, ResourceType.GROUP)


def may_see_group(request: web.Request, group_id: str) -> bool:
    """As with ListGroups: a principal that may describe the cluster sees every group."""
    return may(request, Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME) or may(
        request, Operation.DESCRIBE, ResourceType.GROUP, group_id
    )


def require(
    request: web.Request, operation: Operation, kind: ResourceType = ResourceType.CLUSTER, name: str = CLUSTER_NAME
) -> None:
    """Returns when the principal may do it. Raises NotAuthorized, which names the right that is missing."""
    rights = rights_of(request)
    request.setdefault(_ASKED_FOR, []).append(f"{kind.name}:{name}")
    if rights is not None and not rights.may(operation, kind, name):
        raise refusal(rights, operation, kind, name)


def _require_somewhere(request: web.Request, need: Need) -> None:
    rights = rights_of(request)
    if rights is not None and not rights.may_any(need.operation, need.kind):
        rights.denied(need.operation, need.kind)
        raise refusal(rights, need.operation, need.kind, "of any name", is_id=True)


def require_still(request: web.Request, operation: Operation, kind: ResourceType, name: str) -> None:
    """As `require`, by the users and rules of now: for a request that may last longer than its login and its rights.
    Raises AuthenticationFailed, NotAuthorized."""
    _look_up_anew(request)
    rights = rights_of(request)
    if rights is not None and not rights.may(operation, kind, name):
        raise refusal(rights, operation, kind, name)


def _look_up_anew(request: web.Request) -> None:
    """Whoever asks for the request's rights next gets those of now. Raises AuthenticationFailed."""
    login = request.get(LOGIN)
    if login is not None and request.app[BROKER].authentication.is_over(login):
        raise AuthenticationFailed("log in again: your token has ended, or your user was changed")
    request.pop(_RIGHTS, None)


def asked_for(request: web.Request) -> list[str]:
    """The resources that rights were asked for so far, each as KIND:NAME."""
    return list(dict.fromkeys(request.get(_ASKED_FOR, [])))


def require_create(request: web.Request, topic: str) -> None:
    """A principal that may create in the cluster may create any topic."""
    request.setdefault(_ASKED_FOR, []).append(f"{ResourceType.TOPIC.name}:{topic}")
    if not may(request, Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME):
        require(request, Operation.CREATE, ResourceType.TOPIC, topic)


def _told(text: str) -> tuple[Principal, str]:
    name, _, host = text.partition(" ")
    try:
        return parse_principal(unquote(name)), str(ipaddress.ip_address(unquote(host)))
    except (InvalidConfig, ValueError):
        raise ClusterNotAuthorized(f"{ON_BEHALF_OF} is no principal and address") from None


def _address(request: web.Request) -> str:
    peer = request.get_extra_info("peername")
    return str(peer[0]) if peer else ""
