"""Throttling of a client over its quota: it is told for how long, and its connection is not read meanwhile.

Owns the order of an answer that is throttled: the answer goes out at once with its throttle time, then nothing more is
read from the connection until that has passed (KIP-219), so that who ignores the time gains nothing. Brokers among
themselves are exempt. Must never hold up an answer, nor count what was used: the broker's quotas do.
"""

import math
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from tiered.errors import Throttled
from tiered.rules.security.quotas import QuotaKey
from tiered.server.kafka.transport.turns import Stepped, let_others

if TYPE_CHECKING:
    from tiered.broker.broker import Broker
    from tiered.broker.security.client_quotas import Buckets
    from tiered.server.kafka.dispatch import Context
    from tiered.server.kafka.transport.connection import Connection

T = TypeVar("T")


def buckets_of(broker: "Broker", connection: "Connection") -> "Buckets | None":
    """The quotas of this connection; None for another broker, and for a client that has not logged in yet."""
    principal = connection.principal
    if principal is None or connection.is_broker:
        return None
    return broker.client_quotas.of_client(principal.name, connection.client_id or "")


def throttle(broker: "Broker", connection: "Connection", quota: QuotaKey, rest_ms: float) -> int:
    """Does not read the connection for so long; the time to tell the client."""
    if rest_ms <= 0.0:
        return 0
    counters = broker.counters
    counters.throttles[str(quota)] += 1
    counters.throttled_ms[str(quota)] += rest_ms
    connection.mute(rest_ms)
    return math.ceil(rest_ms)


# Bytes


def begins_in_debt(context: "Context") -> bool:
    """Whether a connection's first Produce has to wait: a client that owes time cannot escape by connecting anew."""
    broker, connection = context.broker, context.connection
    buckets = buckets_of(broker, connection)
    if buckets is None or buckets.produce is None:
        return False
    rest_ms = buckets.produce.rest_ms(broker.clock.monotonic_ms())
    return throttle(broker, connection, QuotaKey.PRODUCER_BYTE_RATE, rest_ms) > 0


def produced(context: "Context", size_bytes: int) -> int:
    """Counts a Produce request; its throttle time."""
    broker, connection = context.broker, context.connection
    buckets = buckets_of(broker, connection) if broker.client_quotas.limits_produce else None
    if buckets is None or buckets.produce is None:
        return context.throttle_ms
    rest_ms = buckets.produce.take(size_bytes, broker.clock.monotonic_ms())
    return max(context.throttle_ms, throttle(broker, connection, QuotaKey.PRODUCER_BYTE_RATE, rest_ms))


def fetch_allowance(context: "Context") -> tuple[int, int | None]:
    """(throttle time, most bytes) of a Fetch. With a time it is answered at once and without records, for its client
    has had too many already; the bytes are None where nothing limits them."""
    broker, connection = context.broker, context.connection
    buckets = buckets_of(broker, connection) if broker.client_quotas.limits_fetch else None
    if context.throttle_ms or buckets is None or buckets.fetch is None:
        return context.throttle_ms, None
    rest_ms = buckets.fetch.rest_ms(broker.clock.monotonic_ms())
    most_bytes = max(1, int(buckets.fetch.capacity))
    return throttle(broker, connection, QuotaKey.CONSUMER_BYTE_RATE, rest_ms), most_bytes


def fetched(context: "Context", size_bytes: int) -> int:
    """Counts the records of an answer; its throttle time."""
    broker, connection = context.broker, context.connection
    buckets = buckets_of(broker, connection) if broker.client_quotas.limits_fetch else None
    if buckets is None or buckets.fetch is None:
        return 0
    rest_ms = buckets.fetch.take(size_bytes, broker.clock.monotonic_ms())
    return throttle(broker, connection, QuotaKey.CONSUMER_BYTE_RATE, rest_ms)


# Changes of topics


class Mutations:
    """The partitions that one request creates or deletes, against the quota of who asks (KIP-599).

    Clients that know the error are refused what they may not do now; older ones are throttled for what they did.
    """

    def __init__(self, context: "Context", *, strict_from_version: int | None = None) -> None:
        broker = context.broker
        found = buckets_of(broker, context.connection) if broker.client_quotas.limits_mutations else None
        self._bucket = None if found is None else found.mutation
        self._context = context
        self._is_strict = strict_from_version is None or context.api_version >= strict_from_version
        self._rest_ms = 0.0

    def take(self, partitions: int) -> None:
        """Counts them. Raises Throttled when they must wait."""
        if self._bucket is None:
            return
        now_ms = self._context.broker.clock.monotonic_ms()
        if not self._is_strict:
            self._rest_ms = self._bucket.take(partitions, now_ms)
            return
        rest_ms = self._bucket.try_take(partitions, now_ms)
        if rest_ms:
            self._rest_ms = max(self._rest_ms, rest_ms)
            raise Throttled(f"controller_mutation_rate is used up; try again in {math.ceil(rest_ms)} ms")

    def throttle(self) -> int:
        """The answer's throttle time."""
        broker, connection = self._context.broker, self._context.connection
        return throttle(broker, connection, QuotaKey.CONTROLLER_MUTATION_RATE, self._rest_ms)


# Time


def request_rest_ms(broker: "Broker", connection: "Connection") -> int:
    """The throttle time of a request whose client has used more of the event loop, and of SQL, than it may."""
    buckets = buckets_of(broker, connection)
    if buckets is None or buckets.request is None:
        return 0
    rest_ms = buckets.request.rest_ms(broker.clock.monotonic_ms())
    return throttle(broker, connection, QuotaKey.REQUEST_PERCENTAGE, rest_ms)


def used(broker: "Broker", connection: "Connection", since_ms: float) -> None:
    """Counts the event loop's time since then, of the broker's clock."""
    charge(broker, connection, broker.clock.monotonic_ms() - since_ms)


def charge(broker: "Broker", connection: "Connection", used_ms: float) -> None:
    """Counts time of the event loop, or of SQL."""
    buckets = buckets_of(broker, connection)
    if buckets is not None and buckets.request is not None:
        buckets.request.take(used_ms, broker.clock.monotonic_ms())


def timed(broker: "Broker", connection: "Connection", work: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
    """The same work, whose steps count; the waits between them do not."""

    def step(call: Callable[[], Any]) -> Any:
        started_ms = broker.clock.monotonic_ms()
        try:
            return call()
        finally:
            used(broker, connection, started_ms)

    return Stepped(work, step=step, pause=let_others)
