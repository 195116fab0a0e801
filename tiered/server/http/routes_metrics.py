"""`/metrics`: the broker's counters in Prometheus' text format.

Owns names and labels; docs/metrics.md lists them. Reads the counters, never resets them.
"""

from collections.abc import Iterator

from aiohttp import web

from tiered.broker.broker import Broker
from tiered.metrics import LATENCY_BUCKETS_MS
from tiered.server.http.keys import BROKER

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def add(app: web.Application) -> None:
    app.router.add_get("/metrics", _metrics)


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
    counters = broker.counters
    backlog_bytes, backlog_age_ms = broker.upload_backlog()
    yield "connections", "gauge", "Open client connections.", counters.connections_open
    yield "connections_opened_total", "counter", "Client connections accepted.", counters.connections_opened
    yield "connections_refused_total", "counter", "Connections over a limit.", counters.connections_refused
    yield "produced_bytes_total", "counter", "Bytes of record batches appended.", counters.produced_bytes
    yield "produced_batches_total", "counter", "Record batches appended.", counters.produced_batches
    yield "produce_errors_total", "counter", "Partitions of produce requests refused.", counters.produce_errors
    yield "fetched_bytes_total", "counter", "Bytes of record batches sent to consumers.", counters.fetched_bytes
    yield "fetched_cold_bytes_total", "counter", "Of those, bytes from the cold tier.", counters.fetched_cold_bytes
    yield "uploads_total", "counter", "Segments committed to the object store.", counters.uploads_committed
    yield "upload_failures_total", "counter", "Uploads that failed and are tried again.", counters.uploads_failed
    yield "uploaded_bytes_total", "counter", "Bytes of committed segment objects.", counters.uploaded_bytes
    yield "upload_backlog_bytes", "gauge", "Bytes of closed segments that wait for their upload.", backlog_bytes
    yield "upload_backlog_age_ms", "gauge", "Age of the oldest segment that waits for its upload.", backlog_age_ms
    yield "orphans_swept_total", "counter", "Unfinished uploads whose objects were removed.", counters.orphans_swept
    yield "objects_purged_total", "counter", "Retired objects deleted from the store.", counters.objects_purged
    yield "cold_corruptions_total", "counter", "Cold reads refused: object corrupt or missing.", counters.cold_corruptions
    yield "checkpoint_failures_total", "counter", "Checkpoints that could not be written.", counters.checkpoint_failures
    yield "local_segments_deleted_total", "counter", "Local segments removed by retention.", counters.local_segments_deleted
    yield "disk_errors_total", "counter", "Writes that the local disk refused.", counters.disk_errors
    yield "topics", "gauge", "Topics.", len(broker.topics)
    yield "partitions", "gauge", "Partitions led by this broker.", sum(1 for _ in broker.topics.partitions())
    yield "local_bytes", "gauge", "Bytes of the local tier.", sum(each.log.size_bytes for each in broker.topics.partitions())
    yield "event_loop_max_stall_ms", "gauge", "Longest stall of the event loop so far.", counters.event_loop_max_stall_ms
