"""Metrics that clients push to this broker (KIP-714): the subscriptions, and the last numbers of each client.

Owns the clients that were heard of and their numbers, in memory alone and bounded: clients by `MAX_CLIENTS`, the
numbers of all together by `tiered.metrics.max.series`, bytes by `MAX_BYTES` a push, age by three times the interval.
Where there is no room, a principal with more than half of it gives way to others. Must never trust a name or a label:
what is shown is spelled anew.
"""

import asyncio
import math
import re
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from uuid import UUID
from zlib import crc32

from tiered.broker.groups.patterns import compiled
from tiered.broker.host.resource_configs import Kind, ResourceConfigs
from tiered.config import BrokerSettings, ClientMetricsConfig
from tiered.config.client_metrics import ALL, DEFAULT_INTERVAL_MS
from tiered.errors import CorruptBatch, InvalidConfig, InvalidRegularExpression, InvalidRequest, MalformedRequest
from tiered.formats.compression import decompress
from tiered.runtime import Clock, new_uuid
from tiered.wire.telemetry import Point, decode_metrics

MAX_CLIENTS = 2000
MAX_NAME = 255
MAX_BYTES = 1 << 20
"""Of one push, compressed and decompressed."""
MAX_LABELS_CHARS = 1000
"""Of one number, names and values together: a topic, a client and a node have room."""
COMPRESSIONS = (4, 3, 1, 2)
"""zstd, lz4, gzip, snappy: clients take the first that they know."""
_SHORTEST_LIFE_MS = 60_000.0
_LOOK_INTERVAL_MS = 1000.0
_DECODED_AT_ONCE = 1
_PREFIX = "org.apache.kafka."
_ODD = re.compile(r"[^a-zA-Z0-9_]")
_RESERVED = (UUID(int=0), UUID(int=1))

WHO = ("client_instance_id", "client_id", "client_software")
"""Labels of every number."""

Labels = tuple[tuple[str, str], ...]
Key = tuple[str, Labels]


class Outcome(Enum):
    """The outcome of a request."""

    TAKEN = auto()
    INVALID = auto()
    TOO_SOON = auto()
    UNKNOWN_SUBSCRIPTION = auto()
    UNKNOWN_COMPRESSION = auto()
    TOO_LARGE = auto()
    UNREADABLE = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSubscription:
    """The subscription of one client. `metrics` are beginnings of names; an empty list means no metric."""

    subscription_id: int
    metrics: tuple[str, ...]
    interval_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One number as it is shown; its labels are the client's, without who it is."""

    name: str
    labels: Labels
    is_counter: bool
    value: float


@dataclass(slots=True)
class ClientState:
    """One client that was heard of; times are monotonic."""

    instance_id: UUID
    principal: str
    facts: Mapping[str, str]
    subscription: MetricsSubscription
    made_for: object
    heard_ms: float
    asked_ms: float | None = None
    pushed_ms: float | None = None
    is_leaving: bool = False
    may_ask_again: bool = False
    series: dict[Key, Series] = field(default_factory=dict)


