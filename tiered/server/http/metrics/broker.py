"""Every metric of a broker: its name, its labels and where its numbers are. docs/metrics.md lists them.

Reads counters, never resets one. Labels whose values people choose (topics, groups) are bounded by
`tiered.metrics.max.series`; what is left out for it is counted.
"""

from collections.abc import Iterable, Iterator

from tiered import __version__
from tiered.broker.broker import Broker
from tiered.broker.lag_history import GroupLag
from tiered.broker.partition import Partition
from tiered.broker.process_facts import ProcessFacts
from tiered.broker.topics import Topic
from tiered.metrics import CallTimes, CountersState
from tiered.rules.quotas import QuotaKey
from tiered.server.http.door.limits import RequestsState
from tiered.server.http.metrics.cluster_view import ClusterView, feed_lag, replica_lag
from tiered.server.http.metrics.prometheus import NO_LABELS, Family, counter, gauge


def families(broker: Broker, view: ClusterView, facts: ProcessFacts, requests: RequestsState) -> Iterator[Family]:
    """Everything, in the order of the document."""
    yield from _traffic(broker)
    yield from request_families(broker.counters, requests)
    yield from _replication(broker, view)
    yield from _tiers(broker)
    yield from _dependencies(broker)
    yield from _sizes(broker, view, facts)
    yield from _process(broker, facts)
    yield from _by_name(broker)


def _traffic(broker: Broker) -> Iterator[Family]:
    counters = broker.counters
    yield counter("tiered_produced_bytes_total", "Bytes of record batches appended.", counters.produced_bytes)
    yield counter("tiered_produced_batches_total", "Record batches appended.", counters.produced_batches)
    yield counter("tiered_produce_errors_total", "Partitions of produce requests refused.", counters.produce_errors)
    yield counter("tiered_fetched_bytes_total", "Bytes of record batches sent to consumers.", counters.fetched_bytes)
    yield counter(
        "tiered_fetched_cold_bytes_total",
        "Bytes read from the cold tier, for consumers and for people over HTTP.",
        counters.fetched_cold_bytes,
    )


def request_families(counters: CountersState, requests: RequestsState) -> Iterator[Family]:
    """What comes through both doors."""
    yield gauge("tiered_connections", "Open connections of Kafka clients.", counters.connections_open)
    yield counter("tiered_connections_opened_total", "Connections accepted.", counters.connections_opened)
    yield counter(
        "tiered_connections_refused_total",
        "Connections refused at a limit.",
        counters.connections_refused,
    )
    yield Family(
        name="tiered_logins_total",
        kind="counter",
        documentation="Logins by SASL, again or for the first time, and requests over HTTP that had to log in.",
        samples=[({"outcome": outcome}, counters.logins[outcome]) for outcome in ("succeeded", "failed")],
    )
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
    yield Family(
        name="tiered_requests_total",
        kind="counter",
        documentation="Requests answered, by Kafka API.",
        samples=[({"api": api}, count) for api, count in sorted(counters.requests.items())],
    )
    yield Family(
        name="tiered_request_seconds",
        kind="histogram",
        documentation="Time to answer a request, by Kafka API; long polls included.",
        histograms=[({"api": api}, each) for api, each in sorted(counters.request_latency.items())],
    )
    yield Family(
        name="tiered_http_requests_total",
        kind="counter",
        documentation="HTTP requests answered, by method, route and status.",
        samples=[
            ({"method": method, "route": route, "status": status}, count)
            for (method, route, status), count in sorted(counters.http_requests.items())
        ],
    )
    yield Family(
        name="tiered_http_request_seconds",
        kind="histogram",
        documentation="Time to answer an HTTP request, by route; streams are left out.",
        histograms=[({"route": route}, each) for route, each in sorted(counters.http_latency.items())],
    )
    yield Family(
        name="tiered_http_forwarded_total",
        kind="counter",
        documentation="Requests that this broker made to others for its own HTTP clients, by outcome.",
        samples=[({"outcome": outcome}, counters.http_forwarded[outcome]) for outcome in ("answered", "failed")],
    )
    yield gauge("tiered_http_requests_in_progress", "HTTP requests being answered now.", requests.bounded)
    yield gauge("tiered_http_streams", "HTTP answers and requests without an end that are open now.", requests.streams)
    yield counter("tiered_group_rebalances_total", "Rebalances of groups.", counters.group_rebalances)
    yield counter(
        "tiered_group_members_expired_total", "Members that left by being silent.", counters.group_members_expired
    )


def _replication(broker: Broker, view: ClusterView) -> Iterator[Family]:
    counters, me = broker.counters, broker.broker_id
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
    yield counter("tiered_isr_shrinks_total", "Replicas that left an ISR here.", counters.isr_shrinks)
    yield counter("tiered_isr_expands_total", "Replicas that joined an ISR here.", counters.isr_expands)
    yield counter(
        "tiered_isr_change_failures_total",
        "ISR changes that SQL refused or did not answer.",
        counters.isr_change_failures,
    )
    yield counter("tiered_leader_elections_total", "Elections seen, of any partition.", counters.leader_elections)
    yield counter(
        "tiered_unclean_elections_total",
        "Elections of a replica that may lack records, made here as the controller.",
        counters.unclean_elections,
    )
    yield counter("tiered_brokers_fenced_total", "Brokers fenced here as the controller.", counters.brokers_fenced)
    yield counter("tiered_replication_in_bytes_total", "Bytes appended as a follower.", counters.replication_bytes_in)
    yield counter("tiered_replication_out_bytes_total", "Bytes sent to followers.", counters.replication_bytes_out)
    yield counter(
        "tiered_replication_fetch_failures_total",
        "Fetches from a leader that failed.",
        counters.replication_fetch_failures,
    )
    yield counter(
        "tiered_replica_truncations_total",
        "Times a replica dropped what its leader does not have.",
        counters.replica_truncations,
    )
    yield counter("tiered_heartbeat_failures_total", "Heartbeats that SQL did not take.", counters.heartbeat_failures)
    yield counter("tiered_feed_failures_total", "Reads of the feed that failed.", counters.feed_failures)


