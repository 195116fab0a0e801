"""Each client's use of its quotas on this broker, and how long it must rest.

Owns the buckets, and the quotas as the metadata store has them. Each broker counts for itself, as in Kafka. Must never
answer or hold up a client: the door does. While nobody has a quota of some kind, asking costs one look at a flag; else
one look-up. The memory has a bound: clients that were silent longest are forgotten, with what they owe.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tiered.broker.view.changes import Changes
from tiered.broker.view.feed import ChangeFeed
from tiered.config import BrokerSettings
from tiered.errors import InvalidRequest
from tiered.meta import security
from tiered.meta.security import ClientQuotaRow
from tiered.meta.security_tables import NAME_CHARACTERS
from tiered.rules.pacing.token_bucket import TokenBucketState
from tiered.rules.security.quotas import QuotaChange, QuotaEntity, QuotaFilter, QuotaKey, QuotaTable, check_value
from tiered.runtime import Clock

# Names of clients are chosen by clients.
MAX_REMEMBERED = 10_000
MAX_CHANGES = 10_000
_OF_CLIENTS = (
    QuotaKey.PRODUCER_BYTE_RATE,
    QuotaKey.CONSUMER_BYTE_RATE,
    QuotaKey.REQUEST_PERCENTAGE,
    QuotaKey.CONTROLLER_MUTATION_RATE,
)
BucketKey = tuple[QuotaKey, str | None, str | None]


@dataclass(frozen=True, slots=True)
class Buckets:
    """The buckets of one client, each perhaps shared with others; None where it has no quota."""

    produce: TokenBucketState | None
    fetch: TokenBucketState | None
    request: TokenBucketState | None
    mutation: TokenBucketState | None


class ClientQuotas:
    """One broker's quotas. `take` brings them; `of_client` and `of_address` give those that count for a client."""

    def __init__(self, clock: Clock, settings: Callable[[], BrokerSettings]) -> None:
        self._clock = clock
        self._settings = settings
        self._rows: tuple[ClientQuotaRow, ...] = ()
        self._table = QuotaTable()
        self._clients: dict[tuple[str, str], Buckets] = {}
        self._buckets: dict[BucketKey, TokenBucketState] = {}
        self.limits_produce = False
        self.limits_fetch = False
        self.limits_requests = False
        self.limits_mutations = False
        self.limits_addresses = False

    # What counts

    def take(self, rows: tuple[ClientQuotaRow, ...]) -> None:
        """Takes new quotas. Use is kept for clients whose quota only changed its value."""
        if rows == self._rows:
            return
        self._rows = rows
        self._table = QuotaTable((_entity(row), row.quota, row.value) for row in rows)
        self._clients.clear()
        self.limits_produce = self._table.limits(QuotaKey.PRODUCER_BYTE_RATE)
        self.limits_fetch = self._table.limits(QuotaKey.CONSUMER_BYTE_RATE)
        self.limits_requests = self._table.limits(QuotaKey.REQUEST_PERCENTAGE)
        self.limits_mutations = self._table.limits(QuotaKey.CONTROLLER_MUTATION_RATE)
        self.limits_addresses = self._table.limits(QuotaKey.CONNECTION_CREATION_RATE)

    def of_client(self, user: str, client_id: str) -> Buckets:
        """The buckets of this client."""
        key = (user, client_id)
        found = self._clients.pop(key, None)
        if found is None:
            found = Buckets(*(self._of_client(quota, user, client_id) for quota in _OF_CLIENTS))
            if len(self._clients) >= MAX_REMEMBERED:
                del self._clients[next(iter(self._clients))]
        self._clients[key] = found  # The last one asked for stands last.
        return found

    def of_address(self, ip: str) -> TokenBucketState | None:
        """The bucket of connections from there; None when they may come as they like."""
        rate = self._table.of_address(ip)
        if rate is None:
            return None
        settings = self._settings()
        window_ms = settings.limits.quota_window_num * settings.limits.quota_window_size_seconds * 1000.0
        return self._bucket((QuotaKey.CONNECTION_CREATION_RATE, ip, None), rate, window_ms)

    def _of_client(self, quota: QuotaKey, user: str, client_id: str) -> TokenBucketState | None:
        effective = self._table.of_client(quota, user, client_id)
        if effective is None:
            return None
        settings = self._settings()
        rate = effective.value
        windows, size_s = settings.limits.quota_window_num, settings.limits.quota_window_size_seconds
        if quota is QuotaKey.REQUEST_PERCENTAGE:
            rate *= 10.0  # Of the one event loop: milliseconds a second.
        elif quota is QuotaKey.CONTROLLER_MUTATION_RATE:
            windows, size_s = (
                settings.limits.controller_quota_window_num,
                settings.limits.controller_quota_window_size_seconds,
            )
        return self._bucket((quota, effective.user, effective.client_id), rate, windows * size_s * 1000.0)

    def _bucket(self, key: BucketKey, rate: float, window_ms: float) -> TokenBucketState:
        now_ms = self._clock.monotonic_ms()
        bucket = self._buckets.pop(key, None)
        if bucket is None:
            bucket = TokenBucketState(rate, window_ms=window_ms, now_ms=now_ms)
            if len(self._buckets) >= MAX_REMEMBERED:
                del self._buckets[next(iter(self._buckets))]
        elif bucket.rate_per_s != rate:
            bucket.change_rate(rate, now_ms)
        self._buckets[key] = bucket
        return bucket

    # What people ask for

    def describe(self, wanted: QuotaFilter) -> Mapping[QuotaEntity, Mapping[str, float]]:
        """The quotas of each entity that is meant."""
        found: dict[QuotaEntity, dict[str, float]] = {}
        for row in self._rows:
            entity = _entity(row)
            if wanted.matches(entity):
                found.setdefault(entity, {})[row.quota] = row.value
        return found

    def check(self, entity: QuotaEntity, values: Mapping[str, float | None]) -> None:
        """Raises InvalidRequest when these quotas cannot be those of this entity; None takes one away."""
        for name, value in values.items():
            # A stored quota can be taken away, whatever its name.
            check_value(entity, name, 1.0 if value is None else value)
        for part in (entity.user, entity.client_id, entity.ip):
            if part is not None and (len(part) > NAME_CHARACTERS or "\0" in part):
                raise InvalidRequest(f"a name has at most {NAME_CHARACTERS} characters, and none of them is 0")


async def alter(turn: Changes, feed: ChangeFeed, changes: Sequence[QuotaChange]) -> None:
    """Commits all of them, and returns when they count here. Raises InvalidRequest, MetadataUnavailable."""
    if len(changes) > MAX_CHANGES:
        raise InvalidRequest(f"{len(changes)} changes of quotas in one request; {MAX_CHANGES} are possible")
    await turn.run(lambda: feed.commit(lambda conn: security.alter_quotas(conn, changes)))


def _entity(row: ClientQuotaRow) -> QuotaEntity:
    return QuotaEntity(user=row.user_name, client_id=row.client_id, ip=row.ip)
