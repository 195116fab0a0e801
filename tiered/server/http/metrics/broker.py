"""The metrics of a broker: those that its counters describe, and those that are read off its parts.

Reads counters, never resets one. Labels whose values people choose (topics, groups) are bounded by
`tiered.metrics.max.series`; what is left out for it is counted.
"""

from collections.abc import Iterable, Iterator

from tiered import __version__
from tiered.broker.broker import Broker
from tiered.broker.host.process_facts import ProcessFacts
from tiered.broker.partitions.partition import Partition
from tiered.broker.partitions.topics import Topic
from tiered.broker.people.lag_history import GroupLag
from tiered.metrics import DESCRIBED, CallTimes, CountersState
from tiered.read_replica.replica import ReadReplica
from tiered.rules.security.quotas import QuotaKey
from tiered.server.http.door.limits import RequestsState
from tiered.server.http.metrics.cluster_view import ClusterView, feed_lag, replica_lag
from tiered.server.http.metrics.prometheus import Family, Kind, counter, gauge

OF_REQUESTS = (
    *("connections_open", "connections_opened", "connections_refused", "logins", "requests", "request_latency"),
    *("http_requests", "http_latency", "http_forwarded", "group_rebalances", "group_members_expired"),
)


def families(broker: Broker, view: ClusterView, facts: ProcessFacts, requests: RequestsState) -> Iterator[Family]:
    """Everything that a broker tells of itself."""
    yield from counted(broker.counters, *(each for each in DESCRIBED if each not in OF_REQUESTS))
    yield from request_families(broker.counters, requests)
    yield from _replication(broker, view)
    yield from _tiers(broker)
    yield from _reconcile(broker)
    yield from _dependencies(broker)
    yield from _sizes(broker, view, facts)
    yield from process_families(broker, facts)
    yield from _by_name(broker)


def counted(counters: CountersState, *names: str) -> Iterator[Family]:
    """These fields, as they describe themselves."""
    for each in names:
        metric, value = DESCRIBED[each], getattr(counters, each)
        by_labels = sorted(value.items()) if metric.labels else [((), value)]
        values = [(dict(zip(metric.labels, _as_tuple(key), strict=True)), one) for key, one in by_labels]
        if metric.name.endswith("_seconds"):
            yield Family(name=metric.name, kind="histogram", documentation=metric.documentation, histograms=values)
        else:
            kind: Kind = "counter" if metric.name.endswith("_total") else "gauge"
            yield Family(name=metric.name, kind=kind, documentation=metric.documentation, samples=values)


def _as_tuple(key: object) -> tuple[object, ...]:
    return key if isinstance(key, tuple) else (key,)


def request_families(counters: CountersState, requests: RequestsState) -> Iterator[Family]:
    """What comes through both doors, of a broker as of a read replica."""
    yield from counted(counters, *OF_REQUESTS)
    yield Family(
        name="tiered_throttled_total",
        kind="counter",
        documentation="Answers that told a client to rest, and connections that had to, by quota.",
        samples=[({"quota": quota.value}, counters.throttles.get(quota, 0)) for quota in QuotaKey],
    )
    yield Family(
        name="tiered_throttle_seconds_total",
        kind="counter",
        documentation="How long they had to rest in all, by quota.",
        samples=[({"quota": quota.value}, counters.throttled_ms.get(quota, 0.0) / 1000.0) for quota in QuotaKey],
    )
    yield gauge("tiered_http_requests_in_progress", "HTTP requests being answered now.", requests.bounded)
    yield gauge("tiered_http_streams", "HTTP answers and requests without an end that are open now.", requests.streams)


