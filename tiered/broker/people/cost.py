"""The cost of topics, by the prices in the broker's settings: bytes from SQL, prices from the settings.

Owns the arithmetic. The size of this broker's own disk is newer than its last report to SQL, so that every page shows
the same; sizes of other brokers are as old as their reports. An estimate for people: requests that read, traffic and
the brokers themselves are not in it, and the requests of uploads go by the average size of a topic's objects.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from uuid import UUID

from tiered.broker.context import BrokerContext
from tiered.broker.partitions.topics import Topics
from tiered.cold.request_counts import upload_requests
from tiered.meta import topic_cost
from tiered.meta.topic_cost import TopicBytes
from tiered.runtime import in_turns

GIB = 1 << 30
MAX_TOPICS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicCost:
    """One topic. `upload_usd` was spent once, for the objects that are there now; the others are for a month."""

    held: TopicBytes
    storage_usd_per_month: float
    local_usd_per_month: float
    upload_usd: float

    @property
    def total_usd_per_month(self) -> float:
        return self.storage_usd_per_month + self.local_usd_per_month


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """All topics by name, and the prices used."""

    prices: Mapping[str, float]
    topics: tuple[TopicCost, ...]


async def cost(context: BrokerContext, topics: Topics) -> Cost:
    """At most 10,000 topics. Raises MetadataUnavailable."""
    held = await context.database.read(
        lambda conn: topic_cost.load_all(conn, limit=MAX_TOPICS, without_broker=context.broker_id)
    )
    here: Counter[UUID] = Counter()
    async for partition in in_turns(topics.partitions()):
        here[partition.topic_partition.topic_id] += partition.log.size_bytes
    held = tuple(replace(each, local_bytes=each.local_bytes + here[each.topic_id]) for each in held)
    settings = context.settings
    cold = settings.http.tiered_price_cold_usd_per_gib_month
    local = settings.http.tiered_price_local_usd_per_gib_month
    upload = settings.http.tiered_price_upload_usd_per_1000
    return Cost(
        prices={
            "cold_usd_per_gib_month": cold,
            "local_usd_per_gib_month": local,
            "upload_usd_per_1000": upload,
        },
        topics=tuple(
            TopicCost(
                held=each,
                # Retired objects are paid for until they are purged.
                storage_usd_per_month=(each.cold_bytes + each.retired_bytes) / GIB * cold,
                local_usd_per_month=each.local_bytes / GIB * local,
                upload_usd=_upload_requests(each) / 1000 * upload,
            )
            for each in held
        ),
    )


def _upload_requests(held: TopicBytes) -> int:
    objects = held.cold_objects + held.retired_objects
    if objects == 0:
        return 0
    return objects * upload_requests(-(-(held.cold_bytes + held.retired_bytes) // objects))
