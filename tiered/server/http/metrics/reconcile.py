"""The metrics of reconcile and scrub. docs/metrics.md lists them.

Reads counters, never resets one.
"""

from collections.abc import Iterator

from tiered.broker.broker import Broker
from tiered.server.http.metrics.prometheus import Family, counter, gauge


def reconcile_families(broker: Broker) -> Iterator[Family]:
    """What was found, and how much was looked at."""
    counters, reconciler = broker.counters, broker.reconciler
    yield Family(
        name="tiered_reconcile_findings",
        kind="gauge",
        documentation="What reconciling and scrubbing found and have not seen mended, by kind.",
        samples=[({"kind": kind}, count) for kind, count in reconciler.findings.by_kind().items()],
    )
    yield counter(
        "tiered_reconcile_objects_total",
        "Committed objects that were looked for in the store.",
        counters.reconcile_objects,
    )
    yield counter(
        "tiered_reconcile_requests_total", "Requests to the store that this took.", counters.reconcile_requests
    )
    yield counter(
        "tiered_reconcile_turns_total",
        "Times that all objects of partitions led here were looked for.",
        reconciler.bucket.turns,
    )
    yield counter(
        "tiered_scrubbed_bytes_total", "Bytes that were read from the store to check them.", counters.scrubbed_bytes
    )
    yield counter("tiered_scrubbed_chunks_total", "Chunks whose hash was checked for that.", counters.scrubbed_chunks)
    yield gauge(
        "tiered_scrub_turn_ended_seconds",
        "When all chunks had been checked last, since 1970; 0 before that.",
        reconciler.scrub.turn_ended_at_ms // 1000,
    )
