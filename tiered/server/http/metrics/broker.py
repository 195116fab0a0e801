"""`/metrics`: the broker's numbers in Prometheus' text format.

Owns the list of metrics: counters, which describe themselves, and metrics read off the broker's parts, each described
beside the part that it reads; docs/metrics.md is made of these descriptions. Reads counters, never resets one. Answers
while SQL and the object store are away. Labels whose values people choose (topics, groups) are bounded by
`tiered.metrics.max.series`; series left out for it are counted.
"""

from collections.abc import Iterator
from itertools import chain

from aiohttp import web

from tiered import __version__
from tiered.broker.broker import Broker
from tiered.broker.host.process_facts import ProcessFacts, read_process_facts
from tiered.broker.people.client_metrics import WHO, Outcome, Series
from tiered.errors import StoreTrouble
from tiered.metrics import DESCRIBED, CountersState, Metric
from tiered.read_replica.replica import ReadReplica
from tiered.rules.security.quotas import QuotaKey
from tiered.server.http.door.keys import BROKER
from tiered.server.http.door.limits import REQUESTS, RequestsState
from tiered.server.http.messages.route import Answer, route, tagged
from tiered.server.http.messages.schema import text
from tiered.server.http.metrics.by_name import BY_NAME, CHOSEN, families_by_name
from tiered.server.http.metrics.cluster_view import VIEWS, feed_lag
from tiered.server.http.metrics.prometheus import (
    CONTENT_TYPE,
    Family,
    Labels,
    counter,
    exposition_of,
    families_of,
    gauge,
    histogram,
    renamed,
)