def _replication(broker: Broker, view: ClusterView) -> Iterator[Family]:
    me = broker.broker_id
    denied = broker.access.denied_total
    yield counter("tiered_authorization_denied_total", "Requests, or parts of them, without the right.", denied)
    yield gauge("tiered_leader_count", "Partitions led by this broker.", view.leaders.get(me, 0))
    yield gauge(
        "tiered_under_replicated_partitions",
        "Partitions led here with a replica that is not in sync.",
        view.under_replicated_here,
    )
    yield gauge(
        "tiered_under_min_isr_partitions",
        "Partitions led here with fewer in sync than min.insync.replicas.",
        view.under_min_isr_here,
    )
    yield gauge(
        "tiered_replicas_not_in_sync",
        "Replicas elsewhere, of partitions led here, that are not in sync.",
        view.replicas_not_in_sync_here,
    )
    yield gauge("tiered_offline_partitions", "Partitions of the cluster without a leader.", view.offline)
    yield gauge("tiered_reassigning_partitions", "Partitions of the cluster that are moving.", view.reassigning)
    yield gauge("tiered_live_brokers", "Brokers in service.", len(view.live))
    yield gauge("tiered_fenced_brokers", "Registered brokers that are out of service.", len(view.fenced))
    yield gauge("tiered_is_controller", "1 while this broker is the controller.", broker.image.controller_id == me)
    yield gauge(
        "tiered_replica_lag", "Records that the slowest follower of a partition led here lacks.", replica_lag(broker)
    )
    yield gauge("tiered_feed_lag", "Changes of the cluster that are not applied here yet.", feed_lag(broker))


def _tiers(broker: Broker) -> Iterator[Family]:
    backlog_bytes, backlog_age_ms = broker.upload_backlog()
    yield gauge("tiered_upload_backlog_bytes", "Bytes of closed segments that wait for their upload.", backlog_bytes)
    yield gauge("tiered_upload_backlog_age_ms", "Age of the oldest segment that waits for its upload.", backlog_age_ms)
    yield gauge("tiered_uploads_allowed", "Uploads that may run at once now.", broker.upload_pipeline.allowed)
    yield from cache_families(broker)
    yield gauge(
        "tiered_cold_loads_allowed", "Loads from the store that may run at once now.", broker.cold_loads_allowed
    )
    yield gauge(
        "tiered_compaction_max_dirty_ratio",
        "The largest share of a compacted topic's log that was not compacted yet, at the last look.",
        broker.compaction.max_dirty_ratio,
    )


def cache_families(broker: Broker | ReadReplica) -> Iterator[Family]:
    """What the cache of cold chunks did."""
    cache = broker.cold_reader.cache_state
    yield counter("tiered_cache_hits_total", "Cold chunks found in the cache.", cache.hits)
    yield counter("tiered_cache_misses_total", "Cold chunks loaded from the store.", cache.loads)
    yield counter("tiered_cache_hit_bytes_total", "Bytes of chunks found in the cache.", cache.hit_bytes)
    yield counter("tiered_cache_loaded_bytes_total", "Bytes of chunks loaded from the store.", cache.loaded_bytes)
    yield counter("tiered_cache_evictions_total", "Chunks that made room for others.", cache.evictions)
    yield counter("tiered_cache_load_failures_total", "Chunks that could not be loaded.", cache.failures)
    yield gauge("tiered_cache_bytes", "Disk that cached chunks take.", cache.held_bytes)


def _reconcile(broker: Broker) -> Iterator[Family]:
    reconciler = broker.reconciler
    yield Family(
        name="tiered_reconcile_findings",
        kind="gauge",
        documentation="What reconciling and scrubbing found and have not seen mended, by kind.",
        samples=[({"kind": kind}, count) for kind, count in reconciler.findings.by_kind().items()],
    )
    yield counter(
        "tiered_reconcile_turns_total",
        "Times that all objects of partitions led here were looked for.",
        reconciler.bucket.turns,
    )
    yield gauge(
        "tiered_scrub_turn_ended_seconds",
        "When all chunks had been checked last, since 1970; 0 before that.",
        reconciler.scrub.turn_ended_at_ms // 1000,
    )


