"""Limits on new connections: caps by address, by user and in all, and how fast connections may come.

Owns these counts. Must never touch a socket: the listener closes, holds or serves what this says.
"""

from collections.abc import Callable, Mapping

from tiered.config import BrokerSettings
from tiered.config.addresses import client_address
from tiered.config.limits import connections_by_address
from tiered.config.setting import INT_MAX
from tiered.rules.pacing.token_bucket import TokenBucketState
from tiered.rules.security.principal import ANONYMOUS, Principal
from tiered.runtime import Clock

RateOf = Callable[[str], TokenBucketState | None]
"""Of an address: the bucket of its connections, or None."""


class Admission:
    """The counts of all listeners of one broker."""

    def __init__(
        self,
        *,
        clock: Clock,
        settings: Callable[[], BrokerSettings],
        most_descriptors: Callable[[], int],
        rate_of: RateOf,
    ) -> None:
        self._clock = clock
        self._settings = settings
        self._most_descriptors = most_descriptors
        self._rate_of = rate_of
        self._by_host: dict[str, int] = {}
        self._by_user: dict[Principal, int] = {}
        self._override_texts: tuple[str, ...] = ()
        self._overrides: Mapping[str, int] = {}
        self._all: TokenBucketState | None = None

    # Caps

    def refusal(self, host: str, is_open: int) -> str | None:
        """Why one more from this address cannot be served beside so many; None when it can."""
        settings = self._settings()
        if is_open >= min(settings.limits.max_connections, self._most_descriptors()):
            return "max.connections or the limit of open files allows no more"
        if self._by_host.get(client_address(host), 0) >= self._most_from(settings, host):
            return "max.connections.per.ip or its overrides allow no more from there"
        return None

    def _most_from(self, settings: BrokerSettings, host: str) -> int:
        texts = settings.limits.max_connections_per_ip_overrides
        if texts is not self._override_texts:
            self._override_texts, self._overrides = texts, connections_by_address(texts)
        return self._overrides.get(client_address(host), settings.limits.max_connections_per_ip)

    def enter(self, host: str) -> None:
        address = client_address(host)
        self._by_host[address] = self._by_host.get(address, 0) + 1

    def leave(self, host: str) -> None:
        address = client_address(host)
        left = self._by_host[address] - 1
        if left:
            self._by_host[address] = left
        else:
            del self._by_host[address]

    def identify(self, before: Principal | None, after: Principal | None) -> bool:
        """A connection is somebody else's now, or nobody's. False when this user has more than may be."""
        if before == after:
            return True
        if before is not None and before != ANONYMOUS:
            left = self._by_user[before] - 1
            if left:
                self._by_user[before] = left
            else:
                del self._by_user[before]
        if after is None or after == ANONYMOUS:
            return True
        count = self._by_user[after] = self._by_user.get(after, 0) + 1
        return count <= self._settings().limits.tiered_max_connections_per_user

    # Rates

    def rest_ms(self) -> float:
        """How long nobody is to be accepted, by `max.connection.creation.rate`; they wait in the system's backlog."""
        bucket = self._of_all()
        return 0.0 if bucket is None else bucket.rest_ms(self._clock.monotonic_ms())

    def accepted(self, host: str) -> float:
        """Counts one more; how long it must rest, unserved, by the quota of its address (KIP-612)."""
        now_ms = self._clock.monotonic_ms()
        bucket = self._of_all()
        if bucket is not None:
            bucket.take(1.0, now_ms)
        of_address = self._rate_of(client_address(host))
        return 0.0 if of_address is None else of_address.take(1.0, now_ms)

    def _of_all(self) -> TokenBucketState | None:
        settings = self._settings()
        rate = settings.limits.max_connection_creation_rate
        if rate == INT_MAX:
            self._all = None
        elif self._all is None:
            window_ms = settings.limits.quota_window_num * settings.limits.quota_window_size_seconds * 1000.0
            self._all = TokenBucketState(rate, window_ms=window_ms, now_ms=self._clock.monotonic_ms())
        elif self._all.rate_per_s != rate:
            self._all.change_rate(rate, self._clock.monotonic_ms())
        return self._all
