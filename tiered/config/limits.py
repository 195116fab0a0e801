"""How many of anything may come from outside, how quotas are measured, and how long the HTTP door waits.

Owns the names, defaults and bounds. Never decides anything.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tiered.config.addresses import named_address
from tiered.config.setting import INT_MAX, ConfigType, setting
from tiered.errors import InvalidConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitSettings:
    """Connections, requests, quotas and caps, under Kafka's names where it has them: docs/security-limits.md."""

    # fmt: off
    connections_max_idle_ms: int = setting(
        ConfigType.LONG, 600_000, "A connection without requests is closed after this long.",
    )
    controller_quota_window_num: int = setting(
        ConfigType.INT, 11, "Windows that changes of topics are measured over; what fits into all may come at once.",
        minimum=1, maximum=1000, read_only=True,
    )
    controller_quota_window_size_seconds: int = setting(
        ConfigType.INT, 1, "The length of such a window.", minimum=1, maximum=3600, read_only=True,
    )
    fetch_max_bytes: int = setting(
        ConfigType.INT, 55 << 20, "The most bytes that one Fetch is answered with.", minimum=1024,
    )
    max_connection_creation_rate: int = setting(
        ConfigType.INT, INT_MAX, "Connections a second that are accepted; more of them wait.", minimum=1,
    )
    max_connections: int = setting(ConfigType.INT, INT_MAX, "Connections in all.", minimum=0)
    max_connections_per_ip: int = setting(ConfigType.INT, INT_MAX, "Connections from one address.", minimum=0)
    max_connections_per_ip_overrides: tuple[str, ...] = setting(
        ConfigType.LIST, (), "Addresses with a max.connections.per.ip of their own, as ADDRESS:NUMBER.",
    )
    num_io_threads: int = setting(
        ConfigType.INT, 8, "Threads that wait for the disk.", minimum=1, maximum=256,
    )
    queued_max_request_bytes: int = setting(
        ConfigType.LONG, 512 << 20,
        "Bytes of requests in memory before connections are no longer read; -1 is no limit, Kafka's default.",
        minimum=-1, read_only=True,
    )
    quota_window_num: int = setting(
        ConfigType.INT, 11, "Windows that quotas are measured over: what fits into all of them may come at once.",
        minimum=1, maximum=1000, read_only=True,
    )
    quota_window_size_seconds: int = setting(
        ConfigType.INT, 1, "The length of such a window. Nobody is throttled for longer than all of them.",
        minimum=1, maximum=3600, read_only=True,
    )
    request_timeout_ms: int = setting(
        ConfigType.INT, 30_000, "How long a record that came over HTTP waits for all replicas in sync.", minimum=1,
    )
    socket_request_max_bytes: int = setting(
        ConfigType.INT, 100 << 20, "The largest request that is read.", minimum=1024, read_only=True,
    )
    tiered_idle_poll_us: int = setting(
        ConfigType.INT, 0,
        "How long the broker's thread looks for the next request before it sleeps. Answers come sooner, for a core "
        "that is busy as long as there is traffic; 0 is off.",
        minimum=0, maximum=1_000_000, read_only=True,
    )
    tiered_max_connections_per_user: int = setting(
        ConfigType.INT, INT_MAX, "Connections of one user who has authenticated.", minimum=1,
    )
    tiered_max_partitions: int = setting(
        ConfigType.INT, 50_000, "Partitions in all; no topic is created, and none grows, beyond them.", minimum=1,
    )
    tiered_max_producers: int = setting(
        ConfigType.INT, 500_000,
        "Idempotent producers that are remembered, of all partitions; those go first that were silent longest.",
        minimum=1,
    )
    tiered_max_topics: int = setting(
        ConfigType.INT, 50_000, "Topics of the cluster; no more are created beyond them.", minimum=1,
    )
    tiered_request_max_bytes: int = setting(
        ConfigType.INT, 8 << 20, "The largest request but Produce, which socket.request.max.bytes bounds.",
        minimum=1024, read_only=True,
    )
    tiered_request_receive_timeout_ms: int = setting(
        ConfigType.LONG, 60_000,
        "A request must have arrived within this long, and a second more for every 16 KiB of it.",
        minimum=100, read_only=True,
    )
    # fmt: on

    def __post_init__(self) -> None:
        connections_by_address(self.max_connections_per_ip_overrides)


def connections_by_address(texts: Sequence[str]) -> Mapping[str, int]:
    """The limits in `max.connections.per.ip.overrides`. Raises InvalidConfig."""
    found: dict[str, int] = {}
    for text in texts:
        host, _, number = text.strip().rpartition(":")
        try:
            host = named_address(host.strip("[]"))
        except ValueError:
            host = ""
        if not host or not (number.isascii() and number.isdigit()) or int(number) > INT_MAX:
            raise InvalidConfig(
                f"max.connections.per.ip.overrides: {text!r} is no ADDRESS:NUMBER such as 127.0.0.1:100 or [::1]:5"
            )
        found[host] = int(number)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """Limits of HTTP clients, and settings of cost and lag."""

    # fmt: off
    tiered_http_allowed_hosts: tuple[str, ...] = setting(
        ConfigType.LIST, (), "Names besides the advertised one that browsers may reach the HTTP door by.",
        gives_rights=True,
    )
    tiered_http_max_connections: int = setting(ConfigType.INT, 500, "HTTP connections in all.", minimum=1)
    tiered_http_max_requests: int = setting(
        ConfigType.INT, 64, "HTTP requests in progress; the next one is answered with 429.", minimum=1,
    )
    tiered_http_max_searches: int = setting(
        ConfigType.INT, 4, "Searches through records that may run at once, one of a user; 0 allows none.", minimum=0,
    )
    tiered_http_max_streams: int = setting(
        ConfigType.INT, 100, "HTTP answers without an end (tails) that may be open.", minimum=0,
    )
    tiered_http_request_timeout_ms: int = setting(
        ConfigType.INT, 30_000, "An HTTP request must have arrived, and its answer be taken, within this long.",
        minimum=100,
    )
    tiered_lag_sample_interval_ms: int = setting(
        ConfigType.INT, 5000, "How often every group's lag is noted for its history of 1440 samples.",
        minimum=100, maximum=3_600_000, read_only=True,
    )
    tiered_tail_heartbeat_interval_ms: int = setting(
        ConfigType.INT, 15_000, "A tail over HTTP that has nothing to tell shows so often that it lives.", minimum=100,
    )
    tiered_tail_stall_timeout_ms: int = setting(
        ConfigType.INT, 30_000, "A listener that does not read its tail for this long is cut off.", minimum=100,
    )
    tiered_price_cold_usd_per_gib_month: float = setting(
        ConfigType.DOUBLE, 0.023, "What the object store costs, in USD for a GiB and month.", minimum=0, maximum=1e9,
    )
    tiered_price_local_usd_per_gib_month: float = setting(
        ConfigType.DOUBLE, 0.08, "What the brokers' disks cost, in USD for a GiB and month.", minimum=0, maximum=1e9,
    )
    tiered_price_upload_usd_per_1000: float = setting(
        ConfigType.DOUBLE, 0.005, "What 1000 PUT requests to the store cost, in USD.", minimum=0, maximum=1e9,
    )
    tiered_metrics_max_series: int = setting(
        ConfigType.INT, 1000, "Topics, and partitions of groups, that /metrics has lines of their own for.", minimum=0,
    )
    # fmt: on