def _tiers(broker: Broker) -> Iterator[Family]:
    counters, cache = broker.counters, broker.cold_reader.cache_state
    backlog_bytes, backlog_age_ms = broker.upload_backlog()
    yield gauge("tiered_upload_backlog_bytes", "Bytes of closed segments that wait for their upload.", backlog_bytes)
    yield gauge("tiered_upload_backlog_age_ms", "Age of the oldest segment that waits for its upload.", backlog_age_ms)
    yield gauge("tiered_uploads_allowed", "Uploads that may run at once now.", broker.upload_pipeline.allowed)
    yield counter("tiered_uploads_total", "Segments committed to the object store.", counters.uploads_committed)
    yield counter("tiered_upload_failures_total", "Uploads that failed and are tried again.", counters.uploads_failed)
    yield counter("tiered_uploaded_bytes_total", "Bytes of committed segment objects.", counters.uploaded_bytes)
    yield Family(
        name="tiered_upload_seconds",
        kind="histogram",
        documentation="Time from the plan of an upload to its commit; failed ones are left out.",
        histograms=[(NO_LABELS, counters.upload_durations)],
    )
    yield counter("tiered_orphans_swept_total", "Unfinished uploads that were removed.", counters.orphans_swept)
    yield counter("tiered_objects_purged_total", "Retired objects deleted from the store.", counters.objects_purged)
    yield counter(
        "tiered_local_segments_deleted_total", "Local segments that retention removed.", counters.local_segments_deleted
    )
    yield gauge(
        "tiered_retention_clock_ahead_ms",
        "How far the clock is ahead while retention by age has stopped because of it, else 0.",
        counters.retention_clock_ahead_ms,
    )
    yield counter(
        "tiered_cold_corruptions_total", "Cold reads refused: object corrupt or missing.", counters.cold_corruptions
    )
    yield counter("tiered_cold_read_errors_total", "Cold reads that failed for any reason.", counters.cold_read_errors)
    yield counter("tiered_cache_hits_total", "Cold chunks found in the cache.", cache.hits)
    yield counter("tiered_cache_misses_total", "Cold chunks loaded from the store.", cache.loads)
    yield counter("tiered_cache_hit_bytes_total", "Bytes of chunks found in the cache.", cache.hit_bytes)
    yield counter("tiered_cache_loaded_bytes_total", "Bytes of chunks loaded from the store.", cache.loaded_bytes)
    yield counter("tiered_cache_evictions_total", "Chunks that made room for others.", cache.evictions)
    yield counter("tiered_cache_load_failures_total", "Chunks that could not be loaded.", cache.failures)
    yield gauge("tiered_cache_bytes", "Disk that cached chunks take.", cache.held_bytes)
    yield gauge(
        "tiered_cold_loads_allowed", "Loads from the store that may run at once now.", broker.cold_loads_allowed
    )


def _dependencies(broker: Broker) -> Iterator[Family]:
    counters = broker.counters
    yield from calls(
        broker.database.times,
        "tiered_sql",
        "Time of one SQL transaction, its wait for a connection included.",
        "SQL transactions that failed because the database was away or late.",
    )
    yield from calls(
        broker.store.times,
        "tiered_store",
        "Time of one operation of the object store, its retries included.",
        "Operations that failed because the object store was away or failed.",
    )
    yield counter("tiered_store_retries_total", "Requests to the store that were repeated.", broker.store.retries)
    yield counter("tiered_store_slow_downs_total", "Times the store asked to slow down.", broker.store.slow_downs)
    yield from _store_load(broker)
    yield counter(
        "tiered_checkpoint_failures_total", "Checkpoints that could not be written.", counters.checkpoint_failures
    )
    yield counter(
        "tiered_housekeeping_failures_total",
        "Rounds of periodic work that SQL, the store or the disk refused.",
        counters.housekeeping_failures,
    )
    yield counter("tiered_disk_errors_total", "Writes that the local disk refused.", counters.disk_errors)


def _store_load(broker: Broker) -> Iterator[Family]:
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


def _process(broker: Broker, facts: ProcessFacts) -> Iterator[Family]:
    counters, clock = broker.counters, broker.clock
    up_ms = clock.monotonic_ms() - broker.started_monotonic_ms
    yield Family(
        name="tiered_event_loop_stall_seconds",
        kind="histogram",
        documentation="How late the event loop woke, probed all the time.",
        histograms=[(NO_LABELS, counters.event_loop_stalls)],
    )
    yield gauge(
        "tiered_event_loop_max_stall_ms", "Longest stall of the event loop so far.", counters.event_loop_max_stall_ms
    )
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