class ClientMetrics:
    """Clients by their instance ids, the one that was heard of last at the end."""

    def __init__(self, clock: Clock, configs: ResourceConfigs, settings: Callable[[], BrokerSettings]) -> None:
        self._clock = clock
        self._configs = configs
        self._settings = settings
        self._clients: OrderedDict[UUID, ClientState] = OrderedDict()
        self._subscriptions: tuple[ClientMetricsConfig, ...] = ()
        self._made_for: object = None
        self._turns = asyncio.Semaphore(_DECODED_AT_ONCE)
        self._clients_of: Counter[str] = Counter()
        self._series_of: Counter[str] = Counter()
        """Both by principal."""
        self._looked_ms = 0.0
        self.outcomes: Counter[Outcome] = Counter()
        self.omitted = 0
        """Numbers that there was no room for."""

    @property
    def is_wanted(self) -> bool:
        """Whether anybody has subscribed to anything."""
        self._look_at_subscriptions()
        return bool(self._subscriptions)

    def clients(self) -> tuple[ClientState, ...]:
        """The clients that push now, with their numbers."""
        self._forget_silent()
        return tuple(self._clients.values())

    def subscribe(
        self, instance_id: UUID | None, principal: str, facts: Mapping[str, str]
    ) -> tuple[Outcome, UUID, MetricsSubscription]:
        """The subscription that the client is to push from now on; a client without an id gets one, and so does one
        with another principal's."""
        if instance_id is None or not self._may_be(instance_id, principal):
            instance_id = new_uuid()
        client = self._client(instance_id, principal, facts)
        now_ms, interval_ms = self._clock.monotonic_ms(), client.subscription.interval_ms
        last_ms = max((each for each in (client.asked_ms, client.pushed_ms) if each is not None), default=None)
        if last_ms is not None and now_ms - last_ms < interval_ms and not client.may_ask_again:
            return Outcome.TOO_SOON, client.instance_id, client.subscription
        client.asked_ms, client.may_ask_again = now_ms, False
        return Outcome.TAKEN, client.instance_id, client.subscription

    async def push(
        self,
        instance_id: UUID | None,
        principal: str,
        facts: Mapping[str, str],
        *,
        subscription_id: int,
        is_leaving: bool,
        compression: int,
        data: bytes,
    ) -> Outcome:
        """Takes the client's numbers, or says why not."""
        outcome = await self._pushed(instance_id, principal, facts, subscription_id, is_leaving, compression, data)
        self.outcomes[outcome] += 1
        return outcome

    async def _pushed(
        self,
        instance_id: UUID | None,
        principal: str,
        facts: Mapping[str, str],
        subscription_id: int,
        is_leaving: bool,
        compression: int,
        data: bytes,
    ) -> Outcome:
        if instance_id is None or not self._may_be(instance_id, principal):
            return Outcome.INVALID
        client = self._client(instance_id, principal, facts)
        if client.is_leaving:
            return Outcome.INVALID
        client.is_leaving = is_leaving
        now_ms, asked_ms, pushed_ms = self._clock.monotonic_ms(), client.asked_ms, client.pushed_ms
        is_first = pushed_ms is None or (asked_ms is not None and asked_ms > pushed_ms)
        if not is_first and not is_leaving and now_ms - (pushed_ms or 0.0) < client.subscription.interval_ms:
            return Outcome.TOO_SOON
        client.pushed_ms = now_ms
        if subscription_id != client.subscription.subscription_id:
            client.may_ask_again = True
            return Outcome.UNKNOWN_SUBSCRIPTION
        if compression not in (0, *COMPRESSIONS):
            client.may_ask_again = True
            return Outcome.UNKNOWN_COMPRESSION
        if len(data) > MAX_BYTES:
            return Outcome.TOO_LARGE
        if not client.subscription.metrics:
            return Outcome.TAKEN  # Nobody wants any of it, and so nobody looks into it.
        try:
            async with self._turns:
                numbers = await asyncio.to_thread(_numbers, compression, data, client.subscription.metrics)
        except (CorruptBatch, MalformedRequest):
            return Outcome.UNREADABLE
        if self._clients.get(instance_id) is client:
            self._take(client, numbers)
        return Outcome.TAKEN

    def _may_be(self, instance_id: UUID, principal: str) -> bool:
        known = self._clients.get(instance_id)
        return instance_id not in _RESERVED and (known is None or known.principal == principal)

    def _client(self, instance_id: UUID, principal: str, facts: Mapping[str, str]) -> ClientState:
        self._look_at_subscriptions()
        self._forget_silent()
        now_ms = self._clock.monotonic_ms()
        client = self._clients.get(instance_id)
        if client is None:
            if len(self._clients) >= MAX_CLIENTS:
                whose = _more_than_half(self._clients_of, MAX_CLIENTS)
                self._forget(next(known for known in self._clients.values() if whose in (None, known.principal)))
            subscription = self._subscription_of(instance_id, facts)
            client = ClientState(instance_id, principal, facts, subscription, self._made_for, now_ms)
            self._clients[instance_id] = client
            self._clients_of[principal] += 1
        elif client.made_for is not self._made_for:
            client.made_for = self._made_for
            subscription = self._subscription_of(instance_id, client.facts)
            if subscription != client.subscription:
                # It may ask at once for what has changed.
                client.subscription, client.may_ask_again = subscription, True
        client.heard_ms = now_ms
        self._clients.move_to_end(instance_id)
        return client

    def _look_at_subscriptions(self) -> None:
        stored = self._configs.stored
        if self._made_for is stored:
            return
        self._made_for = stored
        found = []
        for name in self._configs.names(Kind.CLIENT_METRICS):
            try:
                found.append(ClientMetricsConfig.of(self._configs.overrides(Kind.CLIENT_METRICS, name)))
            except InvalidConfig:  # Of another version, say; who describes it is told.
                continue
        self._subscriptions = tuple(found)

    def _subscription_of(self, instance_id: UUID, facts: Mapping[str, str]) -> MetricsSubscription:
        known = {**facts, "client_instance_id": str(instance_id)}
        matching = [each for each in self._subscriptions if _matches(each, known)]
        prefixes = sorted({prefix for each in matching for prefix in each.metrics})
        metrics = (ALL,) if ALL in prefixes else tuple(prefixes)
        interval_ms = min((each.interval_ms for each in matching), default=DEFAULT_INTERVAL_MS)
        # An id of the subscription and its client: another client's would be refused.
        number = crc32(f"{instance_id} {interval_ms} {metrics}".encode()) & 0x7FFF_FFFF
        return MetricsSubscription(subscription_id=number, metrics=metrics, interval_ms=interval_ms)

    def _take(self, client: ClientState, numbers: Iterable[tuple[Key, Point]]) -> None:
        most = self._settings().http.tiered_metrics_max_series
        room, may_grow = most - self._series_of.total(), True
        for key, point in numbers:
            before = client.series.get(key)
            if before is None and room <= 0:
                # Looked for once: what gives no way to the first number gives none to the next thousand.
                if may_grow:
                    made = self._make_others_room(client, most)
                    room, may_grow = room + made, made > 0
                if room <= 0:
                    self.omitted += 1
                    continue
            value = point.value + (before.value if before is not None and point.is_delta else 0.0)
            if math.isfinite(value):
                room -= before is None
                self._series_of[client.principal] += before is None
                client.series[key] = Series(name=key[0], labels=key[1], is_counter=point.is_counter, value=value)

    def _forget_silent(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._looked_ms + _LOOK_INTERVAL_MS:
            return
        self._looked_ms = now_ms
        silent = [
            each
            for each in self._clients.values()
            if now_ms - each.heard_ms > max(_SHORTEST_LIFE_MS, 3.0 * each.subscription.interval_ms)
        ]
        for gone in silent:
            self._forget(gone)

    def _make_others_room(self, client: ClientState, most: int) -> int:
        """For how many numbers. Of the principal with more than half of all, the client goes that was heard of before
        its others."""
        whose = _more_than_half(self._series_of, most)
        if whose in (None, client.principal):
            return 0
        gone = next(known for known in self._clients.values() if known.principal == whose and known.series)
        self._forget(gone)
        return len(gone.series)

    def _forget(self, client: ClientState) -> None:
        del self._clients[client.instance_id]
        for counts, less in ((self._clients_of, 1), (self._series_of, len(client.series))):
            counts[client.principal] -= less
            if not counts[client.principal]:
                del counts[client.principal]


def _more_than_half(counts: Counter[str], most: int) -> str | None:
    return next((principal for principal, count in counts.items() if 2 * count > most), None)


def check_client_metrics(name: str, overrides: Mapping[str, str]) -> None:
    """Raises InvalidConfig for what cannot be a subscription, InvalidRequest for a name that none can have."""
    if not name or len(name) > MAX_NAME or "\0" in name:
        raise InvalidRequest(f"a subscription to clients' metrics has a name of 1 to {MAX_NAME} characters")
    for fact, pattern in ClientMetricsConfig.of(overrides).patterns:
        try:
            compiled(pattern)
        except InvalidRegularExpression as error:
            raise InvalidConfig(f"subscription {name[:200]}: match {fact}: {error}") from error


def _matches(subscription: ClientMetricsConfig, facts: Mapping[str, str]) -> bool:
    return all(compiled(pattern).fullmatch(facts.get(fact, "")) is not None for fact, pattern in subscription.patterns)


def _numbers(compression: int, data: bytes, wanted: tuple[str, ...]) -> list[tuple[Key, Point]]:
    """The pushed metrics that the subscription asks for, under the names that they are shown by."""
    points = decode_metrics(decompress(compression, data, max_bytes=MAX_BYTES) if compression else data)
    return [
        ((_shown_name(each.name), _shown_labels(each.attributes)), each)
        for each in points
        if (ALL in wanted or each.name.startswith(wanted))
        and sum(len(key) + len(value) for key, value in each.attributes) <= MAX_LABELS_CHARS
    ]


def _shown_name(name: str) -> str:
    return "kafka_client_" + _ODD.sub("_", name.removeprefix(_PREFIX))


def _shown_labels(attributes: Labels) -> Labels:
    """Each once, spelled as a label of Prometheus can be. A client cannot choose its identity."""
    found: dict[str, str] = {}
    for key, value in attributes:
        label = _ODD.sub("_", key).strip("_")
        if not label or label[0].isdigit():
            label = f"label_{label}"
        if label not in WHO:
            found[label] = value
    return tuple(sorted(found.items()))
