"""The counters of one broker process, as plain numbers that hot paths may add to.

Owns the numbers and their meaning; rendering them for Prometheus is the HTTP room's work. Never locks, with
one exception: each counter is written from the event loop alone, or from one thread at a time behind a pool.
`CallTimes` is written by many threads, so it has a lock.
"""

import threading
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

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


@dataclass(slots=True)
class TrafficState:
    """What went through one partition since it was opened here."""

    produced_bytes: int = 0
    produced_batches: int = 0
    produced_records: int = 0
    fetched_bytes: int = 0


@dataclass(slots=True)
class CountersState:
    """What has happened since the process started. Names say what; units are bytes, records or events."""

    connections_opened: int = 0
    connections_open: int = 0
    connections_refused: int = 0
    logins: Counter[str] = field(default_factory=Counter)
    """By SASL and over HTTP, those that ended: `succeeded` or `failed`."""
    throttles: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    """Answers that told a client to rest, and connections that had to, by quota."""
    throttled_ms: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """How long in all, by quota."""
    protocol_errors: int = 0
    produced_bytes: int = 0
    produced_batches: int = 0
    produce_errors: int = 0
    fetched_bytes: int = 0
    fetched_cold_bytes: int = 0
    fetched_local_bytes: int = 0
    """Of `fetched_bytes`, what came from the local log."""
    requests: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    request_latency: defaultdict[str, Histogram] = field(default_factory=lambda: defaultdict(Histogram))
    uploads_committed: int = 0
    uploads_failed: int = 0
    uploaded_bytes: int = 0
    orphans_swept: int = 0
    reconcile_objects: int = 0
    """Committed objects that were looked for in the store."""
    reconcile_requests: int = 0
    scrubbed_bytes: int = 0
    scrubbed_chunks: int = 0
    objects_purged: int = 0
    cold_corruptions: int = 0
    cold_read_errors: int = 0
    checkpoint_failures: int = 0
    housekeeping_failures: int = 0
    local_segments_deleted: int = 0
    retention_clock_ahead_ms: int = 0
    """How far the clock is ahead, while retention by age has stopped because of it; else 0."""
    compactions: int = 0
    """Passes over a log that came to their end."""
    compaction_failures: int = 0
    compacted_bytes: int = 0
    """Bytes that compaction has read."""
    compaction_removed_bytes: int = 0
    compaction_removed_records: int = 0
    disk_errors: int = 0
    isr_shrinks: int = 0
    """Members that left the ISR of a partition led here, once SQL has committed it."""
    isr_expands: int = 0
    isr_change_failures: int = 0
    """ISR changes that SQL refused or whose outcome is unknown."""
    leader_elections: int = 0
    """Rows in the feed with another leader epoch than before and a leader, whoever it is."""
    unclean_elections: int = 0
    """Of these, started here as the controller with a replica that may lack acknowledged records."""
    brokers_fenced: int = 0
    """Brokers that this one fenced as the controller."""
    heartbeat_failures: int = 0
    newest_change_number: int = 0
    """The highest number that a heartbeat has seen in SQL; what the feed has applied is the image's."""
    feed_failures: int = 0
    replication_bytes_in: int = 0
    """Bytes of batches appended here as a follower."""
    replication_bytes_out: int = 0
    """Bytes of batches sent to followers; not among `fetched_bytes`."""
    replication_fetch_failures: int = 0
    """Fetches from a leader that got no answer, or an error for a partition."""
    replica_truncations: int = 0
    """Times a replica here dropped records that its leader does not have."""
    group_rebalances: int = 0
    group_members_expired: int = 0
    event_loop_stall_ms: float = 0.0
    event_loop_max_stall_ms: float = 0.0
    event_loop_stalls: Histogram = field(default_factory=Histogram)
    upload_durations: Histogram = field(default_factory=lambda: Histogram(LONG_BUCKETS_MS))
    http_requests: defaultdict[tuple[str, str, int], int] = field(default_factory=lambda: defaultdict(int))
    """By method, route and status."""
    http_forwarded: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    """HTTP requests passed on to another broker, by outcome: answered, failed."""
    http_latency: defaultdict[str, Histogram] = field(default_factory=lambda: defaultdict(Histogram))
    """By route; streams are left out."""