_COUNTED_AT_DOORS = [
    DESCRIBED[each]
    for each in (
        *("connections_open", "connections_opened", "connections_refused", "logins", "requests", "request_latency"),
        *("http_requests", "http_latency", "http_forwarded", "group_rebalances", "group_members_expired"),
    )
]
_THROTTLED = (
    counter(
        "tiered_throttled_total",
        "Answers that told a client to rest, and connections that had to, by quota.",
        lambda counters: {quota.value: counters.throttles.get(quota, 0) for quota in QuotaKey},
        "quota",
    ),
    counter(
        "tiered_throttle_seconds_total",
        "How long they had to rest in all, by quota.",
        lambda counters: {quota.value: counters.throttled_ms.get(quota, 0.0) / 1000.0 for quota in QuotaKey},
        "quota",
    ),
)
_OF_REQUESTS = (
    gauge("tiered_http_requests_in_progress", "HTTP requests being answered now.", "bounded"),
    gauge("tiered_http_streams", "HTTP answers and requests without an end that are open now.", "streams"),
)
_RENAMED_COUNTERS = tuple(
    renamed(old_name, DESCRIBED[counter_name], factor=1000)
    for old_name, counter_name in (
        ("tiered_clock_ahead_ms", "clock_ahead_ms"),
        ("tiered_retention_clock_ahead_ms", "retention_clock_ahead_ms"),
        ("tiered_event_loop_max_stall_ms", "event_loop_max_stall_ms"),
        ("tiered_garbage_max_pause_ms", "garbage_max_pause_ms"),
    )
)
_LED = gauge("tiered_led_partitions", "Partitions led by this broker.", "led_here")
_BACKLOG_AGE = gauge(
    "tiered_upload_backlog_age_seconds",
    "Age of the oldest segment that waits for its upload.",
    lambda totals: totals.upload_backlog_age_ms / 1000,
)
_OF_CLUSTER = (
    _LED,
    renamed("tiered_leader_count", _LED),
    gauge(
        "tiered_under_replicated_partitions",
        "Partitions led here with a replica that is not in sync.",
        "under_replicated_here",
    ),
    gauge(
        "tiered_under_min_isr_partitions",
        "Partitions led here with fewer in sync than min.insync.replicas.",
        "under_min_isr_here",
    ),
    gauge(
        "tiered_replicas_not_in_sync",
        "Replicas elsewhere, of partitions led here, that are not in sync.",
        "replicas_not_in_sync_here",
    ),
    gauge("tiered_offline_partitions", "Partitions of the cluster without a leader.", "offline"),
    gauge("tiered_reassigning_partitions", "Partitions of the cluster that are moving.", "reassigning"),
    gauge("tiered_live_brokers", "Brokers in service.", lambda view: len(view.live)),
    gauge("tiered_fenced_brokers", "Registered brokers that are out of service.", lambda view: len(view.fenced)),
    gauge("tiered_partitions", "Partitions of the cluster.", "partitions"),
)
_OF_CACHE = (
    counter("tiered_cache_hits_total", "Cold chunks found in the cache.", "hits"),
    counter("tiered_cache_misses_total", "Cold chunks loaded from the store.", "loads"),
    counter("tiered_cache_hit_bytes_total", "Bytes of chunks found in the cache.", "hit_bytes"),
    counter("tiered_cache_loaded_bytes_total", "Bytes of chunks loaded from the store.", "loaded_bytes"),
    counter("tiered_cache_evictions_total", "Chunks that made room for others.", "evictions"),
    counter("tiered_cache_load_failures_total", "Chunks that could not be loaded.", "failures"),
    gauge("tiered_cache_bytes", "Chunks at hand: the disk of the cache, or of a folder served in place.", "held_bytes"),
)
_OF_STORE = (
    histogram(
        "tiered_store_seconds",
        "Time of one operation of the object store, its retries included.",
        lambda store: store.times.latency(),
        "operation",
    ),
    counter(
        "tiered_store_errors_total",
        "Operations that failed because the object store was away, failed or refused.",
        lambda store: store.times.failures(),
        "operation",
    ),
    counter("tiered_store_retries_total", "Requests to the store that were repeated.", "retries"),
    counter("tiered_store_slow_downs_total", "Times the store asked to slow down.", "slow_downs"),
    counter("tiered_store_timeouts_total", "Requests that the store did not answer.", "timeouts"),
    gauge("tiered_store_requests_allowed", "Requests that may run at once now.", "allowed_requests"),
    counter(
        "tiered_store_requests_total",
        "Requests to the store, repeated ones included, by the line of S3's price list.",
        "requests",
        "class",
    ),
)
_STORE_TROUBLE = gauge(
    "tiered_store_trouble",
    "1 for the kind of trouble that the newest operation of the object store met, or a look at it since.",
    lambda service: {kind.value: int(kind is service.store_trouble) for kind in StoreTrouble},
    "kind",
)
_OF_BROKER = (
    counter(
        "tiered_authorization_denied_total", "Requests, or parts of them, without the right.", "access.denied_total"
    ),
    gauge(
        "tiered_is_controller",
        "1 while this broker is the controller.",
        lambda broker: broker.image.controller_id == broker.broker_id,
    ),
    gauge("tiered_feed_lag", "Changes of the cluster that are not applied here yet.", feed_lag),
    gauge("tiered_uploads_allowed", "Uploads that may run at once now.", "upload_pipeline.allowed"),
    gauge("tiered_cold_loads_allowed", "Loads from the store that may run at once now.", "cold_loads_allowed"),
    gauge(
        "tiered_compaction_max_dirty_ratio",
        "The largest share of a compacted topic's log that was not compacted yet, at the last look.",
        "compaction.max_dirty_ratio",
    ),
    gauge(
        "tiered_reconcile_findings",
        "What reconciling and scrubbing found and have not seen mended, by kind.",
        lambda broker: broker.reconciler.findings.by_kind(),
        "kind",
    ),
    counter(
        "tiered_reconcile_turns_total",
        "Times that all objects of partitions led here were looked for.",
        "reconciler.bucket.turns",
    ),
    gauge(
        "tiered_scrub_turn_ended_seconds",
        "When all chunks had been checked last, since 1970; 0 before that.",
        lambda broker: broker.reconciler.scrub.turn_ended_at_ms // 1000,
    ),
    histogram(
        "tiered_sql_seconds",
        "Time of one SQL transaction, its wait for a connection included.",
        lambda broker: broker.database.times.latency(),
        "operation",
    ),
    counter(
        "tiered_sql_errors_total",
        "SQL transactions that failed because the database was away or late.",
        lambda broker: broker.database.times.failures(),
        "operation",
    ),
    gauge("tiered_topics", "Topics.", lambda broker: len(broker.topics)),
    gauge(
        "tiered_store_foreign",
        "1 while the object store belongs to another cluster: nothing is uploaded or deleted.",
        lambda broker: int(bool(broker.store.other_cluster_id)),
    ),
    gauge("tiered_disk_full", "1 while writes are refused to keep a reserve.", "reserve.is_low"),
)
_OF_TRANSACTIONS = (
    gauge(
        "tiered_open_transactions",
        "Transactions coordinated here that are open or being ended.",
        "open_count",
    ),
    gauge(
        "tiered_undelivered_markers",
        "Ends of decided transactions that partitions have not been told yet.",
        "undelivered_count",
    ),
)
_OF_PARTITIONS = (
    gauge("tiered_replicas", "Replicas that this broker holds.", "replicas"),
    gauge("tiered_replica_lag", "Records that the slowest follower of a partition led here lacks.", "replica_lag"),
    gauge(
        "tiered_failed_partitions",
        "Replicas here whose log cannot be opened, or takes no more writes.",
        "unusable",
    ),
    gauge("tiered_local_bytes", "Bytes of the local tier.", "local_bytes"),
    gauge(
        "tiered_upload_backlog_bytes", "Bytes of closed segments that wait for their upload.", "upload_backlog_bytes"
    ),
    _BACKLOG_AGE,
    renamed("tiered_upload_backlog_age_ms", _BACKLOG_AGE, factor=1000),
    gauge(
        "tiered_disk_only_age_seconds",
        "Age of the oldest record led here that is on brokers' disks alone: the store does not have it yet.",
        lambda totals: totals.disk_only_age_ms / 1000.0,
    ),
    gauge(
        "tiered_held_back_partitions",
        "Partitions led here whose last stable offset lies below the high watermark.",
        "unstable_partitions",
    ),
    gauge(
        "tiered_max_held_back_records",
        "Records between the two where that is most: read_committed readers wait for them.",
        "max_unstable_records",
    ),
)
_OF_DISK = (
    gauge("tiered_disk_free_bytes", "Free bytes of the data folder's disk.", "disk_free_bytes"),
    gauge("tiered_disk_total_bytes", "Size of the data folder's disk.", "disk_total_bytes"),
)
_WHAT_RUNS = (
    gauge(
        "tiered_build_info",
        "1; the labels say what runs.",
        lambda service: {(__version__, service.broker_id, service.cluster_id): 1},
        *("version", "broker", "cluster_id"),
    ),
    gauge("tiered_serving", "1 while the broker takes requests.", "serving"),
    gauge(
        "process_start_time_seconds",
        "When the process began, since 1970.",
        lambda service: (service.clock.now_ms() - service.clock.monotonic_ms() + service.started_monotonic_ms) // 1000,
    ),
)
_OF_PROCESS = (
    counter("process_cpu_seconds_total", "CPU time of the process.", "cpu_s"),
    gauge("process_resident_memory_bytes", "Memory that the process holds.", "resident_bytes"),
    gauge("process_virtual_memory_bytes", "Address space of the process.", "virtual_bytes"),
    gauge("process_open_fds", "Open file descriptors.", "open_fds"),
    gauge("process_max_fds", "File descriptors that the process may open.", "max_fds"),
    gauge("process_threads", "Threads of the process.", "threads"),
)


