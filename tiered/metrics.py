"""The counters of one broker process, as plain numbers that hot paths may add to.

Owns the numbers and their meaning; rendering them for Prometheus is the HTTP room's work. Never locks:
each counter is written from the event loop alone, or from one thread at a time behind a pool.
"""

from collections import defaultdict
from dataclasses import dataclass, field

LATENCY_BUCKETS_MS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 5000.0)


class Histogram:
    """Counts of durations by upper bound, with their sum; the last bucket is unbounded."""

    __slots__ = ("counts", "sum_ms")

    def __init__(self) -> None:
        self.counts = [0] * (len(LATENCY_BUCKETS_MS) + 1)
        self.sum_ms = 0.0

    def observe(self, duration_ms: float) -> None:
        for index, bound_ms in enumerate(LATENCY_BUCKETS_MS):
            if duration_ms <= bound_ms:
                self.counts[index] += 1
                break
        else:
            self.counts[-1] += 1
        self.sum_ms += duration_ms


@dataclass(slots=True)
class CountersState:
    """What has happened since the process started. Names say what; units are bytes, records or events."""

    connections_opened: int = 0
    connections_open: int = 0
    connections_refused: int = 0
    protocol_errors: int = 0
    produced_bytes: int = 0
    produced_batches: int = 0
    produce_errors: int = 0
    fetched_bytes: int = 0
    fetched_cold_bytes: int = 0
    requests: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    request_latency: defaultdict[str, Histogram] = field(default_factory=lambda: defaultdict(Histogram))
    uploads_committed: int = 0
    uploads_failed: int = 0
    uploaded_bytes: int = 0
    orphans_swept: int = 0
    objects_purged: int = 0
    cold_corruptions: int = 0
    cold_read_errors: int = 0
    checkpoint_failures: int = 0
    housekeeping_failures: int = 0
    local_segments_deleted: int = 0
    disk_errors: int = 0
    group_rebalances: int = 0
    group_members_expired: int = 0
    event_loop_stall_ms: float = 0.0
    event_loop_max_stall_ms: float = 0.0
