"""How HTTP requests use up their client's quotas, and how a client over its quota is answered.

Owns the way of HTTP: a request of a client that owes time is refused with 429 before it does anything, and a stream
rests until nothing is owed. What a request takes of the event loop and of SQL counts for `request_percentage`. The
buckets are those of Kafka's protocol, so that nobody has a quota twice; a program over HTTP has no client id. A broker
counts what it does for a user, also where another broker passed the request on. Must never refuse a request for what it
is about to use: what may come at once may come in one piece.
"""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import TYPE_CHECKING, Any, TypeVar, cast

from aiohttp import web

from tiered.account import Account, on_behalf_of
from tiered.rules.pacing.token_bucket import TokenBucketState
from tiered.rules.security.principal import ANONYMOUS, parse_principal
from tiered.rules.security.quotas import QuotaKey
from tiered.runtime import Clock
from tiered.server.http.door.keys import BROKER
from tiered.server.http.door.logins import OPEN_PATHS
from tiered.server.http.door.rights import is_broker, principal_of, rights_of
from tiered.server.http.messages.failures import OverQuota
from tiered.server.http.messages.origin import is_forwarded
from tiered.server.http.messages.route import Handler
from tiered.server.kafka.transport.turns import Stepped, Turns

if TYPE_CHECKING:
    from tiered.broker.security.client_quotas import Buckets, ClientQuotas

T = TypeVar("T")

TURNS: web.AppKey[Turns] = web.AppKey("turns", Turns)

_NO_CLIENT_ID = ""
_WATCHED_PATHS = (*OPEN_PATHS, "/metrics")
_KINDS: dict[QuotaKey, tuple[Callable[["ClientQuotas"], bool], Callable[["Buckets"], TokenBucketState | None]]] = {
    QuotaKey.PRODUCER_BYTE_RATE: (lambda quotas: quotas.limits_produce, lambda buckets: buckets.produce),
    QuotaKey.CONSUMER_BYTE_RATE: (lambda quotas: quotas.limits_fetch, lambda buckets: buckets.fetch),
    QuotaKey.CONTROLLER_MUTATION_RATE: (lambda quotas: quotas.limits_mutations, lambda buckets: buckets.mutation),
    QuotaKey.REQUEST_PERCENTAGE: (lambda quotas: quotas.limits_requests, lambda buckets: buckets.request),
}


@web.middleware
async def in_turn(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answers it in steps that take turns with those of other addresses: refusals cost time, too."""
    return await request.app[TURNS].stepped(Account(request.remote), _work(handler, request))


@web.middleware
async def accounted(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Says of each step of the request whose it is, and counts its time. Raises OverQuota, but not where an operator's
    tools look."""
    if BROKER not in request.app:
        return await handler(request)
    if request.path not in _WATCHED_PATHS:
        require_none_owed(request, QuotaKey.REQUEST_PERCENTAGE)
    clock = request.app[BROKER].clock
    bucket = _bucket(request, QuotaKey.REQUEST_PERCENTAGE)
    account = Account(_owner(request), None if bucket is None else lambda ms: _take(bucket, ms, clock))

    def step(call: Callable[[], T]) -> T:
        started_ms = clock.monotonic_ms()
        try:
            return on_behalf_of(account, call)
        finally:
            del call  # It may hold an exception, which holds this frame from now on.
            if account.charge is not None:
                account.charge(clock.monotonic_ms() - started_ms)

    turns = request.app[TURNS]
    return await Stepped(
        _work(handler, request), step=step, pause=lambda number: turns.pause(account, number) if number else ()
    )


def _work(handler: Handler, request: web.Request) -> Coroutine[Any, Any, web.StreamResponse]:
    return cast("Coroutine[Any, Any, web.StreamResponse]", handler(request))


def _take(bucket: TokenBucketState, used_ms: float, clock: Clock) -> None:
    bucket.take(used_ms, clock.monotonic_ms())


def _owner(request: web.Request) -> Hashable:
    """As over Kafka's protocol: the user, or the address where nobody is asked who they are."""
    rights = rights_of(request)
    principal = principal_of(request) if rights is None else parse_principal(rights.principal)
    return request.remote if principal == ANONYMOUS else principal


def require_none_owed(request: web.Request, quota: QuotaKey) -> None:
    """Returns when the client owes no time. Raises OverQuota."""
    bucket = _bucket(request, quota)
    if bucket is not None:
        _refuse(request, quota, bucket.rest_ms(request.app[BROKER].clock.monotonic_ms()))


def take_mutations(request: web.Request, partitions: int) -> None:
    """Counts partitions that are created or deleted. Raises OverQuota when they must wait."""
    quota = QuotaKey.CONTROLLER_MUTATION_RATE
    bucket = _bucket(request, quota)
    if bucket is not None:
        _refuse(request, quota, bucket.try_take(partitions, request.app[BROKER].clock.monotonic_ms()))


def count(request: web.Request, quota: QuotaKey, size_bytes: int) -> float:
    """Counts bytes that came or go; how many milliseconds the client has to rest now."""
    bucket = _bucket(request, quota)
    return 0.0 if bucket is None else bucket.take(size_bytes, request.app[BROKER].clock.monotonic_ms())


async def count_and_rest(request: web.Request, quota: QuotaKey, size_bytes: int) -> None:
    """As `count`, for a stream: returns when nothing is owed, after as long as the quota's measure at the most."""
    rest_ms = count(request, quota, size_bytes)
    if rest_ms > 0.0:
        _note(request, quota, rest_ms)
        await asyncio.sleep(rest_ms / 1000.0)


async def rest_while_owed(request: web.Request, quota: QuotaKey) -> None:
    """For a stream whose use was counted elsewhere: returns when nothing is owed."""
    bucket = _bucket(request, quota)
    rest_ms = 0.0 if bucket is None else bucket.rest_ms(request.app[BROKER].clock.monotonic_ms())
    if rest_ms > 0.0:
        _note(request, quota, rest_ms)
        await asyncio.sleep(rest_ms / 1000.0)


def _bucket(request: web.Request, quota: QuotaKey) -> TokenBucketState | None:
    is_limited, of = _KINDS[quota]
    quotas = request.app[BROKER].client_quotas
    if not is_limited(quotas):
        return None
    user = _user(request)
    return None if user is None else of(quotas.of_client(user, _NO_CLIENT_ID))


def _user(request: web.Request) -> str | None:
    """The client whose quotas count; None for another broker that does not name its client."""
    rights = rights_of(request)
    if rights is not None:
        return parse_principal(rights.principal).name
    if is_forwarded(request) and is_broker(request):
        return None
    return principal_of(request).name


def _refuse(request: web.Request, quota: QuotaKey, rest_ms: float) -> None:
    if rest_ms > 0.0:
        _note(request, quota, rest_ms)
        raise OverQuota(quota, rest_ms)


def _note(request: web.Request, quota: QuotaKey, rest_ms: float) -> None:
    counters = request.app[BROKER].counters
    counters.throttles[str(quota)] += 1
    counters.throttled_ms[str(quota)] += rest_ms
