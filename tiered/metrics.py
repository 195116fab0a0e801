"""The counters of one broker process, as plain numbers that hot paths may add to.

Owns the numbers and their meaning; rendering them for Prometheus is the HTTP room's work. Never locks, with
one exception: each counter is written from the event loop alone, or from one thread at a time behind a pool.
`CallTimes` is written by many threads, so it has a lock.
"""

import threading
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, Literal, NamedTuple

LATENCY_BUCKETS_MS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 5000.0)
LONG_BUCKETS_MS = (50.0, 100.0, 250.0, 500.0, 1000.0, 2500.0, 5000.0, 10_000.0, 30_000.0, 60_000.0, 300_000.0)


class Histogram:
    """Counts of durations by upper bound, with their sum; the last bucket is unbounded."""

    __slots__ = ("bounds_ms", "counts", "sum_ms")

    def __init__(self, bounds_ms: Sequence[float] = LATENCY_BUCKETS_MS) -> None:
        self.bounds_ms = bounds_ms
        self.counts = [0] * (len(bounds_ms) + 1)
        self.sum_ms = 0.0

    def observe(self, duration_ms: float) -> None:
        self.counts[bisect_left(self.bounds_ms, duration_ms)] += 1
        self.sum_ms += duration_ms


class CallTimes:
    """How long calls took and how many failed, by operation. Any thread may observe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._latency: dict[str, Histogram] = {}
        self._failures: dict[str, int] = {}
        self._last_failed = False

    def observe(self, operation: str, duration_ms: float, *, failed: bool) -> None:
        with self._lock:
            self._latency.setdefault(operation, Histogram()).observe(duration_ms)
            self._failures[operation] = self._failures.get(operation, 0) + failed
            self._last_failed = failed

    @property
    def is_failing(self) -> bool:
        """True when the newest call got no answer: whoever was called is away, as far as anybody knows."""
        return self._last_failed

    def latency(self) -> dict[str, Histogram]:
        """Copies of the histograms by operation."""
        with self._lock:
            found = {}
            for operation, histogram in sorted(self._latency.items()):
                copy = found[operation] = Histogram(histogram.bounds_ms)
                copy.counts, copy.sum_ms = list(histogram.counts), histogram.sum_ms
            return found

    def failures(self) -> dict[str, int]:
        """Failed calls by operation."""
        with self._lock:
            return dict(sorted(self._failures.items()))


RATE_WINDOW_MS = 15_000


class TrafficRates(NamedTuple):
    """The traffic of one partition a second, over the last 15 to 45 seconds."""

    records_in: float
    bytes_in: float
    bytes_out: float


IDLE = TrafficRates(records_in=0.0, bytes_in=0.0, bytes_out=0.0)


class _TrafficMark(NamedTuple):
    """What had been counted at one moment."""

    at_ms: float
    records_in: int
    bytes_in: int
    bytes_out: int


@dataclass(slots=True)
class TrafficState:
    """The traffic of one partition since it was opened here.

    `begin` comes before anything is counted: rates are read off the difference to a mark, and it sets one when the
    last one is older than the window. Counting itself needs no clock.
    """

    produced_bytes: int = 0
    produced_batches: int = 0
    produced_records: int = 0
    fetched_bytes: int = 0
    replicated_bytes: int = 0
    replicated_records: int = 0
    """Both taken over from the leader while this replica was in sync: then they came in here as they came in there."""
    written_ms: int | None = None
    """When a batch was written last, here as the leader or in sync with it; None before the first since the start."""
    _before: _TrafficMark | None = None
    _mark: _TrafficMark | None = None
    _next_mark_ms: float = 0.0

    def begin(self, now_ms: float) -> None:
        """Something is about to be counted at `now_ms`."""
        if now_ms >= self._next_mark_ms:
            self._set_mark(now_ms)

    def rates(self, now_ms: float) -> TrafficRates:
        """How much comes in and goes out."""
        if self._mark is None:
            return IDLE
        if not self._mark.at_ms <= now_ms < self._next_mark_ms:
            self._set_mark(now_ms)
        before = self._before
        assert before is not None, "a mark is set"
        seconds = max(1.0, (now_ms - before.at_ms) / 1000.0)
        return TrafficRates(
            (self.produced_records + self.replicated_records - before.records_in) / seconds,
            (self.produced_bytes + self.replicated_bytes - before.bytes_in) / seconds,
            (self.fetched_bytes - before.bytes_out) / seconds,
        )

    def _counted(self, now_ms: float) -> _TrafficMark:
        return _TrafficMark(
            now_ms,
            self.produced_records + self.replicated_records,
            self.produced_bytes + self.replicated_bytes,
            self.fetched_bytes,
        )

    def _set_mark(self, now_ms: float) -> None:
        now, last = self._counted(now_ms), self._mark
        if last is not None and last.at_ms <= now_ms < last.at_ms + 2 * RATE_WINDOW_MS:
            self._before = last
        elif last is None or now_ms < last.at_ms:  # The first one, or the clock was set back.
            self._before = now
        else:  # Nothing was counted in the window that ends now, or there would be a mark in it.
            self._before = now._replace(at_ms=now_ms - RATE_WINDOW_MS)
        self._mark, self._next_mark_ms = now, now_ms + RATE_WINDOW_MS


Kind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric of `/metrics`: its name, what people are told of it, and how it is read off whoever has it.

    `read` gives a number or a `Histogram`; where there are labels, a mapping of either by the labels' values.
    """

    name: str
    kind: Kind
    documentation: str
    labels: tuple[str, ...]
    read: Callable[[Any], Any]