def _dependencies(broker: Broker) -> Iterator[Family]:
    yield from calls(
        broker.database.times,
        "tiered_sql",
        "Time of one SQL transaction, its wait for a connection included.",
        "SQL transactions that failed because the database was away or late.",
    )
    yield from store_families(broker)


def store_families(broker: Broker | ReadReplica) -> Iterator[Family]:
    """Calls of the object store."""
    yield from calls(
        broker.store.times,
        "tiered_store",
        "Time of one operation of the object store, its retries included.",
        "Operations that failed because the object store was away or failed.",
    )
    yield counter("tiered_store_retries_total", "Requests to the store that were repeated.", broker.store.retries)
    yield counter("tiered_store_slow_downs_total", "Times the store asked to slow down.", broker.store.slow_downs)
    yield counter("tiered_store_timeouts_total", "Requests that the store did not answer.", broker.store.timeouts)
    yield gauge("tiered_store_requests_allowed", "Requests that may run at once now.", broker.store.allowed_requests)
    yield Family(
        name="tiered_store_requests_total",
        kind="counter",
        documentation="Requests to the store, repeated ones included, by the line of S3's price list.",
        samples=[({"class": str(kind)}, count) for kind, count in broker.store.requests.items()],
    )


def calls(times: CallTimes, name: str, documentation: str, of_failures: str) -> Iterator[Family]:
    """How long the operations of a dependency took, and how many failed."""
    yield Family(
        name=f"{name}_seconds",
        kind="histogram",
        documentation=documentation,
        histograms=[({"operation": operation}, each) for operation, each in times.latency().items()],
    )
    yield Family(
        name=f"{name}_errors_total",
        kind="counter",
        documentation=of_failures,
        samples=[({"operation": operation}, count) for operation, count in times.failures().items()],
    )


def _sizes(broker: Broker, view: ClusterView, facts: ProcessFacts) -> Iterator[Family]:
    partitions = list(broker.topics.partitions())
    yield gauge("tiered_topics", "Topics.", len(broker.topics))
    yield gauge("tiered_partitions", "Partitions of the cluster.", view.partitions)
    yield gauge("tiered_replicas", "Replicas that this broker holds.", len(partitions))
    failed = sum(each.log.failed is not None or each.halted is not None for each in partitions)
    yield gauge("tiered_failed_partitions", "Replicas here whose log takes no more writes.", failed)
    yield gauge("tiered_local_bytes", "Bytes of the local tier.", sum(each.log.size_bytes for each in partitions))
    yield gauge("tiered_disk_free_bytes", "Free bytes of the data folder's disk.", facts.disk_free_bytes)
    yield gauge("tiered_disk_total_bytes", "Size of the data folder's disk.", facts.disk_total_bytes)
    yield gauge("tiered_disk_full", "1 while writes are refused to keep a reserve.", broker.reserve.is_low)


