"""What the logs of partitions hold, asked of their leaders: in memory where this broker leads, over HTTP elsewhere.

Owns the questions. They are pages of records with at most one record in them, which every broker serves anyway.
"""

from typing import Any
from urllib.parse import quote

from aiohttp import web

from tiered.broker.partitions.topics import Topic
from tiered.rules.groups.offset_reset import Bounds
from tiered.server.http.door.keys import BROKER
from tiered.server.http.neighbours.elsewhere import leader_elsewhere
from tiered.server.http.neighbours.forward import Neighbour, ask

READ_S = 10.0
"""A time may have to be looked up in the object store."""


class Logs:
    """The logs of any partition, on behalf of one request."""

    def __init__(self, request: web.Request) -> None:
        self._request = request

    async def bounds(self, topic: Topic, number: int) -> Bounds:
        """What the partition's log holds for readers now. Raises NotLeader, Unreachable."""
        leader = leader_elsewhere(self._request, topic, number, only_to_ask=True)
        if leader is None:
            partition = topic.partition(number)
            return Bounds(start=partition.log_start_offset, end=partition.high_watermark)
        page = await self._page(leader, topic, number, "offset=latest")
        return Bounds(start=page["log_start_offset"], end=page["high_watermark"])

    async def offset_for_timestamp(self, topic: Topic, number: int, timestamp_ms: int) -> int | None:
        """The first offset whose record is not older; None when all are. Raises as `bounds`, and what a read of the
        log raises."""
        leader = leader_elsewhere(self._request, topic, number, only_to_ask=True)
        if leader is None:
            found = await self._request.app[BROKER].reader.offset_for_timestamp(topic.partition(number), timestamp_ms)
            return None if found is None else found[0]
        page = await self._page(leader, topic, number, f"timestamp_ms={timestamp_ms}")
        return int(page["records"][0]["offset"]) if page["records"] else None

    async def _page(self, leader: Neighbour, topic: Topic, number: int, where: str) -> Any:
        query = f"partition={number}&limit=1&field_bytes=0&{where}"
        path = f"/api/v1/topics/{quote(topic.name, safe='')}/records?{query}"
        return await ask(self._request, leader, path, patience_s=READ_S)