_OF_CLIENTS = (
    gauge(
        "tiered_telemetry_clients",
        "Clients that push metrics here, or asked if they should.",
        lambda pushed: len(pushed.clients()),
    ),
    counter(
        "tiered_telemetry_pushes_total",
        "Requests of clients with their metrics, by what became of them.",
        lambda pushed: {each.name.lower(): pushed.outcomes[each] for each in Outcome},
        "outcome",
    ),
    counter(
        "tiered_telemetry_omitted_total",
        "Numbers of clients that were not kept because of tiered.metrics.max.series.",
        "omitted",
    ),
)
METRICS: tuple[Metric, ...] = (
    *(*DESCRIBED.values(), *_RENAMED_COUNTERS, *_THROTTLED, *_OF_REQUESTS, *_OF_CLUSTER, *_OF_CACHE, *_OF_STORE),
    *(_STORE_TROUBLE, *_OF_BROKER, *_OF_PARTITIONS, *_OF_TRANSACTIONS),
    *(*_OF_DISK, *_WHAT_RUNS, *_OF_PROCESS, *BY_NAME, *_OF_CLIENTS),
)
"""All that a broker tells of itself."""


async def _metrics(request: web.Request) -> web.Response:
    """The broker's numbers in Prometheus' text format."""
    broker = request.app[BROKER]
    facts = await broker.disk.run(read_process_facts, broker.data.root)
    totals = await broker.partition_totals()
    counted = [each for each in DESCRIBED.values() if each not in _COUNTED_AT_DOORS]
    families = chain(
        families_of((*counted, *_RENAMED_COUNTERS), broker.counters),
        families_at_doors(broker.counters, request.app[REQUESTS]),
        families_of(_OF_CLUSTER, await request.app[VIEWS].of(broker)),
        families_of(_OF_BROKER, broker),
        families_of(_OF_PARTITIONS, totals),
        families_of(_OF_TRANSACTIONS, broker.transactions),
        families_of(_OF_DISK, facts),
        families_of_any(broker, facts),
        await families_by_name(broker, request.app[CHOSEN]),
        families_of(_OF_CLIENTS, broker.client_metrics),
        _pushed_families(broker),
    )
    return web.Response(body=await exposition_of(families), headers={"Content-Type": CONTENT_TYPE})


