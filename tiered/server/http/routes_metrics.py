"""`/metrics`: the broker's counters in Prometheus' text format.

Owns names and labels; docs/metrics.md lists them. Reads the counters, never resets them.
"""

from collections.abc import Iterator

from aiohttp import web

from tiered.broker.broker import Broker
from tiered.metrics import LATENCY_BUCKETS_MS
from tiered.server.http.keys import BROKER
from tiered.server.http.route import Answer, Route
from tiered.server.http.schema import text

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


async def _metrics(request: web.Request) -> web.Response:
    lines = list(_render(request.app[BROKER]))
    return web.Response(body=("\n".join(lines) + "\n").encode(), headers={"Content-Type": CONTENT_TYPE})


def _render(broker: Broker) -> Iterator[str]:
    counters = broker.counters
    for name, kind, documentation, value in _plain(broker):
        yield f"# HELP tiered_{name} {documentation}"
        yield f"# TYPE tiered_{name} {kind}"
        yield f"tiered_{name} {value}"
    yield "# HELP tiered_requests_total Requests answered, by Kafka API."
    yield "# TYPE tiered_requests_total counter"
    for api, count in sorted(counters.requests.items()):
        yield f'tiered_requests_total{{api="{api}"}} {count}'
    yield "# HELP tiered_request_seconds Time to answer a request, by Kafka API; long polls included."
    yield "# TYPE tiered_request_seconds histogram"
    for api, histogram in sorted(counters.request_latency.items()):
        below = 0
        for bound_ms, count in zip(LATENCY_BUCKETS_MS, histogram.counts, strict=False):
            below += count
            yield f'tiered_request_seconds_bucket{{api="{api}",le="{bound_ms / 1000:g}"}} {below}'
        total = sum(histogram.counts)
        yield f'tiered_request_seconds_bucket{{api="{api}",le="+Inf"}} {total}'
        yield f'tiered_request_seconds_sum{{api="{api}"}} {histogram.sum_ms / 1000:.6f}'
        yield f'tiered_request_seconds_count{{api="{api}"}} {total}'


def _plain(broker: Broker) -> Iterator[tuple[str, str, str, float]]:
    """(name, kind, documentation, value)"""
    counters = broker.counters
    partitions = list(broker.topics.partitions())
    backlog_bytes, backlog_age_ms = broker.upload_backlog()
    counted: dict[str, tuple[str, float]] = {
        "connections_opened_total": ("Client connections accepted.", counters.connections_opened),
        "connections_refused_total": ("Connections refused because a limit is reached.", counters.connections_refused),
        "produced_bytes_total": ("Bytes of record batches appended.", counters.produced_bytes),
        "produced_batches_total": ("Record batches appended.", counters.produced_batches),
        "produce_errors_total": ("Partitions of produce requests refused.", counters.produce_errors),
        "fetched_bytes_total": ("Bytes of record batches sent to consumers.", counters.fetched_bytes),
        "fetched_cold_bytes_total": ("Of those, bytes from the cold tier.", counters.fetched_cold_bytes),
        "uploads_total": ("Segments committed to the object store.", counters.uploads_committed),
        "upload_failures_total": ("Uploads that failed and are tried again.", counters.uploads_failed),
        "uploaded_bytes_total": ("Bytes of committed segment objects.", counters.uploaded_bytes),
        "orphans_swept_total": ("Unfinished uploads whose objects were removed.", counters.orphans_swept),
        "objects_purged_total": ("Retired objects deleted from the store.", counters.objects_purged),
        "cold_corruptions_total": ("Cold reads refused: object corrupt or missing.", counters.cold_corruptions),
        "cold_read_errors_total": ("Cold reads that failed for any reason.", counters.cold_read_errors),
        "checkpoint_failures_total": ("Checkpoints that could not be written.", counters.checkpoint_failures),
        "housekeeping_failures_total": (
            "Rounds of periodic work that SQL, the store or the disk refused.",
            counters.housekeeping_failures,
        ),
        "local_segments_deleted_total": ("Local segments that retention removed.", counters.local_segments_deleted),
        "disk_errors_total": ("Writes that the local disk refused.", counters.disk_errors),
    }
    for name, (documentation, value) in counted.items():
        yield name, "counter", documentation, value
    measured: dict[str, tuple[str, float]] = {
        "connections": ("Open client connections.", counters.connections_open),
        "upload_backlog_bytes": ("Bytes of closed segments that wait for their upload.", backlog_bytes),
        "upload_backlog_age_ms": ("Age of the oldest segment that waits for its upload.", backlog_age_ms),
        "topics": ("Topics.", len(broker.topics)),
        "partitions": ("Partitions led by this broker.", len(partitions)),
        "local_bytes": ("Bytes of the local tier.", sum(each.log.size_bytes for each in partitions)),
        "event_loop_max_stall_ms": ("Longest stall of the event loop so far.", counters.event_loop_max_stall_ms),
    }
    for name, (documentation, value) in measured.items():
        yield name, "gauge", documentation, value


ROUTES = (
    Route(
        method="GET",
        path="/metrics",
        handler=_metrics,
        tag="service",
        summary="The broker's numbers in Prometheus' text format.",
        answers={200: Answer(description="As docs/metrics.md lists them.", schema=text(), content_type="text/plain")},
    ),
)
