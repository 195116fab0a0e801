"""The metrics of compaction. docs/metrics.md lists them.

Reads counters, never resets one.
"""

from collections.abc import Iterator

from tiered.broker.broker import Broker
from tiered.server.http.metrics.prometheus import Family, counter, gauge


def compaction_families(broker: Broker) -> Iterator[Family]:
    """How much was compacted, and how much waits for it."""
    counters = broker.counters
    yield counter("tiered_compactions_total", "Passes over a log that came to their end.", counters.compactions)
    yield counter(
        "tiered_compaction_failures_total", "Passes that failed and are tried again.", counters.compaction_failures
    )
    yield counter("tiered_compacted_bytes_total", "Bytes that compaction has read.", counters.compacted_bytes)
    yield counter(
        "tiered_compaction_removed_bytes_total",
        "By how much compaction has made files smaller.",
        counters.compaction_removed_bytes,
    )
    yield counter(
        "tiered_compaction_removed_records_total",
        "Records that compaction has removed from this broker's disk.",
        counters.compaction_removed_records,
    )
    yield gauge(
        "tiered_compaction_max_dirty_ratio",
        "The largest share of a compacted topic's log that was not compacted yet, at the last look.",
        broker.compaction.max_dirty_ratio,
    )