def families_at_doors(counters: CountersState, requests: RequestsState) -> Iterator[Family]:
    """Metrics of both doors, of a broker as of a read replica."""
    yield from families_of((*_COUNTED_AT_DOORS, *_THROTTLED), counters)
    yield from families_of(_OF_REQUESTS, requests)


def families_of_any(service: Broker | ReadReplica, facts: ProcessFacts) -> Iterator[Family]:
    """The cache of cold chunks, the object store and the process, of a broker as of a read replica."""
    yield from families_of(_OF_CACHE, service.cold_reader.cache_state)
    yield from families_of(_OF_STORE, service.store)
    yield from families_of((_STORE_TROUBLE,), service)
    yield from families_of(_WHAT_RUNS, service)
    yield from families_of(_OF_PROCESS, facts)


def _pushed_families(broker: Broker) -> Iterator[Family]:
    """Metrics that clients have pushed here (KIP-714): a family for each name; each number has its client's labels."""
    found: dict[str, list[tuple[Labels, Series]]] = {}
    for client in broker.client_metrics.clients():
        facts = client.facts
        who = dict(zip(WHO, (client.instance_id, facts["client_id"], facts["client_software_name"]), strict=True))
        for series in client.series.values():
            found.setdefault(series.name, []).append(({**who, **dict(series.labels)}, series))
    for name, its in sorted(found.items()):
        yield Family(
            name=name,
            kind="counter" if all(series.is_counter for _, series in its) else "gauge",
            documentation="Pushed by clients.",
            samples=[(labels, series.value) for labels, series in its],
        )


ROUTES = tagged(
    "service",
    route(
        "GET",
        "/metrics",
        _metrics,
        {200: Answer(description="As docs/metrics.md lists them.", schema=text(), content_type="text/plain")},
    ),
)