def process_families(broker: Broker | ReadReplica, facts: ProcessFacts) -> Iterator[Family]:
    """What runs, and what it takes."""
    clock = broker.clock
    up_ms = clock.monotonic_ms() - broker.started_monotonic_ms
    yield Family(
        name="tiered_build_info",
        kind="gauge",
        documentation="1; the labels say what runs.",
        samples=[({"version": __version__, "broker": broker.broker_id, "cluster_id": broker.cluster_id}, 1)],
    )
    yield gauge("tiered_serving", "1 while the broker takes requests.", broker.serving)
    yield counter("process_cpu_seconds_total", "CPU time of the process.", facts.cpu_s)
    yield gauge("process_resident_memory_bytes", "Memory that the process holds.", facts.resident_bytes)
    yield gauge("process_virtual_memory_bytes", "Address space of the process.", facts.virtual_bytes)
    yield gauge("process_open_fds", "Open file descriptors.", facts.open_fds)
    yield gauge("process_max_fds", "File descriptors that the process may open.", facts.max_fds)
    yield gauge("process_threads", "Threads of the process.", facts.threads)
    yield gauge("process_start_time_seconds", "When the process began, since 1970.", (clock.now_ms() - up_ms) // 1000)


def _by_name(broker: Broker) -> Iterator[Family]:
    """What has a line for each topic, partition or group: as many as the setting allows, by name.

    Partitions are told by their leader, and groups by their coordinator, so that sums over brokers are right.
    """
    limit = broker.settings.tiered_metrics_max_series
    topics = sorted((each for each in broker.topics if not each.is_internal), key=lambda each: each.name)
    led = [each for topic in topics for each in topic.partitions if each.leadership is not None]
    partitions = led[:limit]
    yield from _of_topics(topics[:limit])
    yield from _of_partitions(partitions)
    groups = [each for each in broker.lag.latest.values() if broker.groups.is_ours(each.group_id)]
    lags = _lags_by_topic(groups[:limit])
    yield Family(
        name="tiered_group_lag",
        kind="gauge",
        documentation="Records that a group has not committed yet, by group and topic, some seconds old.",
        samples=[({"group": group, "topic": topic}, lag) for (group, topic), lag in lags[:limit]],
    )
    omitted = {
        "topics": max(0, len(topics) - limit),
        "partitions": len(led) - len(partitions),
        # A group that has lines for some of its topics only is not told whole.
        "groups": max(0, len(groups) - limit) + len({group for (group, _), _ in lags[limit:]}),
    }
    yield Family(
        name="tiered_metrics_omitted",
        kind="gauge",
        documentation="What has no lines of its own because of tiered.metrics.max.series.",
        samples=[({"kind": kind}, count) for kind, count in omitted.items()],
    )


def _lags_by_topic(groups: Iterable[GroupLag]) -> list[tuple[tuple[str, str], int]]:
    """((group, topic), lag), by name."""
    found: dict[tuple[str, str], int] = {}
    for group in groups:
        for each in group.partitions:
            key = (group.group_id, each.topic)
            found[key] = found.get(key, 0) + each.lag
    return sorted(found.items())


def _of_topics(topics: list[Topic]) -> Iterator[Family]:
    for name, field, documentation in (
        ("produced_bytes", "produced_bytes", "Bytes of batches appended since the start, by topic."),
        ("produced_batches", "produced_batches", "Batches appended since the start, by topic."),
        ("produced_records", "produced_records", "Records appended since the start, by topic."),
        ("fetched_bytes", "fetched_bytes", "Bytes sent to consumers since the start, by topic."),
    ):
        yield Family(
            name=f"tiered_topic_{name}_total",
            kind="counter",
            documentation=documentation,
            samples=[
                ({"topic": topic.name}, sum(getattr(each.traffic, field) for each in topic.partitions))
                for topic in topics
            ],
        )


def _of_partitions(partitions: list[Partition]) -> Iterator[Family]:
    labels = [{"topic": each.topic, "partition": each.topic_partition.partition} for each in partitions]
    for name, documentation, values in (
        ("log_start_offset", "First offset that can be read.", [each.log_start_offset for each in partitions]),
        ("cold_end_offset", "Where the object store's part ends.", [each.cold_end_offset for each in partitions]),
        (
            "local_log_start_offset",
            "First offset on the local disk.",
            [each.log.local_log_start_offset for each in partitions],
        ),
        ("high_watermark", "Offset up to which consumers may read.", [each.high_watermark for each in partitions]),
        ("log_end_offset", "Offset of the next record.", [each.log.log_end_offset for each in partitions]),
        ("local_bytes", "Bytes on the local disk.", [each.log.size_bytes for each in partitions]),
        ("cold_bytes", "Bytes in the object store.", [each.cold_bytes for each in partitions]),
    ):
        yield Family(
            name=f"tiered_partition_{name}",
            kind="gauge",
            documentation=documentation,
            samples=zip(labels, values, strict=True),
        )
