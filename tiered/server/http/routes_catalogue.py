"""`/api/v1/topics` and `/api/v1/topics/{topic}/partitions/{partition}/segments`: where the data is.

Answers from memory, so it works while SQL is away. Reads nothing but the broker's own view.
"""

from aiohttp import web

from tiered.broker.catalogue import segments_of
from tiered.errors import UnknownTopicOrPartition
from tiered.server.http.keys import BROKER

MAX_SEGMENTS = 10_000


def add(app: web.Application) -> None:
    app.router.add_get("/api/v1/topics", _topics)
    app.router.add_get("/api/v1/topics/{topic}/partitions/{partition}/segments", _segments)


async def _topics(request: web.Request) -> web.Response:
    topics = [
        {
            "topic": topic.name,
            "topic_id": str(topic.topic_id),
            "internal": topic.is_internal,
            "partitions": [
                {
                    "partition": partition.topic_partition.partition,
                    "leader_epoch": partition.leader_epoch,
                    "log_start_offset": partition.log_start_offset,
                    "local_log_start_offset": partition.log.local_log_start_offset,
                    "cold_end_offset": partition.cold_end_offset,
                    "high_watermark": partition.high_watermark,
                    "log_end_offset": partition.log.log_end_offset,
                    "local_bytes": partition.log.size_bytes,
                }
                for partition in topic.partitions
            ],
        }
        for topic in request.app[BROKER].topics
    ]
    return web.json_response({"topics": topics})


async def _segments(request: web.Request) -> web.Response:
    """`?start_offset=` pages on from the last `end_offset`; at most 10,000 segments an answer."""
    name, index = request.match_info["topic"], request.match_info["partition"]
    if not index.isdecimal() or len(index) > 10:
        raise UnknownTopicOrPartition(f"{index[:20]!r} is no partition number")
    start = request.query.get("start_offset", "0")
    if not start.isdecimal() or len(start) > 19:
        raise web.HTTPBadRequest(reason="start_offset must be a whole number from 0 on")
    partition = request.app[BROKER].topics.by_name(name).partition(int(index))
    found = [each for each in segments_of(partition) if each.end_offset > int(start)]
    return web.json_response(
        {
            "topic": name,
            "partition": int(index),
            "log_start_offset": partition.log_start_offset,
            "local_log_start_offset": partition.log.local_log_start_offset,
            "cold_end_offset": partition.cold_end_offset,
            "high_watermark": partition.high_watermark,
            "log_end_offset": partition.log.log_end_offset,
            "segments": [
                {
                    "base_offset": each.base_offset,
                    "end_offset": each.end_offset,
                    "tier": each.tier,
                    "state": each.state,
                    "size_bytes": each.size_bytes,
                    "min_timestamp_ms": each.min_timestamp_ms,
                    "max_timestamp_ms": each.max_timestamp_ms,
                    "object_key": each.object_key,
                }
                for each in found[:MAX_SEGMENTS]
            ],
        }
    )