def metric(name: str, documentation: str, *labels: str, of: Callable[[], object] = int) -> Any:
    """A field of `CountersState` that `/metrics` shows under `name`. It begins as `of` makes it."""
    kind: Kind = "histogram" if name.endswith("_seconds") else "counter" if name.endswith("_total") else "gauge"
    told = {"name": name, "kind": kind, "documentation": documentation, "labels": labels}
    return field(default_factory=of, metadata={Metric: told})


def gauge_of_ms(name: str, documentation: str) -> Any:
    """A field of `CountersState` in milliseconds that rises and falls. `/metrics` shows it in seconds."""
    description = {"name": name, "kind": "gauge", "documentation": documentation, "labels": (), "unit_ms": 1000.0}
    return field(default_factory=int, metadata={Metric: description})


@dataclass(slots=True)
class CountersState:
    """Counts since the process started. A new counter is one field here."""

    connections_opened: int = metric("tiered_connections_opened_total", "Connections accepted.")
    connections_open: int = metric("tiered_connections", "Open connections of Kafka clients.")
    connections_refused: int = metric("tiered_connections_refused_total", "Connections refused at a limit.")
    logins: Counter[str] = metric(
        "tiered_logins_total",
        "Logins by SASL, again or for the first time, and requests over HTTP that had to log in.",
        "outcome",
        of=lambda: Counter(succeeded=0, failed=0),
    )
    throttles: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    """Answers that told a client to rest, and connections that had to, by quota."""
    throttled_ms: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """How long in all, by quota."""
    protocol_errors: int = 0
    produced_bytes: int = metric("tiered_produced_bytes_total", "Bytes of record batches appended.")
    produced_batches: int = metric("tiered_produced_batches_total", "Record batches appended.")
    produce_errors: int = metric("tiered_produce_errors_total", "Partitions of produce requests refused.")
    fetched_bytes: int = metric("tiered_fetched_bytes_total", "Bytes of record batches sent to consumers.")
    fetched_cold_bytes: int = metric(
        "tiered_fetched_cold_bytes_total", "Bytes read from the cold tier, for consumers and for people over HTTP."
    )
    fetched_local_bytes: int = 0
    """Of `fetched_bytes`, what came from the local log."""
    requests: defaultdict[str, int] = metric(
        "tiered_requests_total", "Requests answered, by Kafka API.", "api", of=lambda: defaultdict(int)
    )
    request_latency: defaultdict[str, Histogram] = metric(
        "tiered_request_seconds",
        "Time to answer a request, by Kafka API; long polls included.",
        "api",
        of=lambda: defaultdict(Histogram),
    )
    uploads_committed: int = metric("tiered_uploads_total", "Segments committed to the object store.")
    uploads_failed: int = metric("tiered_upload_failures_total", "Uploads that failed and are tried again.")
    uploaded_bytes: int = metric("tiered_uploaded_bytes_total", "Bytes of committed segment objects.")
    segments_joined: int = metric(
        "tiered_segments_joined_total", "Small objects that were put together to larger ones."
    )
    orphans_swept: int = metric("tiered_orphans_swept_total", "Unfinished uploads that were removed.")
    reconcile_objects: int = metric(
        "tiered_reconcile_objects_total", "Committed objects that were looked for in the store."
    )
    reconcile_requests: int = metric("tiered_reconcile_requests_total", "Requests to the store that this took.")
    scrubbed_bytes: int = metric("tiered_scrubbed_bytes_total", "Bytes that were read from the store to check them.")
    scrubbed_chunks: int = metric("tiered_scrubbed_chunks_total", "Chunks whose hash was checked for that.")
    objects_refused: int = metric(
        "tiered_objects_undeletable", "Objects that the store, or a wrong row of SQL, does not let this broker delete."
    )
    objects_purged: int = metric("tiered_objects_purged_total", "Retired objects deleted from the store.")
    cold_corruptions: int = metric("tiered_cold_corruptions_total", "Cold reads refused: object corrupt or missing.")
    cold_read_errors: int = metric("tiered_cold_read_errors_total", "Cold reads that failed for any reason.")
    checkpoint_failures: int = metric("tiered_checkpoint_failures_total", "Checkpoints that could not be written.")
    housekeeping_failures: int = metric(
        "tiered_housekeeping_failures_total", "Rounds of periodic work that SQL, the store or the disk refused."
    )
    failing_items: dict[str, int] = metric(
        "tiered_failing_items",
        "Objects, partitions, topics or groups that failed when they were last tried, while others went on.",
        "work",
        of=dict,
    )
    local_segments_deleted: int = metric(
        "tiered_local_segments_deleted_total", "Local segments that retention removed."
    )
    clock_ahead_ms: int = gauge_of_ms(
        "tiered_clock_ahead_seconds",
        "How far this broker's clock is ahead of the database's, negative where it is behind; 0 with SQLite.",
    )
    retention_clock_ahead_ms: int = gauge_of_ms(
        "tiered_retention_clock_ahead_seconds",
        "How far the clock is ahead while retention by age has stopped because of it, else 0.",
    )
    compactions: int = metric("tiered_compactions_total", "Passes over a log that came to their end.")
    compaction_failures: int = metric("tiered_compaction_failures_total", "Passes that failed and are tried again.")
    compacted_bytes: int = metric("tiered_compacted_bytes_total", "Bytes that compaction has read.")
    compaction_removed_bytes: int = metric(
        "tiered_compaction_removed_bytes_total", "By how much compaction has made files smaller."
    )
    compaction_removed_records: int = metric(
        "tiered_compaction_removed_records_total", "Records that compaction has removed from this broker's disk."
    )
    disk_errors: int = metric("tiered_disk_errors_total", "Writes that the local disk refused.")
    isr_shrinks: int = metric("tiered_isr_shrinks_total", "Replicas that left an ISR here.")
    """Members that left the ISR of a partition led here, once SQL has committed it."""
    isr_expands: int = metric("tiered_isr_expands_total", "Replicas that joined an ISR here.")
    isr_change_failures: int = metric(
        "tiered_isr_change_failures_total", "ISR changes that SQL refused or did not answer."
    )
    """ISR changes that SQL refused or whose outcome is unknown."""
    leader_elections: int = metric("tiered_leader_elections_total", "Elections seen, of any partition.")
    """Rows in the feed with another leader epoch than before and a leader, whoever it is."""
    unclean_elections: int = metric(
        "tiered_unclean_elections_total", "Elections of a replica that may lack records, made here as the controller."
    )
    """Of these, started here as the controller with a replica that may lack acknowledged records."""
    brokers_fenced: int = metric("tiered_brokers_fenced_total", "Brokers fenced here as the controller.")
    heartbeat_failures: int = metric("tiered_heartbeat_failures_total", "Heartbeats that SQL did not take.")
    newest_change_number: int = 0
    """The highest number that a heartbeat has seen in SQL; what the feed has applied is the image's."""
    feed_failures: int = metric("tiered_feed_failures_total", "Reads of the feed that failed.")
    replication_bytes_in: int = metric("tiered_replication_in_bytes_total", "Bytes appended as a follower.")
    replication_bytes_out: int = metric("tiered_replication_out_bytes_total", "Bytes sent to followers.")
    """Bytes of batches sent to followers; not among `fetched_bytes`."""
    replication_fetch_failures: int = metric(
        "tiered_replication_fetch_failures_total", "Fetches from a leader that failed."
    )
    """Fetches from a leader that got no answer, or an error for a partition."""
    replica_truncations: int = metric(
        "tiered_replica_truncations_total", "Times a replica dropped what its leader does not have."
    )
    group_rebalances: int = metric("tiered_group_rebalances_total", "Rebalances of groups.")
    group_members_expired: int = metric("tiered_group_members_expired_total", "Members that left by being silent.")
    transactions: Counter[str] = metric(
        "tiered_transactions_total",
        "Transactions that were decided here, by outcome.",
        "outcome",
        of=lambda: Counter(committed=0, aborted=0, timed_out=0),
    )
    event_loop_stall_ms: float = 0.0
    event_loop_max_stall_ms: float = gauge_of_ms(
        "tiered_event_loop_max_stall_seconds", "Longest stall of the event loop so far."
    )
    event_loop_stalls: Histogram = metric(
        "tiered_event_loop_stall_seconds", "How late the event loop woke, probed all the time.", of=Histogram
    )
    garbage_collections: Histogram = metric(
        "tiered_garbage_collection_seconds",
        "CPU time of Python's collections of garbage, in which nobody is answered.",
        of=Histogram,
    )
    garbage_max_pause_ms: float = gauge_of_ms(
        "tiered_garbage_max_pause_seconds", "CPU time of the longest collection of garbage so far."
    )
    upload_durations: Histogram = metric(
        "tiered_upload_seconds",
        "Time from the plan of an upload to its commit; failed ones are left out.",
        of=lambda: Histogram(LONG_BUCKETS_MS),
    )
    http_requests: defaultdict[tuple[str, str, int], int] = metric(
        "tiered_http_requests_total",
        "HTTP requests answered, by method, route and status.",
        "method",
        "route",
        "status",
        of=lambda: defaultdict(int),
    )
    http_latency: defaultdict[str, Histogram] = metric(
        "tiered_http_request_seconds",
        "Time to answer an HTTP request, by route; streams are left out.",
        "route",
        of=lambda: defaultdict(Histogram),
    )
    http_forwarded: Counter[str] = metric(
        "tiered_http_forwarded_total",
        "Requests that this broker made to others for its own HTTP clients, by outcome.",
        "outcome",
        of=lambda: Counter(answered=0, failed=0),
    )


def _described(counter: str, *, unit_ms: float | None = None, **description: Any) -> Metric:
    read = attrgetter(counter)
    if unit_ms is None:
        return Metric(**description, read=read)
    return Metric(**description, read=lambda counters: read(counters) / unit_ms)


DESCRIBED: Mapping[str, Metric] = {
    counter.name: _described(counter.name, **counter.metadata[Metric])
    for counter in fields(CountersState)
    if Metric in counter.metadata
}
"""The metrics of `CountersState`, by the name of their field."""
